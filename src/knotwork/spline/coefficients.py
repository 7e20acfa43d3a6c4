"""Coefficients of a basis for one response and any loss: η = θ₀ + Σ θ_m·b_m, by Newton's method.

The columns, the ridge and the steps are those of logits, see :mod:`knotwork.spline.newton`. A pinball loss has no
second derivative: it is minimised through smooth losses √(r² + width²)/2 + (q − 1/2)·r whose widths shrink to a
millionth of the residuals' size, each fit beginning where the one before ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.losses import HUBER_STDS, ResponseLoss, robust_std
from knotwork.spline.columns import Columns, Values, weighted_mean
from knotwork.spline.newton import inverse_of, minimise, penalised_gram, penalty_of, polish, rough_precision

# A step whose promised gain is below this share of the objective is the last.
TOLERANCE = 1e-9
# The preconditioner is recomputed after a step that took more products than this.
STALE = 2
# Widths of smoothed pinball losses, as shares of the size of the residuals: the first, the last and their ratio.
FIRST_WIDTH, LAST_WIDTH, NARROWER = 0.3, 1e-7, 0.2
# The smallest ridge, as a share of the rows: it only makes every system solvable.
SOLVABLE = 1e-12


@dataclass(frozen=True)
class Smoothed:
    """The pinball loss of a quantile, rounded off within about ``width`` of zero."""

    quantile: float
    width: float

    def cost(self, eta: Floats, y: Floats) -> Floats:
        """Return what each row costs: (N,), (N,) → (N,)."""
        residual = y - eta
        found: Floats = np.hypot(residual, self.width) / 2 + (self.quantile - 0.5) * residual
        return found

    def slopes(self, eta: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return first and second derivatives by η."""
        residual = y - eta
        size = np.hypot(residual, self.width)
        return -residual / size / 2 - (self.quantile - 0.5), (self.width / size) ** 2 / size / 2


@dataclass(frozen=True)
class Point:
    """Coefficients, and what a pass over the rows finds there.

    theta, slope : (1 + M,) coefficients of [1, basis/units], and the gradient of the objective
    eta : (N,) predictions on the scale of the link
    curvature : (N,) second derivatives of the rows' costs, weighted
    """

    theta: Floats
    eta: Floats
    curvature: Floats
    objective: float
    slope: Floats

    @property
    def local(self) -> Floats:
        """What Hessian-vector products need."""
        return self.curvature


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of a basis for one response.

    loss : with Huber's width filled in
    point : the coefficients of basis/units
    """

    problem: _Problem
    loss: ResponseLoss
    point: Point

    def refit(self, ridge: float, tolerance: float = TOLERANCE) -> Coefficients:
        """Fit with another ridge, in rows, beginning with these coefficients."""
        problem = self.problem.with_ridge(ridge)
        return replace(self, problem=problem, point=_fitted(problem, self.loss, self.point.theta, tolerance))

    @cached_property
    def coef(self) -> Floats:
        """Coefficients of the basis: (M, 1)."""
        return (self.point.theta[1:] / self.problem.columns.scale)[:, None]

    @property
    def intercept(self) -> Floats:
        """η where the basis is zero: (1,)."""
        intercept: Floats = self.point.theta[:1] - self.problem.columns.centre @ self.coef
        return intercept

    @property
    def deviance(self) -> float:
        """Deviance of the rows, weighted."""
        return float(self.problem.weights @ self.loss.deviance(self.point.eta, self.problem.y))

    @cached_property
    def _inverse(self) -> Floats:
        """Inverse of the terms' curvature; for a quantile, the density of the residuals at zero is each row's."""
        weights = self.point.curvature
        if self.loss.is_quantile:
            weights = (
                self.problem.weights
                / self.problem.unit
                * density_at_zero(self.problem.y - self.point.eta, self.problem.weights)
            )
        return inverse_of(penalised_gram(self.problem.columns, weights, self.problem.penalty, np.float64))[1:, 1:]

    @property
    def _unit(self) -> float:
        return self.problem.unit * self.loss.per_cost / 2

    def cost_without(self, group: NDArray[np.intp]) -> float:
        """Rise in deviance without a group of terms, the others fitted again: Wald's statistic."""
        theta = self.point.theta[1 + group]
        rise = float(theta @ np.linalg.solve(self._inverse[np.ix_(group, group)], theta))
        return rise * self._unit

    def term_costs(self) -> Floats:
        """Rise in deviance without each term: (M,)."""
        costs: Floats = self.point.theta[1:] ** 2 / np.diag(self._inverse) * self._unit
        return costs


def fit_coefficients(
    values: Values,
    y: Floats,
    loss: ResponseLoss,
    weights: Floats,
    ridge: float,
    units: Floats,
    tolerance: float = TOLERANCE,
) -> Coefficients:
    """Minimise Σ w·cost + ridge·row/2·Σθ² over η = θ₀ + Σ θ_m·(b_m − mean)/units; the intercept is free.

    y (N,), weights (N,), units (M,). ``row`` is the curvature of one row at the best constant, so that a ridge of 0.1
    counts like a tenth of a row whatever the unit of y.

    >>> from knotwork.spline.columns import BasisValues
    >>> x = BasisValues(np.array([[0.0], [0.0], [1.0], [1.0]]))
    >>> y = np.array([1.0, 3.0, 4.0, 12.0])
    >>> fit = fit_coefficients(x, y, ResponseLoss("poisson", power=1.0), np.ones(4), ridge=0.0, units=np.ones(1))
    >>> np.exp(fit.intercept).round(6), np.exp(fit.coef[0]).round(6)          # means 2 and 8
    (array([2.]), array([4.]))
    """
    constant = loss.constant(y, weights)
    spread = robust_std(y - constant, weights) or 1.0
    if loss.power > 0:
        row = unit = float(np.exp((2 - loss.power) * constant))
    else:
        row, unit = (1 / spread, spread) if loss.is_quantile else (1.0, spread**2)
    columns = Columns(values, weighted_mean(values, weights), units)
    problem = _Problem(columns, y, weights, loss, row, unit, np.zeros(len(columns))).with_ridge(ridge)
    start = np.zeros(len(columns))
    start[0] = constant
    if loss.name == "huber":
        median = fit_coefficients(values, y, ResponseLoss("absolute_error"), weights, ridge, units, tolerance).point
        if not loss.width:
            loss = replace(loss, width=HUBER_STDS * (robust_std(y - median.eta, weights) or 1.0))
        # Beyond the width rows have no curvature, and their slopes are no larger: Newton's steps begin at the median,
        # and a ridge must not outweigh the rows.
        start, row = median.theta, min(1.0, loss.width / spread)
        problem = replace(problem, loss=loss, row=row, unit=row * spread**2).with_ridge(ridge)
    return Coefficients(problem, loss, _fitted(problem, loss, start, tolerance))


def _fitted(problem: _Problem, loss: ResponseLoss, theta: Floats, tolerance: float) -> Point:
    """Minimise from some coefficients on."""
    if not loss.is_quantile:
        point = problem.evaluate(theta)
        point, _ = minimise(problem, point, problem.inverses(point.local), tolerance)
        return polish(problem, point)[0] if tolerance <= TOLERANCE else point
    size = robust_std(problem.y - problem.evaluate(theta).eta, problem.weights)
    width = FIRST_WIDTH * size
    while size > 0 and width > LAST_WIDTH * size:
        smooth = replace(problem, loss=Smoothed(loss.quantile, width))
        point = smooth.evaluate(theta)
        theta = minimise(smooth, point, smooth.inverses(point.local), max(tolerance, 1e-3 * width / size))[0].theta
        if width <= max(tolerance, LAST_WIDTH) * size:
            break
        width *= NARROWER
    return problem.evaluate(theta)


def density_at_zero(residuals: Floats, weights: Floats) -> float:
    """Density of residuals at zero, by a kernel of Silverman's width; 1/std of a point mass."""
    total = float(weights.sum())
    size = float(np.sqrt(weights @ np.square(residuals) / total)) or 1.0
    width = 0.9 * min(size, robust_std(residuals, weights) or size) * total**-0.2
    kernel = np.exp(-np.square(residuals / width) / 2) / (width * np.sqrt(2 * np.pi))
    return max(float(weights @ kernel / total), 1e-6 / size)


@dataclass(frozen=True)
class _Problem:
    """A penalised loss of columns [1, centred basis/units], penalty (1 + M,) their ridge; ``row`` as above.

    The objective and its derivatives are in units of ``unit``, so that tolerances do not depend on the unit of y.
    """

    columns: Columns
    y: Floats
    weights: Floats
    loss: ResponseLoss | Smoothed
    row: float
    unit: float
    penalty: Floats

    def with_ridge(self, ridge: float) -> _Problem:
        """Return the same loss with another ridge, in rows."""
        rows = max(ridge, SOLVABLE * float(self.weights.sum()))
        return replace(self, penalty=penalty_of(rows, len(self.columns)) * (self.row / self.unit))

    def evaluate(self, theta: Floats) -> Point:
        """Find predictions, objective and slope in one pass."""
        eta, curvature = np.empty((2, len(self.y)))
        objective, slope = float(self.penalty @ np.square(theta)) / 2, self.penalty * theta
        for rows, columns in self.columns.blocks():
            y, weights = self.y[rows], self.weights[rows] / self.unit
            eta[rows] = theta @ columns
            with np.errstate(over="ignore", invalid="ignore"):  # a step too long is tried and halved
                objective += float(weights @ self.loss.cost(eta[rows], y))
                first, second = self.loss.slopes(eta[rows], y)
                curvature[rows] = weights * second
                slope = slope + columns @ (weights * first)
        return Point(theta, eta, curvature, objective, slope)

    def hessian_product(self, direction: Floats, local: Floats) -> Floats:
        """Return a Hessian-vector product: (1 + M,)."""
        found = self.penalty * direction
        for rows, columns in self.columns.blocks():
            found = found + columns @ (local[rows] * (direction @ columns))
        return found

    def inverses(self, local: Floats) -> Floats:
        """Return the inverse of the Hessian: (1 + M, 1 + M)."""
        precision: Any = rough_precision(len(self.y), len(self.columns))
        return inverse_of(penalised_gram(self.columns, local, self.penalty, precision))

    def precondition(self, inverses: Floats, residual: Floats) -> Floats:
        """Apply a preconditioner."""
        found: Floats = inverses @ residual
        return found

    def stale(self, products: int, inverses: Floats) -> bool:
        """Whether a step that took so many products asks for a new preconditioner."""
        return products > STALE
