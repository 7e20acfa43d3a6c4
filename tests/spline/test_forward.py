"""The fast search against the explicit one, step by step: every step taken must be (one of) the best there is."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.forward import _append_column
from knotwork.spline.model import Linear
from knotwork.spline.rules import FREE
from tests.reference import Search, backward, gcv, rss, triangular_factor


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, d, p = draw(st.integers(15, 70)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    X = rng.normal(size=(n, d)) * 10.0 ** draw(st.integers(-3, 3)) + draw(st.sampled_from([0.0, 5.0, -100.0]))
    kind = draw(st.sampled_from(["plain", "tied", "binary", "duplicated"]))
    if kind == "tied":
        X = np.round(X, 1)
    elif kind == "binary":
        X[:, 0] = X[:, 0] > np.median(X[:, 0])
    elif kind == "duplicated" and d > 1:
        X[:, 1] = X[:, 0]
    Z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    y = np.stack([np.abs(Z[:, 0] - k) + Z.sum(axis=1) for k in range(p)], axis=1) + rng.normal(size=(n, p)) * 0.5
    weights = rng.integers(1, 4, n) if draw(st.booleans()) else np.ones(n, int)
    return X, y, weights


def steps_of(terms):
    """Group the terms of a forward pass into steps: (feature, knot) with knot None for a linear entry."""
    steps = []
    for term in terms:
        if isinstance(term, Linear):
            steps.append((term.feature, None))
        elif term.sign > 0:
            steps.append((term.feature, term.knot))
    return steps


def check_steps(search, terms, reached, max_terms):
    """Every step is one of the best of the explicit search, which takes it too; ``reached`` is the RSS after each."""
    null = search.rss
    tolerance = 1e-8 * null
    for step, (f, knot) in enumerate(steps_of(terms)):
        early = len(search.columns) < FREE.early_columns
        collinear = FREE.collinear_early if early else FREE.collinear
        # Candidates at the very edge of the collinearity rule may fall on either side of it.
        loose, strict = search.scores(collinear * 0.999), search.scores(collinear * 1.001)
        room = max_terms - len(search.columns)
        if room == 1:
            strict = {k: v for k, v in strict.items() if k[1] is None or not search.is_free(k[0])}
        assert (f, knot) in loose, f"step {step} took an inadmissible candidate"
        assert loose[f, knot] >= max(strict.values()) - tolerance, f"step {step} is not the best"
        search.add(f, knot)
        assert abs(search.rss - reached[step + 1]) <= tolerance
    assert len(search.columns) == 1 + len(terms)


@given(problems(), st.sampled_from([7, 13, 21]))
def test_every_step_is_the_best_of_all(problem, max_terms):
    X, y, weights = problem
    X_all, y_all = np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0)
    w = None if (weights == 1).all() else weights.astype(float)
    fit = fit_spline(X, y, weights=w, options=FitOptions(max_terms=max_terms, spacing="free"))
    search = Search(X_all, y_all, fit.selection.spans.minspan, fit.selection.spans.endspan)
    null, steps = search.rss, fit.selection.steps
    check_steps(search, fit.selection.forward_terms, [s.rss for s in steps], max_terms)
    # A step adds a pair or a single term.
    counts = [b.terms - a.terms for a, b in pairwise(steps)]
    assert set(counts) <= {1, 2}
    assert steps[-1].terms == len(search.columns)
    if fit.selection.stopped.startswith("the next term"):
        collinear = FREE.collinear_early if len(search.columns) < FREE.early_columns else FREE.collinear
        assert max(search.scores(collinear * 1.001).values()) < 1.0001e-3 * null


@given(problems(), st.sampled_from([2.0, 0.0, 3.0]))
def test_pruning_equals_explicit_elimination(problem, penalty):
    X, y, _ = problem
    fit = fit_spline(X, y, options=FitOptions(max_terms=15, penalty=penalty))
    basis = np.column_stack([np.ones(len(X)), *(term(X) for term in fit.selection.forward_terms)])
    scale = rss(np.ones((len(X), 1)), y)
    expected = backward(basis, y, prefixes=True)
    np.testing.assert_allclose(fit.standardised.pruning.rss * fit.standardised.rss_unit, expected, atol=1e-7 * scale)
    scores = [gcv(r, len(X), k + 1, penalty) for k, r in enumerate(expected)]
    assert fit.quality.gcv <= min(scores) * (1 + 1e-6) + 1e-7 * scale / len(X)
    # The coefficients are those of least squares on the chosen terms.
    chosen = basis[:, [0, *(fit.selection.selected + 1)]]
    assert abs(fit.quality.rss - rss(chosen, y)) <= 1e-9 * scale
    np.testing.assert_allclose(np.sum((y - fit.spline(X).reshape(y.shape)) ** 2), fit.quality.rss, atol=1e-9 * scale)


def test_a_curve_of_one_feature_is_followed_to_its_end():
    """Of a hinge the terms on either side may explain all but a percent, and it may still halve the error."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 6, 400))
    curve = np.sin(1.7 * x) + 0.35 * x + 1.2 * np.exp(-4 * (x - 3.2) ** 2)
    spline = fit_spline(x[:, None], (curve + 0.18 * rng.normal(size=400))[:, None]).spline
    assert np.sqrt(np.mean((spline(x[:, None]) - curve) ** 2)) < 0.1


def test_columns_join_the_factor_one_by_one_or_after_what_is_known_of_the_columns_before():
    rng = np.random.default_rng(0)
    basis, y = rng.normal(size=(30, 5)), rng.normal(size=(30, 2))
    expected = triangular_factor(np.column_stack([basis, y]))
    for late in (False, True):  # whether the product with the last column of the span comes apart
        factor, projection = np.zeros((5, 5)), np.zeros((5, 2))
        for m in range(5):
            known = max(m - 1, 0) if late else m
            q = expected[:known, m].copy()
            norm = float(basis[:, m] @ basis[:, m] - q @ q)
            dots = basis[:, m] @ y - q @ expected[:known, 5:]
            along = float(expected[m - 1, m]) if known < m else 0.0
            _append_column(factor, projection, m, q, norm, dots, along)
        np.testing.assert_allclose(factor, expected[:5, :5], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(projection, expected[:5, 5:], rtol=1e-12, atol=1e-12)
