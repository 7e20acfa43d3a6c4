"""Sizes and degrees chosen by rows held out, in the place of GCV.

Every fold is a search of its own, on its training rows, and the splines of all its sizes are judged by the rows it
leaves out. Additive fits of many rows share one pass: the sums of the rows that a fold trains on are those of all rows
less its own (:mod:`knotwork.spline.moments.stored`), and held-out errors follow from the latter. Knots are then those
of the whole table, at most 127 a feature, which owe nothing to the responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import CHUNK, Floats
from knotwork.compute.workers import Workers
from knotwork.spline.fit import FitOptions, Plan, fit_spline, room_for, search
from knotwork.spline.host import HostTable
from knotwork.spline.model import Spline
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.stored import StoredRows, StoredSums
from knotwork.spline.refit import Refit, refit
from knotwork.spline.result import SplineFit
from knotwork.spline.scaling import Scaling
from knotwork.spline.units import SearchPath, Units, data_term

# Rows from which on folds share a pass, and the bytes that the sums of all folds may have.
MIN_SHARED_ROWS, MAX_SHARED_BYTES = 20_000, 1 << 30
# Knots of a feature there, unless max_knots says how many: every fold has its own table, a quarter of the size of one
# with AUTO_KNOTS. Sizes hardly depend on it.
SHARED_KNOTS = 127

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Fold:
    """The rows of a table that a fold trains on, and those that it holds out."""

    training: Rows
    held_out: Rows


@dataclass(frozen=True)
class FoldPath:
    """A fold's models: how well each size does on the rows held out.

    sizes : numbers of terms, rising, the intercept included; errors : of each, the mean over the held-out rows
    weight : Σw of the held-out rows
    spline : from a number of terms to the fold's spline
    predict : from a number of terms to what that spline gives for the held-out rows, (n,) or (n, p), where there is a
        faster way than to evaluate it
    """

    sizes: NDArray[np.intp]
    errors: Floats
    weight: float
    spline: Callable[[int], Spline]
    predict: Callable[[int], Floats] | None = None

    def at(self, sizes: NDArray[np.intp]) -> Floats:
        """Errors of some sizes; of the next smaller one that there is."""
        return self.errors[np.maximum(np.searchsorted(self.sizes, sizes, "right") - 1, 0)]

    def nearest(self, size: int) -> int:
        """Return the size that stands for another."""
        return int(self.sizes[max(int(np.searchsorted(self.sizes, size, "right")) - 1, 0)])


@dataclass(frozen=True)
class Candidates:
    """Sizes of a degree: errors (sizes, folds) and the Σw of each fold's rows."""

    degree: int
    sizes: NDArray[np.intp]
    errors: Floats
    weights: Floats

    @classmethod
    def of(cls, degree: int, paths: Sequence[FoldPath]) -> Candidates:
        """Collect what folds say."""
        sizes = np.unique(np.concatenate([path.sizes for path in paths]))
        errors = np.stack([path.at(sizes) for path in paths], axis=1)
        return cls(degree, sizes, errors, np.array([path.weight for path in paths]))

    @property
    def mean(self) -> Floats:
        """Mean error of all held-out rows: (sizes,)."""
        return self.errors @ self.weights / self.weights.sum()

    @property
    def standard_error(self) -> Floats:
        """Standard error of the folds' mean: (sizes,), NaN for a single fold."""
        folds = self.errors.shape[1]
        if folds == 1:
            return np.full(len(self.sizes), np.nan)
        # In units of a power of two: squares of squared errors of a large y overflow.
        unit = np.ldexp(1.0, int(np.frexp(self.errors.max())[1]) - 1)
        found: Floats = (self.errors / unit).std(axis=1, ddof=1) * unit / np.sqrt(folds)
        return found


@dataclass(frozen=True)
class Choice:
    """What the folds chose.

    candidates : of every degree that was tried; degree, size : those of the minimum error; paths : of that degree
    """

    candidates: tuple[Candidates, ...]
    degree: int
    size: int
    paths: tuple[FoldPath, ...]

    @property
    def splines(self) -> tuple[Spline, ...]:
        """The folds' splines of the chosen size."""
        return tuple(path.spline(path.nearest(self.size)) for path in self.paths)


def choose(paths_of: Callable[[int], Sequence[FoldPath]], degrees: Iterable[int]) -> Choice:
    """Choose the size of minimum held-out error, the smallest of several; raise the degree while that error falls."""
    tried: list[Candidates] = []
    best: Choice | None = None
    least = np.inf
    for degree in degrees:
        paths = tuple(paths_of(degree))
        tried.append(Candidates.of(degree, paths))
        mean = tried[-1].mean
        place = int(np.argmin(mean))
        if best is not None and not mean[place] < least:
            break
        least, best = mean[place], Choice((), degree, int(tried[-1].sizes[place]), paths)
    assert best is not None
    return replace(best, candidates=tuple(tried))


@dataclass(frozen=True)
class FoldData:
    """A table and its folds.

    X : (N, d) of each fold, one and the same unless a fold encodes columns in its own way; y : (N, p)
    """

    X: Sequence[NDArray[np.floating]]
    y: Floats
    weights: Floats | None
    folds: Sequence[Fold]
    names: Sequence[str]

    def weight_of(self, rows: Rows) -> Floats | None:
        """Weights of some rows, None for ones."""
        return None if self.weights is None else self.weights[rows]


def fold_paths(data: FoldData, options: FitOptions) -> list[FoldPath]:
    """Fit every fold on its own: one degree, any kind of term."""
    return [_fold_path(data, fold, X, options) for fold, X in zip(data.folds, data.X, strict=True)]


def _fold_path(data: FoldData, fold: Fold, X: NDArray[np.floating], options: FitOptions) -> FoldPath:
    rows, out = fold.training, fold.held_out
    fit = fit_spline(X[rows], data.y[rows], weights=data.weight_of(rows), names=data.names, options=options)
    weights = data.weight_of(out)
    weights = np.ones(len(out)) if weights is None else weights
    errors = np.zeros(fit.sizes)
    everything, coefficients = all_sizes(fit)
    for start in range(0, len(out), CHUNK):
        part = slice(start, start + CHUNK)
        basis = np.concatenate([np.ones((len(out[part]), 1)), everything.basis(X[out[part]])], axis=1)
        # (sizes, n, p)
        predicted = np.einsum("nm,smp->snp", basis, coefficients, optimize=True)
        errors += np.square(predicted - data.y[out[part]]).sum(axis=2) @ weights[part]
    total = float(weights.sum())
    return FoldPath(np.arange(1, 1 + fit.sizes), errors / total, total, fit.of_size)


def all_sizes(fit: SplineFit) -> tuple[Spline, Floats]:
    """Return the forward terms as a spline, and the coefficients of all sizes: (sizes, 1 + M, p), 0 for terms not used.

    In the data's units; the intercept first.
    """
    found = [fit.of_size(size) for size in range(1, 1 + fit.sizes)]
    terms, outputs = fit.selection.forward_terms, fit.spline.intercept.size
    out = np.zeros((fit.sizes, 1 + len(terms), outputs))
    for size, (spline, members) in enumerate(zip(found, fit.standardised.pruning.members, strict=True)):
        out[size, 0] = spline.intercept
        out[size, np.flatnonzero(members)[1:]] = spline.coef
    blank = np.zeros((len(terms), outputs))
    return Spline(terms, np.zeros(outputs), blank, fit.spline.feature_names, fit.spline.limits), out


def _plan(options: FitOptions, rows: int, features: int, total: float) -> Plan:
    """Return the plan of an additive fit with fewer knots, unless the user says how many there are."""
    plan = Plan.of(replace(options, max_degree=1), rows, features, total)
    if options.max_knots == "auto" and plan.max_knots is not None:
        return replace(plan, max_knots=min(plan.max_knots, SHARED_KNOTS))
    return plan


class SharedFolds:
    """Folds of a table in memory whose additive fits share one pass.

    paths : one for each fold; table : as the search sees it, for the fit to all rows
    """

    def __init__(self, data: FoldData, options: FitOptions) -> None:
        self._data, self._options = data, options
        X, folds = data.X[0], data.folds
        total = float(len(X)) if data.weights is None else float(data.weights.sum())
        self._plan = _plan(options, len(X), X.shape[1], total)
        self.paths: list[FoldPath] = [None] * len(folds)  # type: ignore[list-item]
        with Workers(options.threads) as workers:
            self.table = HostTable(X, data.y, data.weights, workers)
            clip = options.extrapolate == "clip"
            self._grid = self.table.candidates(self._plan.spans, self._plan.max_knots, clip=clip, given=options.knots)
            self._plan = replace(self._plan, max_terms=room_for(self._plan.max_terms, len(X), self._grid.knots.size, 1))
            own: list[StoredSums] = [None] * len(folds)  # type: ignore[list-item]
            held: list[CpuRows] = [None] * len(folds)  # type: ignore[list-item]
            parts = workers.split(len(folds), work=X.size * 4)

            def add_up(k: int) -> None:
                for fold in range(*parts[k]):
                    held[fold] = self.table.some(self._grid, folds[fold].held_out, Workers(1))
                    own[fold] = StoredSums.of(held[fold])

            workers.run(add_up, len(parts))
            self._total = StoredSums.sum_of(own, workers)

            def fit(k: int) -> None:
                for fold in range(*parts[k]):
                    self.paths[fold] = self._fold_path(own[fold], held[fold])

            workers.run(fit, len(parts))

    @staticmethod
    def suit(data: FoldData, options: FitOptions) -> bool:
        """Whether folds may share a pass: each trains on all rows but its own, and sums of all folds fit into memory.

        Every fold must leave something to train on.
        """
        X, n = data.X[0], len(data.y)
        if n < MIN_SHARED_ROWS or not isinstance(X, np.ndarray) or any(other is not X for other in data.X):
            return False
        knots = _plan(options, n, X.shape[1], float(n)).max_knots
        given = [0 if k is None else k.size for k in options.knots or ()]
        candidates = X.shape[1] * (1 + max(knots or n, *given, 0))
        held = np.concatenate([fold.held_out for fold in data.folds])
        whole = len(held) == n and bool((np.bincount(held, minlength=n) == 1).all())
        return (
            whole
            and 4 * (1 + len(data.folds)) * candidates**2 <= MAX_SHARED_BYTES
            and all(len(fold.training) == n - len(fold.held_out) for fold in data.folds)
        )

    def _fold_path(self, own: StoredSums, rows: CpuRows) -> FoldPath:
        table, y = self.table, self.table.y_scaling
        training, held = StoredRows((self._total, own), (1.0, -1.0)), StoredRows((own,), (1.0,))
        plan = replace(self._plan, total=training.opening().total)
        path, pruned = search(training, plan, table.x_scaling, y)
        terms = [data_term(h, table.knot_values(h), table.x_scaling.scale, False) for h in path.terms.entries()]
        y = Scaling(y.scale, y.centre + training.means)
        units = Units.of(terms, table.x_scaling, y, table.x_scaling.scale)
        found = SearchPath(path.factor, path.projection, units)
        beta = np.zeros((len(pruned.members), *path.projection.shape))
        for size in range(len(beta)):
            columns = pruned.of_size(size + 1)
            beta[size, columns] = found.coefficients(columns)
        beta[:, 0] += training.means
        weight = held.opening().total
        errors = np.maximum(held.term_products(path.terms).rss(beta).sum(axis=1), 0.0) / weight
        limits = table.limits if self._options.extrapolate == "clip" else None

        @cache
        def fitted(size: int) -> Refit:
            return refit(training, path, pruned.of_size(size))

        def spline(size: int) -> Spline:
            found, kept = fitted(size), pruned.of_size(size)[1:] - 1
            return units[kept].spline([terms[m] for m in kept], found.intercept, found.coef, self._data.names, limits)

        def predict(size: int) -> Floats:
            found = fitted(size)
            values = (rows.values(found.terms, found.intercept, found.coef) + y.centre[:, None]) / y.scale[:, None]
            return values[0] if len(values) == 1 else values.T

        return FoldPath(np.arange(1, 1 + len(beta)), errors / y.scale[0] ** 2, weight, spline, predict)
