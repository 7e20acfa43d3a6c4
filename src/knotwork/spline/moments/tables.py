"""Row sums of additive terms from tables of pairs: a search then hardly depends on the number of rows.

When a feature is first chosen, its products with all candidates of all features are computed at once, from a histogram
over the joint bins of each pair of features (:mod:`knotwork.spline.moments.joint`). From then on every knot of that
feature is looked up. What a table costs and saves follows from the numbers of rows, features, knots and terms; where a
pass over the rows is cheaper, or memory is short, there is a pass as before.

A thread sums all rows of some pairs, in order, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from knotwork.arrays import Floats
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.joint import SUMS, cells, joint_counts, joint_products, joint_sums, spread_counts
from knotwork.spline.moments.moments import ChildSums, Opening, Residual, TermTable
from knotwork.spline.moments.stored import own_products

# Nanoseconds of one thread, of which only the ratios matter: a pass over the two hinges of a knot and over one hinge,
# for a row of a feature; a joint histogram, for a row of a pair and for a cell (with counts: COUNT_SHARE of a row), and
# what a pair costs however few its rows.
PAIR_PASS, HINGE_PASS = 1.65, 0.35
JOINT_ROW, JOINT_CELL, COUNT_SHARE, JOINT_PAIR = 4.2, 4.8, 0.3, 15_000.0
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
    always : use tables whatever they cost
    """

    def __init__(self, rows: CpuRows, max_terms: int, *, counts: bool = False, always: bool = False) -> None:
        self.grid: CandidateGrid = rows.grid
        self._rows, self._counts, self._always = rows, counts, always
        self._expected = EXPECTED * max_terms / len(rows.columns)
        self._edges: list[int] = self.grid.offsets.tolist()
        self._strips: dict[int, _Strip] = {}
        self._chosen = [0] * len(rows.columns)
        # Of the products of each feature that no table has: the number of the other features, and of their candidates.
        self._others = [len(rows.columns) - 1] * len(rows.columns)
        self._unknown = [self._edges[-1] - self._bins(f) for f in range(len(rows.columns))]
        self._pool, self._used = np.empty(0), 0
        self._rooms: list[tuple[Floats, Floats]] = []

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
        if not self._has_table(feature) or (place := self._place(feature, knot)) < 0:
            return self._rows.pair_products(feature, knot)
        out = np.empty((2, self._edges[-1]))
        self._look_up(feature, 0, out[0])
        self._look_up(feature, place, out[1])
        return out

    def hinge_products(self, feature: int, knot: float) -> Floats:
        """Products of (x − t)₊ with every candidate: (1, C), from tables or by one pass."""
        if not self._has_table(feature) or (place := self._place(feature, knot)) < 0:
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
        if feature in self._strips:
            return True
        self._chosen[feature] += 1
        size = self._bins(feature) * self._unknown[feature]
        if not self._is_worth_it(feature, self._others[feature], size) or not self._has_room(size):
            return False
        others = [g for g in range(len(self._chosen)) if g != feature and feature not in self._begin(g)]
        self._strips[feature] = self._sum(feature, others)
        for g in others:
            self._others[g] -= 1
            self._unknown[g] -= self._bins(feature)
        return True

    def _is_worth_it(self, feature: int, others: int, size: int) -> bool:
        """Whether a table of so many products with other features is cheaper than the passes to be expected."""
        d, n = self._rows.columns.shape
        # What others will use too, if they are to be chosen, costs each of the two half.
        share = max(0.5, 1 - self._expected / 2)
        row = JOINT_ROW * (COUNT_SHARE if self._counts else 1.0)
        table = share * (others * (n * row + JOINT_PAIR) + size * JOINT_CELL)
        # Passes to come, this one included: those expected, or as many as there have been. The first sees both sides.
        chosen = self._chosen[feature]
        steps = max(self._expected - chosen + 1, chosen - 1, 1)
        first = PAIR_PASS if chosen == 1 else HINGE_PASS
        return self._always or table <= d * n * (first + (steps - 1) * HINGE_PASS)

    def _has_room(self, size: int) -> bool:
        """Whether so many more products fit; the memory is asked for once, as large pages, and used as needed."""
        if self._pool.size == 0:
            bins = np.diff(self.grid.offsets)
            everything = int(bins.sum() ** 2 - (bins**2).sum()) // 2
            limit = max(MIN_BYTES, int(MAX_SHARE * self._rows.columns.nbytes)) // 8
            self._pool = np.empty(everything if self._always else min(everything, limit))
        return self._used + size <= self._pool.size

    def _begin(self, feature: int) -> dict[int, int]:
        return self._strips[feature].begin if feature in self._strips else {}

    def _bins(self, feature: int) -> int:
        return self._edges[feature + 1] - self._edges[feature]

    def _sum(self, feature: int, others: list[int]) -> _Strip:
        """Compute the products of a feature's candidates with those of others: one pass over each pair of columns."""
        rows, knots = self._rows, [self.grid.knots[a:b] for a, b in zip(self._edges, self._edges[1:], strict=False)]
        edges = np.cumsum([0, *(knots[g].size for g in others)]).tolist()
        first, self._used = self._used, self._used + knots[feature].size * edges[-1]
        out = self._pool[first : self._used].reshape(knots[feature].size, edges[-1])
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
        place = bisect_left(self.grid.knots, knot, first + 1, last)
        return place - first if place < last and self.grid.knots[place] == knot else -1

    def _look_up(self, feature: int, place: int, out: Floats) -> None:
        """Write the products of the candidate at a place of a feature's with every candidate: (C,)."""
        edges, opening = self._edges, self.opening()
        strip = self._strips[feature]
        for g, begin in strip.begin.items():
            out[edges[g] : edges[g + 1]] = strip.products[place, begin : begin + edges[g + 1] - edges[g]]
        for g, other in self._strips.items():
            if feature in other.begin:
                out[edges[g] : edges[g + 1]] = other.products[:, other.begin[feature] + place]
        own_products(opening, self.grid, feature, place, out)
