import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knotwork.compute.workers import MIN_BLOCK, Workers
from knotwork.spline.knots import Spans, choose_candidates
from knotwork.spline.moments.additive import AdditiveTerms
from knotwork.spline.moments.bins import MIN_ROWS, Cells
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.knot_rows import rows_with
from knotwork.spline.moments.moments import TermTable
from knotwork.spline.moments.tables import TableRows
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
    grid, _ = choose_candidates(columns, weights, Spans(3, 2), max_knots, workers)
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


@pytest.mark.parametrize("spread", [1.0, 8.0])
@pytest.mark.parametrize("n", [MIN_ROWS - 1, MIN_ROWS])
def test_codes_count_the_knots_below(n, spread):
    """Cells or a binary search find them: knots of a heavy tail share cells."""
    rng = np.random.default_rng(0)
    columns = np.stack([np.exp(spread * rng.normal(size=n)), rng.normal(size=n), np.round(rng.normal(size=n)) > 0])
    grid, _ = choose_candidates(columns, None, Spans(3, 2), 255, Workers(1))
    codes = CpuRows(columns, columns[:1], None, grid, Workers(1)).codes
    for f, column in enumerate(columns):
        knots = grid.knots[grid.offsets[f] + 1 : grid.offsets[f + 1]]
        assert (Cells.of(knots) is None) == (knots.size == 0 or (f == 0 and spread > 1))
        np.testing.assert_array_equal(codes[f], np.searchsorted(knots, column))


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


def random_terms(rng, d, count, degree=2):
    """Terms of one to ``degree`` hinges of different features, among them linear ones."""
    terms = []
    for _ in range(count):
        features = sorted(rng.choice(d, min(d, int(rng.integers(1, degree + 1))), replace=False).tolist())
        if len(features) == 1 and rng.random() < 0.3:
            terms.append(((features[0], 0.0, 0),))
        else:
            terms.append(tuple((f, float(rng.normal()), int(rng.choice([-1, 1]))) for f in features))
    return terms


def term_column(columns, term, slopes, product):
    """A term as an explicit column: (N,)."""
    if not term:
        return np.ones(columns.shape[1])
    if term[0][2] == 0:
        return columns[term[0][0]]
    hinges = [hinge(columns[f], t, s) for f, t, s in term]
    if len(hinges) == 1:
        return hinges[0]
    return (
        np.prod(hinges, axis=0)
        if product
        else np.min([slopes[h[0]] * v for h, v in zip(term, hinges, strict=True)], axis=0)
    )


@given(setups, st.floats(-2, 2))
def test_pair_products_equal_explicit_products(setup, knot):
    columns, _, weights, rows = make_rows(**setup)
    w = np.ones(columns.shape[1]) if weights is None else weights
    C = candidate_columns(columns, rows.grid)
    found = rows.pair_products(columns.shape[0] - 1, knot)
    expected = np.stack([C @ (w * columns[-1]), C @ (w * hinge(columns[-1], knot, 1))])
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)


@given(setups)
def test_tables_equal_explicit_products(setup):
    columns, _, weights, rows = make_rows(**setup)
    w = np.ones(columns.shape[1]) if weights is None else weights
    grid, C = rows.grid, candidate_columns(columns, rows.grid)
    expected = (C * w) @ C.T
    tables = TableRows(rows, 21, always=True)
    size = 1e-12 * np.sqrt(np.outer(np.diag(expected), np.diag(expected))) + 1e-12
    order = np.random.default_rng(setup["seed"]).permutation(len(C)).tolist()  # of features, as a search might ask
    for i in order:
        f, knot = int(grid.feature[i]), float(grid.knots[i])
        if i in grid.linear:
            found = [tables.line_products(f)]
        else:
            found = [*tables.pair_products(f, knot), *tables.hinge_products(f, knot)]
            assert (np.abs(found.pop(0) - expected[grid.linear[f]]) <= size[grid.linear[f]]).all()
        for products in found:
            assert (np.abs(products - expected[i]) <= size[i]).all()


def test_rows_with_the_values_of_knots():
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 30, (2, 500)).astype(float)
    grid, _ = choose_candidates(columns, None, Spans(1, 1), None, Workers(1))
    passes = CpuRows(columns, columns[:1], None, grid, Workers(1))
    knots = grid.knots[grid.offsets[1] + 1 :][[2, 9, 20]]
    for value, (count, rows) in zip(knots, rows_with(passes, 1, knots, most=5), strict=True):
        expected = np.flatnonzero(columns[1] == value)
        assert count == expected.size > 5
        assert np.array_equal(rows, expected[:5])
    assert rows_with(passes, 1, knots + 0.5, most=5) is None


def test_tables_of_counts_are_exact_between_values():
    # One value to a bin, but for the first bin, where hinges are zero.
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 9, (3, 400)).astype(float)
    weights = rng.integers(1, 4, 400).astype(float)
    grid, _ = choose_candidates(columns, weights, Spans(1, 1), None, Workers(1))
    tables = TableRows(CpuRows(columns, columns[:1], weights, grid, Workers(1)), 21, counts=True, always=True)
    C = candidate_columns(columns, grid)
    hinges = np.setdiff1d(np.arange(len(C)), grid.linear)
    for i in hinges:
        f, knot = int(grid.feature[i]), float(grid.knots[i])
        found = tables.hinge_products(f, knot)[0, hinges]
        np.testing.assert_allclose(found, (C[hinges] * weights) @ C[i], rtol=1e-12, atol=1e-9)


@given(setups, st.booleans(), st.integers(1, 3))
def test_products_of_a_term_equal_explicit_products(setup, product, degree):
    columns, _, weights, rows = make_rows(**setup)
    w = np.ones(columns.shape[1]) if weights is None else weights
    rng = np.random.default_rng(setup["seed"])
    slopes = rng.uniform(0.5, 2.0, len(columns))
    terms = [t for t in random_terms(rng, len(columns), 100, degree) if t[0][2] != 0][:2]
    found = rows.products(TermTable.of(terms, slopes, product))
    explicit = np.stack([w * term_column(columns, term, slopes, product) for term in terms])
    np.testing.assert_allclose(found, explicit @ candidate_columns(columns, rows.grid).T, rtol=1e-10, atol=1e-9)


@given(setups, st.booleans(), st.integers(1, 3), st.integers(1, 2))
def test_products_of_children_equal_explicit_products(setup, product, degree, outputs):
    columns, y, weights, rows = make_rows(outputs=outputs, **setup)
    d, n = columns.shape
    w = np.ones(n) if weights is None else weights
    rng = np.random.default_rng(setup["seed"])
    slopes = rng.uniform(0.5, 2.0, d)
    children = rows.children(rows.grid, slopes, product, slots=4, min_mass=0.0)
    # A line and the hinge that came with it, then lines and others on their own.
    terms = [(), ((0, 0.0, 0),), ((0, 0.3, 1),), *random_terms(rng, d, 4, 3)]
    parents = list(dict.fromkeys(t for t in random_terms(rng, d, 20, degree) if t[0][2] != 0))[:3]
    slots, features = rng.permutation(4)[: len(parents)], rng.random((len(parents), d)) < 0.8
    for k, parent in enumerate(parents):
        features[k, [h[0] for h in parent]] = False
    opening = children.open(slots, parents, features)
    explicit = []
    for k, (parent, allowed) in enumerate(zip(parents, features, strict=True)):
        # Beside another hinge a lone one has its slope too.
        b = term_column(columns, parent, slopes, product)
        b = b * slopes[parent[0][0]] if len(parent) == 1 and not product else b
        both = np.zeros((2, rows.grid.knots.size, n))
        for i, f in enumerate(rows.grid.feature):
            if allowed[f] and i not in rows.grid.linear:
                for side, sign in enumerate((1, -1)):
                    h = hinge(columns[f], rows.grid.knots[i], sign)
                    both[side, i] = b * h if product else np.minimum(b, slopes[f] * h)
                above = columns[f] > rows.grid.knots[i]
                np.testing.assert_allclose(opening.mass[k, :, i], [w @ (above & (b > 0)), w @ (~above & (b > 0))])
        explicit.append(both)
        size = 1e-9 * (1 + np.abs(columns).max()) ** 4
        np.testing.assert_allclose(opening.norms[k], both**2 @ w, rtol=1e-9, atol=size)
        np.testing.assert_allclose(np.moveaxis(opening.responses[k], 0, -1), (both * w) @ y.T, rtol=1e-9, atol=size)
    children.extend(TermTable.of(terms, slopes, product))
    found = children.products(slots, 0)
    assert np.array_equal(children.products(slots, 3), found[:, 3:])
    children.close(int(slots[0]))
    assert np.array_equal(children.products(slots[1:], 0), found[1:])
    for k, both in enumerate(explicit):
        for m, term in enumerate(terms):
            expected = both @ (w * term_column(columns, term, slopes, product))
            np.testing.assert_allclose(found[k, m], expected, rtol=1e-9, atol=size)


@given(setups)
def test_features_without_enough_rows_are_not_summed(setup):
    columns, _, _, rows = make_rows(**setup)
    d, linear = len(columns), rows.grid.linear
    parent, term, features = ((d - 1, 0.0, 1),), ((0, 0.0, 1),), np.arange(d)[None] < d - 1
    found = []
    for min_mass in (0.0, 5.0):
        children = rows.children(rows.grid, np.ones(d), product=False, slots=1, min_mass=min_mass)
        opening = children.open(np.zeros(1, int), [parent], features)
        children.extend(TermTable.of([(), term], np.ones(d)))
        found.append(children.products(np.zeros(1, int), 1)[0, 0])
    enough = np.logical_or.reduceat(opening.mass[0].min(axis=0) >= 5.0, linear)[rows.grid.feature]
    assert np.array_equal(found[1], np.where(enough, found[0], 0.0))


@given(setups, st.integers(1, 3))
def test_residual_equals_explicit_residual(setup, outputs):
    columns, y, weights, rows = make_rows(outputs=outputs, **setup)
    w = np.ones(columns.shape[1]) if weights is None else weights
    rng = np.random.default_rng(setup["seed"])
    slopes, product = rng.uniform(0.5, 2.0, len(columns)), bool(rng.integers(2))
    chosen = random_terms(rng, len(columns), 6, 3)
    terms = TermTable.of(chosen, slopes, product)
    assert terms.entries() == chosen
    intercept, coef = rng.normal(size=outputs), rng.normal(size=(6, outputs))
    B = np.stack([term_column(columns, term, slopes, product) for term in chosen])
    r = y - intercept[:, None] - coef.T @ B
    found = rows.residual(terms, intercept, coef)
    np.testing.assert_allclose(found.rss, (r * r) @ w, rtol=1e-10)
    np.testing.assert_allclose(found.dots, np.vstack([np.ones_like(w), B]) @ (w * r).T, rtol=1e-9, atol=1e-9)


@given(setups, st.integers(1, 3))
def test_residual_of_many_additive_terms_equals_explicit_residual(setup, outputs):
    columns, y, weights, rows = make_rows(outputs=outputs, **setup)
    w = np.ones(columns.shape[1]) if weights is None else weights
    rng = np.random.default_rng(setup["seed"])
    grid, f = rows.grid, len(columns) - 1
    knots = grid.knots[grid.offsets[f] + 1 : grid.offsets[f + 1]].tolist()
    chosen = [((f, 0.0, 0),), *(((f, t, s),) for t in knots for s in (1, -1))]
    chosen = [chosen[k] for k in rng.permutation(len(chosen))[:8]] + ([((0, 0.0, 0),)] if len(chosen) > 5 else [])
    terms = TermTable.of(chosen, np.ones(f + 1))
    assert (AdditiveTerms.of(terms, grid) is not None) == (len(chosen) >= 3 * len({t[0][0] for t in chosen}))
    intercept, coef = rng.normal(size=outputs), rng.normal(size=(len(chosen), outputs))
    B = np.stack([term_column(columns, term, np.ones(f + 1), False) for term in chosen])
    r = y - intercept[:, None] - coef.T @ B
    found = rows.residual(terms, intercept, coef)
    np.testing.assert_allclose(found.rss, (r * r) @ w, rtol=1e-10)
    np.testing.assert_allclose(found.dots, np.vstack([np.ones_like(w), B]) @ (w * r).T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [MIN_BLOCK // 2, 4 * MIN_BLOCK + 17])
def test_the_number_of_threads_changes_no_bit(n):
    def everything(threads):
        _, _, _, rows = make_rows(0, n, 40, max_knots=50, threads=threads)
        hinge, minimum = ((1, 0.1, 1),), ((1, 0.1, 1), (2, 0.2, -1))
        slopes = np.ones(40)
        terms = TermTable.of([hinge, minimum], slopes)
        opening = rows.opening()
        children = rows.children(rows.grid, slopes, product=False, slots=2, min_mass=0.0)
        openings = children.open(np.arange(2), [hinge, minimum], np.ones((2, 40), bool))
        children.extend(TermTable.of([(), hinge], slopes))
        return [
            opening.norms, opening.responses, rows.pair_products(1, 0.3),
            rows.products(TermTable.of([minimum], slopes)),
            openings.norms, openings.responses,
            children.products(np.arange(2), 0), children.products(np.array([1]), 1),
            rows.residual(terms, np.zeros(1), np.ones((2, 1))).dots,
            rows.residual(TermTable.of([((1, 0.0, 0),)] * 3, slopes), np.zeros(1), np.ones((3, 1))).dots,
            TableRows(rows, 21, always=True).pair_products(1, rows.grid.knots[rows.grid.offsets[1] + 3]),
        ]  # fmt: skip

    one, three = everything(1), everything(3)
    for a, b in zip(one, three, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("max_knots", [200, 2000, None])
def test_codes_of_every_width(max_knots):
    columns, _, _, rows = make_rows(3, 70_000 * 4 if max_knots is None else 20_000, 2, max_knots=max_knots)
    t = rows.grid.knots[rows.grid.offsets[1] + 1 :]
    assert np.array_equal(rows.codes[1], np.searchsorted(t, columns[1]))
