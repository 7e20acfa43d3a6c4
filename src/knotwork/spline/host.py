"""A table in memory as the search sees it: standardised columns, the knots to choose from, sums over the rows."""

from __future__ import annotations

from copy import copy
from itertools import groupby
from operator import itemgetter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.data.limits import Limits, held_range
from knotwork.spline.knots import Spans, choose_candidates, with_given
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.knot_rows import Found, rows_with
from knotwork.spline.moments.moments import Hinges, RowSums, TermTable
from knotwork.spline.moments.tables import TableRows
from knotwork.spline.result import Knot
from knotwork.spline.scaling import Scaling, standardise, standardise_response, standardised_rows
from knotwork.spline.units import KnotValues

# Rows remembered per knot: an explanation shows a handful, and a knot of a coarse column may have millions.
MAX_KNOT_ROWS = 1000

Knots = dict[tuple[int, float], Knot]
# For each feature its knots in the data's units, or None.
Given = tuple[Floats | None, ...]


class SearchTable(Protocol):
    """What a fit asks of the place where the rows are."""

    @property
    def x_scaling(self) -> Scaling:
        """From the user's units of measurement of the features to those of the search."""
        ...

    @property
    def y_scaling(self) -> Scaling:
        """The same of the responses."""
        ...

    @property
    def limits(self) -> Limits:
        """The range of the features as they are fitted."""
        ...

    def candidates(
        self, spans: Spans, max_knots: int | None, *, clip: bool, given: Given | None = None
    ) -> CandidateGrid:
        """Choose the knots; at most ``max_knots`` a feature, None for all that the spans allow.

        clip : hold values far beyond the bulk of a column at the outermost of the others, from now on
        given : knots of some features in the data's units, None for those to choose
        """
        ...

    def sums(self, grid: CandidateGrid, max_terms: int, engine: str) -> RowSums:
        """Return the sums behind a search of so many terms; ``engine`` is where products come from."""
        ...

    def minimum(self) -> Floats:
        """Return the standardised minimum of each feature: (d,)."""
        ...

    def find_knots(self, terms: TermTable) -> Knots:
        """Look up the data values and rows behind standardised knots, so that no rounding of the scaling is left."""
        ...


class HostTable:
    """A table in memory: X (N, d), y (N, p), weights (N,) or None; a :class:`SearchTable`."""

    def __init__(self, X: NDArray[np.floating], y: Floats, weights: Floats | None, workers: Workers) -> None:
        self._X, self._weights, self.workers = X, weights, workers
        self._columns, self.x_scaling, self.limits = standardise(X, workers)
        self._responses, self.y_scaling = standardise_response(y, weights)
        self.given: KnotValues = {}
        self._passes: CpuRows | None = None
        self._is_held = False

    def with_workers(self, workers: Workers) -> HostTable:
        """Return the same table for other threads."""
        table = copy(self)
        table.workers = workers
        return table

    def candidates(
        self, spans: Spans, max_knots: int | None, *, clip: bool, given: Given | None = None
    ) -> CandidateGrid:
        """Choose the knots; at most ``max_knots`` a feature, None for all that the spans allow."""
        grid, reaches = choose_candidates(self._columns, self._weights, spans, max_knots, self.workers)
        held = self._held(reaches) if clip and not self._is_held else self.limits
        self._is_held = clip
        if held != self.limits:  # some values lie far beyond the bulk: once more, without them
            self._columns, self.x_scaling, self.limits = standardise(self._X, self.workers, held)
            grid, _ = choose_candidates(self._columns, self._weights, spans, max_knots, self.workers)
        if given is not None:
            grid, self.given = with_given(grid, given, self.x_scaling)
        return grid

    def _held(self, reaches: Floats) -> Limits:
        """Return the range of the values within reach, in the data's units; ``reaches`` (2, d) are standardised."""
        ends, scaling = self.limits, self.x_scaling
        minimum, maximum = (side * scaling.scale - scaling.centre for side in (ends.lower, ends.upper))
        lower, upper = ends.lower.copy(), ends.upper.copy()
        for f in np.flatnonzero((minimum < reaches[0]) | (maximum > reaches[1])):
            column = self._columns[f]
            low, high = held_range(column, (reaches[0, f], reaches[1, f]), (minimum[f], maximum[f]))
            lower[f], upper[f] = (float(self._X[(column == z).argmax(), f]) for z in (low, high))
        return Limits(lower, upper)

    def knot_values(self, hinges: Hinges) -> KnotValues:
        """Return standardised knots in the data's units: as they were given, or to the last digit without a look-up."""
        scale, centre = self.x_scaling.scale, self.x_scaling.centre
        return {(f, t): self.given.get((f, t), float((t + centre[f]) / scale[f])) for f, t, _ in hinges}

    def some(self, grid: CandidateGrid, rows: NDArray[np.intp] | None, workers: Workers) -> CpuRows:
        """Return the passes over some of the rows, or all."""
        if rows is None:
            return CpuRows(self._columns, self._responses, self._weights, grid, workers)
        weights = None if self._weights is None else self._weights[rows]
        columns = standardised_rows(self._X, rows, self.x_scaling, self.limits)
        return CpuRows(columns, self._responses.take(rows, axis=1), weights, grid, workers)

    def sums(self, grid: CandidateGrid, max_terms: int, engine: str) -> RowSums:
        """Return the sums behind a search: by passes over the rows, or from tables of pairs of features."""
        self._passes = passes = self.some(grid, None, self.workers)
        if engine == "passes":
            return passes
        return TableRows(passes, max_terms, counts=engine == "counts", always=engine != "auto")

    def minimum(self) -> Floats:
        """Return the standardised minimum of each feature: (d,)."""
        lowest: Floats = self._columns.min(axis=1)
        return lowest

    def find_knots(self, terms: TermTable) -> Knots:
        """Look up the data values and rows behind standardised knots, so that no rounding of the scaling is left."""
        own = [(f, [knot for _, knot in keys]) for f, keys in groupby(knots_of(terms), key=itemgetter(0))]
        found: Knots = {}
        parts = self.workers.split(len(own), work=len(self._X) * len(own))

        def task(k: int) -> None:
            for f, knots in own[slice(*parts[k])]:
                low, high = float(self.limits.lower[f]), float(self.limits.upper[f])
                for knot, (count, rows) in zip(knots, self._rows_with(f, np.array(knots)), strict=True):
                    value = self.given.get((f, knot))
                    if value is None:
                        value = min(max(float(self._X[rows[0], f]), low), high)
                    found[f, knot] = Knot(f, value=value, count=count, rows=rows)

        self.workers.run(task, len(parts))
        return found

    def _rows_with(self, feature: int, values: Floats) -> list[Found]:
        """Find the rows with each of some standardised values."""
        found = None if self._passes is None else rows_with(self._passes, feature, values, MAX_KNOT_ROWS)
        if found is None:  # knots of interactions may be others than those of the grid
            column = self._columns[feature]
            rows = [np.flatnonzero(column == value) for value in values]
            found = [(own.size, own[:MAX_KNOT_ROWS].copy()) for own in rows]
        return found


def knots_of(terms: TermTable) -> list[tuple[int, float]]:
    """Return the features and knots of all hinges, in order and each once."""
    return sorted({(f, knot) for hinges in terms.entries() for f, knot, sign in hinges if sign != 0})
