"""backend="torch" gives what the CPU gives, and refuses what it cannot do in a sentence; GPUs are in test_cuda."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

import knotwork as kw
from knotwork.errors import DataError
from knotwork.estimators import tensors
from knotwork.spline import device


def rows(seed=0, n=3000):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(5, 2, n), rng.integers(0, 6, n), rng.random(n) < 0.3, rng.lognormal(0, 1.5, n)])
    y = np.abs(X[:, 0] - 5) + 0.5 * X[:, 1] * 1.0 + X[:, 2] + np.log1p(X[:, 3]) + 0.2 * rng.normal(size=n)
    return X, y


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_it_equals_the_cpu(weighted, outputs):
    X, y = rows()
    X[7, 3] = 1e5  # held at the limits
    target = y if outputs == 1 else np.column_stack([y, 30 * X[:, 0]])
    weight = np.random.default_rng(1).integers(0, 3, len(X)) if weighted else None
    models = [
        clone(kw.MarsRegressor(scale_responses=True)).set_params(backend=backend).fit(X, target, sample_weight=weight)
        for backend in ("cpu", "torch")
    ]
    cpu, other = models
    assert other.spline_.terms == cpu.spline_.terms
    assert other.limits_ == cpu.limits_
    scale = np.std(target, axis=0)
    assert np.abs((other.predict(X) - cpu.predict(X)) / scale).max() < 1e-9
    assert other.rss_ == pytest.approx(cpu.rss_, rel=1e-9)
    for one, two in zip(cpu.knots_, other.knots_, strict=True):
        assert (one.feature, one.value, one.count) == (two.feature, two.value, two.count)
        np.testing.assert_array_equal(one.rows, two.rows)


def test_a_sample_gives_the_knots_of_many_rows():
    X, y = rows(n=70_000)
    cpu, other = (kw.MarsRegressor(backend=b).fit(X, y) for b in ("cpu", "torch"))
    assert other.spline_.terms == cpu.spline_.terms


def test_frames_with_text_and_gaps_go_through_the_same_encoder():
    pd = pytest.importorskip("pandas")
    X, y = rows()
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1].astype(int).astype(str), "c": X[:, 3]})
    frame.loc[::9, "a"] = np.nan
    cpu, other = (kw.MarsRegressor(backend=b).fit(frame, y) for b in ("cpu", "torch"))
    np.testing.assert_allclose(other.predict(frame), cpu.predict(frame), rtol=1e-9)


def test_what_it_cannot_do_is_refused():
    X, y = rows(n=200)
    with pytest.raises(DataError, match="fits additive models, got interactions"):
        kw.MarsRegressor(backend="torch", max_degree=2).fit(X, y)
    with pytest.raises(DataError, match="classes are fitted in memory"):
        kw.MarsClassifier(backend="torch").fit(X, y > y.mean())


def test_tables_that_memory_does_not_hold_are_refused(monkeypatch):
    monkeypatch.setattr(device, "MAX_TABLE_BYTES", 1 << 22)
    X, y = rows()
    with pytest.raises(DataError, match="choose a smaller max_knots, fewer max_terms, or backend='cpu'"):
        kw.MarsRegressor(backend="torch").fit(X, y)
    for fewer in ({"max_knots": 8}, {"max_terms": 2}):
        assert kw.MarsRegressor(backend="torch", **fewer).fit(X, y).score(X, y) > 0.2


def check_refusals(X, y, on_device):
    """Tables on a device, bad ones: one sentence each."""
    model = kw.MarsRegressor()
    gaps = X.copy()
    gaps[3, 0] = np.nan
    for table, response, said in [
        (gaps, y, "tensors on a device must be finite"),
        (X[:, 0], y, "X must have shape"),
        (X[:1], y[:1], "at least 2 rows"),
        (X, y[:-1], "with a row for each of X"),
        (X, np.full_like(y, np.inf), "responses must be finite"),
    ]:
        with pytest.raises(DataError, match=said):
            model.fit(on_device(table), on_device(response))
    assert not hasattr(model, "fit_")


def test_tensors_are_checked_where_they_are(monkeypatch):
    """The way of a tensor on a GPU, with one on the CPU in its place."""
    for module in (tensors, kw.estimators.mars, kw.estimators.responses):
        monkeypatch.setattr(module, "on_gpu", lambda X: isinstance(X, torch.Tensor))
    X, y = rows()
    model = kw.MarsRegressor().fit(torch.from_numpy(X), torch.from_numpy(y), sample_weight=torch.ones(len(X)).double())
    expected = kw.MarsRegressor().fit(X, y)
    found = model.predict(torch.from_numpy(X))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), expected.predict(X), atol=1e-9)
    with pytest.raises(DataError, match="expecting 4 features"):
        model.predict(torch.from_numpy(X[:, :2]))
    check_refusals(X, y, torch.from_numpy)


@pytest.mark.parametrize("part", ["X", "y", "sample_weight"])
def test_tensors_of_the_meta_device_hold_no_numbers(part):
    X, y = rows(n=60)
    given = {"X": torch.from_numpy(X), "y": torch.from_numpy(y), "sample_weight": torch.ones(60)}
    given[part] = given[part].to("meta")
    with pytest.raises(DataError, match="meta"):
        kw.MarsRegressor(backend="torch").fit(**given)
    if part == "X":
        with pytest.raises(DataError, match="meta"):
            kw.MarsRegressor().fit(X, y).predict(given["X"])
