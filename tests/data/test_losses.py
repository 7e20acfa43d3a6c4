"""Losses by name: their values and slopes are scikit-learn's, and their bounds hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn import metrics
from sklearn._loss import loss as sklearn_losses

from knotwork.data.links import exp_range, inverse_link
from knotwork.data.losses import LOSSES, ResponseLoss, response_loss, robust_std, weighted_quantile

EXTRA = {"quantile": {"quantile": 0.8}, "tweedie": {"power": 1.4}}
EVERY = [response_loss(name, **EXTRA.get(name, {})) for name in LOSSES] + [response_loss("tweedie", power=2.6)]
EVERY = [ResponseLoss("huber", width=0.7) if loss.name == "huber" else loss for loss in EVERY]


def example(loss: ResponseLoss, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=50), rng.gamma(2.0, size=50) if loss.power > 0 else rng.normal(size=50)


@pytest.mark.parametrize("loss", EVERY, ids=lambda loss: f"{loss.name}-{loss.power}")
def test_slopes_are_derivatives(loss):
    eta, y = example(loss)
    slope, curvature = loss.slopes(eta, y)
    for at in range(10):

        def one(e, row=at):
            return float(loss.cost(e, y[[row]])[0])

        assert slope[at] == pytest.approx(approx_fprime(eta[[at]], one, 1e-7)[0], abs=1e-5)
        if not loss.is_quantile and loss.power <= 2:
            by = approx_fprime(eta[[at]], lambda e, row=at: float(loss.slopes(e, y[[row]])[0][0]), 1e-7)[0]
            assert curvature[at] == pytest.approx(by, abs=1e-4)


@pytest.mark.parametrize(
    ("loss", "theirs"),
    [
        (response_loss("poisson"), sklearn_losses.HalfPoissonLoss()),
        (response_loss("gamma"), sklearn_losses.HalfGammaLoss()),
        (response_loss("tweedie", power=1.4), sklearn_losses.HalfTweedieLoss(power=1.4)),
        (response_loss("absolute_error"), sklearn_losses.AbsoluteError()),
        (response_loss("quantile", quantile=0.8), sklearn_losses.PinballLoss(quantile=0.8)),
        (ResponseLoss("huber", width=0.7), sklearn_losses.HuberLoss(delta=0.7)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_slopes_are_those_of_scikit_learn(loss, theirs):
    eta, y = example(loss)
    if loss.name == "huber":
        theirs.delta = 0.7  # else it takes a quantile of the residuals
    times = 0.5 if loss.name == "absolute_error" else 1.0
    np.testing.assert_allclose(loss.slopes(eta, y)[0], times * theirs.gradient(y, eta), rtol=1e-9)


@pytest.mark.parametrize("power", [1.0, 1.3, 2.0, 2.6])
def test_deviances_are_those_of_scikit_learn(power):
    loss = response_loss("tweedie", power=power)
    eta, y = example(loss)
    expected = metrics.mean_tweedie_deviance(y, np.exp(eta), power=power)
    assert loss.error(eta, y) == pytest.approx(expected)
    constant = np.full(50, loss.constant(y))
    explained = 1 - loss.deviance(eta, y).sum() / loss.deviance(constant, y).sum()
    assert loss.score(y, np.exp(eta)) == pytest.approx(explained)


@pytest.mark.parametrize("loss", EVERY, ids=lambda loss: f"{loss.name}-{loss.power}")
@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_of_equal_responses_there_is_nothing_to_explain(loss, shape):
    y = np.full(shape, 0.1)
    assert loss.score(y, np.full(5, 0.1)) == 1.0
    assert loss.score(y, np.linspace(0.1, 0.2, 5)) == 0.0
    y[-1], weights = 7.0, np.array([1.0, 2.0, 3.0, 4.0, 0.0])  # a row of weight 0 is as good as none
    assert loss.score(y, np.full(5, 0.1), weights) == 1.0
    assert loss.score(y, np.linspace(0.1, 0.2, 5), weights) == 0.0


@pytest.mark.parametrize("loss", EVERY, ids=lambda loss: f"{loss.name}-{loss.power}")
def test_the_constant_is_the_best_one(loss):
    _, y = example(loss)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=50)
    best = loss.constant(y, weights)

    def total(at: float) -> float:
        return float(weights @ loss.deviance(np.full(50, at), y))

    near = 0.05 if loss.name == "huber" else 0.0  # whose start is the median
    assert all(total(best) <= total(best + step) + near * total(best) for step in (-0.1, -1e-3, 1e-3, 0.1))


@given(st.floats(allow_nan=False, allow_infinity=True, width=64))
def test_exponentials_are_positive_and_finite(value):
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            found = inverse_link("log", np.array([value], dtype=dtype))
        assert np.isfinite(found).all()
        assert (found > 0).all()
        low, high = exp_range(np.dtype(dtype))
        if low < value < high:
            np.testing.assert_allclose(found, np.exp(np.array([value], dtype=dtype)))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 9))
def test_weighted_quantiles_are_those_of_repeated_values(values, tenths):
    values = np.array(values, dtype=float)
    weights = np.random.default_rng(0).integers(1, 4, size=len(values))
    repeated = np.repeat(values, weights)
    found = weighted_quantile(values, tenths / 10, weights.astype(float))
    assert found == weighted_quantile(repeated, tenths / 10)
    assert found == np.quantile(repeated, tenths / 10, method="averaged_inverted_cdf")


def test_robust_stds_are_stds_of_normal_values():
    z = np.random.default_rng(0).normal(size=100_000)
    assert robust_std(3 * z) == pytest.approx(3, rel=0.02)
    assert robust_std(np.array([0.0, 0.0, 0.0, 2.0])) == 1.0
