"""The degree is chosen by rows that were not in the fit."""

import numpy as np
import pytest

from knotwork import MarsClassifier, MarsRegressor
from knotwork.spline.columns import feature_units, term_units
from knotwork.spline.degree import chosen_degree, held_out_losses
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.likelihood import fit_terms


@pytest.mark.parametrize(("size", "worth"), [(0.0, False), (1.2, True)])
def test_a_higher_degree_is_chosen_if_held_out_errors_fall(size, worth):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1000, 4))
    y = np.abs(X[:, 0]) + X[:, 1] + size * X[:, 2] * X[:, 3] + 0.5 * rng.normal(size=1000)
    chosen = MarsRegressor(max_degree="auto").fit(X, y)
    held = chosen.fit_.selection.held_out_by_degree
    assert (held[1] < 0.99 * held[0]) == worth
    degree = chosen_degree(held)
    assert (degree > 1) == worth
    assert chosen.spline_ == MarsRegressor(max_degree=degree).fit(X, y).spline_


def test_the_choice_depends_on_no_order_of_rows_and_a_weight_is_that_many_rows():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(300, 3))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=300))[:, None]
    times, order = rng.integers(1, 3, size=300), rng.permutation(300)
    cases = [
        (np.arange(300), times.astype(float)),
        (order, times[order].astype(float)),
        (np.repeat(np.arange(300), times), None),
    ]
    once, moved, repeated = (
        fit_spline(X[rows], y[rows], weights=weights, options=FitOptions(max_degree="auto", spacing="free"))
        for rows, weights in cases
    )
    held = once.selection.held_out_by_degree
    assert len(held) >= 2
    assert np.allclose(held, moved.selection.held_out_by_degree, rtol=1e-6)
    assert np.allclose(held, repeated.selection.held_out_by_degree, rtol=1e-6)


def test_classes_get_interactions_where_there_are_some():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 6))
    for logits, degree in ((X[:, 0] + np.abs(X[:, 1]), 1), (3 * X[:, 0] * X[:, 1], 2)):
        y = rng.uniform(size=1500) < 1 / (1 + np.exp(-logits))
        model = MarsClassifier(max_degree="auto").fit(X, y)
        assert max(len(term.features) for term in model.spline_.terms) == degree
        assert "was chosen by the mean loss of held-out rows" in model.summary()


def test_the_ridge_holds_interactions_that_few_rows_have():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(600, 20))
    y = rng.uniform(size=600) < 1 / (1 + np.exp(-X[:, 0]))
    model = MarsClassifier(max_degree=2).fit(X, y)
    search, terms = model.fit_.search, model.spline_.terms
    stds = search.coordinates.x_scale
    own = term_units(terms, X, np.ones(600), stds, search.spline.limits)
    assert (own < 0.5 * feature_units(terms, stds)).any()
    loose = fit_terms(search, X, y.astype(int), 2, units=own)
    assert np.abs(model.spline_.coef).max() < np.abs(loose.coef).max()


def test_a_class_of_one_row_leaves_nothing_to_choose_by():
    X = np.arange(20.0).reshape(10, 2)
    codes = np.array([1] + [0] * 9)
    assert held_out_losses(X, lambda *_: pytest.fail("no fold can train"), (1, 2), codes=codes) == ()
    assert held_out_losses(X, lambda *_: pytest.fail("one degree"), (1,)) == ()
