"""What a predicted number may cost, under scikit-learn's names: each loss with its link, its slopes and its checks.

A loss is a function of η, the prediction on the scale of the link. ``poisson``, ``gamma`` and ``tweedie`` have the link
log, so that a model of them predicts exp(η) > 0; the others predict η itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from knotwork.arrays import Floats
from knotwork.data.links import inverse_link
from knotwork.errors import DataError, ParameterError
from knotwork.parameters import is_number, shown

LOSSES = ("squared_error", "absolute_error", "huber", "quantile", "poisson", "gamma", "tweedie")
# The power of the variance of a Tweedie model if none is given: between counts, 1, and positive amounts, 2.
TWEEDIE_POWER = 1.5
# Huber's loss is quadratic up to so many robust stds of the residuals: 95 % efficient where errors are normal.
HUBER_STDS = 1.35
# Median of |z| for a standard normal z.
NORMAL_MEDIAN = 0.6744897501960817
# Differences of responses whose squares, added over many rows, are floats.
MAX_SPREAD = 1e140


@dataclass(frozen=True)
class ResponseLoss:
    """A loss of a response y, one number a row, given η.

    name : one of ``LOSSES``
    quantile : the one to predict, 0.5 for absolute errors
    power : the variance is proportional to mean**power: 1 for poisson, 2 for gamma, 0 for losses without a link
    width : where Huber's loss becomes linear, in the units of y; 0 is not known yet
    """

    name: str = "squared_error"
    quantile: float = 0.5
    power: float = 0.0
    width: float = 0.0

    @property
    def link(self) -> str:
        """The link's name, see :mod:`knotwork.data.links`."""
        return "log" if self.power > 0 else "identity"

    @property
    def is_quantile(self) -> bool:
        """Whether a quantile is predicted, the median among them."""
        return self.name in ("absolute_error", "quantile")

    def predict(self, eta: Floats) -> Floats:
        """Return predictions of y, given those on the link's scale."""
        return inverse_link(self.link, eta)

    def check(self, y: Floats) -> None:
        """Refuse responses that the loss is not made for; y is finite."""
        smallest = float(y.min()) if y.size else 1.0
        spread = float(y.max() / 2 - y.min() / 2) if y.size else 0.0
        if self.link == "identity" and spread and not 1 / MAX_SPREAD < spread < MAX_SPREAD:
            raise DataError(
                f"loss={self.name!r} takes responses whose differences have squares, {1 / MAX_SPREAD:g} to "
                f"{MAX_SPREAD:g}, got {spread:g}; multiply them by a power of ten"
            )
        if self.power >= 2 and smallest <= 0:
            raise DataError(
                f"loss={self.name!r} takes responses greater than 0, got {smallest:g}; leave those rows out, or choose "
                f"loss='tweedie' with a power between 1 and 2"
            )
        if 0 < self.power < 2 and smallest < 0:
            raise DataError(
                f"loss={self.name!r} takes responses of 0 or more, got {smallest:g}; choose loss='squared_error' or "
                f"'absolute_error' for responses below zero"
            )
        if 0 < self.power < 2 and y.size and not y.any():
            raise DataError(
                f"loss={self.name!r} takes responses that are not all zero, whose mean has no logarithm; add rows with "
                f"y > 0"
            )

    def cost(self, eta: Floats, y: Floats) -> Floats:
        """Return what each row costs: the deviance in units of ``per_cost``, up to what depends on y alone.

        Its unit is that of y to the power ``2 − power``; that of y for quantiles.
        """
        if self.power > 0:
            return _tweedie_cost(eta, y, self.power)
        residual = y - eta
        if self.is_quantile:
            return np.where(residual > 0, self.quantile, self.quantile - 1) * residual
        if self.name == "huber":
            size = np.abs(residual)
            return np.where(size <= self.width, residual**2 / 2, self.width * (size - self.width / 2))
        return residual**2 / 2

    def slopes(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return first and second derivatives of the cost by η; quantiles have no second one and are smoothed first."""
        if self.power > 0:
            p = self.power
            mean, scaled = np.exp((2 - p) * eta), y * np.exp((1 - p) * eta)
            # Beyond a power of 2 the cost is not convex: its expected second derivative always is positive.
            return mean - scaled, (2 - p) * mean + (p - 1) * scaled if p <= 2 else mean
        residual = y - eta
        if self.name == "huber":
            return -residual.clip(-self.width, self.width), (np.abs(residual) <= self.width).astype(np.float64)
        if self.is_quantile:
            return np.where(residual > 0, -self.quantile, 1 - self.quantile), np.zeros_like(eta)
        return -residual, np.ones_like(eta)

    def deviance(self, eta: Floats, y: Floats) -> Floats:
        """Return the deviance of each row, which is 0 where the prediction is right.

        Unit deviances as in ``sklearn.metrics.mean_tweedie_deviance``, squared and absolute errors, pinball losses, and
        Huber's loss, which is r²/2 within its width.

        >>> poisson = ResponseLoss("poisson", power=1.0)
        >>> poisson.deviance(np.log([3.0, 3.0]), np.array([3.0, 0.0])).round(12)
        array([0., 6.])
        """
        if self.power > 0:
            found: Floats = self.per_cost * (self.cost(eta, y) + _saturated(y, self.power))
            return found.clip(0.0)
        return self.per_cost * self.cost(eta, y)

    @property
    def per_cost(self) -> float:
        """What one unit of cost is in deviance."""
        return 1.0 if self.name in ("quantile", "huber") else 2.0

    def constant(self, y: Floats, weights: Floats | None = None) -> float:
        """Return the best constant η."""
        if self.is_quantile:
            return weighted_quantile(y, self.quantile, weights)
        if self.name == "huber":
            return weighted_quantile(y, 0.5, weights)
        mean = float(np.average(y, weights=weights))
        return float(np.log(mean)) if self.link == "log" else mean

    def score(self, y: Floats, predicted: Floats, weights: Floats | None = None) -> float:
        """Return D², the share of the constant's deviance that is explained: R² for squared errors and Huber's loss.

        Of equal responses there is nothing to explain: 1 where all predictions are right, else 0, as R² has it.
        """
        from sklearn import metrics

        if self.power > 0:
            metrics.mean_tweedie_deviance(y, predicted, sample_weight=weights, power=self.power)  # checks them
            counted = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
            if len(counted) > 1 and np.ptp(y[counted]) == 0:  # d2_tweedie_score would divide by zero, or nearly
                return float(np.array_equal(predicted.reshape(y.shape)[counted], y[counted]))
            return float(metrics.d2_tweedie_score(y, predicted, sample_weight=weights, power=self.power))
        if self.is_quantile:
            return float(metrics.d2_pinball_score(y, predicted, sample_weight=weights, alpha=self.quantile))
        return float(metrics.r2_score(y, predicted, sample_weight=weights))

    @property
    def error_name(self) -> str:
        """What the mean deviance is called."""
        if self.power > 0:
            return f"mean {self.name} deviance"
        if self.name == "quantile":
            return "pinball loss"
        return {"absolute_error": "mean absolute error", "huber": "Huber loss"}.get(self.name, "RMSE")

    def error(self, eta: Floats, y: Floats, weights: Floats | None = None) -> float:
        """Return the error that ``error_name`` names: the mean deviance, or its root for squared errors."""
        return self.reported(float(np.average(self.deviance(eta, y), weights=weights)))

    def reported(self, mean_deviance: float) -> float:
        """Return the error that a mean deviance stands for."""
        return mean_deviance**0.5 if self.name == "squared_error" else mean_deviance


SQUARED_ERROR = ResponseLoss()


def response_loss(name: str, quantile: float | None = None, power: float | None = None) -> ResponseLoss:
    """Return the loss of this name, once its parameters are checked.

    >>> response_loss("quantile", quantile=0.9)
    ResponseLoss(name='quantile', quantile=0.9, power=0.0, width=0.0)
    >>> response_loss("poisson").link
    'log'
    """
    if name not in LOSSES:
        raise ParameterError(f"loss must be one of {', '.join(map(repr, LOSSES))}, got {name!r}")
    if quantile is not None and name != "quantile":
        raise ParameterError(
            f"quantile is for loss='quantile', got quantile={quantile!r} with loss={name!r}; leave one of them out"
        )
    if power is not None and name != "tweedie":
        raise ParameterError(
            f"power is for loss='tweedie', got power={power!r} with loss={name!r}; leave one of them out"
        )
    match name:
        case "quantile":
            if quantile is None:
                raise ParameterError("loss='quantile' needs the quantile to predict; pass quantile=0.9, say")
            if not is_number(quantile) or not 0 < quantile < 1:
                raise ParameterError(f"quantile must be greater than 0 and less than 1, got {shown(quantile)}")
            return ResponseLoss(name, quantile=float(quantile))
        case "tweedie":
            if power is not None and not (is_number(power) and 1 <= power < np.inf):
                raise ParameterError(
                    f"power must be at least 1 (poisson; 2 is gamma), got {power!r}; for a power of 0 choose "
                    f"loss='squared_error'"
                )
            return ResponseLoss(name, power=float(TWEEDIE_POWER if power is None else power))
        case "poisson":
            return ResponseLoss(name, power=1.0)
        case "gamma":
            return ResponseLoss(name, power=2.0)
    return ResponseLoss(name)


def _tweedie_cost(eta: Floats, y: Floats, p: float) -> Floats:
    """Return −log-likelihood up to the dispersion and what depends on y alone, with μ = exp(η)."""
    if p == 1:
        return np.exp(eta) - y * eta
    if p == 2:
        return eta + y * np.exp(-eta)
    return np.exp((2 - p) * eta) / (2 - p) - y * np.exp((1 - p) * eta) / (1 - p)


def _saturated(y: Floats, p: float) -> Floats:
    """Return minus the cost of a perfect prediction."""
    if p == 1:
        return xlogy(y, y) - y
    if p == 2:
        return -np.log(y) - 1
    return y ** (2 - p) / ((1 - p) * (2 - p))


def weighted_quantile(values: Floats, quantile: float, weights: Floats | None = None) -> float:
    """Return a value with that share of the weight at or below it, the mean of the two nearest where both are.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0, 10.0]), 0.5)
    2.5
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    total = np.arange(1.0, len(values) + 1) if weights is None else np.cumsum(weights[order])
    wanted = quantile * total[-1]
    first = min(int(np.searchsorted(total, wanted * (1 - 1e-12))), len(values) - 1)
    second = min(int(np.searchsorted(total, wanted * (1 + 1e-12), side="right")), len(values) - 1)
    return float(ordered[first] / 2 + ordered[second] / 2)


def robust_std(residuals: Floats, weights: Floats | None = None) -> float:
    """Return the std of the bulk of some residuals, by their median absolute value; that of all where it is zero."""
    found = weighted_quantile(np.abs(residuals), 0.5, weights) / NORMAL_MEDIAN
    return found if found > 0 else float(np.sqrt(np.average(np.square(residuals), weights=weights)))
