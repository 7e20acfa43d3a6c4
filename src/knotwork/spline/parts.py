"""Fits to rows in parts, which are anywhere: three readings, each a sum over the parts.

The first, :mod:`knotwork.data.survey`, has left a sample and the range of every feature: they settle the coordinates of
the search and the knots. The second adds up the products of all pairs of candidates. A search sees these sums alone.
The third corrects the coefficients by the true residual, so that they are those of a fit to rows in memory.
Interactions take a reading for each step of the search, see :mod:`knotwork.spline.part_children`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from knotwork.arrays import Floats
from knotwork.compute.blas import one_blas_thread
from knotwork.compute.workers import Workers
from knotwork.data.batches import Report, Rows, Source
from knotwork.data.limits import SAMPLE
from knotwork.data.part_reader import PartReader
from knotwork.errors import DataError
from knotwork.spline.degree import chosen_degree
from knotwork.spline.fit import (
    AUTO_KNOTS,
    FitOptions,
    Plan,
    chosen_terms,
    finish,
    has_neighbours,
    held_out_by_degree,
    interactions_of,
    room_for,
    search,
    with_held_out_losses,
)
from knotwork.spline.forward import ForwardPass
from knotwork.spline.interactions import CHILD_KNOTS
from knotwork.spline.layout import Known, Layout, settle
from knotwork.spline.model import Term
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import Residual, TermTable
from knotwork.spline.moments.stored import StoredRows, StoredSums
from knotwork.spline.part_children import ReadChildren, require_room
from knotwork.spline.prune import PruningPath
from knotwork.spline.result import SplineFit
from knotwork.spline.scaling import Scaling
from knotwork.spline.stream import MAX_ERROR, estimated_error

# Knots of a feature where the sample is not all rows, as in folds of many rows: the tables of a pair then stay in the
# processor's cache, and the sums of a part are a quarter of a message.
MANY_ROWS_KNOTS = 127
# Share of the memory that is for the sums: those so far, those of a part, and their sum.
SUMS_SHARE, COPIES = 0.5, 3
# Fewer knots of a feature are too few.
MIN_KNOTS = 3


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
    """Sums that are kept, and a source to read again for interactions and the residual; a :class:`RowSums`.

    max_terms : of the search, for what is reported of its readings
    """

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
        self.max_terms = 0
        self._children: ReadChildren | None = None
        self._source, self._reader, self._threads, self._reading = source, reader, threads, reading
        self.layout = replace(layout, y=Scaling(layout.y.scale, layout.y.centre + self.means))

    def products(self, terms: TermTable) -> Floats:
        """Products of the interactions of the last step with every candidate: (M, C)."""
        if self._children is None:
            return super().products(terms)
        return np.stack([self._children.products[hinges] for hinges in terms.entries()])

    def children(self, grid: CandidateGrid, slopes: Floats, product: bool, slots: int, min_mass: float) -> ReadChildren:
        """Return the sums behind interactions: a reading for each step."""
        self._children = ReadChildren(
            self._source, self._reader, self.layout, self._threads, self._reading, grid, slopes, product, slots,
            min_mass, self.max_terms,
        )  # fmt: skip
        return self._children

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
    """Fit a spline to all rows of a source: the second and the third reading, and those of interactions.

    Held-out rows of the sample choose a degree that is "auto".
    reading : takes what a reading is for, and returns what its progress is reported to
    """
    held: tuple[float, ...] = ()
    if isinstance(options.max_degree, str):
        sample = known.sample
        held = held_out_by_degree(sample.X, sample.y, sample.weight, names, options)
        options = replace(options, max_degree=chosen_degree(held))
    rows = read_sums(source, reader, known, options, memory_limit=memory_limit, reading=reading)
    spacing = "free" if options.spacing != "auto" or options.knots is not None else "paying"
    found = Search.of(rows, known, names, replace(options, spacing=spacing), memory_limit)
    if spacing == "paying" and has_neighbours(found.terms(), known.sample.X):
        # Held-out rows would have to say whether such knots pay; without them a search keeps off neighbouring values.
        found = Search.of(rows, known, names, replace(options, spacing="apart"), memory_limit)
    return with_held_out_losses(found.finished(), held)


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


@dataclass(frozen=True)
class Search:
    """A search by sums, and what ends the fit."""

    rows: ReadRows
    path: ForwardPass
    pruned: PruningPath
    plan: Plan
    names: Sequence[str]
    options: FitOptions

    @classmethod
    def of(cls, rows: ReadRows, known: Known, names: Sequence[str], options: FitOptions, memory_limit: int) -> Search:
        """Search by the sums; interactions read the rows."""
        layout = rows.layout
        plan = Plan.of(options, known.rows, len(layout.factor), rows.opening().total)
        size = layout.grid.knots.size
        plan = replace(plan, max_terms=room_for(plan.max_terms, known.rows, size, plan.degree))
        interactions = None
        if plan.degree > 1:
            if plan.monotone is not None:
                raise DataError(
                    f"monotone fits to rows that are not in memory are additive, got max_degree={plan.degree}; leave "
                    f"one of the two out"
                )
            bends = np.clip(np.diff(layout.grid.offsets), 2, CHILD_KNOTS + 1)
            require_room(size, int(bends.sum()), plan.max_terms, options.max_parents, memory_limit)
            interactions = interactions_of(options, plan.degree, layout.minimum(), plan.spans)
        rows.max_terms = plan.max_terms
        path, pruned = search(rows, plan, layout.x, layout.y, interactions)
        return cls(rows, path, pruned, plan, names, options)

    def terms(self) -> tuple[Term, ...]:
        """Return the terms, in the data's units."""
        return chosen_terms(self.rows.layout, self.path, self.pruned, self.options)

    def finished(self, read: bool = True) -> SplineFit:
        """End the fit: with the third reading, or without, which additive terms can be."""
        rows, plan = self.rows, self.plan
        stored: StoredRows = rows
        if not read or plan.monotone is not None:  # inequalities take several corrections: by the sums
            stored = rows.unread
        fit = finish(rows.layout, stored, self.path, self.pruned, plan, self.names, self.options, passes=1)
        if plan.monotone is not None:
            error = estimated_error(fit.standardised.refit, rows.opening().squares)
            if error > MAX_ERROR:
                raise DataError(
                    f"monotone coefficients come from sums and may be wrong by {MAX_ERROR:g} stds of the response, "
                    f"these may by {error:.0e}: terms are nearly collinear; choose fewer knots (max_knots, minspan) "
                    f"or terms"
                )
        return fit
