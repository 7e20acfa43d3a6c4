import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knotwork.spline import likelihood
from knotwork.spline.likelihood import contrasts, fit_classes, fit_logits, indicators
from tests.reference import multinomial_logits


@pytest.mark.parametrize("classes", [2, 3, 7, 120])
def test_contrasts_are_orthonormal_and_sum_to_zero(classes):
    C = contrasts(classes)
    np.testing.assert_allclose(C.T @ C, np.eye(classes - 1), atol=1e-12)
    np.testing.assert_allclose(C.sum(axis=0), 0, atol=1e-12)


def example(seed, classes, n=50, terms=3):
    rng = np.random.default_rng(seed)
    basis = np.maximum(rng.normal(size=(n, terms)) * [1.0, 10.0, 0.1], 0)
    codes = rng.integers(classes, size=n)
    codes[:classes] = np.arange(classes)
    return basis, codes, rng.uniform(0.5, 2, size=n), basis.std(axis=0)


@pytest.mark.parametrize("newton", [True, False])
@settings(max_examples=12)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 6), ridge=st.sampled_from([0.01, 0.1, 3.0]))
def test_logits_are_those_of_a_slow_maximiser(newton, seed, classes, ridge):
    basis, codes, weights, units = example(seed, classes)
    exact = multinomial_logits(basis, codes, classes, weights, ridge, units)
    problem = likelihood._Problem.of(basis, codes, classes, weights, ridge, units)

    def objective(fit):
        theta = np.vstack([(exact[0] + problem.centre @ exact[1])[None], exact[1] * units[:, None]]) @ problem.contrast
        least = problem.objective(theta)[0]
        return float(ridge * np.square(fit.contrast).sum() / 2 - fit.log_likelihood), least

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likelihood, "MOST_NEWTON", 10**9 if newton else 0)
        reached, least = objective(fit_logits(basis, codes, classes, weights, ridge, units))
        assert least - 1e-6 <= reached <= least + 1e-5 * (1 + least)
        patch.setattr(likelihood, "SETTLED", 1e-13)
        patch.setattr(likelihood, "QUASI_SETTLED", 1e-9)
        fit = fit_logits(basis, codes, classes, weights, ridge, units)
    intercept, coef = exact
    if classes == 2:
        intercept, coef = intercept[1:] - intercept[:1], coef[:, 1:] - coef[:, :1]
    np.testing.assert_allclose(basis @ fit.coef + fit.intercept, basis @ coef + intercept, atol=1e-4)


def test_wald_is_the_rise_in_deviance_where_the_likelihood_is_a_parabola():
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(20_000, 3))
    codes = (rng.random(20_000) < 1 / (1 + np.exp(-0.1 * basis[:, 0]))).astype(np.intp)
    weights, units = np.ones(20_000), np.ones(3)
    full = fit_logits(basis, codes, 2, weights, 1e-9, units)
    for m in range(3):
        rest = [k for k in range(3) if k != m]
        without = fit_logits(basis[:, rest], codes, 2, weights, 1e-9, units[rest])
        rise = 2 * (full.log_likelihood - without.log_likelihood)
        assert full.cost_without(np.array([m])) == pytest.approx(rise, rel=0.02, abs=1e-3)


def test_single_precision_steps_arrive_where_double_precision_ones_do(monkeypatch):
    basis, codes, weights, units = example(5, 4, n=400)
    fits = []
    for large in (0.0, 1e18):
        monkeypatch.setattr(likelihood, "LARGE", large)
        fits.append(fit_logits(basis, codes, 4, weights, 0.1, units))
    np.testing.assert_allclose(fits[0].coef * units[:, None], fits[1].coef * units[:, None], atol=1e-5)


def test_the_search_scores_a_candidate_by_the_score_statistic_of_the_null_model():
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1, 2], [10, 30, 60])
    c = rng.normal(size=100)
    shares = np.bincount(codes) / 100
    Y = np.eye(3)[codes]
    score = c @ (Y - shares)
    # Information of a coefficient given the intercept: (diag π − ππᵀ)·‖c − mean‖².
    information = (np.diag(shares) - np.outer(shares, shares)) * np.sum((c - c.mean()) ** 2)
    statistic = score @ np.linalg.pinv(information) @ score
    responses = indicators(codes, shares)
    responses = responses - responses.mean(axis=0)
    drop = np.sum((c @ responses) ** 2) / np.sum((c - c.mean()) ** 2)
    assert drop == pytest.approx(statistic)


def test_a_class_without_rows_is_improbable_and_finite():
    x = np.linspace(-1, 1, 60)[:, None]
    fit = fit_classes(x, (x[:, 0] > 0).astype(np.intp), 3)
    logits = fit.spline(x)
    assert np.isfinite(logits).all()
    assert (logits[:, 2] < logits.max(axis=1) - 5).all()
