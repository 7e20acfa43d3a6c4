"""A source that gives other rows in a later reading is refused; one that gives the same in another order is not."""

import itertools

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import knotwork as kw
from knotwork.data.digest import digest
from knotwork.errors import DataError

N = 600
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.abs(X[:, 0]) + X[:, 1].clip(0) + 0.1 * RNG.normal(size=N)


class Readings:
    """Batches that depend on the number of the reading."""

    def __init__(self, batches):
        self.batches, self.times = batches, -1  # whether they can be read again is asked first

    def __iter__(self):
        self.times += 1
        return iter(self.batches(self.times))


def halves(rows, y, *weight):
    return [(rows[:200], y[:200], *(w[:200] for w in weight)), (rows[200:], y[200:], *(w[200:] for w in weight))]


def changed(values, row, by=1e-9):
    copy = values.copy()
    copy[row] += by
    return copy


def swapped(rows):
    """The same values in every column, but not in the same rows."""
    copy = rows.copy()
    copy[[0, 1], 0] = copy[[1, 0], 0]
    return copy


LABELS = np.where(Y > 1, "high", "low").astype(object)


@pytest.mark.parametrize("reading", [2, 3])
@pytest.mark.parametrize(
    ("later", "what"),
    [
        (lambda: halves(changed(X, (7, 0)), Y), "column 'x0' has other values"),
        (lambda: halves(X, changed(Y, 599)), "y or sample_weight has other values"),
        (lambda: halves(swapped(X), Y), "column 'x0' has other values"),
        (lambda: halves(np.random.default_rng().normal(size=(N, 3)), Y), "column 'x"),
    ],
)
def test_other_rows_in_the_same_number_are_refused(later, what, reading):
    source = Readings(lambda times: later() if times >= reading else halves(X, Y))
    model = kw.MarsRegressor()
    with pytest.raises(DataError, match=f"the same rows each time it is read, {what}"):
        model.fit(kw.Batches(source))
    assert not hasattr(model, "fit_")


def test_other_labels_and_weights_are_refused():
    flipped = LABELS.copy()
    flipped[3] = "high" if flipped[3] == "low" else "low"
    with pytest.raises(DataError, match="y or sample_weight has other values"):
        kw.MarsClassifier().fit(kw.Batches(Readings(lambda times: halves(X, flipped if times > 2 else LABELS))))
    ones = np.ones(N)
    with pytest.raises(DataError, match="y or sample_weight has other values"):
        kw.MarsRegressor().fit(
            kw.Batches(Readings(lambda times: halves(X, Y, changed(ones, 5) if times > 1 else ones)))
        )


@pytest.mark.parametrize("y", [Y, LABELS, np.stack([Y, -Y], axis=1)], ids=["numbers", "labels", "several"])
def test_another_order_and_other_parts_are_the_same_rows(y):
    def read(times):
        order = np.random.default_rng(times).permutation(N)
        cuts = [0, 100 * times, N]
        return [(X[order][a:b], y[order][a:b]) for a, b in itertools.pairwise(cuts)]

    kind = kw.MarsClassifier if y is LABELS else kw.MarsRegressor
    found = kind().fit(kw.Batches(Readings(read)))
    assert np.isfinite(found.predict(X[:5]) == found.predict(X[:5])).all()


def test_kinds_of_tables_and_of_numbers():
    frame = pd.DataFrame(X, columns=list("abc")).assign(
        t="text", day=pd.Timestamp("2020-01-01"), flag=True, small=np.arange(N, dtype=np.int8)
    )
    whole = digest(frame, Y, None, N)
    assert set(whole.columns) == {"a", "b", "c", "day", "small"}
    parts = [digest(frame[a:b], Y[a:b], None, b - a) for a, b in ((0, 1), (1, 400), (400, N))]
    assert parts[0].plus(parts[1]).plus(parts[2]) == whole
    arrow = digest(pa.Table.from_pandas(frame), Y, None, N)
    assert [arrow.columns[name] for name in "abc"] == [whole.columns[name] for name in "abc"]
    for array in (X, np.asfortranarray(X), X[:, ::-1][:, ::-1]):
        assert list(digest(array, Y, None, N).columns.values()) == [whole.columns[name] for name in "abc"]
    # What a task will refuse is left out here.
    for odd in (np.full((N, 2), None), X[:5], np.ones(N), np.ones((N, 2), np.longdouble)):
        assert digest(odd, [[]] * N, None, N).columns == {}
    whole.require_same(digest(frame[["a"]], Y, None, N))


def test_partitions_that_change_are_refused():
    import dask.array as da
    import dask.dataframe as dd

    def part(seed):
        own = np.random.default_rng() if seed == 2 else np.random.default_rng(seed)
        rows = own.normal(size=(200, 2))
        return pd.DataFrame({"a": rows[:, 0], "b": rows[:, 1], "y": np.abs(rows[:, 0])})

    frames = dd.from_map(part, range(3), meta=part(0))
    with dask.config.set(scheduler="synchronous"):
        with pytest.raises(DataError, match="y or sample_weight has other values"):
            kw.MarsRegressor().fit(frames[["a", "b"]], frames["y"])
        with pytest.raises(DataError, match=r"column 'x\d' has other values"):
            kw.MarsRegressor().fit(frames[["a", "b"]].to_dask_array(), da.from_array(Y, chunks=200))
