"""Row sums of interactions on the CPU: one more histogram per side, and every knot is priced at once.

With b ≥ 0 a parent and x a feature, the children at a knot t are

    min(b, (x − t)₊) = (x − t)₊ − (x − b − t)₊        and        min(b, (t − x)₊) = (t − x)₊ − (t − x − b)₊,

so that their products with a column v are suffix sums over bins of x and of x − b, and prefix sums over bins of x and
of x + b. Children that are products, b·(x − t)₊, need the bins of x alone. Rows where the parent is zero are never
looked at, nor are those where v is zero. Features are scaled under the minimum, so that b and x are comparable.

A thread sums all rows of some (parent, feature) pairs, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.compiled import compiled
from knotwork.spline.knots import CandidateGrid
from knotwork.spline.moments.child_opening import open_children
from knotwork.spline.moments.evaluate import encode
from knotwork.spline.moments.moments import ChildOpening, Hinges, TermTable
from knotwork.spline.moments.pairs import add_pair
from knotwork.spline.moments.parents import ParentRows
from knotwork.spline.moments.values import SpanValues
from knotwork.spline.workers import Workers

# Rows and columns v that stay in the nearest caches while all features pass over them.
TILE, GROUP = 1024, 4


@compiled
def _sum_products(  # type: ignore[no-untyped-def]
    columns, slopes, codes, offsets, knots, most, begin, count, rows, value, bins, used, values, which, first, jobs, out
):
    """Products of columns v with the children of parents.

    most : bins of the feature with most knots
    values : (·, N) columns, weighted; which : (V,) rows of it, -1 for none; out has them from place ``first`` on
    jobs : (J, 4) the place in out, the parent's slot, features from – to
    out : (parents, ·, 2, C), zero before; without bins the children are products
    """
    d, product = len(columns), bins.size == 0
    tables = np.empty((GROUP, d + 1, 3 * most * 2))  # of x, x − b, x + b
    active, v = np.empty((GROUP, TILE, 2), np.uint32), np.empty((GROUP, TILE, 2))
    found, own = np.empty(GROUP, np.int64), np.empty(d, np.int64)
    touched = np.empty(GROUP, np.bool_)
    for job in range(len(jobs)):
        place, slot, a, z = jobs[job]
        features = 0
        for f in range(a, z):
            own[features] = f
            features += used[slot, f]
        a, n = begin[slot], count[slot]
        own_rows, b = rows[a : a + n], value[a : a + n]
        own_bins = bins[d * a : d * (a + n)]
        for group in range(0, len(which), GROUP):
            size = min(GROUP, len(which) - group)
            touched[:] = False
            for tile in range(0, n, TILE):
                stop = min(tile + TILE, n)
                for k in range(size):
                    row, found[k] = which[group + k], 0
                    if row >= 0:
                        found[k] = _find_active(values[row], own_rows, b, tile, stop, active[k], v[k])
                    if found[k] > 0 and not touched[k]:
                        for j in range(features):
                            tables[k, j] = 0.0
                        touched[k] = True
                for k in range(size):
                    if found[k] == 0:
                        continue
                    for j in range(0, features, 2):
                        # The last of an odd number goes with itself, the second time into a spare table.
                        f, g = own[j], own[min(j + 1, features - 1)]
                        second = tables[k, j + 1]
                        if product:
                            _sum_bins(columns[f], codes[f], active[k, : found[k]], v[k], tables[k, j])
                            _sum_bins(columns[g], codes[g], active[k, : found[k]], v[k], second)
                        else:
                            _sum_shifted_bins(
                                columns[f], columns[g], slopes[f], slopes[g], codes[f], codes[g],
                                own_bins[f * n : (f + 1) * n], own_bins[g * n : (g + 1) * n],
                                active[k, : found[k]], v[k], most, tables[k, j], second,
                            )  # fmt: skip
            for k in range(size):
                if not touched[k]:
                    continue
                for j in range(features):
                    at, to = slice(offsets[own[j]], offsets[own[j] + 1]), out[place, first + group + k]
                    _add_up(tables[k, j].reshape(3, most, 2), knots[at], to[0, at], to[1, at])


@compiled
def _find_active(values, rows, b, start, stop, active, v):  # type: ignore[no-untyped-def]
    """Write where a column is not zero, (place, row), and the column there and its product with b, (v, v·b)."""
    count = 0
    for i in range(start, stop):
        active[count, 0] = i
        count += values[rows[i]] != 0.0
    for a in range(count):
        i = active[a, 0]
        active[a, 1] = rows[i]
        v[a, 0] = values[rows[i]]
        v[a, 1] = v[a, 0] * b[i]
    return count


@compiled
def _sum_bins(x, code, active, v, table):  # type: ignore[no-untyped-def]
    """Per bin of x: Σvb and Σvbx."""
    for a in range(len(active)):
        r = active[a, 1]
        add_pair(table, code[r], v[a, 1], v[a, 1] * x[r])


@compiled
def _sum_shifted_bins(x, z, x_slope, z_slope, x_code, z_code, x_bins, z_bins, active, v, most, first, second):  # type: ignore[no-untyped-def]
    """Per bin of x, x − b and x + b: Σv and Σv times the binned value; the same for z.

    first, second : the tables (3, most, 2) of the two features, flat
    """
    lower, upper, mask, byte = np.uint32(most), np.uint32(2 * most), np.uint32(255), np.uint32(8)
    for a in range(len(active)):
        i, r, w, wb = active[a, 0], active[a, 1], v[a, 0], v[a, 1]
        x_both, z_both = np.uint32(x_bins[i]), np.uint32(z_bins[i])
        wx, wz = w * x[r] * x_slope, w * z[r] * z_slope
        add_pair(first, x_code[r], w, wx)
        add_pair(second, z_code[r], w, wz)
        add_pair(first, lower + (x_both & mask), w, wx - wb)
        add_pair(second, lower + (z_both & mask), w, wz - wb)
        add_pair(first, upper + (x_both >> byte), w, wx + wb)
        add_pair(second, upper + (z_both >> byte), w, wz + wb)


@compiled
def _add_up(table, knots, above, below):  # type: ignore[no-untyped-def]
    """Turn the bins of a feature into ⟨v, c⟩ of both children at every knot; the first of them is the feature itself.

    For products the bins of x − b and x + b are empty.
    """
    x, lower, upper, last = table[0], table[1], table[2], knots.size - 1
    s, sx, r, rx = 0.0, 0.0, 0.0, 0.0
    for k in range(last):
        # From the last bin down for children above the knot, from the first bin up for those below.
        i, j = np.uint32(last - k), np.uint32(k)
        s += x[i, 0] - lower[i, 0]
        sx += x[i, 1] - lower[i, 1]
        r += x[j, 0] - upper[j, 0]
        rx += x[j, 1] - upper[j, 1]
        above[i] = sx - knots[i] * s
        below[j + np.uint32(1)] = knots[j + np.uint32(1)] * r - rx


@compiled
def _join(out, slots, ones, columns, shift):  # type: ignore[no-untyped-def]
    """Finish columns that are not summed as they are, see :class:`~knotwork.spline.moments.values.SpanValues`.

    columns : (V, 3) place in out, factor, place of the column beside or -1
    """
    for p in range(len(out)):
        for j in range(len(columns)):
            k, factor, beside = columns[j]
            for side in range(2):
                for i in range(out.shape[3]):
                    total = factor * out[p, k, side, i] + shift[j] * ones[slots[p], side, i]
                    out[p, k, side, i] = total + (out[p, beside, side, i] if beside >= 0 else 0.0)


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
        least_mass: float,
        workers: Workers,
    ) -> None:
        self.grid, self._workers, self._least_mass = grid, workers, least_mass
        self._columns, self._weights = columns, weights
        self._y = y if weights.size == 0 else y * weights
        self._slopes, self._product = np.ones(len(columns)) if product else slopes, product
        self._knots = grid.knots * self._slopes[grid.feature]
        self._bends, self._most_bins = np.diff(grid.offsets) > 1, grid.most_bins
        if self._most_bins > 256:
            raise ValueError(f"children have at most 255 knots a feature, got {self._most_bins - 1}")
        d, n = columns.shape
        self._codes: NDArray[np.uint8] = np.empty((d, n), np.uint8)
        parts = workers.split(d, work=n * d * 4)

        def task(k: int) -> None:
            for f in range(*parts[k]):
                knots = self._knots[grid.offsets[f] + 1 : grid.offsets[f + 1]]
                encode(columns[f], knots, self._slopes[f], self._codes[f])

        workers.run(task, len(parts))
        self._parents = ParentRows(slots, d, grid.knots.size, has_bins=not product)
        self._span = SpanValues(columns, weights)

    def open(self, slots: NDArray[np.int64], parents: Sequence[Hinges], features: NDArray[np.bool_]) -> ChildOpening:
        """Put parents (P) into free slots: their children with the given features (P, d); one pass."""
        mass, norms = np.zeros((2, len(slots), 2, self.grid.knots.size))
        for k, (slot, parent) in enumerate(zip(slots.tolist(), parents, strict=True)):
            self._open(slot, parent, features[k] & self._bends, mass[k], norms[k])
        responses = np.zeros((len(slots), len(self._y), 2, self.grid.knots.size))
        self._add_products(slots, self._y, np.arange(len(self._y)), 0, responses)
        return ChildOpening(mass=mass, norms=norms, responses=responses)

    def _open(self, slot: int, parent: Hinges, used: NDArray[np.bool_], mass: Floats, norms: Floats) -> None:
        table = TermTable.of([parent], self._slopes, self._product)
        if not self._product:
            # Beside another hinge a lone hinge has its slope too.
            table = replace(table, slope=self._slopes[table.feature])
        self._parents.add(slot, self._columns, table, used)
        rows, value, bins = self._parents.rows_of(slot)
        parts = self._workers.split(len(used), work=16 * rows.size * len(used))

        def task(part: int) -> None:
            open_children(
                self._columns, self._slopes, self._codes, self.grid.offsets, self._knots, self._weights,
                rows, value, bins, used, parts[part], self._product, mass, norms, self._parents.ones[slot],
            )  # fmt: skip

        self._workers.run(task, len(parts))
        enough = np.logical_or.reduceat(mass.min(axis=0) >= self._least_mass, self.grid.linear)
        self._parents.used[slot] &= enough

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
        span = self._span
        out = np.zeros((len(slots), len(span) - first, 2, self.grid.knots.size))
        for start, rows in span.batches(first):
            self._add_products(slots, span.values, rows, start - first, out)
        joined = [(m - first, factor, max(-1, beside - first)) for m, factor, beside in span.joined if m >= first]
        if joined:
            _join(out, slots, self._parents.ones, np.array(joined), np.array(span.shift[-len(joined) :]))
        return out

    def _add_products(
        self, slots: NDArray[np.int64], values: Floats, which: NDArray[np.int64], first: int, out: Floats
    ) -> None:
        """Write products of weighted columns with the children of parents; see ``_sum_products``."""
        kept, d = self._parents, len(self._columns)
        # (parent, features) in parts of about equal work.
        work = sum(kept.count[slots].tolist()) * d * len(which)
        threads = len(self._workers.split(self._workers.threads, work))
        pieces = 1 if len(slots) >= 2 * threads else threads
        edges = [d * piece // pieces for piece in range(pieces + 1)]
        jobs = [(place, k, a, b) for place, k in enumerate(slots.tolist()) for a, b in pairwise(edges) if a < b]

        def task(thread: int) -> None:
            own = np.array(jobs[thread::threads], np.int64).reshape(-1, 4)
            _sum_products(
                self._columns, self._slopes, self._codes, self.grid.offsets, self._knots, self._most_bins,
                kept.begin, kept.count, kept.rows, kept.value, kept.bins, kept.used, values, which, first, own, out,
            )  # fmt: skip

        self._workers.run(task, threads)
