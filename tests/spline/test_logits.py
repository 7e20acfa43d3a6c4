import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knotwork.spline import columns, newton
from knotwork.spline.columns import BasisValues
from knotwork.spline.fit import FitOptions
from knotwork.spline.likelihood import fit_classes
from knotwork.spline.logits import Problem, contrasts, fit_logits
from knotwork.spline.model import Hinge, Linear, Min, Product
from tests.reference import multinomial_logits


@pytest.mark.parametrize("classes", [2, 3, 7, 120])
def test_contrasts_are_orthonormal_and_sum_to_zero(classes):
    C = contrasts(classes)
    np.testing.assert_allclose(C.T @ C, np.eye(classes - 1), atol=1e-12)
    np.testing.assert_allclose(C.sum(axis=0), 0, atol=1e-12)


def example(seed, classes, n=50, terms=3):
    rng = np.random.default_rng(seed)
    basis = np.maximum(rng.normal(size=(n, terms)) * rng.choice([1.0, 10.0, 0.1], size=terms), 0)
    codes = rng.integers(classes, size=n)
    codes[:classes] = np.arange(classes)
    return basis, codes, rng.uniform(0.5, 2, size=n), basis.std(axis=0)


def excess(fit, exact, ridge, units):
    """Return how far the objective of a fit is above the least one, and that."""
    problem = fit.problem
    theta = (
        np.vstack([(exact[0] + problem.columns.centre @ exact[1])[None], exact[1] * units[:, None]]) @ problem.contrast
    )
    minimum = problem.evaluate(theta).objective
    return float(ridge * np.square(fit.theta[1:]).sum() / 2 - fit.log_likelihood) - minimum, minimum


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 6), ridge=st.sampled_from([0.01, 0.1, 3.0]))
def test_logits_are_those_of_a_slow_maximiser(seed, classes, ridge):
    basis, codes, weights, units = example(seed, classes)
    exact = multinomial_logits(basis, codes, classes, weights, ridge, units)
    for tolerance, share in ((1e-2, 1e-2), (1e-6, 1e-6)):
        above, minimum = excess(
            fit_logits(BasisValues(basis), codes, classes, weights, ridge, units, tolerance), exact, ridge, units
        )
        assert -1e-5 * (1 + minimum) <= above <= share * (1 + minimum)
    fit = fit_logits(BasisValues(basis), codes, classes, weights, ridge, units, 1e-13)
    intercept, coef = exact
    if classes == 2:
        intercept, coef = intercept[1:] - intercept[:1], coef[:, 1:] - coef[:, :1]
    np.testing.assert_allclose(basis @ fit.coef + fit.intercept, basis @ coef + intercept, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 5])
def test_many_terms_that_tell_classes_apart_are_fitted_to_the_end(classes):
    """Long steps, products and guides that are renewed: the gradient is zero where they arrive."""
    rng = np.random.default_rng(classes)
    basis = np.maximum(rng.normal(size=(300, 30)), 0)
    codes = (basis @ rng.normal(size=(30, classes))).argmax(axis=1)
    weights, units = rng.uniform(0.5, 2, size=300), basis.std(axis=0)
    fit = fit_logits(BasisValues(basis), codes, classes, weights, 0.1, units, 1e-12)
    assert np.abs(fit.point.slope).max() < 1e-3
    assert fit.log_likelihood > 0.2 * fit.null_log_likelihood


@pytest.mark.parametrize("classes", [2, 4])
def test_products_with_the_hessian_are_differences_of_gradients(classes):
    basis, codes, weights, units = example(3, classes)
    problem = Problem.of(BasisValues(basis), codes, classes, weights, 0.3, units)
    rng = np.random.default_rng(0)
    theta, direction = rng.normal(size=(2, 4, classes - 1))
    probabilities = problem.evaluate(theta).probabilities
    near = [theta + 1e-5 * direction, theta - 1e-5 * direction]
    ahead, behind = (problem.evaluate(at).slope for at in near)
    product = problem.hessian_product(direction, probabilities)
    np.testing.assert_allclose(product, (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-6)
    if classes == 2:
        np.testing.assert_allclose(problem.inverses(probabilities)[0] @ product, direction)
        gram, between = problem.curvature(probabilities)
        np.testing.assert_allclose(gram @ direction @ between, product, rtol=1e-6)


def test_the_first_guide_is_that_of_the_intercept():
    basis, codes, weights, units = example(4, 4, n=200)
    problem = Problem.of(BasisValues(basis), codes, 4, weights, 1e-6, units)
    probabilities = problem.evaluate(problem.start()).probabilities
    first, later = (of(probabilities) for of in (problem.first_inverses, problem.inverses))
    np.testing.assert_allclose(first, later, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("classes", [2, 5])
def test_a_ridge_may_be_changed_on_the_way(classes):
    basis, codes, weights, units = example(5, classes, n=200)
    fit = fit_logits(BasisValues(basis), codes, classes, weights, 3.0, units)
    for ridge in (0.3, 30.0):
        fit = fit.refit(ridge, 1e-13)
        exact = fit_logits(BasisValues(basis), codes, classes, weights, ridge, units, 1e-13)
        np.testing.assert_allclose(fit.coef, exact.coef, rtol=1e-5, atol=1e-5)
        assert fit.log_likelihood == pytest.approx(exact.log_likelihood)
        assert fit.null_log_likelihood == exact.null_log_likelihood


def test_wald_is_the_rise_in_deviance_where_the_likelihood_is_a_parabola():
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(20_000, 3))
    codes = (rng.random(20_000) < 1 / (1 + np.exp(-0.1 * basis[:, 0]))).astype(np.intp)
    weights, units = np.ones(20_000), np.ones(3)
    full = fit_logits(BasisValues(basis), codes, 2, weights, 1e-9, units)
    for m in range(3):
        rest = [k for k in range(3) if k != m]
        without = fit_logits(BasisValues(basis[:, rest]), codes, 2, weights, 1e-9, units[rest])
        rise = 2 * (full.log_likelihood - without.log_likelihood)
        assert full.term_costs()[m] == pytest.approx(rise, rel=0.02, abs=1e-3)


def test_a_term_is_a_group_of_one():
    basis, codes, weights, units = example(7, 3)
    fit = fit_logits(BasisValues(basis), codes, 3, weights, 0.1, units)
    alone = [fit.cost_without(np.array([m])) for m in range(3)]
    np.testing.assert_allclose(fit.term_costs(), alone)
    # Without all terms of a parabola: θᵀHθ.
    gram, between = fit.problem.curvature(fit.point.probabilities)
    theta = fit.theta[1:]
    reduced = np.linalg.inv(np.linalg.inv(gram)[1:, 1:])
    assert fit.cost_without(np.arange(3)) == pytest.approx(np.sum(theta * (reduced @ theta @ between)))


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_single_precision_arrives_where_double_precision_does(tolerance, monkeypatch):
    basis, codes, weights, units = example(5, 4, n=400)
    fits = []
    for large in (0.0, 1e18):
        monkeypatch.setattr(newton, "LARGE", large)
        fits.append(fit_logits(BasisValues(basis), codes, 4, weights, 0.1, units, tolerance))
    tolerance = 1e-4 if tolerance == 1e-2 else 1e-5
    np.testing.assert_allclose(fits[0].coef * units[:, None], fits[1].coef * units[:, None], atol=tolerance)


def test_weights_of_any_size_are_weights(monkeypatch):
    monkeypatch.setattr(newton, "LARGE", 0.0)
    basis, codes, weights, units = example(6, 3)
    fits = [fit_logits(BasisValues(basis), codes, 3, weights * scale, 0.1 * scale, units) for scale in (1.0, 1e30)]
    np.testing.assert_allclose(fits[1].coef, fits[0].coef, atol=1e-2)


@pytest.mark.parametrize(("interaction", "classes"), [("min", 2), ("product", 3)])
def test_columns_that_are_evaluated_anew_in_every_pass_change_no_bit(interaction, classes, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9001, 3))
    codes = np.digitize(X[:, 0] * X[:, 1] + np.abs(X[:, 2]) + rng.normal(size=9001), [0.5, 1.5][: classes - 1])
    options = FitOptions(max_degree=2, interaction=interaction)
    kept = fit_classes(X, codes, classes, options=options)
    assert any(len(term.features) > 1 for term in kept.spline.terms)
    monkeypatch.setattr(columns, "MAX_KEPT_BYTES", 0)
    anew = fit_classes(X, codes, classes, options=options)
    assert anew.spline == kept.spline
    assert anew.deviance == kept.deviance
    np.testing.assert_array_equal(anew.term_costs, kept.term_costs)


@pytest.mark.parametrize("size", [1e100, 1e-100])
def test_units_of_products_are_within_the_range_of_floats(size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    product = Product((Hinge(0, 0.0, 1), Hinge(1, 0.0, 1)))
    weights = rng.uniform(size=500)
    near, far = (columns.term_units([product], X * s, weights, X.std(axis=0) * s) for s in (1.0, size))
    np.testing.assert_allclose(far / size / size, near)
    values = product(X)
    np.testing.assert_allclose(near, np.sqrt(np.cov(values, aweights=weights, ddof=0)))


def test_blocks_are_the_terms_centred_and_scaled(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 4))
    hinges = Hinge(3, 0.1, 1), Hinge(1, -0.2, -1)
    terms = [Linear(3), Hinge(1, 0.5, -1), Min(hinges, (1.0, 0.7)), Product(hinges)]
    values = np.stack([term(X) for term in terms])
    monkeypatch.setattr(columns, "MAX_KEPT_BYTES", 0)
    for dtype, tolerance in ((np.float64, 1e-15), (np.float32, 1e-6)):
        found = columns.Columns(columns.TermValues(terms, X), np.arange(4.0), np.arange(1.0, 5.0), dtype)
        whole = np.concatenate([block.copy() for _, block in found.blocks()], axis=1)
        expected = (values - np.arange(4.0)[:, None]) / np.arange(1.0, 5.0)[:, None]
        np.testing.assert_allclose(whole, np.vstack([np.ones(5000), expected]), rtol=tolerance, atol=tolerance)
