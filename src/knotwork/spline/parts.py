"""Additive fits to rows in parts, which are anywhere: three readings, each a sum over the parts.

The first, :mod:`knotwork.data.survey`, has left a sample and the range of every feature: they settle the coordinates of
the search and the knots. The second adds up the products of all pairs of candidates. A search sees these sums alone.
The third corrects the coefficients by the true residual, so that they are those of a fit to rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.compute.blas import one_blas_thread
from knotwork.compute.workers import Workers
from knotwork.data.batches import Report, Rows, Source
from knotwork.data.coordinates import MIN_STD
from knotwork.data.limits import SAMPLE, Limits
from knotwork.data.part_reader import Part, PartReader
from knotwork.errors import DataError
from knotwork.spline.fit import AUTO_KNOTS, FitOptions, Plan, finish, has_neighbours, room_for, search
from knotwork.spline.host import Knots, knots_of
from knotwork.spline.knots import choose_candidates, lay_out, with_given
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import Residual, TermTable
from knotwork.spline.moments.stored import StoredRows, StoredSums
from knotwork.spline.result import Knot, SplineFit
from knotwork.spline.scaling import Scaling, power_of_two_scale
from knotwork.spline.stream import MAX_ERROR, estimated_error
from knotwork.spline.units import KnotValues

# Knots of a feature where the sample is not all rows, as in folds of many rows: the tables of a pair then stay in the
# processor's cache, and the sums of a part are a quarter of a message.
MANY_ROWS_KNOTS = 127
# Share of the memory that is for the sums: those so far, those of a part, and their sum.
SUMS_SHARE, COPIES = 0.5, 3
# Fewer knots of a feature are too few.
MIN_KNOTS = 3


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
    return values


def auto_knots(known: Known, features: int, memory_limit: int) -> int:
    """Return the maximum number of knots of a feature: as in memory where the sample is all rows, else fewer.

    There are no more than the memory for the sums of all pairs allows.
    """
    wanted = AUTO_KNOTS if known.rows <= SAMPLE else MANY_ROWS_KNOTS
    room = int(np.sqrt(SUMS_SHARE * memory_limit / (4 * COPIES)) / max(features, 1)) - 1
    return min(wanted, room)


@dataclass(frozen=True)
class PartSums:
    """The second reading of a part: products of all pairs of candidates."""

    reader: PartReader
    layout: Layout
    threads: int

    def __call__(self, rows: Rows) -> StoredSums:
        """Sum the rows of a part."""
        part, layout = self.reader(rows), self.layout
        with Workers(self.threads) as workers, one_blas_thread():
            columns = layout.columns(part.X, workers)
            responses = layout.responses(self.reader.target.responses(part.y))
            return StoredSums.of(CpuRows(columns, responses, part.weight, layout.grid, workers))


@dataclass(frozen=True)
class PartResidual:
    """The third reading of a part: products of the residual."""

    reader: PartReader
    layout: Layout
    terms: TermTable
    intercept: Floats
    coef: Floats
    threads: int

    def __call__(self, rows: Rows) -> Residual:
        """Sum the rows of a part."""
        part, layout = self.reader(rows), self.layout
        with Workers(self.threads) as workers, one_blas_thread():
            columns = layout.columns(part.X, workers)
            responses = layout.responses(self.reader.target.responses(part.y))
            rows_of_part = CpuRows(columns, responses, part.weight, layout.grid, workers)
            return rows_of_part.residual(self.terms, self.intercept, self.coef)


def added(a: Residual, b: Residual) -> Residual:
    """Add the residuals' products of two parts."""
    return Residual(a.rss + b.rss, a.dots + b.dots)


class ReadRows(StoredRows):
    """Sums that are kept, and a source to read again for the residual; a :class:`RowSums` for additive models."""

    def __init__(
        self,
        sums: StoredSums,
        source: Source,
        reader: PartReader,
        layout: Layout,
        threads: int,
        reading: Callable[[str], Report | None],
    ) -> None:
        super().__init__((sums,), (1.0,))
        self.unread = StoredRows((sums,), (1.0,))
        self._source, self._reader, self._threads, self._reading = source, reader, threads, reading
        self.layout = replace(layout, y=Scaling(layout.y.scale, layout.y.centre + self.means))

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Read the source and sum the residual: columns of features that no term uses are left out."""
        used = np.unique(terms.feature).tolist()
        if not used:
            return super().residual(terms, intercept, coef)
        reader, names, features = self._reader.only(used)
        place = {f: k for k, f in enumerate(features)}
        own = replace(terms, feature=np.array([place[f] for f in terms.feature.tolist()], np.int64))
        task = PartResidual(reader, self.layout.only(features), own, intercept, coef, self._threads)
        return self._source.add(task, added, names, self._reading("coefficients"))


def fit_parts(
    source: Source,
    reader: PartReader,
    known: Known,
    names: Sequence[str],
    options: FitOptions,
    *,
    memory_limit: int,
    reading: Callable[[str], Report | None] = lambda _: None,
) -> SplineFit:
    """Fit a spline to all rows of a source: the second and the third reading.

    reading : takes what a reading is for, and returns what its progress is reported to
    """
    rows = read_sums(source, reader, known, options, memory_limit=memory_limit, reading=reading)
    spacing = "free" if options.spacing != "auto" or options.knots is not None else "paying"
    found = searched(rows, known, names, replace(options, spacing=spacing))
    if spacing == "paying" and has_neighbours(found(read=False).spline, known.sample.X):
        # Held-out rows would have to say whether such knots pay; without them a search keeps off neighbouring values.
        found = searched(rows, known, names, replace(options, spacing="apart"))
    return found()


def read_sums(
    source: Source,
    reader: PartReader,
    known: Known,
    options: FitOptions,
    *,
    memory_limit: int,
    reading: Callable[[str], Report | None] = lambda _: None,
) -> ReadRows:
    """Choose the knots and add up the products of all pairs of candidates: the second reading."""
    features = known.sample.X.shape[1]
    if options.max_knots == "auto":
        count = auto_knots(known, features, memory_limit)
        options = replace(options, max_knots=count)
        if count < MIN_KNOTS:
            raise DataError(
                f"fits to parts keep the products of all pairs of candidate knots, {features} features leave room for "
                f"fewer than {MIN_KNOTS} knots each in {memory_limit >> 20} MB; raise memory_limit, or choose columns"
            )
    if options.max_knots is None:
        raise DataError("fits to parts keep the products of all pairs of knots, got max_knots=None; choose a number")
    threads = options.threads if source.local else 1
    plan = Plan.of(replace(options, spacing="free"), known.rows, features, known.total)
    with Workers(options.threads) as workers:
        layout = settle(known, plan, options, workers)
    size = layout.grid.knots.size
    needed = 4 * COPIES * size**2
    if needed > memory_limit:
        raise DataError(
            f"fits to parts keep the products of all pairs of candidate knots, {size} of them need "
            f"{needed / 2**20:.0f} MB (memory_limit is {memory_limit >> 20}); choose a smaller max_knots"
        )
    sums = source.add(PartSums(reader, layout, threads), StoredSums.plus, None, reading("sums"))
    return ReadRows(sums, source, reader, layout, threads, reading)


def searched(rows: ReadRows, known: Known, names: Sequence[str], options: FitOptions) -> partial[SplineFit]:
    """Search by the sums; return what ends the fit: with the third reading, or (read=False) without."""
    layout = rows.layout
    plan = Plan.of(options, known.rows, len(layout.factor), rows.opening().total)
    plan = replace(plan, max_terms=room_for(plan.max_terms, known.rows, layout.grid.knots.size, 1))
    path, pruned = search(rows, plan, layout.x, layout.y)
    return partial(_finished, rows, path, pruned, plan, names, options)


def _finished(
    rows: ReadRows, path: Any, pruned: Any, plan: Plan, names: Sequence[str], options: FitOptions, read: bool = True
) -> SplineFit:
    stored: StoredRows = rows
    if not read or plan.monotone is not None:  # inequalities take several corrections: by the sums
        stored = rows.unread
    fit = finish(rows.layout, stored, path, pruned, plan, names, options, passes=1)
    if plan.monotone is not None:
        error = estimated_error(fit.standardised.refit, rows.opening().squares)
        if error > MAX_ERROR:
            raise DataError(
                f"monotone coefficients come from sums and may be wrong by {MAX_ERROR:g} stds of the response, these "
                f"may by {error:.0e}: terms are nearly collinear; choose fewer knots (max_knots, minspan) or terms"
            )
    return fit
