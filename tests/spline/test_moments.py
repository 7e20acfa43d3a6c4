import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knotwork.spline.knots import Spans, choose_candidates
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.moments import BOTH, Side, TermTable
from knotwork.spline.workers import LEAST_BLOCK, Workers
from tests.reference import hinge


def make_rows(seed, n, d, outputs=1, weighted=False, tied=False, max_knots=None, threads=1):
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(d, n))
    if tied:
        columns = np.round(columns, 1)
    columns[0] = columns[0] > 0  # a feature without knots
    y = rng.normal(size=(outputs, n))
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    workers = Workers(threads)
    grid = choose_candidates(columns, weights, Spans(3, 2), max_knots, workers)
    return columns, y, weights, CpuRows(columns, y, weights, grid, workers)


def candidate_columns(columns, grid):
    """Every candidate as an explicit column: (C, N)."""
    return np.stack([
        columns[f] if i in grid.linear else hinge(columns[f], grid.knots[i], 1) for i, f in enumerate(grid.feature)
    ])  # fmt: skip


setups = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "n": st.integers(12, 80),
        "d": st.integers(1, 5),
        "weighted": st.booleans(),
        "tied": st.booleans(),
    }
)


@given(setups, st.integers(1, 3))
def test_opening_equals_explicit_products(setup, outputs):
    columns, y, weights, rows = make_rows(outputs=outputs, **setup)
    w = np.ones(columns.shape[1]) if weights is None else weights
    C = candidate_columns(columns, rows.grid)
    opening = rows.opening()
    x = columns[rows.grid.feature]
    for found, expected in [
        (opening.total, w.sum()),
        (opening.sums, C @ w),
        (opening.norms, (C * C) @ w),
        (opening.cross, (C * x) @ w),
        (opening.responses, (C * w) @ y.T),
        (opening.squares, (y * y) @ w),
    ]:
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)
    above = np.where(np.isin(np.arange(len(C)), rows.grid.linear)[:, None], True, x > rows.grid.knots[:, None])
    np.testing.assert_allclose(opening.mass, above @ w)


@given(setups, st.floats(-2, 2), st.sampled_from([BOTH, (Side.ABOVE,), (Side.BELOW,)]))
def test_hinge_products_equal_explicit_products(setup, knot, sides):
    columns, _, weights, rows = make_rows(**setup)
    w = np.ones(columns.shape[1]) if weights is None else weights
    C = candidate_columns(columns, rows.grid)
    found = rows.hinge_products(columns.shape[0] - 1, knot, sides)
    expected = np.stack([C @ (w * hinge(columns[-1], knot, side.value)) for side in sides])
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)


@given(setups, st.integers(1, 3))
def test_residual_equals_explicit_residual(setup, outputs):
    columns, y, weights, rows = make_rows(outputs=outputs, **setup)
    w = np.ones(columns.shape[1]) if weights is None else weights
    rng = np.random.default_rng(setup["seed"])
    terms = TermTable(rng.integers(0, len(columns), 6), rng.normal(size=6), rng.integers(-1, 2, 6))
    intercept, coef = rng.normal(size=outputs), rng.normal(size=(6, outputs))
    B = np.stack([columns[f] if s == 0 else hinge(columns[f], t, s) for f, t, s in terms.entries()])
    r = y - intercept[:, None] - coef.T @ B
    found = rows.residual(terms, intercept, coef)
    np.testing.assert_allclose(found.rss, (r * r) @ w, rtol=1e-10)
    np.testing.assert_allclose(found.dots, np.vstack([np.ones_like(w), B]) @ (w * r).T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [LEAST_BLOCK // 2, 4 * LEAST_BLOCK + 17])
def test_the_number_of_threads_changes_no_bit(n):
    def everything(threads):
        _, _, _, rows = make_rows(0, n, 40, max_knots=50, threads=threads)
        terms = TermTable(np.array([1, 2]), np.array([0.1, 0.2]), np.array([1, -1]))
        opening = rows.opening()
        return [
            opening.norms, opening.responses, rows.hinge_products(1, 0.3, BOTH),
            rows.residual(terms, np.zeros(1), np.ones((2, 1))).dots,
        ]  # fmt: skip

    one, three = everything(1), everything(3)
    for a, b in zip(one, three, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("max_knots", [200, 2000, None])
def test_codes_of_every_width(max_knots):
    columns, _, _, rows = make_rows(3, 70_000 * 4 if max_knots is None else 20_000, 2, max_knots=max_knots)
    t = rows.grid.knots[rows.grid.offsets[1] + 1 :]
    assert np.array_equal(rows._codes[1], np.searchsorted(t, columns[1]))
