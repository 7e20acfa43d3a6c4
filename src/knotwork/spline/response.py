"""One response and any loss: terms found by least squares on working responses, coefficients by the loss itself.

The first search sees the response on a scale where its variance is about constant: y**(1 − power/2), or log(y), for
losses with a log link, and y without its farthest values for the others. The second sees the working response of
Newton's method at the first fit, η − slope/curvature, with the curvatures as weights. The fit whose deviance is smaller
by GCV is kept. ``compat="earth"`` searches once, by y itself, and takes no ridge: that is what earth's ``glm`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates, mean_and_std, value_and_std
from knotwork.data.losses import ResponseLoss, robust_std, weighted_quantile
from knotwork.spline.coefficients import TOLERANCE, Coefficients, Smoothed, density_at_zero, fit_coefficients
from knotwork.spline.columns import TermValues, term_units
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.forward import Step
from knotwork.spline.model import Spline
from knotwork.spline.result import Knot, SplineFit
from knotwork.spline.rules import gcv

# Ridge of coefficients with a log link, in rows: it matters where the data say next to nothing, as beyond the last
# count that is not zero.
RIDGE = 0.1
# Robust stds beyond which values of a response do not count further in the search.
FARTHEST = 5.0
# Working weights are at least this share of their mean: no row may hide from the search.
MIN_WEIGHT = 1e-3

# Robust stds of residuals over which a row passes from one side of a quantile to the other: rounding must not decide on
# which side rows on it are, nor between terms that part the same rows.
ON_QUANTILE = 0.25
# Stds from zero from which on responses are fitted around a value of theirs.
FAR = 100.0

Report = Callable[[Step], None]


@dataclass(frozen=True)
class ResponseFit:
    """A spline of η and how it came about.

    spline : η, on the scale of the loss's link, as a function of the features in the data's units of measurement
    search : the least-squares fit to a working response that found the terms
    loss : what the coefficients make small
    deviance, null_deviance : of the spline and of the best constant, summed over the rows
    term_costs, feature_costs : (M,) and (d,) rise in deviance without the term, or any term of the feature (Wald)
    y_centre, y_scale : mean and std of the response, or of η where the link is log
    """

    spline: Spline
    search: SplineFit
    loss: ResponseLoss
    deviance: float
    null_deviance: float
    term_costs: Floats
    feature_costs: Floats
    ridge: float
    y_centre: float
    y_scale: float

    @property
    def knots(self) -> tuple[Knot, ...]:
        """The knots of the spline, with their rows."""
        return self.search.knots

    @property
    def coordinates(self) -> Coordinates:
        """Means and stds of the features, and of the response on the scale of the link."""
        found = self.search.coordinates
        return replace(found, y_centre=np.full(1, self.y_centre), y_scale=np.full(1, self.y_scale))


def fit_response(
    X: NDArray[np.floating],
    y: Floats,
    loss: ResponseLoss,
    *,
    weights: Floats | None = None,
    names: Sequence[str] | None = None,
    options: FitOptions | None = None,
    ridge: float = RIDGE,
    report: Report | None = None,
) -> ResponseFit:
    """Fit a spline to finite data: X (N, d), y (N,) that the loss is made for, weights (N,) all positive.

    >>> from knotwork.data.losses import response_loss
    >>> x = np.linspace(0.0, 4.0, 200)[:, None]
    >>> fit = fit_response(x, np.exp(np.abs(x[:, 0] - 2.0)), response_loss("gamma"))
    >>> [round(term.knot, 1) for term in fit.spline.terms], fit.deviance < 1e-2 * fit.null_deviance
    ([2.0, 2.0], True)
    """
    centre = far_centre(y, loss, weights)
    if centre != 0:
        near = fit_response(
            X, y - centre, loss, weights=weights, names=names, options=options, ridge=ridge, report=report
        )
        spline = replace(near.spline, intercept=near.spline.intercept + centre)
        return replace(near, spline=spline, y_centre=near.y_centre + centre)
    # Other losses were measured with knots anywhere; the distance is that of squared errors.
    options = replace(options or FitOptions(), spacing="free")
    weight = np.ones(len(X)) if weights is None else weights
    earth = options.compat == "earth"
    first = y[:, None] if earth else first_responses(y, loss, weights)
    search = fit_spline(X, first, weights=weights, names=names, options=options, report=report)
    ridge = 0.0 if earth or loss.link == "identity" else ridge
    fitted = fit_terms(search, X, y, loss, weight, ridge)
    if not earth:
        z, working = working_response(fitted.point.eta, y, fitted.loss, weight)
        found = fit_spline(X, z[:, None], weights=working, names=names, options=options, report=report)
        other = fit_terms(found, X, y, loss, weight, ridge)
        if deviance_gcv(other, found) < deviance_gcv(fitted, search):
            search, fitted = found, other
    return _record(search, fitted, X, y, weight, ridge)


def far_centre(y: Floats, loss: ResponseLoss, weights: Floats | None) -> float:
    """Return a value amid responses that lie far from zero, to be taken off: digits are lost there; else 0."""
    if loss.link != "identity":
        return 0.0
    value, std = value_and_std(y[:, None], weights)
    return float(value[0]) if abs(value[0]) > FAR * std[0] else 0.0


def _record(
    search: SplineFit, fitted: Coefficients, X: NDArray[np.floating], y: Floats, weight: Floats, ridge: float
) -> ResponseFit:
    loss, terms = fitted.loss, search.spline.terms
    used = [term.features for term in terms]
    groups = [np.array([m for m, own in enumerate(used) if f in own], dtype=np.intp) for f in range(X.shape[1])]
    eta = fitted.point.eta if loss.link == "log" else y
    mean = float(np.average(eta, weights=weight))
    spread = float(np.sqrt(np.average(np.square(eta - mean), weights=weight)))
    constant = np.full(len(y), loss.constant(y, weight))
    return ResponseFit(
        spline=replace(search.spline, intercept=fitted.intercept, coef=fitted.coef),
        search=search,
        loss=loss,
        deviance=fitted.deviance,
        null_deviance=float(weight @ loss.deviance(constant, y)),
        term_costs=fitted.term_costs(),
        feature_costs=np.array([fitted.cost_without(group) if group.size else 0.0 for group in groups]),
        ridge=ridge,
        y_centre=mean,
        y_scale=spread or 1.0,
    )


def fit_terms(
    search: SplineFit,
    X: NDArray[np.floating],
    y: Floats,
    loss: ResponseLoss,
    weight: Floats,
    ridge: float = RIDGE,
    tolerance: float = TOLERANCE,
) -> Coefficients:
    """Fit the coefficients of the terms that a search found."""
    terms, limits = search.spline.terms, search.spline.limits
    units = term_units(terms, X, weight, search.coordinates.x_scale, limits)
    return fit_coefficients(TermValues(terms, X, limits), y, loss, weight, ridge, units, tolerance)


def first_responses(y: Floats, loss: ResponseLoss, weights: Floats | None) -> Floats:
    """Return what the first search sees: (N, responses)."""
    if loss.power > 0:
        return (np.log(y) if loss.power == 2 else y ** (1 - loss.power / 2))[:, None]
    middle = weighted_quantile(y, 0.5, weights)
    reach = FARTHEST * robust_std(y - middle, weights)
    held = y.clip(middle - reach, middle + reach) if reach > 0 else y
    if loss.name != "quantile":
        return held[:, None]
    # What moves a quantile and not the middle moves the share of rows beyond it.
    beyond = _sides(np.full(len(y), loss.constant(y, weights)), y, loss, weights)
    spreads = mean_and_std(np.stack([held, beyond], axis=1), weights)[1]
    return np.stack([held, beyond * (spreads[0] / spreads[1])], axis=1)


def huber_width(
    X: NDArray[np.floating], y: Floats, weights: Floats | None, names: Sequence[str] | None = None
) -> float:
    """Return where Huber's loss becomes linear: 1.35 robust stds of what an additive spline leaves of y."""
    loss = ResponseLoss("huber")
    y = y - far_centre(y, loss, weights)
    options = FitOptions(spacing="free")
    search = fit_spline(X, first_responses(y, loss, weights), weights=weights, names=names, options=options)
    return fit_terms(search, X, y, loss, np.ones(len(y)) if weights is None else weights).loss.width


def working_response(eta: Floats, y: Floats, loss: ResponseLoss, weight: Floats) -> tuple[Floats, Floats]:
    """Return the response and the weights whose least squares are a Newton step from η; the weights keep their sum."""
    score, curvature = scores(eta, y, loss, weight)
    if np.ptp(curvature) == 0:  # the same weights, bit for bit: knots are counted by them
        return eta + score / curvature, weight
    working = weight * curvature
    return eta + score / curvature, working * (weight.sum() / working.sum())


def scores(eta: Floats, y: Floats, loss: ResponseLoss, weight: Floats) -> tuple[Floats, Floats]:
    """Return minus the slopes of the rows' costs by η, and their expected curvatures: (N,) each."""
    if loss.is_quantile:
        return _sides(eta, y, loss, weight), np.full(len(y), density_at_zero(y - eta, weight))
    slope, _ = loss.slopes(eta, y)
    if loss.name == "huber":
        return -slope, np.ones(len(y))
    curvature = np.exp((2 - loss.power) * eta)
    return -slope, np.maximum(curvature, MIN_WEIGHT * np.average(curvature, weights=weight))


def _sides(eta: Floats, y: Floats, loss: ResponseLoss, weight: Floats | None) -> Floats:
    """Say on which side of a quantile the rows are: about q above it and q − 1 below; (N,)."""
    width = ON_QUANTILE * (robust_std(y - eta, weight) or 1.0)
    return -Smoothed(loss.quantile, width).slopes(eta, y)[0]


def deviance_gcv(fitted: Coefficients, search: SplineFit) -> float:
    """Return the generalised cross-validation error of the deviance."""
    selection = search.selection
    return gcv(fitted.deviance, selection.observations, 1 + len(search.spline.terms), selection.penalty)
