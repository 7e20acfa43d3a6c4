"""Logits of a basis by penalised likelihood.

They are fitted in orthonormal contrasts of the classes, so that no class is special and none is counted twice:
η = B·Θ·Cᵀ with CᵀC = I and logits that sum to zero.

Newton's method finds each step by conjugate gradients: a Hessian-vector product costs no more than a gradient, while
the Hessian itself has (M·K)² entries. The preconditioner is the inverse of each class's own diagonal block of the
Hessian. With it a step takes two or three products, and one preconditioner serves several steps. Everything is a sum
over rows, and every pass over them takes all that it can from a block of columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.columns import Array, Columns, Values, weighted_mean
from knotwork.spline.newton import inverse_of, minimise, penalised_gram, penalty_of, polish, rough_precision

# A step whose promised gain is below this share of the objective is the last.
TOLERANCE = 1e-6
# The preconditioner is recomputed after a step that took more products than this share of the columns; half of that for
# two classes, which share one block.
STALE = 0.15
# The exponentials of logits below this, and sums of them, are finite and not zero: by the bytes of a number.
SAFE = {4: 80.0, 8: 600.0}
# Single precision is enough for everything if the tolerance is at least this share of the objective.
COARSE = 1e-4


@dataclass(frozen=True)
class Point:
    """Coefficients, and what a pass over the rows finds there.

    theta : (1 + M, K − 1) coefficients of the columns in orthonormal contrasts of the classes, the intercept first
    probabilities : (K, N) of the rows
    log_likelihood : weighted
    objective, slope : what is to be minimised, the penalised negative log-likelihood, and its gradient (1 + M, K − 1)
    """

    theta: Floats
    probabilities: Array
    log_likelihood: float
    objective: float
    slope: Floats

    @property
    def local(self) -> Array:
        """What Hessian-vector products need."""
        return self.probabilities


@dataclass(frozen=True)
class LogitFit:
    """Logits of K classes on a basis, by penalised likelihood.

    point : the coefficients of basis/units
    preconditioner : (K, 1 + M, 1 + M) inverse blocks of the last step, which another fit may begin with; one block for
        two classes
    null_log_likelihood : of the intercept alone
    """

    problem: Problem
    point: Point
    preconditioner: Floats
    null_log_likelihood: float

    def refit(self, ridge: float, tolerance: float = TOLERANCE) -> LogitFit:
        """Fit with another ridge, beginning with these coefficients."""
        problem = self.problem.with_ridge(ridge)
        found = minimise(problem, self.problem.moved(self.point, problem.penalty), self.preconditioner, tolerance)
        return LogitFit(problem, *found, self.null_log_likelihood)

    def polished(self) -> LogitFit:
        """Take steps, solved exactly, until only rounding is left: the order of the rows then decides nothing."""
        point, inverses = polish(self.problem, self.point)
        return replace(self, point=point, preconditioner=inverses)

    @property
    def theta(self) -> Floats:
        """Coefficients of basis/units in orthonormal contrasts of the classes, the intercept first: (1 + M, K − 1)."""
        return self.point.theta

    @property
    def log_likelihood(self) -> float:
        """The logarithm of the likelihood, weighted."""
        return self.point.log_likelihood

    @cached_property
    def coef(self) -> Floats:
        """Coefficients of the basis: (M, p), p = 1 (log-odds of the second) for two classes, else K, of sum zero."""
        return self._outputs(self.theta[1:]) / self.problem.columns.scale[:, None]

    @property
    def intercept(self) -> Floats:
        """Logits where the basis is zero: (p,)."""
        intercept: Floats = self._outputs(self.theta[:1])[0] - self.problem.columns.centre @ self.coef
        return intercept

    def _outputs(self, theta: Floats) -> Floats:
        logits = theta @ self.problem.contrast.T
        return logits[:, 1:] - logits[:, :1] if logits.shape[1] == 2 else logits

    @cached_property
    def _curvature(self) -> tuple[Floats, Floats]:
        gram, between = self.problem.curvature(self.point.probabilities)
        return inverse_of(gram)[1:, 1:], between

    def term_costs(self) -> Floats:
        """Rise in deviance without each term, the others fitted again: Wald's statistics, (M,)."""
        inverse, between = self._curvature
        theta = self.theta[1:]
        return np.sum((theta @ between) * theta, axis=1) / np.diag(inverse)

    def cost_without(self, group: NDArray[np.intp]) -> float:
        """Rise in deviance without a group of terms."""
        inverse, between = self._curvature
        theta = self.theta[1 + group]
        return float(np.sum((theta @ between) * np.linalg.solve(inverse[np.ix_(group, group)], theta)))


def contrasts(classes: int) -> Floats:
    """Orthonormal columns that sum to zero: (K, K − 1).

    >>> contrasts(2).round(3).ravel().tolist()
    [-0.707, 0.707]
    """
    full = np.eye(classes)[:, 1:] - np.tri(classes - 1, classes).T / np.arange(1, classes)
    columns: Floats = full / np.linalg.norm(full, axis=0)
    return columns


def class_probabilities(logits: Array, codes: NDArray[np.intp]) -> tuple[Array, Array]:
    """Return probabilities (K, N), written over the logits, and the logarithms of those of the codes (N,)."""
    # Only logits beyond the range of the exponential need to be shifted.
    safe = SAFE[logits.dtype.itemsize]
    if not -safe < logits.min() <= logits.max() < safe:
        logits -= logits.max(axis=0)
    own = logits[codes, np.arange(logits.shape[1])]
    np.exp(logits, out=logits)
    total = logits.sum(axis=0)
    logits /= total
    return logits, own - np.log(total)


def fit_logits(
    values: Values,
    codes: NDArray[np.intp],
    classes: int,
    weights: Floats,
    ridge: float,
    units: Floats,
    tolerance: float = TOLERANCE,
) -> LogitFit:
    """Maximise Σ w·log p(code) − ridge/2·Σθ² over the logits of a basis (N, M); the intercept is free.

    θ are the coefficients of basis/units, the units (M,) being the stds of the features: a hinge with few rows
    beyond its knot gets no larger a slope for being nearly constant.

    >>> from knotwork.spline.columns import BasisValues
    >>> x = BasisValues(np.array([[0.0], [0.0], [1.0], [1.0], [1.0], [1.0]]))
    >>> fit = fit_logits(x, np.array([0, 1, 0, 1, 1, 1]), 2, np.ones(6), ridge=1e-9, units=np.ones(1))
    >>> fit.intercept.round(4) + 0.0, fit.coef.round(4)           # even odds at 0, three to one at 1
    (array([0.]), array([[1.0986]]))
    """
    count, rows = values.shape
    precision = np.float64 if tolerance < COARSE else rough_precision(rows, 1 + count)
    problem = Problem.of(values, codes, classes, weights, ridge, units, precision)
    start = problem.evaluate(problem.start())
    found = minimise(problem, start, problem.first_inverses(start.probabilities), tolerance)
    return LogitFit(problem, *found, start.log_likelihood)


@dataclass(frozen=True)
class Problem:
    """A penalised likelihood of columns [1, centred basis/units], penalty (1 + M,) their ridge.

    Rows run along the last axis: there are many of them, and few classes. Columns, weights and probabilities may be in
    single precision, coefficients and sums over all rows are not.
    """

    columns: Columns
    codes: NDArray[np.intp]
    weights: Array
    contrast: Floats
    penalty: Floats

    @classmethod
    def of(
        cls,
        values: Values,
        codes: NDArray[np.intp],
        classes: int,
        weights: Floats,
        ridge: float,
        units: Floats,
        precision: Any = np.float64,
    ) -> Problem:
        """Return the problem of some columns and rows of known classes."""
        columns = Columns(values, weighted_mean(values, weights), units, precision)
        weights = weights.astype(precision, copy=False)
        return cls(columns, codes, weights, contrasts(classes), penalty_of(ridge, len(columns)))

    def with_ridge(self, ridge: float) -> Problem:
        """Return the same likelihood with another ridge."""
        return replace(self, penalty=penalty_of(ridge, len(self.columns)))

    def start(self) -> Floats:
        """Return the coefficients of the intercept alone: (1 + M, K − 1)."""
        rows = np.bincount(self.codes, self.weights, minlength=len(self.contrast))
        # A class without rows, which the caller may know from elsewhere, starts at a tenth of the minimum share.
        shares = np.where(rows > 0, rows, 0.1 * rows[rows > 0].min()) / rows.sum()
        theta = np.zeros((len(self.columns), self.contrast.shape[1]))
        theta[0] = np.log(shares) @ self.contrast
        return theta

    def evaluate(self, theta: Floats) -> Point:
        """Find probabilities, likelihood and slope in one pass."""
        probabilities = np.empty((len(self.contrast), len(self.codes)), dtype=self.columns.dtype)
        log_likelihood, spread = 0.0, np.zeros((len(theta), len(self.contrast)))
        factors = self._factors(theta)
        for rows, columns in self.columns.blocks():
            codes, weights = self.codes[rows], self.weights[rows]
            found, logs = class_probabilities(factors @ columns, codes)
            probabilities[:, rows] = found
            log_likelihood += float(weights @ logs.astype(np.float64))
            found[codes, np.arange(len(codes))] -= 1.0
            found *= weights
            spread += columns @ found.T
        objective = self._ridge(theta) - log_likelihood
        return Point(theta, probabilities, log_likelihood, objective, self._slope(spread, theta))

    def moved(self, point: Point, penalty: Floats) -> Point:
        """Return a point of this problem as one with another penalty."""
        change = penalty - self.penalty
        objective = point.objective + float(change @ np.square(point.theta).sum(axis=1)) / 2
        return replace(point, objective=objective, slope=point.slope + change[:, None] * point.theta)

    def hessian_product(self, direction: Floats, probabilities: Array) -> Floats:
        """Return a Hessian-vector product: (1 + M, K − 1)."""
        spread = np.zeros((len(direction), len(self.contrast)))
        factors = self._factors(direction)
        for rows, columns in self.columns.blocks():
            p = probabilities[:, rows]
            change = factors @ columns
            change *= p
            change -= p * change.sum(axis=0)
            change *= self.weights[rows]
            spread += columns @ change.T
        return self._slope(spread, direction)

    def _factors(self, theta: Floats) -> Array:
        """Return what makes logits of columns: (K, 1 + M)."""
        factors: Array = (self.contrast @ theta.T).astype(self.columns.dtype)
        return factors

    def _ridge(self, theta: Floats) -> float:
        return float(self.penalty @ np.square(theta).sum(axis=1)) / 2

    def _slope(self, spread: Floats, theta: Floats) -> Floats:
        """Return products of the columns and values of the classes (1 + M, K) in contrasts, and the penalty's share."""
        slope: Floats = spread @ self.contrast + self.penalty[:, None] * theta
        return slope

    def curvature(self, probabilities: Array) -> tuple[Floats, Floats]:
        """Return the terms' (1 + M, 1 + M) and the classes' (K − 1, K − 1) curvature.

        Their Kronecker product is the Hessian for two classes; for more it is averaged over rows and classes.
        """
        k = self.contrast.shape[1]
        own = self.weights * probabilities
        gram = self._gram((self.weights - np.einsum("kn,kn->n", own, probabilities)) / k, np.float64)
        both = np.diag(own.sum(axis=1)) - own @ probabilities.T
        between = self.contrast.T @ both @ self.contrast
        between *= k / max(float(np.trace(between)), np.finfo(float).tiny)
        return gram, between

    def inverses(self, probabilities: Array) -> Floats:
        """Return the inverses of the classes' own diagonal blocks of the Hessian: (K, 1 + M, 1 + M).

        Two classes share one, which is the inverse of the Hessian.
        """
        classes, k = self.contrast.shape
        rows = [self.weights * p * (1 - p) * (classes / k) for p in probabilities[: classes if k > 1 else 1]]
        return np.stack([inverse_of(self._gram(row, self._rough)) for row in rows])

    def hessian(self, probabilities: Array) -> Floats:
        """Return the Hessian of two classes: (1 + M, 1 + M)."""
        p = probabilities[0]
        return self._gram(2 * self.weights * p * (1 - p), np.float64)

    def first_inverses(self, probabilities: Array) -> Floats:
        """Return the same where the probabilities are those of the intercept alone, at the price of one."""
        classes, k = self.contrast.shape
        own = probabilities[: classes if k > 1 else 1, 0].astype(np.float64)
        own = own * (1 - own) * (classes / k)
        inverse = inverse_of(self._gram(self.weights * own.mean(), self._rough))
        return inverse * (own.mean() / own)[:, None, None]

    @property
    def _rough(self) -> Any:
        return rough_precision(len(self.codes), len(self.columns))

    def _gram(self, weights: Array, precision: Any) -> Floats:
        return penalised_gram(self.columns, weights, self.penalty, precision)

    def precondition(self, inverses: Floats, residual: Floats) -> Floats:
        """Apply a preconditioner."""
        spread = (self.contrast @ residual.T)[:, :, None]
        found: Floats = np.matmul(inverses, spread)[:, :, 0].T @ self.contrast
        return found

    def stale(self, products: int, inverses: Floats) -> bool:
        """Whether a step that took so many products asks for a new preconditioner."""
        return products * len(self.contrast) > STALE * len(self.columns) * len(inverses)
