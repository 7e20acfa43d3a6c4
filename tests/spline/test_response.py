"""Coefficients by a loss, against programs that people trust, on the same basis; and the search around them."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn import linear_model, metrics

import knotwork as kw
from knotwork.data.losses import response_loss
from knotwork.spline.coefficients import fit_coefficients
from knotwork.spline.columns import BasisValues
from knotwork.spline.fit import FitOptions
from knotwork.spline.response import RIDGE, fit_response


def example(loss: str, rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(rows, 4))
    eta = 0.7 * np.abs(X[:, 0]) - 0.5 * np.maximum(X[:, 1], 0)
    weights = rng.uniform(0.3, 2.0, size=rows)
    if loss == "poisson":
        return X, rng.poisson(np.exp(eta)).astype(float), weights
    if loss in ("gamma", "tweedie"):
        return X, rng.gamma(2.0, np.exp(eta) / 2), weights
    return X, eta + (0.2 + np.maximum(X[:, 2], 0)) * rng.standard_t(3, size=rows), weights


@pytest.mark.parametrize(("loss", "power"), [("poisson", None), ("gamma", None), ("tweedie", 1.4)])
@pytest.mark.parametrize("ridge", [0.0, RIDGE])
def test_linear_predictors_are_those_of_a_trusted_glm_on_our_basis(loss, power, ridge):
    X, y, weights = example(loss)
    model = kw.MarsRegressor(loss=loss, power=power).fit(X, y, sample_weight=weights)
    basis, goal = model.transform(X), model.loss_
    units = model.fit_.search.coordinates.x_scale[[term.features[0] for term in model.spline_.terms]]
    fitted = fit_coefficients(BasisValues(basis), y, goal, weights, ridge, units)
    row = np.exp((2 - goal.power) * goal.constant(y, weights))
    theirs = linear_model.TweedieRegressor(
        power=goal.power, link="log", alpha=ridge * row / weights.sum(), solver="newton-cholesky", tol=1e-12,
        max_iter=1000,
    )  # fmt: skip
    eta = theirs.fit(basis / units, y, sample_weight=weights)._linear_predictor(basis / units)
    np.testing.assert_allclose(basis @ fitted.coef[:, 0] + fitted.intercept, eta, atol=1e-6, rtol=0)
    if ridge == RIDGE:
        np.testing.assert_allclose(np.log(model.predict(X)), eta, atol=1e-6, rtol=0)


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.9])
def test_quantiles_are_as_good_as_those_of_linear_programming(quantile):
    X, y, weights = example("quantile")
    basis = np.maximum(X, 0)
    loss = response_loss("absolute_error") if quantile == 0.5 else response_loss("quantile", quantile=quantile)
    fitted = fit_coefficients(BasisValues(basis), y, loss, weights, 0.0, np.ones(4))
    theirs = linear_model.QuantileRegressor(quantile=quantile, alpha=0.0).fit(basis, y, sample_weight=weights)
    found, best = (
        metrics.mean_pinball_loss(y, eta, alpha=quantile, sample_weight=weights)
        for eta in (basis @ fitted.coef[:, 0] + fitted.intercept, theirs.predict(basis))
    )
    assert found == pytest.approx(best, rel=1e-6)


def test_hubers_coefficients_are_those_of_scikit_learn_at_its_width():
    X, y, weights = example("huber")
    basis = np.maximum(X, 0)
    theirs = linear_model.HuberRegressor(alpha=0.0, tol=1e-9, max_iter=10_000).fit(basis, y, sample_weight=weights)
    loss = replace(response_loss("huber"), width=1.35 * theirs.scale_)
    fitted = fit_coefficients(BasisValues(basis), y, loss, weights, 0.0, np.ones(4))
    np.testing.assert_allclose(basis @ fitted.coef[:, 0] + fitted.intercept, theirs.predict(basis), atol=1e-4)
    own = fit_coefficients(BasisValues(basis), y, response_loss("huber"), weights, 0.0, np.ones(4)).loss.width
    assert 0.5 * loss.width < own < 3 * loss.width


@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie", "absolute_error", "huber", "quantile"])
def test_a_unit_of_y_changes_nothing(loss):
    X, y, weights = example(loss)
    goal, basis = response_loss(loss, 0.8 if loss == "quantile" else None), BasisValues(np.maximum(X, 0))
    one, times = (fit_coefficients(basis, size * y, goal, weights, RIDGE, np.ones(4)) for size in (1.0, 1e5))
    back = times.point.eta - np.log(1e5) if goal.link == "log" else times.point.eta / 1e5
    np.testing.assert_allclose(back, one.point.eta, atol=1e-5)


def test_wald_is_about_the_rise_in_deviance_without_a_term():
    X, y, weights = example("poisson", rows=4000)
    basis, loss = X[:, :3], response_loss("poisson")
    whole = fit_coefficients(BasisValues(basis), y, loss, weights, 0.0, np.ones(3))
    less = fit_coefficients(BasisValues(basis[:, [0, 2]]), y, loss, weights, 0.0, np.ones(2))
    rise = less.deviance - whole.deviance
    assert whole.term_costs()[1] == pytest.approx(rise, rel=0.1)
    assert whole.cost_without(np.array([1])) == pytest.approx(whole.term_costs()[1])


def test_earth_is_followed_by_a_plain_glm():
    """compat="earth": the terms of least squares, the coefficients of the likelihood, as earth(glm=…) does."""
    X, y, _ = example("poisson")
    terms = kw.MarsRegressor(compat="earth").fit(X, y)
    model = kw.MarsRegressor(loss="poisson", compat="earth").fit(X, y)
    assert model.spline_.terms == terms.spline_.terms
    theirs = linear_model.PoissonRegressor(alpha=0.0, solver="newton-cholesky", tol=1e-12).fit(model.transform(X), y)
    np.testing.assert_allclose(model.predict(X), theirs.predict(model.transform(X)), rtol=1e-6)


def test_regions_without_counts_stay_finite():
    """Beyond x = 0 there is nothing but zeros, whose rate the likelihood alone would send to minus infinity."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(500, 1))
    y = np.where(X[:, 0] < 0, rng.poisson(5.0, size=500), 0).astype(float)
    held, free = (fit_response(X, y, response_loss("poisson"), ridge=ridge) for ridge in (RIDGE, 0.0))
    end = np.array([[1.0]])
    assert free.spline(end) < 1.2 * held.spline(end) < -5
    assert held.spline(end) > -50


def test_the_second_search_is_kept_only_if_it_is_better():
    X, y, _ = example("gamma", rows=300)
    loss = response_loss("gamma")
    both = fit_response(X, y, loss)
    first = fit_response(X, y, loss, options=FitOptions(compat="earth"), ridge=0.0)
    assert both.deviance < both.null_deviance
    assert first.deviance < first.null_deviance
