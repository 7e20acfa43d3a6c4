"""Newton's method for penalised sums over rows: classes and responses of any likelihood share it.

Each step is found by conjugate gradients: a Hessian-vector product costs no more than a gradient, while the Hessian of
many classes is large. A preconditioner serves several steps.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from knotwork.arrays import Floats
from knotwork.spline.columns import Array, Columns

MAX_STEPS = 100
# Conjugate gradients for a step end when this share of the squared slope is left.
SOLVED = 0.15
MAX_PRODUCTS = 100
# Steps that polish coefficients are solved up to EXACT, and end after one that promised less than POLISHED of the
# objective; ROUNDING is that of the objective.
EXACT, POLISHED, ROUNDING, MAX_POLISHES = 1e-4, 1e-16, 1e-12, 6
# A step goes on along its direction if the slope there is still this share of what it was, this far at most.
STILL_FALLING = 0.2
LONGEST_STEP = 4.0
# Single precision pays off from this many products in a sum of outer products.
LARGE = 1e6
# The intercepts are not to be shrunk, but a class of one row may ask for minus infinity where weights are extreme.
INTERCEPT_RIDGE = 1e-8


class Place(Protocol):
    """Coefficients, and what a pass over the rows finds there.

    theta, slope : coefficients, and the gradient of what is to be minimised, of one shape
    objective : what is to be minimised
    local : what Hessian-vector products need to know of the rows
    """

    @property
    def theta(self) -> Floats: ...  # noqa: D102
    @property
    def objective(self) -> float: ...  # noqa: D102
    @property
    def slope(self) -> Floats: ...  # noqa: D102
    @property
    def local(self) -> Any: ...  # noqa: D102


P = TypeVar("P", bound=Place)
P_co = TypeVar("P_co", bound=Place, covariant=True)


class Problem(Protocol[P_co]):
    """What is to be minimised."""

    def evaluate(self, theta: Floats) -> P_co:
        """Find objective and slope in one pass over the rows."""

    def hessian_product(self, direction: Floats, local: Any) -> Floats:
        """Return a Hessian-vector product."""

    def inverses(self, local: Any) -> Floats:
        """Return a preconditioner."""

    def precondition(self, inverses: Floats, residual: Floats) -> Floats:
        """Apply a preconditioner."""

    def stale(self, products: int, inverses: Floats) -> bool:
        """Whether a step that took so many products asks for a new preconditioner."""


def minimise(problem: Problem[P], point: P, inverses: Floats, tolerance: float) -> tuple[P, Floats]:
    """Newton's method: return where it arrives, and the preconditioner.

    Steps are halved until the objective falls. Where classes are nearly separable the likelihood flattens along a
    step, which is then too short: it goes on while the slope at its end is steep enough.
    """
    for _ in range(MAX_STEPS):
        direction, products = newton_direction(problem, point, inverses)
        gain = float(np.sum(point.slope * direction))
        length, last = 1.0, gain <= tolerance * (1.0 + abs(point.objective))
        while True:
            trial = problem.evaluate(point.theta - length * direction)
            if trial.objective <= point.objective - 1e-4 * length * gain:
                break
            length /= 2
            if length < 1e-8:  # only rounding is left
                return point, inverses
        point = trial
        if last:
            break
        ahead = float(np.sum(point.slope * direction))
        if length == 1.0 and STILL_FALLING * gain < ahead < gain:
            further = min(gain / (gain - ahead), LONGEST_STEP) - 1.0
            trial = problem.evaluate(point.theta - further * direction)
            if trial.objective < point.objective:
                point = trial
        if problem.stale(products, inverses):
            inverses = problem.inverses(point.local)
    return point, inverses


def polish(problem: Problem[P], point: P) -> tuple[P, Floats]:
    """Take steps, solved exactly, until only rounding is left: the order of the rows then decides nothing."""
    inverses = problem.inverses(point.local)
    for _ in range(MAX_POLISHES):
        direction, _ = newton_direction(problem, point, inverses, EXACT)
        trial = problem.evaluate(point.theta - direction)
        size = 1.0 + abs(point.objective)
        if not trial.objective <= point.objective + ROUNDING * size:
            break  # nearly separable classes: a whole step may be too long
        gain, point = float(np.sum(point.slope * direction)), trial
        if gain <= POLISHED * size:
            break
    return point, inverses


def newton_direction(problem: Problem[P], point: P, inverses: Floats, solved: float = SOLVED) -> tuple[Floats, int]:
    """Solve Hessian·direction = slope by conjugate gradients, up to a share ``solved`` of the squared slope.

    The preconditioner, which may be that of an earlier step, keeps the number of products small, which is returned
    with the direction.
    """
    slope = point.slope
    direction, residual, preconditioned = np.zeros_like(slope), slope, problem.precondition(inverses, slope)
    left = first = float(np.sum(residual * preconditioned))
    products = 0
    while left > solved * first and products < MAX_PRODUCTS:
        bent = problem.hessian_product(preconditioned, point.local)
        length = left / float(np.sum(preconditioned * bent))
        direction = direction + length * preconditioned
        residual = residual - length * bent
        step = problem.precondition(inverses, residual)
        left, before = float(np.sum(residual * step)), left
        preconditioned = step + left / before * preconditioned
        products += 1
    return direction, products


def penalty_of(ridge: float, columns: int) -> Floats:
    """Return the penalty of each column: the ridge, next to nothing for the intercept in front."""
    penalty = np.full(columns, ridge)
    penalty[0] = min(ridge, INTERCEPT_RIDGE)
    return penalty


def rough_precision(rows: int, columns: int) -> Any:
    """Return the precision that is enough where little depends on it."""
    return np.float32 if rows * columns**2 > LARGE else np.float64


def penalised_gram(columns: Columns, weights: Array, penalty: Floats, precision: Any) -> Floats:
    """Return the penalised sum of outer products of columns, in some precision; weights (N,) not negative."""
    max_weight = max(float(weights.max()), np.finfo(float).tiny)
    root = np.sqrt((weights / max_weight).clip(0.0)).astype(precision)
    gram = np.zeros((len(columns), len(columns)))
    for rows, block in columns.blocks():
        b = block.astype(precision, copy=False) * root[rows]
        gram += b @ b.T
    gram *= max_weight
    gram[np.diag_indices(len(gram))] += np.maximum(penalty, 10 * np.finfo(precision).eps * np.trace(gram))
    return gram


def inverse_of(matrix: Floats) -> Floats:
    """Invert a symmetric matrix without negative eigenvalues."""
    lower = np.tril(dpotri(dpotrf(matrix, lower=True, overwrite_a=True)[0], lower=True, overwrite_c=True)[0])
    inverse: Floats = lower + np.tril(lower, -1).T
    return inverse
