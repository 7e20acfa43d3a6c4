"""Small batches are joined: the same rows in the same order, whatever tables they are in."""

from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knotwork as kw
from knotwork.data import small_batches
from knotwork.data.batches import Rows
from knotwork.data.small_batches import cut, joined
from knotwork.errors import DataError

N = 60
X = np.random.default_rng(0).normal(size=(N, 3))
Y = np.abs(X[:, 0]) + X[:, 1]
TEXT = np.array(["a", "longer"], dtype=object)[(X[:, 2] > 0).astype(int)]
KINDS = {
    "array": lambda rows: X[rows],
    "float32": lambda rows: X[rows].astype(np.float32),
    "pandas": lambda rows: pd.DataFrame(X[rows], columns=["a", "b", "c"]).assign(t=TEXT[rows]),
    "polars": lambda rows: pl.DataFrame({"a": X[rows, 0], "t": TEXT[rows].tolist()}),
    "pyarrow": lambda rows: pa.table({"a": X[rows, 0]}),
    "categories": lambda rows: pd.DataFrame({"t": pd.Categorical(TEXT[rows])}),
}
TARGETS = {
    "array": lambda rows: Y[rows],
    "text": lambda rows: TEXT[rows].astype(str),  # of lengths of their own
    "pandas": lambda rows: pd.Series(Y[rows], index=rows),
    "polars": lambda rows: pl.Series(Y[rows]),
    "nullable": lambda rows: pd.Series(Y[rows], dtype="Float64"),
    "several": lambda rows: np.stack([Y[rows], X[rows, 0]], axis=1),
}
ALONE = {"categories", "polars", "nullable"}


def batches(edges, table, target, weighted):
    for number, (first, last) in enumerate(pairwise(edges)):
        rows = np.arange(first, last)
        yield Rows(KINDS[table](rows), TARGETS[target](rows), X[rows, 0] ** 2 if weighted else None, number)


@given(st.lists(st.integers(0, N), max_size=30), st.sampled_from(list(KINDS)), st.sampled_from(list(TARGETS)),
       st.booleans(), st.integers(1, N))  # fmt: skip
def test_rows_and_their_order_stay(cuts, table, target, weighted, room):
    edges = [0, *sorted(cuts), N]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_batches, "MAX_ROWS", room)
        found = list(joined(batches(edges, table, target, weighted)))
    assert [rows.number for rows in found] == list(range(len(found)))
    sizes = [len(rows) for rows in found]
    largest = max(np.diff(edges))
    assert min(sizes) > 0
    assert max(sizes) <= max(room, largest)
    if table != "categories" and target not in ("polars", "nullable"):
        assert all(first + second > room for first, second in pairwise(sizes))
    (whole,) = batches([0, N], table, target, weighted)
    for name in ("X", "y", "weight"):
        parts = [getattr(rows, name) for rows in found]
        if parts[0] is None:
            assert parts == [None] * len(parts)
            continue
        kinds = {type(part) for part in parts} - {np.ndarray}
        assert not kinds or kinds == {type(getattr(whole, name))}
        got = np.concatenate([np.asarray(part) for part in parts])
        assert np.array_equal(got, np.asarray(getattr(whole, name)))


@pytest.mark.parametrize("table", KINDS)
@pytest.mark.parametrize("target", TARGETS)
def test_large_batches_are_cut(table, target):
    (whole,) = batches([0, N], table, target, True)
    columns = []
    found = list(cut(iter([whole]), lambda own: columns.append(own) or 25))
    assert [len(rows) for rows in found] == [25, 25, 10]
    assert columns == [whole.X.shape[1]]
    for name in ("X", "y", "weight"):
        got = np.concatenate([np.asarray(getattr(rows, name)) for rows in found])
        assert np.array_equal(got, np.asarray(getattr(whole, name)))


@pytest.mark.parametrize("rows", [Rows(X, Y[:5], None, 0), Rows(X, list(Y), None, 0), Rows(X[:, 0], Y, None, 0)])
def test_what_cannot_be_cut_is_left_to_the_survey(rows):
    assert list(cut(iter([rows]), lambda own: 7)) == [rows]


def test_a_fit_to_one_large_batch_is_that_to_its_pieces():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(140_000, 12))  # two pieces of 64 MB
    y = np.abs(rows[:, 0])
    limit = {"memory_limit": 1 << 26}
    source = kw.Batches([(rows, y)], **limit).source(None, None)
    sizes = [len(part) for part in source.parts(None)]
    assert sum(sizes) == 140_000
    assert len(sizes) > 1
    halves = [(rows[a:b], y[a:b]) for a, b in pairwise(np.cumsum([0, *sizes]))]
    found, expected = (kw.MarsRegressor().fit(kw.Batches(each, **limit)) for each in ([(rows, y)], halves))
    assert found.spline_.to_dict() == expected.spline_.to_dict()


@pytest.mark.parametrize("other", [
    (X.astype(np.float32), Y), (X[:, :2], Y), (X, np.stack([Y, Y], axis=1)), (X, Y, np.ones(N)), (pd.DataFrame(X), Y),
    (X, (Y > 0).astype(int)),
])  # fmt: skip
def test_batches_that_look_different_are_left_to_the_survey(other):
    def rows(batch, number):
        return Rows(*(batch if len(batch) == 3 else (*batch, None)), number)

    found = list(joined(iter([rows((X, Y), 0), rows(other, 1), rows((X, Y), 2)])))
    assert [len(part) for part in found] == [N, N, N]
    assert found[1].X is other[0]


def test_a_batch_that_is_no_table_comes_alone():
    found = list(joined(iter([Rows(X[:, 0], Y, None, 0), Rows(X[:, 0], Y, None, 1)])))
    assert [len(part) for part in found] == [N, N]
    with pytest.raises(DataError, match=r"must be a table, or an array .* got float64 of \(60,\)"):
        kw.MarsRegressor().fit([(X[:, 0], Y)])


def test_a_thousand_batches_are_a_part_and_the_same_fit():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3000, 2))
    y = np.abs(rows[:, 0]) + 0.1 * rng.normal(size=3000)
    small = [(rows[k : k + 3], y[k : k + 3]) for k in range(0, 3000, 3)]
    source = kw.Batches(small).source(None, None)
    assert [len(part) for part in source.parts(None)] == [3000]
    expected = kw.MarsRegressor().fit(kw.Batches([(rows, y)]))
    assert kw.MarsRegressor().fit(kw.Batches(small)).spline_.to_dict() == expected.spline_.to_dict()


def test_later_readings_know_how_many_rows_are_to_come():
    source = kw.Batches([(X, Y), (X, Y.astype(np.float32))]).source(None, None)
    seen = []
    for _ in range(2):
        source.add(len, int.__add__, None, lambda done, count: seen.append((done, count)))
    assert seen == [(N, None), (2 * N, None), (N, 2 * N), (2 * N, 2 * N)]


def test_errors_say_in_which_rows_of_the_source_they_are():
    alone = pd.Series(np.where(np.arange(N) == 7, np.inf, Y), dtype="Float64")
    with pytest.raises(DataError, match=r"first 7\).*; in rows 120 to 179 of the source"):
        kw.MarsRegressor().fit(kw.Batches([(X, Y, np.ones(N)), (X, Y, np.ones(N).tolist()), (X, alone, np.ones(N))]))
