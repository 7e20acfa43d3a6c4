"""Classes: terms found by least squares on the class indicators, coefficients by multinomial likelihood.

The search sees each indicator divided by the root of its class's share: its score for a candidate is then the score
statistic of the multinomial likelihood at the intercept, and the sums are those of a regression with several responses.
Pruning is by GCV on the same sums. Only the coefficients of the terms that remain are fitted by likelihood, with a
small ridge that keeps them finite where classes can be told apart without error. Searches by the likelihood's own
gradient, and pruning by AIC or BIC, measured no better on twenty tables, and worse where classes are separable.

Logits are fitted in orthonormal contrasts of the classes, so that no class is special and none is counted twice:
η = B·Θ·Cᵀ with CᵀC = I and logits that sum to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from knotwork.errors import DataError
from knotwork.spline.fit import FitOptions, Knot, SplineFit, default_max_terms, fit_spline
from knotwork.spline.forward import Step
from knotwork.spline.model import CHUNK, Floats, Spline, Term

# Newton's steps solve a system of this many coefficients at most; larger ones go by quasi-Newton steps.
MOST_NEWTON = 200
MOST_STEPS = 100
# A Newton step whose promised gain is below this share of the objective is the last: the next one would be its square.
SETTLED = 1e-6
# Quasi-Newton steps end at this gradient, in units in which the curvature began as one, over the objective's root.
QUASI_SETTLED = 3e-4
# Products in a sum of outer products beyond which single precision pays.
LARGE = 1e7
# The exponentials of logits below this, and sums of them, are finite and not zero.
SAFE = 600.0
# The intercepts are not to be shrunk, but a class of one row may ask for minus infinity where weights are extreme.
INTERCEPT_RIDGE = 1e-8


@dataclass(frozen=True)
class LogitFit:
    """Logits of K classes on a basis, by penalised likelihood.

    intercept, coef : (p,) and (M, p); p = 1 (log-odds of the second) for two classes, else p = K, of sum zero
    log_likelihood, null_log_likelihood : of the model and of the intercept alone, weighted
    contrast : (M, K − 1) coefficients of the basis in its units and orthonormal contrasts of the classes
    row_curvature, class_curvature : (M, M) inverse and (K − 1, K − 1), whose Kronecker product is the curvature of the
        penalised likelihood; exact for two classes, averaged over rows and classes for more
    """

    intercept: Floats
    coef: Floats
    log_likelihood: float
    null_log_likelihood: float
    contrast: Floats
    row_curvature: Floats
    class_curvature: Floats

    def cost_without(self, group: NDArray[np.intp]) -> float:
        """Rise in deviance without a group of terms, the others fitted again: Wald's statistic."""
        theta = self.contrast[group]
        spread = self.row_curvature[np.ix_(group, group)]
        return float(np.sum((theta @ self.class_curvature) * np.linalg.solve(spread, theta)))


@dataclass(frozen=True)
class ClassFit:
    """A spline of logits and how it came about.

    spline : the logits, in the units of the data; one output, the log-odds of the second class, for two classes, else
        one per class, and they sum to zero
    search : the least-squares fit to the class indicators that found the terms
    deviance, null_deviance : −2·log-likelihood of the spline and of the intercept alone
    term_costs, feature_costs : (M,) and (d,) rise in deviance without the term, or any term of the feature (Wald)
    shares : (K,) of the classes, weighted
    """

    spline: Spline
    search: SplineFit
    deviance: float
    null_deviance: float
    term_costs: Floats
    feature_costs: Floats
    shares: Floats
    ridge: float

    @property
    def knots(self) -> tuple[Knot, ...]:
        """The knots of the spline, with their rows."""
        return self.search.knots

    @property
    def feature_centre(self) -> Floats:
        """Means of the features: (d,)."""
        return self.search.feature_centre

    @property
    def feature_scale(self) -> Floats:
        """Deviations of the features: (d,)."""
        return self.search.feature_scale


def fit_classes(
    X: NDArray[np.floating],
    codes: NDArray[np.intp],
    classes: int,
    *,
    weights: Floats | None = None,
    names: Sequence[str] | None = None,
    options: FitOptions | None = None,
    ridge: float = 0.1,
    report: Callable[[Step], None] | None = None,
) -> ClassFit:
    """Fit logits to finite data: X (N, d), codes (N,) from 0 to classes − 1, weights (N,) all positive.

    >>> x = np.linspace(-1.0, 1.0, 200)[:, None]
    >>> fit = fit_classes(x, (np.abs(x[:, 0]) < 0.5).astype(int), 2)
    >>> bool(np.all((fit.spline(x) > 0) == (np.abs(x[:, 0]) < 0.5)))
    True
    """
    options = options or FitOptions(threshold=1e-4)
    if options.max_terms is None:
        degree = 2 if isinstance(options.max_degree, str) else options.max_degree
        options = replace(options, max_terms=default_terms(len(X), X.shape[1], degree))
    weight = np.ones(len(X)) if weights is None else weights
    shares = np.bincount(codes, weight, minlength=classes) / weight.sum()
    search = fit_spline(
        X, indicators(codes, shares), weights=weights, names=names, options=options, report=report
    )  # fmt: skip
    terms = search.spline.terms
    basis = evaluate_terms(terms, X)
    d = X.shape[1]
    used = [term.features for term in terms]
    own = np.sqrt(_variance(basis, weight))
    units = [search.feature_scale[f[0]] if len(f) == 1 else own[m] or 1.0 for m, f in enumerate(used)]
    fitted = fit_logits(basis, codes, classes, weight, ridge, np.array(units))
    groups = [np.array([m for m, features in enumerate(used) if f in features], dtype=np.intp) for f in range(d)]
    return ClassFit(
        spline=Spline(terms, fitted.intercept, fitted.coef, search.spline.feature_names),
        search=search,
        deviance=-2 * fitted.log_likelihood,
        null_deviance=-2 * fitted.null_log_likelihood,
        term_costs=np.array([fitted.cost_without(np.array([m])) for m in range(len(terms))]),
        feature_costs=np.array([fitted.cost_without(group) if group.size else 0.0 for group in groups]),
        shares=shares,
        ridge=ridge,
    )


def default_terms(rows: int, features: int, degree: int) -> int:
    """Most terms of the search: as in regression, but no fewer than √N, because a label says less than a number."""
    return max(default_max_terms(features, degree), min(200, int(np.sqrt(rows))) + 1)


def indicators(codes: NDArray[np.intp], shares: Floats) -> Floats:
    """Return the responses of the search: (N, K) indicators over √share, or one column for two classes."""
    if len(shares) == 2:
        return codes[:, None].astype(np.float64)
    columns = np.zeros((len(codes), len(shares)))
    columns[np.arange(len(codes)), codes] = 1 / np.sqrt(shares[codes])
    return columns


def evaluate_terms(terms: Sequence[Term], X: NDArray[np.floating]) -> Floats:
    """Evaluate terms on rows of any precision, without a copy of the table: (N, d) → (N, M)."""
    columns = np.empty((len(X), len(terms)))
    for start in range(0, len(X), CHUNK):
        rows = np.asarray(X[start : start + CHUNK], dtype=np.float64)
        with np.errstate(over="ignore"):
            for m, term in enumerate(terms):
                columns[start : start + CHUNK, m] = term(rows)
    if not np.isfinite(columns).all():
        raise DataError("the distance from a knot to a value must be a float, got inf; divide the features by 4")
    return columns


def _variance(basis: Floats, weights: Floats) -> Floats:
    mean = weights @ basis / weights.sum()
    return weights @ np.square(basis - mean) / weights.sum()


def contrasts(classes: int) -> Floats:
    """Orthonormal columns that sum to zero: (K, K − 1).

    >>> contrasts(2).round(3).ravel().tolist()
    [-0.707, 0.707]
    """
    full = np.eye(classes)[:, 1:] - np.tri(classes - 1, classes).T / np.arange(1, classes)
    columns: Floats = full / np.linalg.norm(full, axis=0)
    return columns


def class_probabilities(logits: Floats, codes: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return probabilities (N, K), written over the logits, and the logarithms of those of the codes (N,)."""
    # Only logits beyond the range of the exponential need to be shifted; reductions along few classes are slow.
    if not -SAFE < logits.min() <= logits.max() < SAFE:
        logits -= logits.max(axis=1, keepdims=True)
    own = logits[np.arange(len(logits)), codes]
    np.exp(logits, out=logits)
    total = logits @ np.ones(logits.shape[1])
    logits /= total[:, None]
    return logits, own - np.log(total)


def fit_logits(
    basis: Floats, codes: NDArray[np.intp], classes: int, weights: Floats, ridge: float, units: Floats
) -> LogitFit:
    """Maximise Σ w·log p(code) − ridge/2·Σθ² over the logits of a basis (N, M); the intercept is free.

    θ are the coefficients of basis/units, the units (M,) being the deviations of the features: a hinge with few rows
    beyond its knot gets no larger a slope for being nearly constant.

    >>> x = np.array([[0.0], [0.0], [1.0], [1.0], [1.0], [1.0]])
    >>> fit = fit_logits(x, np.array([0, 1, 0, 1, 1, 1]), 2, np.ones(6), ridge=1e-9, units=np.ones(1))
    >>> fit.intercept.round(4) + 0.0, fit.coef.round(4)           # even odds at 0, three to one at 1
    (array([0.]), array([[1.0986]]))
    """
    problem = _Problem.of(basis, codes, classes, weights, ridge, units)
    theta = problem.start()
    null = problem.objective(theta)[1]
    theta = problem.newton(theta) if theta.size <= MOST_NEWTON else problem.quasi_newton(theta)
    probabilities, log_likelihood = problem.evaluate(theta)
    outputs = theta @ problem.contrast.T
    if classes == 2:
        outputs = outputs[:, 1:] - outputs[:, :1]
    coef = outputs[1:] / problem.scale[:, None]
    rows, between = problem.curvature(probabilities)
    return LogitFit(
        intercept=outputs[0] - problem.centre @ coef,
        coef=coef,
        log_likelihood=log_likelihood,
        null_log_likelihood=-null,
        contrast=theta[1:],
        row_curvature=rows,
        class_curvature=between,
    )


@dataclass(frozen=True)
class _Problem:
    """A penalised likelihood: columns (N, 1 + M) are [1, centred basis/units], penalty (1 + M,) their ridge."""

    columns: Floats
    codes: NDArray[np.intp]
    weights: Floats
    contrast: Floats
    penalty: Floats
    centre: Floats
    scale: Floats

    @classmethod
    def of(
        cls, basis: Floats, codes: NDArray[np.intp], classes: int, weights: Floats, ridge: float, units: Floats
    ) -> _Problem:
        columns = np.empty((len(basis), 1 + basis.shape[1]))
        columns[:, 0] = 1.0
        np.divide(basis, units, out=columns[:, 1:])
        mean = weights @ columns[:, 1:] / weights.sum()
        columns[:, 1:] -= mean
        penalty = np.full(columns.shape[1], ridge)
        penalty[0] = min(ridge, INTERCEPT_RIDGE)
        return cls(columns, codes, weights, contrasts(classes), penalty, mean * units, units)

    def start(self) -> Floats:
        """Return the coefficients of the intercept alone: (1 + M, K − 1)."""
        rows = np.bincount(self.codes, self.weights, minlength=len(self.contrast))
        # A class without rows, which the caller may know from elsewhere, starts at a tenth of the least.
        shares = np.where(rows > 0, rows, 0.1 * rows[rows > 0].min()) / self.weights.sum()
        theta = np.zeros((self.columns.shape[1], self.contrast.shape[1]))
        theta[0] = np.log(shares) @ self.contrast
        return theta

    def evaluate(self, theta: Floats) -> tuple[Floats, float]:
        """Return probabilities (N, K) and log-likelihood."""
        probabilities, logs = class_probabilities(self.columns @ (theta @ self.contrast.T), self.codes)
        return probabilities, float(self.weights @ logs)

    def objective(self, theta: Floats) -> tuple[float, float, Floats]:
        """Return the penalised objective, its part without the penalty, and the probabilities."""
        probabilities, log_likelihood = self.evaluate(theta)
        return float(self.penalty @ np.square(theta).sum(axis=1)) / 2 - log_likelihood, -log_likelihood, probabilities

    def gradient(self, theta: Floats, probabilities: Floats) -> Floats:
        """Return the gradient of the objective: (1 + M, K − 1)."""
        residual = probabilities.copy()
        residual[np.arange(len(residual)), self.codes] -= 1.0
        residual *= self.weights[:, None]
        return self.columns.T @ (residual @ self.contrast) + self.penalty[:, None] * theta

    def hessian(self, probabilities: Floats) -> Floats:
        """Return Σ w·A⊗bbᵀ with A = Cᵀ(diag p − ppᵀ)C, as a matrix over (contrast, column)."""
        n, columns = self.columns.shape
        classes, k = self.contrast.shape
        # Most of the time goes here, and a step need not be exact: the gradient says when it is done.
        precision: Any = np.float32 if n * (k * columns) ** 2 > LARGE else np.float64
        contrast = self.contrast.astype(precision)
        own = np.zeros((classes, columns, columns))
        outer = np.zeros((k * columns, k * columns))
        for start in range(0, n, CHUNK):
            rows = slice(start, start + CHUNK)
            b, p, w = (v[rows].astype(precision) for v in (self.columns, probabilities, self.weights))
            if k == 1:  # A is a number, 2·p·(1 − p) in these contrasts
                outer += (b * (2 * w * p[:, 0] * p[:, 1])[:, None]).T @ b
                continue
            for c in range(classes):
                own[c] += (b * (w * p[:, c])[:, None]).T @ b
            root = np.sqrt(w)[:, None] * (p @ contrast)
            mixed = (root[:, :, None] * b[:, None, :]).reshape(len(b), -1)
            outer -= mixed.T @ mixed
        if k > 1:
            pairs = (self.contrast[:, :, None] * self.contrast[:, None, :]).reshape(classes, -1)
            blocks = (pairs.T @ own.reshape(classes, -1)).reshape(k, k, columns, columns)
            outer += blocks.transpose(0, 2, 1, 3).reshape(outer.shape)
        outer[np.diag_indices_from(outer)] += np.tile(self.penalty, k)
        return outer

    def newton(self, theta: Floats) -> Floats:
        """Newton's method with steps halved until they gain."""
        value, _, probabilities = self.objective(theta)
        for _ in range(MOST_STEPS):
            slope = self.gradient(theta, probabilities).T.ravel()
            try:
                factor = cho_factor(self.hessian(probabilities), overwrite_a=True, check_finite=False)
            except np.linalg.LinAlgError:  # no ridge, and nothing left to gain in some direction
                return theta
            step = cho_solve(factor, slope, check_finite=False)
            gain = float(slope @ step)
            length, direction = 1.0, step.reshape(theta.shape[::-1]).T
            while True:
                trial = theta - length * direction
                reached, _, probabilities = self.objective(trial)
                if reached <= value - 1e-4 * length * gain:
                    break
                length /= 2
                if length < 1e-8:  # rounding has the last word
                    return theta
            theta, value = trial, reached
            if gain <= SETTLED * (1.0 + abs(value)):
                return theta
        return theta

    def quasi_newton(self, theta: Floats) -> Floats:
        """L-BFGS in coordinates in which the curvature at the intercept alone, a Kronecker product, is one."""
        shares = np.bincount(self.codes, self.weights, minlength=len(self.contrast))
        shares = shares / shares.sum()
        between = self.contrast.T @ (np.diag(shares) - np.outer(shares, shares)) @ self.contrast
        class_sizes, class_axes = np.linalg.eigh(between)
        gram = (self.columns * self.weights[:, None]).T @ self.columns
        sizes, axes = np.linalg.eigh(gram)
        unit = 1 / np.sqrt(np.outer(np.maximum(sizes, 0.0), class_sizes) + self.penalty.max() + INTERCEPT_RIDGE)

        def unpack(flat: Floats) -> Floats:
            return axes @ (flat.reshape(theta.shape) * unit) @ class_axes.T

        def target(flat: Floats) -> tuple[float, Floats]:
            inner = unpack(flat)
            value, _, probabilities = self.objective(inner)
            return value, ((axes.T @ self.gradient(inner, probabilities) @ class_axes) * unit).ravel()

        start = ((axes.T @ theta @ class_axes) / unit).ravel()
        bound = QUASI_SETTLED * np.sqrt(1.0 + target(start)[0])
        found = minimize(
            target, start, jac=True, method="L-BFGS-B",
            options={"maxiter": 1000, "maxfun": 1500, "maxcor": 20, "ftol": 1e-12, "gtol": bound},
        )  # fmt: skip
        return unpack(found.x)

    def curvature(self, probabilities: Floats) -> tuple[Floats, Floats]:
        """Return the factors of the curvature: the inverse of the terms' (M, M), and the classes' (K − 1, K − 1)."""
        k = self.contrast.shape[1]
        root = probabilities @ self.contrast
        row = (probabilities @ np.square(self.contrast).sum(axis=1) - np.square(root).sum(axis=1)) * self.weights / k
        share = self.weights @ probabilities
        between = (self.contrast.T * share) @ self.contrast - (root.T * self.weights) @ root
        between *= k / max(float(np.trace(between)), np.finfo(float).tiny)
        gram = (self.columns * row[:, None]).T @ self.columns
        gram[np.diag_indices_from(gram)] += np.maximum(self.penalty, 1e-12 * np.trace(gram))
        return np.linalg.inv(gram)[1:, 1:], between
