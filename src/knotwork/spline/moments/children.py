"""Row sums of interactions on the CPU: one more histogram per side, and every knot is priced at once.

With b ≥ 0 a parent and x a feature, the children at a knot t are

    min(b, (x − t)₊) = (x − t)₊ − (x − b − t)₊        and        min(b, (t − x)₊) = (t − x)₊ − (t − x − b)₊,

so that their products with a column v are suffix sums over bins of x and of x − b, and prefix sums over bins of x and
of x + b. Children that are products, b·(x − t)₊, need the bins of x alone. Rows where the parent is zero are never
looked at, nor are those where v is zero. Features are scaled in a minimum, so that b and x are comparable.

A thread sums all rows of some (parent, feature) pairs, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.compute.workers import Workers
from knotwork.spline.moments.bins import SEARCH_TILE, encode, padded_rows
from knotwork.spline.moments.child_opening import find_bins, open_min, open_product
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import ChildOpening, ChildStep, Hinges, TermTable
from knotwork.spline.moments.pairs import add_pair
from knotwork.spline.moments.parents import ParentRows, parent_values
from knotwork.spline.moments.values import SpanTerms, SpanValues

# Rows and columns v that stay in the nearest caches while all features pass over them.
TILE, GROUP = 1024, 4


@compiled
def _sum_products(  # type: ignore[no-untyped-def]
    columns, slopes, codes, offsets, knots, begin, count, rows, hinges, feature, knot, factor, bins, bins_begin, used,
    values, which, first, jobs, tables, active, v, b, out,
):  # fmt: skip
    """Products of columns v with the children of parents.

    hinges, feature, knot, factor : of the parents, see ``ParentRows``
    bins : those of slot s begin at ``bins_begin[s]``; None for products, of which half as much is compiled
    values : (·, N) columns, weighted; which : (V,) rows of it, -1 for none; out has them from place ``first`` on
    jobs : (J, 4) the place in out, the parent's slot, features from – to
    tables : room for a column's features and one more: 3 tables of x, x − b, x + b, flat; (group · features, ·)
    active, v, b : room for a group of tiles, two entries to a row, and for the parent on a tile
    out : (parents, ·, 2, C), zero before
    """
    d = len(columns)
    max_bins = tables.size // (GROUP * (d + 1) * 6)
    width = 3 * max_bins  # of the tables of a feature, in pairs of sums
    lower, upper, mask, byte = np.uint32(max_bins), np.uint32(2 * max_bins), np.uint32(255), np.uint32(8)
    one, two = np.uint64(1), np.uint64(2)
    own, found, touched = np.empty(d, np.int64), np.empty(GROUP, np.int64), np.empty(GROUP, np.int64)
    for job in range(len(jobs)):
        place, slot = jobs[job, 0], jobs[job, 1]
        features = 0
        for f in range(jobs[job, 2], jobs[job, 3]):
            own[features] = f
            features += used[slot, f]
        a, n = begin[slot], count[slot]
        own_rows = rows[a : a + n]
        for group in range(0, len(which), GROUP):
            size = len(which) - group if group + GROUP > len(which) else GROUP
            for k in range(size):
                touched[k] = 0
            for tile in range(0, n, TILE):
                stop = n if tile + TILE > n else tile + TILE
                parent_values(columns, own_rows[tile:stop], slot, hinges, feature, knot, factor, bins is None, b)
                for k in range(size):
                    # Where a column is not zero: (place, row), and the column there and its product with b.
                    row, active_rows = which[group + k], 0
                    if row >= 0:
                        for i in range(tile, stop):
                            active[k, active_rows, 0] = i
                            active_rows += values[row, own_rows[i]] != 0.0
                        for i in range(active_rows):
                            at = active[k, i, 0]
                            active[k, i, 1] = own_rows[at]
                            v[k, i, 0] = values[row, own_rows[at]]
                            v[k, i, 1] = v[k, i, 0] * b[at - tile]
                    found[k] = active_rows
                    if active_rows > 0 and touched[k] == 0:
                        touched[k] = 1
                        begins = 2 * width * k * (d + 1)
                        tables[begins : begins + 2 * width * features] = 0.0
                for k in range(size):
                    for j in range(0, features if found[k] > 0 else 0, 2):
                        # The last of an odd number goes with itself, the second time into a spare table.
                        f, g = own[j], own[j + 1 if j + 1 < features else j]
                        begins = 2 * width * (k * (d + 1) + j)
                        # Parts of arrays, not places in them: a pointer each, and the loops need no other registers.
                        first_table, second_table = tables[begins:], tables[begins + 2 * width :]
                        x, z, x_code, z_code = columns[f], columns[g], codes[f], codes[g]
                        if bins is None:
                            # Per bin of x: Σvb and Σvbx; the same for z.
                            for i in range(found[k]):
                                r, wb = active[k, i, 1], v[k, i, 1]
                                add_pair(first_table, x_code[r], wb, wb * x[r])
                                add_pair(second_table, z_code[r], wb, wb * z[r])
                        else:
                            # Per bin of x, x − b and x + b: Σv and Σv times the binned value; the same for z.
                            x_slope, z_slope = slopes[f], slopes[g]
                            x_bins, z_bins = bins[bins_begin[slot] + f * n :], bins[bins_begin[slot] + g * n :]
                            for i in range(found[k]):
                                at, r, w, wb = active[k, i, 0], active[k, i, 1], v[k, i, 0], v[k, i, 1]
                                x_both, z_both = np.uint32(x_bins[at]), np.uint32(z_bins[at])
                                wx, wz = w * x[r] * x_slope, w * z[r] * z_slope
                                add_pair(first_table, x_code[r], w, wx)
                                add_pair(second_table, z_code[r], w, wz)
                                add_pair(first_table, lower + (x_both & mask), w, wx - wb)
                                add_pair(second_table, lower + (z_both & mask), w, wz - wb)
                                add_pair(first_table, upper + (x_both >> byte), w, wx + wb)
                                add_pair(second_table, upper + (z_both >> byte), w, wz + wb)
            for k in range(size):
                for j in range(features if touched[k] == 1 else 0):
                    # ⟨v, c⟩ of both children at every knot. For products the bins of x − b and x + b are empty.
                    at, last = np.uint64(offsets[own[j]]), offsets[own[j] + 1] - offsets[own[j]] - 1
                    table = tables[2 * width * (k * (d + 1) + j) :]
                    s, sx, r, rx = 0.0, 0.0, 0.0, 0.0
                    for i in range(last):
                        # From the last bin down for children above the knot, from the first bin up for those below.
                        up, down = np.uint64(i), np.uint64(last - i)
                        s += table[two * down] - table[two * (down + lower)]
                        sx += table[two * down + one] - table[two * (down + lower) + one]
                        r += table[two * up] - table[two * (up + upper)]
                        rx += table[two * up + one] - table[two * (up + upper) + one]
                        out[place, first + group + k, 0, at + down] = sx - knots[at + down] * s
                        out[place, first + group + k, 1, at + up + one] = knots[at + up + one] * r - rx


class CpuChildren:
    """Rows in memory behind the children of parents; a :class:`~knotwork.spline.moments.moments.ChildSums`."""

    def __init__(
        self,
        columns: Floats,
        y: Floats,
        weights: Floats,
        grid: CandidateGrid,
        slopes: Floats,
        product: bool,
        slots: int,
        min_mass: float,
        workers: Workers,
        span: SpanTerms | None = None,
    ) -> None:
        self.grid, self._workers, self._min_mass = grid, workers, min_mass
        self._columns, self._weights = columns, weights
        self._y = y if weights.size == 0 else y * weights
        self._slopes, self._product = np.ones(len(columns)) if product else slopes, product
        self._knots = grid.knots * self._slopes[grid.feature]
        self._bends, self._max_bins = np.diff(grid.offsets) > 1, grid.max_bins
        if self._max_bins > 256:
            raise ValueError(f"children have at most 255 knots a feature, got {self._max_bins - 1}")
        d, n = columns.shape
        self._codes: NDArray[np.uint8] = np.empty((d, n), np.uint8)
        self._padded = np.array(padded_rows(self._knots, grid.offsets))
        parts = workers.split(d, work=n * d * 4)

        def task(k: int) -> None:
            room = np.empty(SEARCH_TILE, np.uint32)
            for f in range(*parts[k]):
                encode(columns[f], self._padded[f], self._slopes[f], room, self._codes[f])

        workers.run(task, len(parts))
        self._parents = ParentRows(slots, columns, grid.knots.size, has_bins=not product)
        # For the bins of a parent that are not kept.
        self._room = np.empty(0, np.uint16)
        self._span = SpanTerms(lambda f: float(columns[f].min())) if span is None else span
        self._values = SpanValues(columns, weights, self._span)

    def advance(
        self,
        columns: TermTable,
        slots: NDArray[np.int64],
        new_slots: NDArray[np.int64],
        parents: Sequence[Hinges],
        features: NDArray[np.bool_],
    ) -> ChildStep:
        """Sum a step of the search; see :class:`~knotwork.spline.moments.moments.ChildSums`."""
        first = len(self._span)
        self.extend(columns)
        return ChildStep(
            self.products(slots, first), self.open(new_slots, parents, features), self.products(new_slots, 0)
        )

    def open(self, slots: NDArray[np.int64], parents: Sequence[Hinges], features: NDArray[np.bool_]) -> ChildOpening:
        """Put parents (P) into free slots: their children with the given features (P, d); one pass."""
        mass, norms = np.zeros((2, len(slots), 2, self.grid.knots.size))
        for k, (slot, parent) in enumerate(zip(slots.tolist(), parents, strict=True)):
            self._open(slot, parent, features[k] & self._bends, mass[k], norms[k])
        responses = np.zeros((len(slots), len(self._y), 2, self.grid.knots.size))
        self._add_products(slots, self._y, np.arange(len(self._y)), 0, responses)
        return ChildOpening(mass=mass, norms=norms, responses=responses)

    def _open(self, slot: int, parent: Hinges, used: NDArray[np.bool_], mass: Floats, norms: Floats) -> None:
        rows, value, bins = self._place(slot, parent, used)
        parts = self._workers.split(len(used), work=16 * rows.size * len(used))

        def task(part: int) -> None:
            sums = mass, norms, self._parents.ones[slot]
            if self._product:
                open_product(
                    self._columns, self._codes, self.grid.offsets, self._knots, self._weights, rows, value,
                    used, parts[part], np.empty((self._max_bins, 6)), *sums,
                )  # fmt: skip
                return
            open_min(
                self._columns, self._slopes, self._codes, self.grid.offsets, self._knots, self._weights,
                rows, value, bins, used, parts[part], np.empty(12 * self._max_bins), *sums,
            )  # fmt: skip

        self._workers.run(task, len(parts))
        enough = np.logical_or.reduceat(mass.min(axis=0) >= self._min_mass, self.grid.linear)
        self._parents.used[slot] &= enough

    def place(self, slot: int, parent: Hinges, used: NDArray[np.bool_]) -> None:
        """Put a parent into a free slot, of whose children some features are summed, (d,); their opening is known."""
        self._place(slot, parent, used)

    def _place(
        self, slot: int, parent: Hinges, used: NDArray[np.bool_]
    ) -> tuple[NDArray[np.uint32], Floats, NDArray[np.uint16] | None]:
        """Find the rows of a parent, its values there, and the bins of its children."""
        table = TermTable.of([parent], self._slopes, self._product)
        if not self._product:
            # A hinge that is combined with another one takes its slope, even if the parent is a single hinge.
            table = replace(table, slope=self._slopes[table.feature])
        self._parents.add(slot, self._columns, table, used)
        rows, value = self._rows_and_values(slot)
        return rows, value, None if self._product else self._found_bins(slot, rows, value)

    def _rows_and_values(self, slot: int) -> tuple[NDArray[np.uint32], Floats]:
        """Return where a parent is positive, and how much."""
        kept, rows = self._parents, self._parents.rows_of(slot)
        value = np.empty(rows.size)
        hinges = kept.hinges, kept.feature, kept.knot, kept.factor
        parent_values(self._columns, rows, slot, *hinges, self._product, value)
        return rows, value

    def _found_bins(self, slot: int, rows: NDArray[np.uint32], value: Floats) -> NDArray[np.uint16]:
        """Find the bins (features, rows) of a parent: where they are kept, or where the next ones will be too."""
        bins, d = self._parents.bins_of(slot), len(self._columns)
        if bins is None:
            if self._room.size < d * rows.size:
                self._room = np.empty(d * rows.size, np.uint16)
            bins = self._room[: d * rows.size].reshape(d, rows.size)
        parts = self._workers.split(d, work=8 * rows.size * d)

        def task(part: int) -> None:
            room = np.zeros(2 * SEARCH_TILE), np.zeros(2 * SEARCH_TILE, np.uint32)
            used = self._parents.used[slot]
            find_bins(self._columns, self._slopes, self._padded, rows, value, bins, used, parts[part], *room)

        self._workers.run(task, len(parts))
        return bins

    def close(self, slot: int) -> None:
        """Forget a parent."""
        self._parents.remove(slot)

    def extend(self, terms: TermTable) -> None:
        """Add columns to the span."""
        self._span.add(terms)

    def products(self, slots: NDArray[np.int64], first: int) -> Floats:
        """Products of the span's columns from number ``first`` on with the children in slots.

        (slots, columns, 2, C); one pass.
        """
        out = self.sums(slots, first)
        self._span.join(out, self._parents.ones[slots], first)
        return out

    def sums(self, slots: NDArray[np.int64], first: int) -> Floats:
        """Sum what stands for the span's columns, see ``SpanTerms``, with the children in slots: as ``products``."""
        out = np.zeros((len(slots), len(self._span) - first, 2, self.grid.knots.size))
        for start, rows in self._values.batches(first) if len(slots) else ():
            self._add_products(slots, self._values.values, rows, start - first, out)
        return out

    def ones(self, slots: NDArray[np.int64]) -> Floats:
        """Return the products of 1 with the children in slots that were opened here: (slots, 2, C)."""
        return self._parents.ones[slots]

    def _add_products(
        self, slots: NDArray[np.int64], values: Floats, which: NDArray[np.int64], first: int, out: Floats
    ) -> None:
        """Write products of weighted columns with the children of parents; see ``_sum_products``."""
        kept = self._parents
        places = list(enumerate(slots.tolist()))
        if self._product:
            self._run_products(places, None, kept.bins_begin, values, which, first, out)
            return
        ready = [(place, slot) for place, slot in places if kept.bins_begin[slot] >= 0]
        self._run_products(ready, kept.bins, kept.bins_begin, values, which, first, out)
        for place, slot in places:
            if kept.bins_begin[slot] < 0:
                self._found_bins(slot, *self._rows_and_values(slot))
                self._run_products([(place, slot)], self._room, np.zeros_like(kept.begin), values, which, first, out)

    def _run_products(
        self, places: list[tuple[int, int]], bins: NDArray[np.uint16] | None, bins_begin: NDArray[np.int64],
        values: Floats, which: NDArray[np.int64], first: int, out: Floats,
    ) -> None:  # fmt: skip
        """Run ``_sum_products`` for parents, given as (place in out, slot), in parts of about equal work."""
        kept, d = self._parents, len(self._columns)
        work = sum(int(kept.count[slot]) for _, slot in places) * d * len(which)
        threads = len(self._workers.split(self._workers.threads, work))
        pieces = 1 if len(places) >= 2 * threads else threads
        edges = [d * piece // pieces for piece in range(pieces + 1)]
        jobs = [(place, slot, a, b) for place, slot in places for a, b in pairwise(edges) if a < b]

        def task(thread: int) -> None:
            own = np.array(jobs[thread::threads], np.int64).reshape(-1, 4)
            _sum_products(
                self._columns, self._slopes, self._codes, self.grid.offsets, self._knots, kept.begin, kept.count,
                kept.rows, kept.hinges, kept.feature, kept.knot, kept.factor, bins, bins_begin, kept.used, values,
                which, first, own, np.empty(GROUP * (d + 1) * 6 * self._max_bins),
                np.empty((GROUP, TILE, 2), np.uint32), np.empty((GROUP, TILE, 2)), np.empty(TILE), out,
            )  # fmt: skip

        self._workers.run(task, threads)
