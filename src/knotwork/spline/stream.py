"""Additive fits to a stream of batches: sums are kept, rows are not.

The first batch settles the coordinates of the search and, unless they are given, the knots. From then on every batch is
added to the sums, or taken out of them, and a fit is a search from the sums alone. Its coefficients solve the normal
equations: where terms are nearly collinear they lose digits that a fit to rows would get back from the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.data.limits import Limits, limits_around, range_of
from knotwork.errors import DataError
from knotwork.spline.fit import FitOptions, Plan, finish, room_for, search
from knotwork.spline.host import HostTable, Knots, knots_of
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import TermTable
from knotwork.spline.moments.stored import StoredRows, StoredSums
from knotwork.spline.refit import Refit
from knotwork.spline.result import Knot, SplineFit
from knotwork.spline.scaling import Scaling
from knotwork.spline.units import KnotValues

# Bytes that the sums of a stream may have: half of the square of the number of candidate knots.
MAX_STREAM_BYTES = 1 << 31
# How many times the range of the first batch values may be: squares and their sums stay within the range of floats.
MAX_SIZE = 1e100
# Maximum error of predictions, in stds of the response, that coefficients from sums may have by their estimate.
MAX_ERROR = 1e-6


@dataclass(frozen=True)
class Stream:
    """What is known of all rows so far.

    sums : over the rows, in the coordinates of ``x`` and ``y``, the first batch's
    values : knots as they were given or found, by (feature, standardised knot)
    limits, responses : the ranges of features and responses of all rows that ever came
    rows : their number, less those taken out; peak : the largest Σw·y² that the sums have held, for the digits lost
    """

    sums: StoredSums
    x: Scaling
    y: Scaling
    values: KnotValues
    limits: Limits
    responses: Limits
    rows: int
    peak: float

    @classmethod
    def open(cls, X: NDArray[np.floating], y: Floats, weights: Floats | None, options: FitOptions) -> Stream:
        """Begin with a batch: X (N, d), y (N, p), weights (N,) all positive."""
        total = float(len(X)) if weights is None else float(weights.sum())
        plan = Plan.of(options, len(X), X.shape[1], total)
        with Workers(options.threads) as workers:
            table = HostTable(X, y, weights, workers)
            grid = table.candidates(plan.spans, plan.max_knots, clip=False, given=options.knots)
            needed = 4 * grid.knots.size**2
            if needed > MAX_STREAM_BYTES:
                raise DataError(
                    f"a stream keeps the products of all pairs of candidate knots, {needed / 2**30:.0f} GB for "
                    f"{grid.knots.size} of them (at most {MAX_STREAM_BYTES >> 30}); choose a smaller max_knots"
                )
            sums = StoredSums.of(table.some(grid, None, workers))
        peak = float(sums.opening.squares.sum())
        values = _knot_values(X, table, grid)
        return cls(sums, table.x_scaling, table.y_scaling, values, table.limits, range_of(y), len(X), peak)

    def plus(self, X: NDArray[np.floating], y: Floats, weights: Floats | None, sign: int, threads: int) -> Stream:
        """Return the stream with a batch more, or with one of those it has seen less (sign −1)."""
        with np.errstate(over="ignore", invalid="ignore"):
            columns = np.ascontiguousarray((X * self.x.scale - self.x.centre).T)
            responses = np.ascontiguousarray((y * self.y.scale - self.y.centre).T)
        for name, values in (("X", columns), ("y", responses)):
            if not np.abs(values).max() < MAX_SIZE:
                raise DataError(
                    f"the values of a batch must be less than {MAX_SIZE:g} times those of the first one, its {name} is "
                    f"not; begin a new stream"
                )
        with Workers(threads) as workers:
            part = StoredSums.of(CpuRows(columns, responses, weights, self.sums.grid, workers))
        sums = self.sums.plus(part, float(sign))
        if sums.opening.total < 2 or (sums.opening.squares < -1e-9 * self.peak).any():
            raise DataError(
                f"forget takes out rows that were fitted, and leaves at least two, got {len(X)} rows where there are "
                f"{self.rows}; pass rows of earlier batches, each once"
            )
        limits, ends = self.limits, self.responses
        if sign > 0:
            limits, ends = limits_around(limits, range_of(X)), limits_around(ends, range_of(y))
        peak = max(self.peak, float(sums.opening.squares.sum()))
        return replace(self, sums=sums, limits=limits, responses=ends, rows=self.rows + sign * len(X), peak=peak)

    def fit(self, names: Sequence[str], options: FitOptions) -> SplineFit:
        """Fit a spline to all rows so far."""
        rows, features = StoredRows((self.sums,), (1.0,)), len(self.x.scale)
        plan = Plan.of(options, self.rows, features, rows.opening().total)
        plan = replace(plan, max_terms=room_for(plan.max_terms, self.rows, self.sums.grid.knots.size, 1))
        y = Scaling(self.y.scale, self.y.centre + rows.means)
        path, pruned = search(rows, plan, self.x, y)
        fit = finish(_Known(self, y), rows, path, pruned, plan, names, options)
        error = estimated_error(fit.standardised.refit, rows.opening().squares, self.peak)
        if error > MAX_ERROR:
            raise DataError(
                f"coefficients from sums may be wrong by {MAX_ERROR:g} stds of the response, these may by {error:.0e}: "
                f"terms are nearly collinear, or most of the rows were taken out again; choose fewer knots "
                f"(max_knots, minspan) or terms, or begin a new stream"
            )
        return fit


def _knot_values(X: NDArray[np.floating], table: HostTable, grid: CandidateGrid) -> KnotValues:
    """Return the knots of a grid as the values of the data that they are, or as they were given."""
    values: KnotValues = {}
    for f, (first, last) in enumerate(pairwise(grid.offsets.tolist())):
        own = grid.knots[first + 1 : last]
        raw = np.unique(X[:, f]).astype(np.float64)
        place = np.searchsorted(raw * table.x_scaling.scale[f] - table.x_scaling.centre[f], own)
        found = raw[np.minimum(place, len(raw) - 1)]
        values |= {(f, t): table.given.get((f, t), float(x)) for t, x in zip(own.tolist(), found, strict=True)}
    return values


def estimated_error(fit: Refit, squares: Floats, peak: float = 0.0) -> float:
    """Estimate how wrong predictions from the normal equations may be, in stds of the response: rounding times κ·‖β‖.

    κ is the condition of the terms, as columns of norm one, and β their coefficients, over the norm of the response.
    squares : (p,) ⟨y, y⟩ of the centred responses
    """
    factor = np.linalg.inv(fit.inverse)
    norms = np.linalg.norm(factor, axis=0)
    condition = np.linalg.norm(factor / norms, 2) * np.linalg.norm(fit.inverse * norms[:, None], 2)
    beta = np.concatenate([fit.intercept[None], fit.coef]) * norms[:, None]
    usable = squares > 0
    if not usable.any():
        return 0.0 if peak == 0 else np.inf  # a constant response, or nothing but rounding is left
    size = np.max(np.linalg.norm(beta[:, usable], axis=0) / np.sqrt(squares[usable]))
    lost = max(1.0, peak / float(squares.sum()))
    return float(np.finfo(np.float64).eps * condition * max(size, 1.0) * lost)


class _Known:
    """A stream as the end of a fit sees it."""

    def __init__(self, stream: Stream, y: Scaling) -> None:
        self.x_scaling, self.y_scaling, self.limits = stream.x, y, stream.limits
        self._values = stream.values

    def find_knots(self, terms: TermTable) -> Knots:
        """Return the knots; the rows that carry their values are not known."""
        none = np.empty(0, np.intp)
        return {(f, t): Knot(f, self._values[f, t], count=0, rows=none) for f, t in knots_of(terms)}
