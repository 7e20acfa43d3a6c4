"""Interactions of rows in parts: a reading of the source for each step of the search.

The tables of pairs of features serve additive steps. What a step changes for interactions is summed in one reading:
products of its new columns with the candidates and with the children of all parents, and the openings of new parents
with the products of all columns. A part finds the rows and bins of the parents anew: kept, they would grow with N.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.blas import one_blas_thread
from knotwork.compute.workers import Workers
from knotwork.data.batches import Report, Rows, Source
from knotwork.data.part_reader import PartReader
from knotwork.errors import DataError
from knotwork.spline.layout import Layout
from knotwork.spline.moments.children import CpuChildren
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import ChildOpening, ChildStep, Hinges, TermTable
from knotwork.spline.moments.values import SpanTerms

# A parent and the features that its children may use, (d,).
Parent = tuple[Hinges, NDArray[np.bool_]]


@dataclass(frozen=True)
class StepSums:
    """Sums of a step over some rows.

    products : (M, C) of new interactions with all candidates
    kept, whole : as in ``ChildStep``, of what stands for the columns
    mass, norms, responses, ones : of the new parents
    """

    products: Floats
    kept: Floats
    mass: Floats
    norms: Floats
    responses: Floats
    ones: Floats
    whole: Floats

    def plus(self, other: StepSums) -> StepSums:
        """Add the sums of other rows."""
        return StepSums(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True)
class PartStep:
    """The reading of a part for a step; interactions : the new columns that are some, None for none.

    span : the columns, those from number ``first`` on are new; kept, new : the parents before, and new ones
    """

    reader: PartReader
    layout: Layout
    grid: CandidateGrid
    slopes: Floats
    product: bool
    interactions: TermTable | None
    span: SpanTerms
    first: int
    kept: tuple[Parent, ...]
    new: tuple[Parent, ...]
    threads: int

    def __call__(self, rows: Rows) -> StepSums:
        """Sum the rows of a part."""
        part, layout = self.reader(rows), self.layout
        with Workers(self.threads) as workers, one_blas_thread():
            columns = layout.columns(part.X, workers)
            responses = layout.responses(self.reader.target.responses(part.y))
            weights = np.empty(0) if part.weight is None else part.weight
            products = np.empty((0, layout.grid.knots.size))
            if self.interactions is not None:
                products = CpuRows(columns, responses, part.weight, layout.grid, workers).products(self.interactions)
            # Whether a child has enough rows is for all parts to say.
            children = CpuChildren(
                columns, responses, weights, self.grid, self.slopes, self.product, len(self.kept) + len(self.new), 0.0,
                workers, self.span,
            )  # fmt: skip
            kept, new = np.split(np.arange(len(self.kept) + len(self.new)), [len(self.kept)])
            for slot, (parent, used) in zip(kept.tolist(), self.kept, strict=True):
                children.place(slot, parent, used)
            sums = children.sums(kept, self.first)
            features = np.array([used for _, used in self.new], np.bool_).reshape(len(new), len(columns))
            opening = children.open(new, [parent for parent, _ in self.new], features)
            whole = children.sums(new, 0)
            return StepSums(
                products, sums, opening.mass, opening.norms, opening.responses, children.ones(new), whole
            )  # fmt: skip


class ReadChildren:
    """A source behind the children of parents; a :class:`~knotwork.spline.moments.moments.ChildSums`.

    products : of the interactions that the last step added, with all candidates
    """

    def __init__(
        self,
        source: Source,
        reader: PartReader,
        layout: Layout,
        threads: int,
        reading: Callable[[str], Report | None],
        grid: CandidateGrid,
        slopes: Floats,
        product: bool,
        slots: int,
        min_mass: float,
        max_terms: int,
    ) -> None:
        self.grid, self.products = grid, dict[Hinges, Floats]()
        self._source, self._reader, self._layout, self._threads = source, reader, layout, threads
        self._reading, self._slopes, self._product, self._min_mass = reading, slopes, product, min_mass
        self._span = SpanTerms(layout.minimum().__getitem__)
        self._parents: dict[int, Parent] = {}
        self._ones = np.zeros((slots, 2, grid.knots.size))
        self._max_terms, self._seconds, self._steps = max_terms, 0.0, 0

    def advance(
        self,
        columns: TermTable,
        slots: NDArray[np.int64],
        new_slots: NDArray[np.int64],
        parents: Sequence[Hinges],
        features: NDArray[np.bool_],
    ) -> ChildStep:
        """Sum a step of the search: one reading, or none where nothing has children yet."""
        first = len(self._span)
        self._span.add(columns)
        joint = [hinges for hinges in columns.entries() if len(hinges) > 1]
        if not joint and not len(slots) and not len(new_slots):
            none = np.zeros((0, 2, self.grid.knots.size))
            return ChildStep(none[:, None], ChildOpening(none, none, none[:, None]), none[:, None])
        new = tuple(zip(parents, features & (np.diff(self.grid.offsets) > 1), strict=True))
        task = PartStep(
            self._reader, self._layout, self.grid, self._slopes, self._product,
            TermTable.of(joint, self._slopes, self._product) if joint else None, self._span, first,
            tuple(self._parents[slot] for slot in slots.tolist()), new, self._threads,
        )  # fmt: skip
        sums = self._read(task)
        self.products = dict(zip(joint, sums.products, strict=True))
        enough = np.logical_or.reduceat(sums.mass.min(axis=1) >= self._min_mass, self.grid.linear, axis=1)
        for slot, (parent, used), own in zip(new_slots.tolist(), new, enough, strict=True):
            self._parents[slot] = parent, used & own
        self._ones[new_slots] = sums.ones
        self._span.join(sums.kept, self._ones[slots], first)
        self._span.join(sums.whole, sums.ones, 0)
        return ChildStep(sums.kept, ChildOpening(sums.mass, sums.norms, sums.responses), sums.whole)

    def close(self, slot: int) -> None:
        """Forget a parent."""
        del self._parents[slot]

    def _read(self, task: PartStep) -> StepSums:
        terms, left = len(self._span), ""
        if self._steps:
            steps = self._max_terms - terms  # a step adds one term or two
            left = f", about {self._seconds / self._steps * steps:,.0f} s for all"
        report = self._reading(f"interactions: {terms} of at most {self._max_terms} terms{left}")
        start = time.perf_counter()
        sums = self._source.add(task, StepSums.plus, None, report)
        self._seconds, self._steps = self._seconds + time.perf_counter() - start, self._steps + 1
        return sums


def require_room(grid: int, children: int, max_terms: int, slots: int, memory_limit: int) -> None:
    """Refuse tables of children that are larger than the memory for sums; grid, children : numbers of candidates."""
    slots, columns = min(slots, max_terms + 1), max_terms + 1
    needed = 4 * grid**2 + 16 * children * columns * (slots + 3 * 2)
    if needed > memory_limit // 2:
        raise DataError(
            f"tables of interactions must fit into half of memory_limit ({memory_limit >> 20} MB), those of "
            f"{max_terms} terms and {slots} parents need {needed / 2**20:.0f} MB; raise memory_limit, or choose a "
            f"smaller max_terms, max_parents or max_knots"
        )
