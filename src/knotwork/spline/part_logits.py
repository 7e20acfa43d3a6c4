"""Logits of classes for rows in parts: Newton's method, a reading of the source a step.

It begins with the likelihood of a sample, which is near the end already: two or three readings are enough. A reading
sums log-likelihood, gradient and Hessian, so that a step is solved exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.blas import one_blas_thread
from knotwork.data.batches import Report, Rows, Source
from knotwork.data.limits import Limits
from knotwork.data.part_reader import Part, PartReader
from knotwork.spline.columns import Columns, TermValues, feature_units
from knotwork.spline.likelihood import ClassFit
from knotwork.spline.logits import Problem, class_probabilities, contrasts, fit_logits
from knotwork.spline.model import Term
from knotwork.spline.newton import ROUNDING, inverse_of
from knotwork.spline.result import SplineFit

# A step that promises less than this share of the objective is the last, and needs no reading to see where it led.
LAST_STEP = 1e-12
MAX_READINGS = 25


@dataclass(frozen=True)
class LogitSums:
    """Sums at some coefficients, without the ridge.

    log_likelihood : weighted; slope : (1 + M, k) of minus it, in k contrasts of the classes
    hessian : (k, k, 1 + M, 1 + M)
    """

    log_likelihood: float
    slope: Floats
    hessian: Floats

    def plus(self, other: LogitSums) -> LogitSums:
        """Add the sums of other rows."""
        return LogitSums(
            self.log_likelihood + other.log_likelihood, self.slope + other.slope, self.hessian + other.hessian
        )


@dataclass(frozen=True)
class LogitReading:
    """A reading of a part: the sums at coefficients ``theta`` (1 + M, k) of [1, (terms − centre)/units]."""

    reader: Callable[[Rows], Part]
    terms: tuple[Term, ...]
    limits: Limits | None
    centre: Floats
    units: Floats
    contrast: Floats
    theta: Floats

    def __call__(self, rows: Rows) -> LogitSums:
        """Sum the rows of a part."""
        with one_blas_thread():
            return self.sums(self.reader(rows))

    def sums(self, part: Part) -> LogitSums:
        """Sum encoded rows."""
        columns = Columns(TermValues(self.terms, part.X, self.limits), self.centre, self.units)
        count, k = self.theta.shape
        likelihood, slope, hessian = 0.0, np.zeros((count, k)), np.zeros((k, k, count, count))
        factors, weights, codes = self.contrast @ self.theta.T, part.weights, part.y
        for block, z in columns.blocks():
            w, own = weights[block], codes[block]
            p, logs = class_probabilities(factors @ z, own)
            likelihood += float(w @ logs)
            inner = self.contrast.T @ p  # (k, n)
            for a in range(k):
                for b in range(a, k):
                    bent = (self.contrast[:, a] * self.contrast[:, b]) @ p - inner[a] * inner[b]
                    hessian[a, b] += (z * (w * bent)) @ z.T
            p[own, np.arange(len(own))] -= 1.0
            p *= w
            slope += (z @ p.T) @ self.contrast
        for a in range(k):
            for b in range(a):
                hessian[a, b] = hessian[b, a].T
        return LogitSums(likelihood, slope, hessian)


def fit_part_logits(
    source: Source,
    reader: PartReader,
    sample: Part,
    search: SplineFit,
    class_weights: Floats,
    ridge: float,
    reading: Callable[[str], Report | None],
) -> ClassFit:
    """Fit the logits of the terms that a search found to all rows; class_weights : (K,) Σw of each class."""
    terms, limits = search.spline.terms, search.spline.limits
    classes, total = len(class_weights), float(class_weights.sum())
    weights = sample.weights
    units = feature_units(terms, search.coordinates.x_scale)
    share = float(weights.sum()) / total
    first = fit_logits(TermValues(terms, sample.X, limits), sample.y, classes, weights, ridge * share, units)
    start = first.polished() if share == 1.0 else first
    problem: Problem = start.problem
    used = sorted({f for term in terms for f in term.features})
    # Columns of features that no term uses are not read again; encoded features keep their places, as rows of all.
    names = reader.only(used)[1] if used else None
    task = LogitReading(
        Narrow.of(reader, used, sample.X.shape[1]) if used else reader,
        tuple(terms),
        limits,
        problem.columns.centre,
        problem.columns.scale,
        contrasts(classes),
        start.theta,
    )
    penalty = problem.with_ridge(ridge).penalty
    point, sums = _newton(source, task, names, penalty, reading)
    fitted = replace(start, point=replace(start.point, theta=point))
    gram: Floats = np.einsum("aamn->mn", sums.hessian) / (classes - 1)
    gram[np.diag_indices(len(gram))] += penalty
    inverse = inverse_of(gram)[1:, 1:]
    between = sums.hessian[:, :, 0, 0].copy()
    between *= (classes - 1) / max(float(np.trace(between)), np.finfo(float).tiny)
    own = [
        np.array([m for m, term in enumerate(terms) if f in term.features], np.intp) for f in range(sample.X.shape[1])
    ]
    shares = class_weights / total
    return ClassFit(
        spline=replace(search.spline, intercept=fitted.intercept, coef=fitted.coef),
        search=search,
        deviance=-2 * sums.log_likelihood,
        null_deviance=-2 * float(class_weights @ np.log(shares)),
        term_costs=np.sum((point[1:] @ between) * point[1:], axis=1) / np.diag(inverse),
        feature_costs=np.array([_cost(point, between, inverse, group) for group in own]),
        shares=shares,
        ridge=ridge,
    )


def _cost(theta: Floats, between: Floats, inverse: Floats, group: NDArray[np.intp]) -> float:
    if len(group) == 0:
        return 0.0
    own = theta[1 + group]
    return float(np.sum((own @ between) * np.linalg.solve(inverse[np.ix_(group, group)], own)))


def _newton(
    source: Source,
    task: LogitReading,
    names: Sequence[str] | None,
    penalty: Floats,
    reading: Callable[[str], Report | None],
) -> tuple[Floats, LogitSums]:
    """Take steps until one promises next to nothing; one that makes things worse is halved."""

    def read(theta: Floats) -> tuple[LogitSums, float]:
        sums = source.add(replace(task, theta=theta), LogitSums.plus, names, reading("likelihood"))
        return sums, float(penalty @ np.square(theta).sum(axis=1)) / 2 - sums.log_likelihood

    theta = task.theta
    sums, objective = read(theta)
    for _ in range(MAX_READINGS):
        slope = sums.slope + penalty[:, None] * theta
        step = _solved(sums.hessian, penalty, slope)
        gain = float(np.sum(slope * step))
        if gain <= LAST_STEP * (1.0 + abs(objective)):
            return theta - step, sums
        length = 1.0
        while True:
            found, reached = read(theta - length * step)
            if reached <= objective + ROUNDING * (1.0 + abs(objective)):
                break
            length /= 2
            if length < 1e-6:
                return theta, sums
        theta, sums, objective = theta - length * step, found, reached
    return theta, sums


def _solved(hessian: Floats, penalty: Floats, slope: Floats) -> Floats:
    """Solve for a Newton step: slope (1 + M, k)."""
    count, k = slope.shape
    whole = hessian.transpose(0, 2, 1, 3).reshape(k * count, k * count).copy()
    whole[np.diag_indices(k * count)] += np.tile(penalty, k)
    step = np.linalg.solve(whole, slope.T.reshape(-1))
    return np.asarray(step.reshape(k, count).T, dtype=np.float64)


@dataclass(frozen=True)
class Narrow:
    """Reads some columns of a part, into the places that their features have among all."""

    reader: PartReader
    places: tuple[int, ...]
    width: int

    @classmethod
    def of(cls, reader: PartReader, used: Sequence[int], width: int) -> Narrow:
        """Return what reads the columns of some features."""
        narrow, _, places = reader.only(used)
        return cls(narrow, tuple(places), width)

    def __call__(self, rows: Rows) -> Part:
        """Read a part; features that nobody uses are zero."""
        part = self.reader(rows)
        X = np.zeros((self.width, len(part.X))).T
        X[:, list(self.places)] = part.X
        return Part(X, part.y, part.weight)
