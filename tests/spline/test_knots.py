import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knotwork as kw
from knotwork.compute.workers import Workers
from knotwork.data.limits import SAMPLE
from knotwork.spline.knots import Spans, choose_candidates, default_spans
from knotwork.spline.sorting import _deal, room_of, sorted_by_cells, sorted_column
from tests import reference

columns = st.lists(st.sampled_from(np.round(np.linspace(-2, 2, 23), 3).tolist()), min_size=4, max_size=60)


def knots_of(column, spans, weights=None, max_knots=None):
    grid, _ = choose_candidates(np.asarray(column, float)[None, :], weights, spans, max_knots, Workers(1))
    assert grid.knots[0] == 0.0  # the feature's own position
    return grid.knots[1:].tolist()


@given(columns, st.integers(1, 9), st.integers(1, 12))
def test_knots_equal_the_reference(column, minspan, endspan):
    assert knots_of(column, Spans(minspan, endspan)) == reference.knots(np.array(column), minspan, endspan)[::-1]


@given(columns, st.integers(1, 9), st.integers(1, 12), st.data())
def test_a_weight_counts_like_repeated_rows(column, minspan, endspan, data):
    weights = data.draw(st.lists(st.integers(1, 3), min_size=len(column), max_size=len(column)))
    repeated = np.repeat(column, weights)
    spans = Spans(minspan, endspan)
    assert knots_of(column, spans, np.array(weights, float)) == knots_of(repeated, spans)


@pytest.mark.parametrize("n", [30, 177, 4177, 10**6])
@pytest.mark.parametrize("d", [1, 7, 100])
def test_default_spans_equal_the_reference(n, d):
    spans = default_spans(n, d, None, None)
    assert (spans.minspan, spans.endspan) == reference.spans(n, d)


def test_few_observations_keep_a_knot():
    assert knots_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], default_spans(6, 1, None, None))


@pytest.mark.parametrize("draw", ["uniform", "normal", "lognormal"])
def test_a_limited_number_of_knots_covers_ranks_and_tails(draw):
    x = np.sort(getattr(np.random.default_rng(0), draw)(size=20_000))
    every = knots_of(x, Spans(5, 10))
    some = knots_of(x, Spans(5, 10), max_knots=100)
    assert 50 <= len(some) <= 100
    assert set(some) <= set(every)
    ranks = np.searchsorted(x, some) / x.size
    assert np.diff(ranks, prepend=0, append=1).max() < 0.025
    values = (np.array(some) - every[0]) / (every[-1] - every[0])
    gaps_in_data = np.diff(every).max() / (every[-1] - every[0])
    assert np.diff(values, prepend=0, append=1).max() < 0.025 + gaps_in_data


def test_knots_of_a_large_table_come_from_its_values():
    x = np.random.default_rng(1).normal(size=3 * SAMPLE)
    some = knots_of(x, default_spans(x.size, 1, None, None), max_knots=255)
    assert len(some) > 200
    assert np.isin(some, x).all()


def test_very_uneven_values_are_sorted_all_the_same():
    x = np.random.default_rng(2).normal(size=5000)
    x[7] = 1e12
    assert knots_of(x, Spans(5, 10)) == reference.knots(x, 5, 10)[::-1]


KINDS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "lognormal": lambda rng, n: rng.lognormal(0, 3, n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.7, 0.0, rng.lognormal(0, 2, n)),
    "one far out": lambda rng, n: np.append(rng.normal(size=n - 1), 1e6),
    "integers": lambda rng, n: rng.integers(0, 9, n).astype(float),
    "constant": lambda rng, n: np.full(n, 0.1),
}


@given(st.sampled_from([*KINDS, "clusters"]), st.integers(1, 3000), st.integers(0, 99), st.floats(-1e3, 1e3))
def test_columns_of_any_shape_are_sorted(kind, n, seed, shift):
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, 3, n) + 1e-9 * rng.normal(size=n)
    x = shift + (clusters if kind == "clusters" else KINDS[kind](rng, n))
    for sort in (sorted_by_cells, sorted_column):
        assert np.array_equal(sort(x, room_of(n)), np.sort(x))


@pytest.mark.parametrize("kind", KINDS)
def test_cells_suit_heavy_tails_too(kind):
    x = KINDS[kind](np.random.default_rng(0), 5000)
    sample, cell_of, end, out = room_of(x.size)
    assert _deal(x, sample, cell_of, end, out, out.view(np.int64))


def test_weights_of_one_change_nothing_in_a_large_table():
    x = np.random.default_rng(1).normal(size=3 * SAMPLE)
    plain = knots_of(x, Spans(4096, 8192), max_knots=255)
    assert 40 <= len(plain) <= 48
    assert knots_of(x, Spans(4096, 8192), np.ones(x.size), max_knots=255) == plain


def test_knots_of_a_large_weighted_table_are_as_far_apart_as_the_spans_say():
    rng = np.random.default_rng(2)
    x = rng.normal(size=3 * SAMPLE)
    weights = np.where(x > 0, 5.0, 0.5) * rng.uniform(0.5, 1.5, size=x.size)
    minspan, endspan = int(weights.sum() / 20), int(weights.sum() / 10)
    knots = knots_of(x, Spans(minspan, endspan), weights, max_knots=255)
    between = [weights[(x > a) & (x <= b)].sum() for a, b in zip([-np.inf, *knots], [*knots, np.inf], strict=True)]
    np.testing.assert_allclose(between[1:-1], minspan, rtol=0.1)
    assert min(between[0], between[-1]) > 0.9 * endspan
    assert max(between[0], between[-1]) < 1.1 * (endspan + minspan)


@pytest.mark.parametrize("total", [1e11, 1e15, 1e30, 1e250])
def test_knots_of_weights_that_sum_to_far_more_than_there_are_rows(total):
    # One position after the other, this would take hours, and 8 bytes for each.
    weights = np.random.default_rng(0).uniform(1, 2, 50)
    weights *= total / weights.sum()
    columns = np.arange(50.0)[None, :]
    found, _ = choose_candidates(columns, weights, Spans(minspan=3, endspan=2), None, Workers(1))
    # Spans are nothing beside such weights: every row but the lowest and the highest may be a knot.
    np.testing.assert_array_equal(found.knots[1:], columns[0, 1:-1])


@given(st.integers(0, 10**6), st.integers(1, 400), st.integers(1, 9))
def test_positions_passed_over_change_nothing(seed, size, minspan):
    weights = np.random.default_rng(seed).integers(1, size + 1, 40).astype(float)
    column = np.random.default_rng(seed).normal(size=40)
    repeated = np.repeat(column, weights.astype(int))
    spans = Spans(minspan=minspan, endspan=2)
    ours, _ = choose_candidates(column[None, :], weights, spans, None, Workers(1))
    expected, _ = choose_candidates(repeated[None, :], None, spans, None, Workers(1))
    np.testing.assert_array_equal(ours.knots, expected.knots)


@pytest.mark.parametrize("values", [[5e-324, 0.0], [1e-310, 3e-310], [1.7e308, -1.7e308], [0.0, 1e300]])
def test_columns_of_no_width_and_of_all_widths_are_sorted(values):
    """Cells of such a column have no number: writing to them crashed the process."""
    column = np.array(values * 50)
    np.testing.assert_array_equal(sorted_by_cells(column, room_of(100)), np.sort(column))
    X = np.column_stack([column, np.arange(100.0)])
    assert np.isfinite(kw.MarsRegressor().fit(X, X[:, 1]).predict(X)).all()
