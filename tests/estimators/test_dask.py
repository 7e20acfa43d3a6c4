"""Collections of Dask as people have them: partitions that are empty, unlike each other, lazy, or not to be had."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed

import knotwork as kw
from knotwork.errors import DataError

N = 800
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.exponential(size=N), "t": RNG.choice(["x", "y", "z"], N)})
Y = X.a.abs() + np.sqrt(X.b) + (X.t == "x") + 0.3 * RNG.normal(size=N)
LABELS = pd.Series(np.where((np.arange(N) >= 200) & (Y > 2), "high", "low"), name="y")  # one class in the first part
PARTS = [slice(k, k + 200) for k in range(0, N, 200)]


@pytest.fixture(autouse=True)
def here():
    """Run tasks in this thread: nothing is started."""
    with dask.config.set(scheduler="synchronous"):
        yield


def frames(change=lambda k, part: part, values=X):
    """A collection whose partitions are what ``change`` makes of them, whatever Dask believes."""
    tasks = [delayed(lambda k=k: change(k, values[PARTS[k]]))() for k in range(4)]
    return dd.from_delayed(tasks, meta=values[:0], verify_meta=False)


def first(**columns):
    return lambda k, part: part.assign(**{name: f(part) for name, f in columns.items()}) if k == 0 else part


def same(found, expected, rows=X, atol=1e-9):
    np.testing.assert_allclose(found.predict(rows), expected.predict(rows), rtol=0, atol=atol)


@pytest.mark.parametrize(
    "change",
    [
        first(a=lambda p: p.a.astype(object)),
        first(t=lambda p: p.t.astype("category")),
        lambda k, part: part.assign(t=pd.Categorical(part.t, categories=list("zyx" if k else "xyz"))),
        lambda k, part: part.set_index(pd.date_range("2020-01-01", periods=200)),
    ],
    ids=["objects", "text and categories", "other categories", "an index of dates"],
)
def test_partitions_may_differ_in_form(change):
    same(kw.MarsRegressor().fit(frames(change), frames(values=Y)), kw.MarsRegressor().fit(X, Y))


@pytest.mark.parametrize("name", ["a", "t"])
@pytest.mark.parametrize("gap", [np.nan, None], ids=["NaN", "None"])
def test_a_column_may_have_no_value_in_a_partition(name, gap):
    table = X.copy()
    table.loc[:199, name] = None
    found = kw.MarsRegressor().fit(frames(first(**{name: lambda p: gap})), frames(values=Y))
    same(found, kw.MarsRegressor().fit(table, Y), table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (first(a=lambda p: p.a.astype(str)), "'a' holds a category in one and a number in another"),
        (lambda k, part: part[["t", "b", "a"]] if k else part, "in the same order, got a, b, t in one and t, b, a"),
        (lambda k, part: part[["a", "b"]] if k else part, "got a, b, t in one and a, b in another"),
        (lambda k, part: part[:150] if k == 1 else part, "number 1 has 150 of X and 200 of y"),
    ],
)
def test_partitions_that_do_not_fit_together_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        kw.MarsRegressor().fit(frames(change), frames(values=Y))


def test_empty_partitions_and_partitions_of_one_class():
    whole = dd.from_pandas(X.assign(y=Y, row=np.arange(N)), npartitions=4)
    some = whole[whole.row >= 200]
    same(kw.MarsRegressor().fit(some[list(X)], some["y"]), kw.MarsRegressor().fit(X[200:], Y[200:]))
    none = whole[whole.row < 0]
    with pytest.raises(DataError, match="the source has none"):
        kw.MarsRegressor().fit(none[list(X)], none["y"])
    found = kw.MarsClassifier().fit(frames(), frames(values=LABELS))
    expected = kw.MarsClassifier().fit(X, LABELS)
    np.testing.assert_allclose(found.decision_function(X), expected.decision_function(X), atol=1e-9)
    for rows in (some[list(X)], none[list(X)]):
        for name in ("predict", "predict_proba", "decision_function"):
            lazy = getattr(found, name)(rows)
            values = lazy.compute()
            assert (values.dtype, values.ndim) == (lazy.dtype, lazy.ndim)
            assert len(values) == (600 if rows is not none and len(values) else 0)


def test_arrays_of_unknown_chunks_and_chunks_of_gaps():
    known = X[["a", "b"]].to_numpy(copy=True)
    unknown = dd.from_pandas(X[["a", "b"]], npartitions=4).to_dask_array()
    assert np.isnan(unknown.shape[0])
    y = da.from_array(Y.to_numpy(), chunks=200)
    same(kw.MarsRegressor().fit(unknown, y), kw.MarsRegressor().fit(known, Y), known)
    known[:200, 0] = np.nan
    same(kw.MarsRegressor().fit(da.from_array(known, chunks=(200, 1)), y), kw.MarsRegressor().fit(known, Y), known)


def test_what_is_no_table_is_refused():
    import dask.bag as db

    for wrong, message in (
        (db.from_sequence([1, 2]), "must be a Dask array or data frame, got a Bag"),
        (dd.from_pandas(X, npartitions=2)["a"], "must be a Dask array or data frame, got a Series"),
        (da.ones(20, chunks=5), r"shape \(N, d\)"),
    ):
        with pytest.raises(DataError, match=message):
            kw.MarsRegressor().fit(wrong, da.ones(20, chunks=5))


@pytest.mark.parametrize("kind", ["frames", "arrays"])
def test_a_partition_is_made_once_in_a_reading(kind):
    calls = []

    def part(k):
        calls.append(k)
        return X[["a", "b"]][PARTS[k]].assign(y=Y[PARTS[k]])

    if kind == "frames":
        made = dd.from_map(part, range(4), meta=X[["a", "b"]].assign(y=Y)[:0])
        rows, y = made[["a", "b"]], made["y"]
    else:
        tasks = [delayed(part)(k) for k in range(4)]
        rows = da.concatenate([da.from_delayed(t[["a", "b"]].to_numpy(), (200, 2), float) for t in tasks])
        y = da.concatenate([da.from_delayed(t["y"].to_numpy(), (200,), float) for t in tasks])
    kw.MarsRegressor().fit(rows, y)
    assert sorted(calls) == sorted(3 * [0, 1, 2, 3])
