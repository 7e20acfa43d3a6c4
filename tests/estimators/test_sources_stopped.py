"""A fit to a source that is stopped: nothing is half done, in memory or on disk."""

import os
import subprocess
import sys
from functools import partial
from threading import Event
from time import monotonic

import numpy as np
import pytest

import knotwork as kw
from knotwork.data.batches import one_ahead

RNG = np.random.default_rng(0)
X = RNG.normal(size=(900, 3))
Y = np.abs(X[:, 0]) + 0.1 * RNG.normal(size=900)


class Stopping:
    """Batches of which one reading is interrupted in the middle, the first being number 1."""

    def __init__(self, y, reading):
        self.y, self.reading, self.times = y, reading, 0

    def __iter__(self):
        self.times += 1
        yield X[:400], self.y[:400]
        if self.times == self.reading:
            raise KeyboardInterrupt
        yield X[400:], self.y[400:]


@pytest.mark.parametrize("reading", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "y", "other"),
    [
        (kw.MarsRegressor, Y, 7.0 * Y),
        (kw.MarsClassifier, Y > 1, Y > 0.5),
        (partial(kw.MarsRegressor, max_degree=2, max_terms=5), Y, 7.0 * Y),  # the third reading is for interactions
    ],
    ids=["numbers", "classes", "interactions"],
)
def test_an_interrupted_fit_leaves_the_estimator_as_it_was(kind, y, other, reading):
    model = kind().fit(kw.Batches(Stopping(y, None)))
    before, values = dict(vars(model)), model.predict(X)
    with pytest.raises(KeyboardInterrupt):
        model.fit(kw.Batches(Stopping(other, reading)))
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(model.predict(X), values)
    fresh = kind()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(kw.Batches(Stopping(other, reading)))
    assert not [name for name in vars(fresh) if name.endswith("_")]


KILLED = """
import os, signal
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import knotwork.spline.parts as parts
from knotwork.cli import app

X = np.random.default_rng(0).normal(size=(3000, 2))
pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": np.abs(X[:, 0])}), "t.parquet", row_group_size=500)
parts.PartSums.__call__ = lambda self, rows: os.kill(os.getpid(), signal.SIGKILL)  # in the second reading
app(["fit", "t.parquet", "--target", "y", "--in-parts", "--out", "model"])
"""


def test_a_killed_fit_leaves_no_files(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_who_stops_does_not_wait_for_the_part_that_is_being_read():
    come = Event()

    def parts():
        yield 1
        come.wait(60)
        yield 2

    ahead = one_ahead(parts())
    assert next(ahead) == 1
    begun = monotonic()
    ahead.close()
    waited = monotonic() - begun
    come.set()
    assert waited < 30
