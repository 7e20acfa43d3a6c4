"""Row sums of additive terms from tables: a search then hardly depends on the number of rows.

When a feature is first chosen, what its products with all candidates of all features follow from is summed at once:
for many rows a histogram over the joint bins of each pair of features (:mod:`knotwork.spline.moments.joint`), from
which every knot of that feature is looked up; for fewer one over a few strata of the feature
(:mod:`knotwork.spline.moments.strata`), from which a look-up takes some of the rows. What a table costs and saves
follows from the numbers of rows, features, knots and terms; where a pass over the rows is cheaper, or memory is short,
there is a pass as before.

A thread sums all rows of some pairs, in order, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.moments.costs import Choice
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.joint import cells, joint_counts, joint_products, joint_sums, spread_counts
from knotwork.spline.moments.moments import ChildSums, Opening, Residual, TermTable
from knotwork.spline.moments.pairs import SUMS
from knotwork.spline.moments.stored import own_products
from knotwork.spline.moments.strata import Strata, strata_of

# Bins of a feature from which on their means may stand for its values.
MIN_COUNT_BINS = 32
# Terms of a search that are expected, as a share of its limit.
EXPECTED = 0.5
# Memory for tables, over that for the columns; there is always room for MIN_BYTES.
MAX_SHARE, MIN_BYTES = 0.5, 32 * 2**20


@dataclass(frozen=True)
class _Strip:
    """Products of the candidates of a feature (rows) with those of other features (columns).

    begin : other feature → the column of its first candidate
    """

    products: Floats
    begin: dict[int, int]


class TableRows:
    """Rows in memory, their products from tables where that is cheaper than a pass; a :class:`RowSums`.

    max_terms : of the search
    counts : take every value for the mean of its bin: a third of the time for the tables of many rows. A search may
        then choose a neighbouring knot
    always : use tables whatever they cost; strata : use strata whatever they cost
    """

    def __init__(
        self, rows: CpuRows, max_terms: int, *, counts: bool = False, always: bool = False, strata: bool = False
    ) -> None:
        self.grid: CandidateGrid = rows.grid
        self._rows, self._counts, self._always, self._only_strata = rows, counts, always, strata
        self._expected = EXPECTED * max_terms / len(rows.columns)
        self._edges: list[int] = self.grid.offsets.tolist()
        self._knots: list[float] = self.grid.knots.tolist()
        self._strips: dict[int, _Strip] = {}
        self._strata: dict[int, Strata] = {}
        self._chosen = [0] * len(rows.columns)
        self._pool, self._used = np.empty(0), 0
        self._rooms: list[tuple[Floats, Floats]] = []
        self._look_up_room: tuple[NDArray[np.uint32], Floats, Floats] | None = None

    def opening(self) -> Opening:
        """Sum what the search starts from: one pass."""
        return self._rows.opening()

    def line_products(self, feature: int) -> Floats:
        """Products of a feature itself with every candidate: (C,), from the tables or by one pass."""
        if not self._has_table(feature):
            return self._rows.line_products(feature)
        out = np.empty(self._edges[-1])
        self._look_up(feature, 0, out)
        return out

    def pair_products(self, feature: int, knot: float) -> Floats:
        """Products of a feature x itself and of (x − t)₊ with every candidate: (2, C), from tables or by one pass."""
        place = self._place(feature, knot)
        if place < 0 or not self._has_table(feature):
            return self._rows.pair_products(feature, knot)
        out = np.empty((2, self._edges[-1]))
        self._look_up(feature, 0, out[0])
        self._look_up(feature, place, out[1])
        return out

    def hinge_products(self, feature: int, knot: float) -> Floats:
        """Products of (x − t)₊ with every candidate: (1, C), from tables or by one pass."""
        place = self._place(feature, knot)
        if place < 0 or not self._has_table(feature):
            return self._rows.hinge_products(feature, knot)
        out = np.empty((1, self._edges[-1]))
        self._look_up(feature, place, out[0])
        return out

    def products(self, terms: TermTable) -> Floats:
        """Products of interactions with every candidate: (M, C), by one pass."""
        return self._rows.products(terms)

    def children(self, grid: CandidateGrid, slopes: Floats, product: bool, slots: int, min_mass: float) -> ChildSums:
        """Return the sums behind interactions, for so many parents at a time: by passes."""
        return self._rows.children(grid, slopes, product, slots, min_mass)

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Sum the residual of a linear combination of terms: one pass, so that coefficients owe nothing to tables."""
        return self._rows.residual(terms, intercept, coef)

    def _has_table(self, feature: int) -> bool:
        """Whether the products of a feature are there; they are computed now if that is worth it."""
        if feature in self._strips or feature in self._strata:
            return True
        self._chosen[feature] += 1
        others = [g for g in range(len(self._chosen)) if g != feature and feature not in self._begin(g)]
        size = self._bins(feature) * sum(self._bins(g) for g in others)
        d, n = self._rows.columns.shape
        choice = Choice(n, d, self._expected, self._chosen[feature])
        passes = choice.passes()
        strata = choice.strata(strata_of(n, self._bins(feature)), self._edges[-1])
        table = choice.table(len(others), size, counts=self._counts)
        if self._always or (not self._only_strata and table <= min(strata, passes)):
            room = self._room(size)
            if room is not None:
                self._strips[feature] = self._sum(feature, others, room)
                return True
        if self._only_strata or strata <= passes:
            room = self._room(Strata.room_for(self._rows, feature))
            if room is not None:
                self._strata[feature] = Strata(self._rows, feature, self.opening().mass, room)
                return True
        return False

    def _room(self, size: int) -> Floats | None:
        """Return room for so many numbers, None if there is none left.

        The memory is asked for once, as large pages, and used as needed.
        """
        if self._pool.size == 0:
            bins = np.diff(self.grid.offsets)
            everything = int(bins.sum() ** 2 - (bins**2).sum()) // 2
            strata = sum(Strata.room_for(self._rows, f) for f in range(len(bins)))
            limit = max(MIN_BYTES, int(MAX_SHARE * self._rows.columns.nbytes)) // 8
            whole = strata if self._only_strata else everything if self._always else max(everything, strata)
            forced = self._only_strata or self._always
            self._pool = np.empty(whole if forced else min(whole, limit))
        if self._used + size > self._pool.size:
            return None
        self._used += size
        return self._pool[self._used - size : self._used]

    def _begin(self, feature: int) -> dict[int, int]:
        return self._strips[feature].begin if feature in self._strips else {}

    def _bins(self, feature: int) -> int:
        return self._edges[feature + 1] - self._edges[feature]

    def _sum(self, feature: int, others: list[int], room: Floats) -> _Strip:
        """Compute the products of a feature's candidates with those of others: one pass over each pair of columns."""
        rows, knots = self._rows, [self.grid.knots[a:b] for a, b in zip(self._edges, self._edges[1:], strict=False)]
        edges = np.cumsum([0, *(knots[g].size for g in others)]).tolist()
        out = room.reshape(knots[feature].size, edges[-1])
        widest = max((knots[g].size for g in others), default=0)
        size = knots[feature].size * widest
        parts = rows.workers.split(len(others), work=len(others) * (rows.columns.shape[1] + size))
        if len(self._rooms) < len(parts) or self._rooms[0][0].size < SUMS * size:
            self._rooms = [(cells(size), np.empty((SUMS, self.grid.max_bins))) for _ in parts]

        def task(k: int) -> None:
            table, room = self._rooms[k]
            for place in range(*parts[k]):
                g = others[place]
                own = rows.codes[feature], rows.codes[g]
                if self._counts and min(knots[feature].size, knots[g].size) >= MIN_COUNT_BINS:
                    joint_counts(*own, rows.weights, np.uint64(knots[g].size), table)
                    spread_counts(table, self._mean_distances(feature), self._mean_distances(g))
                else:
                    joint_sums(
                        rows.columns[feature], rows.columns[g], *own, knots[feature], knots[g], rows.weights, table
                    )  # fmt: skip
                joint_products(table, knots[feature], knots[g], room, edges[place], out)

        if others:
            rows.workers.run(task, len(parts))
        return _Strip(out, dict(zip(others, edges, strict=False)))

    def _mean_distances(self, feature: int) -> Floats:
        """Mean distance of a bin's values from its knot: (bins,), 0 for empty ones."""
        own = slice(self._edges[feature], self._edges[feature + 1])
        mass, sums = self.opening().mass[own], self.opening().sums[own]
        # Σ(x − t) above a knot, less what the rows above the next one contribute to it.
        above = np.append(sums[1:] + np.diff(self.grid.knots[own]) * mass[1:], 0.0)
        count = mass - np.append(mass[1:], 0.0)
        return np.where(count > 0, (sums - above) / np.where(count > 0, count, 1.0), 0.0)

    def _place(self, feature: int, knot: float) -> int:
        """Return the place of a knot among the candidates of its feature, -1 if it is none of them."""
        first, last = self._edges[feature : feature + 2]
        place = bisect_left(self._knots, knot, first + 1, last)
        return place - first if place < last and self._knots[place] == knot else -1

    def _look_up(self, feature: int, place: int, out: Floats) -> None:
        """Write the products of the candidate at a place of a feature's with every candidate: (C,)."""
        edges = self._edges
        if feature in self._strata:
            if self._look_up_room is None:
                n = self._rows.columns.shape[1]
                self._look_up_room = np.empty(n, np.uint32), np.empty(n), np.empty(2 * edges[-1])
            self._strata[feature].products(place, self._look_up_room, out)
        else:
            strip = self._strips[feature]
            for g, begin in strip.begin.items():
                out[edges[g] : edges[g + 1]] = strip.products[place, begin : begin + edges[g + 1] - edges[g]]
            for g, other in self._strips.items():
                if feature in other.begin:
                    out[edges[g] : edges[g + 1]] = other.products[:, other.begin[feature] + place]
        own_products(self.opening(), self.grid, feature, place, out)
