"""Interactions: the fast search against explicit columns, and what the terms it finds are worth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.model import Hinge, Linear, Min, Product, hinges_of
from knotwork.spline.rules import FREE
from tests.reference import ChildSearch, rss


def as_hinges(term):
    """A term of a spline as the oracle knows it."""
    return frozenset((h.feature, h.knot, h.sign) for h in hinges_of(term))


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, d = draw(st.integers(40, 90)), draw(st.integers(2, 4))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-2, 3, d)
    kind = draw(st.sampled_from(["plain", "coarse", "binary"]))
    if kind == "coarse":
        X[:, 0] = np.round(X[:, 0] / X[:, 0].std(), 0)
    elif kind == "binary":
        X[:, : d // 2 + 1] = X[:, : d // 2 + 1] > 0
    Z = X / X.std(axis=0)
    y = np.minimum(np.maximum(Z[:, 0], 0), np.maximum(0.5 - Z[:, 1], 0)) * 3 + Z[:, -1] * Z[:, 0]
    weights = rng.integers(1, 3, n) if draw(st.booleans()) else np.ones(n, int)
    return X, (y + rng.normal(size=n) * 0.3)[:, None], weights


@settings(max_examples=25)
@given(problems(), st.sampled_from([2, 3]), st.booleans(), st.sampled_from([8, 13]))
def test_every_step_is_the_best_of_all(problem, degree, product, max_terms):
    X, y, weights = problem
    X_all, y_all = np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0)
    w = None if (weights == 1).all() else weights.astype(float)
    options = FitOptions(
        spacing="free",
        max_terms=max_terms,
        max_degree=degree,
        interaction="product" if product else "min",
        max_parents=1000,
    )
    fit = fit_spline(X, y, weights=w, options=options)
    spans = fit.selection.spans
    search = ChildSearch(
        X_all, y_all, spans.minspan, spans.endspan, degree=degree, product=product, min_mass=spans.endspan
    )
    null, done = search.rss, 0
    tolerance = 1e-8 * null
    for step in fit.selection.steps[1:]:
        terms = fit.selection.forward_terms[done : step.terms - 1]
        done += len(terms)
        room = max_terms - len(search.columns)
        early = FREE.collinear_early if len(search.columns) < FREE.early_columns else FREE.collinear
        # Candidates at the very edge of a collinearity rule may fall on either side of it.
        loose = search.scores(early * 0.999), search.child_scores(FREE.collinear * 0.999, room)
        strict = search.scores(early * 1.001), search.child_scores(FREE.collinear * 1.001, room)
        if room == 1:
            strict = {k: v for k, v in strict[0].items() if k[1] is None or not search.is_free(k[0])}, strict[1]
        if isinstance(terms[0], (Min, Product)):
            key = frozenset(as_hinges(term) for term in terms)
            assert key in loose[1], "took an inadmissible child"
            drop = loose[1][key]
            search.add_terms([as_hinges(term) for term in terms])
        else:
            key = terms[0].feature, None if isinstance(terms[0], Linear) else terms[0].knot
            drop = loose[0][key]
            search.add(*key)
        assert drop >= max([*strict[0].values(), *strict[1].values()]) - tolerance, "not the best step"
        assert abs(search.rss - step.rss) <= tolerance
        for term in terms:
            if isinstance(term, Linear) and not search.knots[term.feature]:
                search.parents.append(frozenset([(term.feature, search.child_knots[term.feature][0], 1)]))
            elif len(hinges_of(term)) in range(1, degree):
                search.parents.append(as_hinges(term))
    basis = np.column_stack([np.ones(len(X_all)), fit.spline.basis(X_all)])
    assert abs(rss(basis, y_all) - fit.quality.rss) <= tolerance
    np.testing.assert_allclose(np.sum((fit.spline(X_all) - y_all[:, 0]) ** 2), fit.quality.rss, atol=tolerance)


def interacting(n=600, seed=0, d=5):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    return X, (np.minimum(np.maximum(X[:, 0] - 0.3, 0), np.maximum(0.7 - X[:, 3], 0)) * 10 + X[:, 1])[:, None]


def test_finds_an_interaction_that_no_additive_model_has():
    X, y = interacting()
    additive = fit_spline(X, y)
    fit = fit_spline(X, y, options=FitOptions(max_degree=2))
    assert additive.quality.rsq < 0.9
    assert fit.quality.rsq > 0.99
    assert any(isinstance(t, Min) and set(t.features) == {0, 3} for t in fit.spline.terms)
    for term in fit.spline.terms:
        if isinstance(term, Min):
            assert term.features == tuple(sorted(term.features))
            assert term.slopes[0] == 1.0


@pytest.mark.parametrize("interaction", ["min", "product"])
def test_units_of_the_features_do_not_matter(interaction):
    X, y = interacting()
    options = FitOptions(max_degree=2, interaction=interaction)
    scale, shift = np.array([1e6, 1e-6, 3.0, 0.01, 1.0]), np.array([5e6, 0.0, -7.0, 1.0, 0.0])
    plain = fit_spline(X, y, options=options)
    other = fit_spline(X * scale + shift, y * 1e9, options=options)
    assert [t.features for t in plain.spline.terms] == [t.features for t in other.spline.terms]
    np.testing.assert_allclose(other.spline(X * scale + shift), plain.spline(X) * 1e9, rtol=1e-6)


def test_features_of_two_values_interact_with_all_others():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, (500, 2)), rng.normal(size=500)]).astype(float)
    y = (3 * (X[:, 0] * X[:, 1]) + X[:, 0] * np.maximum(X[:, 2], 0))[:, None]
    assert fit_spline(X, y).quality.rsq < 0.9
    for interaction in ("min", "product"):
        fit = fit_spline(X, y, options=FitOptions(max_degree=2, interaction=interaction))
        assert fit.quality.rsq > 0.99
        assert {t.features for t in fit.spline.terms} >= {(0, 1), (0, 2)}


def test_only_chosen_features_interact():
    X, y = interacting()
    fit = fit_spline(X, y, options=FitOptions(max_degree=2, interacting=(0, 1)))
    pairs = {t.features for t in fit.selection.forward_terms if isinstance(t, Min)}
    assert pairs <= {(0, 1)}


def test_few_parents_are_enough_where_one_matters():
    X, y = interacting()
    fit = fit_spline(X, y, options=FitOptions(max_degree=2, max_parents=2))
    assert fit.quality.rsq > 0.98


def test_a_weight_counts_like_a_repetition():
    X, y = interacting(n=300)
    weights = np.random.default_rng(1).integers(1, 4, len(X))
    options = FitOptions(max_degree=2)
    weighted = fit_spline(X, y, weights=weights.astype(float), options=options)
    repeated = fit_spline(np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0), options=options)
    np.testing.assert_allclose(weighted.spline(X), repeated.spline(X), rtol=1e-8, atol=1e-10)


def test_degree_three_is_found_and_no_feature_is_twice_in_a_term():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3000, 4))
    y = 20 * np.minimum.reduce(
        [np.maximum(X[:, 0] - 0.2, 0), np.maximum(X[:, 1] - 0.2, 0), np.maximum(0.9 - X[:, 2], 0)]
    )
    two = fit_spline(X, y[:, None], options=FitOptions(max_degree=2))
    three = fit_spline(X, y[:, None], options=FitOptions(max_degree=3))
    assert three.quality.rss < 0.5 * two.quality.rss
    assert max(len(t.features) for t in three.spline.terms) == 3
    assert all(len(set(t.features)) == len(t.features) for t in three.selection.forward_terms)


def test_pruning_may_keep_a_child_without_its_parent():
    X, y = interacting()
    fit = fit_spline(X, y, options=FitOptions(max_degree=2))
    kept = set(fit.spline.terms)
    hinges = {h for t in kept if isinstance(t, Min) for h in t.hinges}
    assert any(Hinge(h.feature, h.knot, h.sign) not in kept for h in hinges)


def test_knots_of_interactions_are_values_of_the_data():
    X, y = interacting()
    fit = fit_spline(X, y, options=FitOptions(max_degree=2))
    used = {(h.feature, h.knot) for t in fit.spline.terms for h in hinges_of(t)}
    assert {(k.feature, k.value) for k in fit.knots} == used
    for knot in fit.knots:
        assert (X[knot.rows, knot.feature] == knot.value).all()


def test_the_degree_can_be_left_to_the_data():
    X, y = interacting()
    y = y + np.random.default_rng(2).normal(size=y.shape) * 0.1
    chosen = fit_spline(X, y, options=FitOptions(max_degree="auto"))
    held = chosen.selection.held_out_by_degree
    assert len(held) >= 2
    assert held[1] < 0.1 * held[0]
    assert any(isinstance(t, Min) for t in chosen.spline.terms)
    additive = np.abs(X[:, :1] - 0.5) + X[:, 1:2] + np.random.default_rng(3).normal(size=y.shape) * 0.1
    plain = fit_spline(X, additive, options=FitOptions(max_degree="auto"))
    assert not any(isinstance(t, Min) for t in plain.spline.terms)
    assert plain.spline == fit_spline(X, additive).spline
