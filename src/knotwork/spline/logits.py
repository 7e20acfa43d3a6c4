"""Logits of a basis by penalised likelihood.

They are fitted in orthonormal contrasts of the classes, so that no class is special and none is counted twice:
η = B·Θ·Cᵀ with CᵀC = I and logits that sum to zero.

Newton's method finds each step by conjugate gradients: a Hessian-vector product costs no more than a gradient, while
the Hessian itself has (M·K)² entries. The preconditioner is the inverse of each class's own diagonal block of the
Hessian. With it a step takes two or three products, and one preconditioner serves several steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from knotwork.arrays import CHUNK, Floats

# Rows' values in single or double precision.
Array = NDArray[np.floating]

MAX_STEPS = 100
# A step whose promised gain is below this share of the objective is the last.
TOLERANCE = 1e-6
# Conjugate gradients for a step end when this share of the squared slope is left.
SOLVED = 0.15
MAX_PRODUCTS = 100
# The preconditioner is recomputed after a step that took more products than this share of the columns; half of that for
# two classes, which share one block.
STALE = 0.15
# A step goes on along its direction if the slope there is still this share of what it was, this far at most.
STILL_FALLING = 0.2
LONGEST_STEP = 4.0
# The exponentials of logits below this, and sums of them, are finite and not zero: by the bytes of a number.
SAFE = {4: 80.0, 8: 600.0}
# Single precision pays off from this many products in a sum of outer products. It is enough for the preconditioner, and
# for everything if the tolerance is at least this share of the objective.
LARGE = 1e6
COARSE = 1e-4
# The intercepts are not to be shrunk, but a class of one row may ask for minus infinity where weights are extreme.
INTERCEPT_RIDGE = 1e-8


@dataclass(frozen=True)
class LogitFit:
    """Logits of K classes on a basis, by penalised likelihood.

    theta : (1 + M, K − 1) coefficients of basis/units in orthonormal contrasts of the classes, the intercept first
    probabilities : (K, N) of the rows
    log_likelihood, null_log_likelihood : of the model and of the intercept alone, weighted
    preconditioner : (K, 1 + M, 1 + M) inverse blocks of the last step, which another fit may begin with; one block for
        two classes
    """

    problem: _Problem
    theta: Floats
    probabilities: Array
    log_likelihood: float
    preconditioner: Floats
    null_log_likelihood: float

    def refit(self, ridge: float, tolerance: float = TOLERANCE) -> LogitFit:
        """Fit with another ridge, beginning with these coefficients."""
        problem = self.problem.with_ridge(ridge)
        found = problem.newton(self.theta, self.probabilities, self.log_likelihood, self.preconditioner, tolerance)
        return LogitFit(problem, *found, self.null_log_likelihood)

    @cached_property
    def coef(self) -> Floats:
        """Coefficients of the basis: (M, p), p = 1 (log-odds of the second) for two classes, else K, of sum zero."""
        return self._outputs(self.theta[1:]) / self.problem.scale[:, None]

    @property
    def intercept(self) -> Floats:
        """Logits where the basis is zero: (p,)."""
        intercept: Floats = self._outputs(self.theta[:1])[0] - self.problem.centre @ self.coef
        return intercept

    def _outputs(self, theta: Floats) -> Floats:
        logits = theta @ self.problem.contrast.T
        return logits[:, 1:] - logits[:, :1] if logits.shape[1] == 2 else logits

    @cached_property
    def _curvature(self) -> tuple[Floats, Floats]:
        gram, between = self.problem.curvature(self.probabilities)
        return _inverse(gram)[1:, 1:], between

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
    basis: Floats,
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

    >>> x = np.array([[0.0], [0.0], [1.0], [1.0], [1.0], [1.0]])
    >>> fit = fit_logits(x, np.array([0, 1, 0, 1, 1, 1]), 2, np.ones(6), ridge=1e-9, units=np.ones(1))
    >>> fit.intercept.round(4) + 0.0, fit.coef.round(4)           # even odds at 0, three to one at 1
    (array([0.]), array([[1.0986]]))
    """
    precision = np.float64 if tolerance < COARSE else _rough(len(basis), 1 + basis.shape[1])
    problem = _Problem.of(basis, codes, classes, weights, ridge, units, precision)
    start = problem.start()
    null = problem.evaluate(start)
    found = problem.newton(start, *null, problem.first_inverses(null[0]), tolerance)
    return LogitFit(problem, *found, null[1])


@dataclass(frozen=True)
class _Problem:
    """A penalised likelihood: columns (1 + M, N) are [1, centred basis/units], penalty (1 + M,) their ridge.

    Rows run along the last axis: there are many of them, and few classes. Columns, weights and probabilities may be in
    single precision, coefficients and sums over all rows are not.
    """

    columns: Array
    codes: NDArray[np.intp]
    weights: Array
    contrast: Floats
    penalty: Floats
    centre: Floats
    scale: Floats

    @classmethod
    def of(
        cls,
        basis: Floats,
        codes: NDArray[np.intp],
        classes: int,
        weights: Floats,
        ridge: float,
        units: Floats,
        precision: Any = np.float64,
    ) -> _Problem:
        mean = weights @ basis / weights.sum()
        columns = np.empty((1 + basis.shape[1], len(basis)), dtype=precision)
        columns[0] = 1.0
        np.subtract(basis.T, mean[:, None], out=columns[1:], casting="same_kind")
        columns[1:] /= units[:, None].astype(precision)
        penalty = _penalty(ridge, len(columns))
        return cls(columns, codes, weights.astype(precision), contrasts(classes), penalty, mean, units)

    def with_ridge(self, ridge: float) -> _Problem:
        """Return the same likelihood with another ridge."""
        return replace(self, penalty=_penalty(ridge, len(self.columns)))

    def start(self) -> Floats:
        """Return the coefficients of the intercept alone: (1 + M, K − 1)."""
        rows = np.bincount(self.codes, self.weights, minlength=len(self.contrast))
        # A class without rows, which the caller may know from elsewhere, starts at a tenth of the minimum share.
        shares = np.where(rows > 0, rows, 0.1 * rows[rows > 0].min()) / rows.sum()
        theta = np.zeros((len(self.columns), self.contrast.shape[1]))
        theta[0] = np.log(shares) @ self.contrast
        return theta

    def evaluate(self, theta: Floats) -> tuple[Array, float]:
        """Return probabilities (K, N) and log-likelihood."""
        probabilities, logs = class_probabilities(self._logits(theta), self.codes)
        return probabilities, float(self.weights @ logs.astype(np.float64))

    def _logits(self, theta: Floats) -> Array:
        return (self.contrast @ theta.T).astype(self.columns.dtype) @ self.columns

    def penalised(self, theta: Floats, log_likelihood: float) -> float:
        """Return the objective, which is to be minimised."""
        return float(self.penalty @ np.square(theta).sum(axis=1)) / 2 - log_likelihood

    def gradient(self, theta: Floats, probabilities: Array) -> Floats:
        """Return the gradient of the objective: (1 + M, K − 1)."""
        residual = probabilities.copy()
        residual[self.codes, np.arange(residual.shape[1])] -= 1.0
        return self._spread(residual) + self.penalty[:, None] * theta

    def hessian_product(self, direction: Floats, probabilities: Array) -> Floats:
        """Return a Hessian-vector product: (1 + M, K − 1)."""
        change = self._logits(direction)
        change *= probabilities
        change -= probabilities * change.sum(axis=0)
        return self._spread(change) + self.penalty[:, None] * direction

    def _spread(self, values: Array) -> Floats:
        """Return weighted products of the columns and values of the classes (K, N), which are lost, in contrasts."""
        values *= self.weights
        return (self.columns @ values.T) @ self.contrast

    def curvature(self, probabilities: Array) -> tuple[Floats, Floats]:
        """Return the terms' (1 + M, 1 + M) and the classes' (K − 1, K − 1) curvature.

        Their Kronecker product is the Hessian for two classes; for more it is averaged over rows and classes.
        """
        k = self.contrast.shape[1]
        own = self.weights * probabilities
        gram = self._gram((self.weights - (own * probabilities).sum(axis=0)) / k, np.float64)
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
        return np.stack([_inverse(self._gram(row, self._rough)) for row in rows])

    def first_inverses(self, probabilities: Array) -> Floats:
        """Return the same where the probabilities are those of the intercept alone, at the price of one."""
        classes, k = self.contrast.shape
        own = probabilities[: classes if k > 1 else 1, 0].astype(np.float64)
        own = own * (1 - own) * (classes / k)
        inverse = _inverse(self._gram(self.weights * own.mean(), self._rough))
        return inverse * (own.mean() / own)[:, None, None]

    @property
    def _rough(self) -> Any:
        return _rough(self.columns.shape[1], len(self.columns))

    def _gram(self, weights: Array, precision: Any) -> Floats:
        """Return the penalised sum of outer products of the columns, in some precision."""
        columns, n = self.columns.shape
        max_weight = max(float(weights.max()), np.finfo(float).tiny)
        root = np.sqrt((weights / max_weight).clip(0.0)).astype(precision)
        gram = np.zeros((columns, columns))
        for start in range(0, n, CHUNK):
            rows = slice(start, start + CHUNK)
            b = self.columns[:, rows].astype(precision, copy=False) * root[rows]
            gram += b @ b.T
        gram *= max_weight
        gram[np.diag_indices(columns)] += np.maximum(self.penalty, 10 * np.finfo(precision).eps * np.trace(gram))
        return gram

    def newton(
        self, theta: Floats, probabilities: Array, log_likelihood: float, inverses: Floats, tolerance: float
    ) -> tuple[Floats, Array, float, Floats]:
        """Newton's method: return coefficients, their probabilities, the log-likelihood and the preconditioner.

        Steps are halved until the objective falls. Where classes are nearly separable the likelihood flattens along a
        step, which is then too short: it goes on while the slope at its end is steep enough.
        """
        value = self.penalised(theta, log_likelihood)
        slope = self.gradient(theta, probabilities)
        for _ in range(MAX_STEPS):
            direction, products = self._direction(slope, probabilities, inverses)
            gain = float(np.sum(slope * direction))
            length, last = 1.0, gain <= tolerance * (1.0 + abs(value))
            while True:
                trial = theta - length * direction
                reached = self.evaluate(trial)
                now = self.penalised(trial, reached[1])
                if now <= value - 1e-4 * length * gain:
                    break
                length /= 2
                if length < 1e-8:  # only rounding is left
                    return theta, probabilities, log_likelihood, inverses
            theta, value, (probabilities, log_likelihood) = trial, now, reached
            if last:
                break
            slope = self.gradient(theta, probabilities)
            ahead = float(np.sum(slope * direction))
            if length == 1.0 and STILL_FALLING * gain < ahead < gain:
                trial = theta - (min(gain / (gain - ahead), LONGEST_STEP) - 1.0) * direction
                reached = self.evaluate(trial)
                now = self.penalised(trial, reached[1])
                if now < value:
                    theta, value, (probabilities, log_likelihood) = trial, now, reached
                    slope = self.gradient(theta, probabilities)
            if products * len(self.contrast) > STALE * len(slope) * len(inverses):
                inverses = self.inverses(probabilities)
        return theta, probabilities, log_likelihood, inverses

    def _direction(self, slope: Floats, probabilities: Array, inverses: Floats) -> tuple[Floats, int]:
        """Solve Hessian·direction = slope by conjugate gradients; return the direction and the number of products.

        The preconditioner, which may be that of an earlier step, keeps their number small.
        """
        contrast = self.contrast

        def precondition(residual: Floats) -> Floats:
            found: Floats = np.matmul(inverses, (contrast @ residual.T)[:, :, None])[:, :, 0].T @ contrast
            return found

        direction, residual, preconditioned = np.zeros_like(slope), slope, precondition(slope)
        left = first = float(np.sum(residual * preconditioned))
        products = 0
        while left > SOLVED * first and products < MAX_PRODUCTS:
            bent = self.hessian_product(preconditioned, probabilities)
            length = left / float(np.sum(preconditioned * bent))
            direction = direction + length * preconditioned
            residual = residual - length * bent
            step = precondition(residual)
            left, before = float(np.sum(residual * step)), left
            preconditioned = step + left / before * preconditioned
            products += 1
        return direction, products


def _penalty(ridge: float, columns: int) -> Floats:
    penalty = np.full(columns, ridge)
    penalty[0] = min(ridge, INTERCEPT_RIDGE)
    return penalty


def _rough(rows: int, columns: int) -> Any:
    """Return the precision that is enough where little depends on it."""
    return np.float32 if rows * columns**2 > LARGE else np.float64


def _inverse(matrix: Floats) -> Floats:
    """Invert a symmetric matrix without negative eigenvalues."""
    lower = np.tril(dpotri(dpotrf(matrix, lower=True, overwrite_a=True)[0], lower=True, overwrite_c=True)[0])
    inverse: Floats = lower + np.tril(lower, -1).T
    return inverse
