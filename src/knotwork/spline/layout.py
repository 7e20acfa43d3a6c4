"""The coordinates of a search in rows that are not in memory, and its candidates: both from a sample and the ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.data.coordinates import MIN_STD
from knotwork.data.limits import Limits
from knotwork.data.part_reader import Part
from knotwork.spline.fit import FitOptions, Plan
from knotwork.spline.host import Knots, knots_of
from knotwork.spline.knots import choose_candidates, lay_out, with_given
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import TermTable
from knotwork.spline.result import Knot
from knotwork.spline.scaling import Scaling, power_of_two_scale
from knotwork.spline.units import KnotValues


@dataclass(frozen=True)
class Known:
    """What the first reading tells a fit.

    sample : rows, all of them if there are few; total, rows : Σw and the number of rows of all parts
    ends : range of the encoded features; y_ends : (2, p) of the responses
    """

    sample: Part
    total: float
    rows: int
    ends: Limits
    y_ends: Floats


@dataclass(frozen=True)
class Layout:
    """The coordinates of a search, and its candidates: z = x·factor − centre, x held at the limits.

    factor : (d,) the scales, 0 for features that are constant; values : knots in the data's units
    """

    grid: CandidateGrid
    x: Scaling
    factor: Floats
    y: Scaling
    limits: Limits
    hold: bool
    values: KnotValues

    def columns(self, X: Floats, workers: Workers) -> Floats:
        """Standardise rows: (n, d) → (d, n)."""
        return standardised(X, self.factor, self.x.centre, self.limits if self.hold else None, workers)

    def responses(self, y: Floats) -> Floats:
        """Standardise responses: (n, p) → (p, n)."""
        return np.ascontiguousarray((y * self.y.scale - self.y.centre).T)

    @property
    def x_scaling(self) -> Scaling:
        """From the data's units of the features to those of the search."""
        return self.x

    @property
    def y_scaling(self) -> Scaling:
        """The same of the responses."""
        return self.y

    def minimum(self) -> Floats:
        """Return the standardised minimum of each feature: (d,)."""
        return self.limits.lower * self.factor - self.x.centre

    def find_knots(self, terms: TermTable) -> Knots:
        """Return the knots in the data's units; the rows that carry their values are not known."""
        none = np.empty(0, np.intp)
        return {(f, t): Knot(f, self.values[f, t], count=0, rows=none) for f, t in knots_of(terms)}

    def only(self, features: Sequence[int]) -> Layout:
        """Return the layout of some features."""
        own = list(features)
        edges = list(pairwise(self.grid.offsets.tolist()))
        return replace(
            self,
            grid=lay_out([self.grid.knots[edges[f][0] + 1 : edges[f][1]] for f in own]),
            x=Scaling(self.x.scale[own], self.x.centre[own]),
            factor=self.factor[own],
            limits=Limits(self.limits.lower[own], self.limits.upper[own]),
        )


def standardised(X: Floats, factor: Floats, centre: Floats, limits: Limits | None, workers: Workers) -> Floats:
    """Return x·factor − centre as columns, held at limits: (n, d) → (d, n)."""
    n, d = X.shape
    columns = np.empty((d, n))
    parts = workers.split(d, work=n * d)

    def task(k: int) -> None:
        for f in range(*parts[k]):
            own = columns[f]
            if limits is None:
                np.multiply(X[:, f], factor[f], out=own)
            else:
                np.clip(X[:, f], limits.lower[f], limits.upper[f], out=own)
                own *= factor[f]
            own -= centre[f]

    workers.run(task, len(parts))
    return columns


def settle(known: Known, plan: Plan, options: FitOptions, workers: Workers) -> Layout:
    """Choose coordinates and knots from a sample and the ends."""
    sample, clip = known.sample, options.extrapolate == "clip"

    def scaled(limits: Limits) -> tuple[Floats, Scaling, Floats]:
        width = limits.upper / 2 - limits.lower / 2
        scale = power_of_two_scale(width)
        factor = np.where(width < MIN_STD, 0.0, scale)
        with np.errstate(over="ignore", invalid="ignore"):  # a mean that does not exist is replaced
            mean = np.nan_to_num(limits.hold(sample.X).mean(axis=0), nan=0.0)
        centre = np.clip(mean, limits.lower, limits.upper) * factor
        return factor, Scaling(scale, centre), standardised(sample.X, factor, centre, limits, workers)

    limits = known.ends
    factor, x, columns = scaled(limits)
    grid, reaches = choose_candidates(columns, sample.weight, plan.spans, plan.max_knots, workers, known.total)
    if clip:
        held = _held(limits, reaches, columns, sample.X, x, factor)
        if held != limits:  # some values lie far beyond the bulk: once more, without them
            limits = held
            factor, x, columns = scaled(limits)
            grid, _ = choose_candidates(columns, sample.weight, plan.spans, plan.max_knots, workers, known.total)
    given: KnotValues = {}
    if options.knots is not None:
        grid, given = with_given(grid, options.knots, x)
    low, high = known.y_ends / 2
    scale = float(power_of_two_scale(np.max(high - low)))
    mean = np.average(sample.y, axis=0, weights=sample.weight)
    y = Scaling(np.full(len(low), scale), mean * scale)
    values = _values(sample.X, limits, x, factor, grid, given)
    return Layout(grid, x, factor, y, limits, clip, values)


def _held(limits: Limits, reaches: Floats, columns: Floats, X: Floats, x: Scaling, factor: Floats) -> Limits:
    """Return limits less what lies beyond reach: there, the outermost values of the sample within it."""
    lower, upper = limits.lower.copy(), limits.upper.copy()
    low, high = (side * factor - x.centre for side in (lower, upper))
    for f in np.flatnonzero((low < reaches[0]) | (high > reaches[1])):
        within = X[(columns[f] >= reaches[0, f]) & (columns[f] <= reaches[1, f]), f]
        if low[f] < reaches[0, f]:
            lower[f] = within.min()
        if high[f] > reaches[1, f]:
            upper[f] = within.max()
    return Limits(lower, upper)


def _values(
    X: Floats, limits: Limits, x: Scaling, factor: Floats, grid: CandidateGrid, given: KnotValues
) -> KnotValues:
    """Return the knots of a grid as the values of the data that they are, or as they were given."""
    values: KnotValues = {}
    for f, (first, last) in enumerate(pairwise(grid.offsets.tolist())):
        own = grid.knots[first + 1 : last]
        raw = np.unique(np.clip(X[:, f], limits.lower[f], limits.upper[f]))
        place = np.minimum(np.searchsorted(raw * factor[f] - x.centre[f], own), len(raw) - 1)
        values |= {(f, t): given.get((f, t), float(v)) for t, v in zip(own.tolist(), raw[place], strict=True)}
        if own.size == 0:  # interactions bend such a feature at its minimum
            values[f, float(limits.lower[f] * factor[f] - x.centre[f])] = float(limits.lower[f])
    return values
