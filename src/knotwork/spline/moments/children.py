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

from knotwork.spline.compiled import compiled
from knotwork.spline.knots import CandidateGrid
from knotwork.spline.model import Floats
from knotwork.spline.moments.child_opening import open_children
from knotwork.spline.moments.evaluate import CELLS, encode, lay_cells
from knotwork.spline.moments.moments import ChildOpening, Hinges, TermTable
from knotwork.spline.moments.pairs import add_pair
from knotwork.spline.moments.parents import ParentRows
from knotwork.spline.moments.values import TermValues
from knotwork.spline.workers import Workers

# Rows and columns v that stay in the nearest caches while all features pass over them.
TILE, GROUP = 1024, 4


@compiled
def _sum_products(  # type: ignore[no-untyped-def]
    columns, slopes, codes, offsets, knots, most, start, rows, value, bins, used, values, which, jobs, out
):
    """Products of columns v with the children of parents.

    most : bins of the feature with most knots
    values : (·, N) columns, weighted; which : (V, 2) the place in out, the row of values
    jobs : (J, 4) the place in out, the parent, features from – to
    out : (parents, V, 2, C); without bins the children are products
    """
    d, product = len(columns), bins.size == 0
    tables = np.empty((GROUP, d + 1, 3 * most * 2))  # of x, x − b, x + b
    active, v = np.empty((GROUP, TILE, 2), np.uint32), np.empty((GROUP, TILE, 2))
    count, own = np.empty(GROUP, np.int64), np.empty(d, np.int64)
    for job in range(len(jobs)):
        place, parent, first, last = jobs[job]
        a, n = start[parent], start[parent + 1] - start[parent]
        own_rows, b = rows[a : a + n], value[a : a + n]
        own_bins = bins[d * a : d * (a + n)]
        features = 0
        for f in range(first, last):
            own[features] = f
            features += used[parent, f]
        for group in range(0, len(which), GROUP):
            size = min(GROUP, len(which) - group)
            for k in range(size):
                for j in range(features):
                    for i in range(tables.shape[2]):
                        tables[k, j, i] = 0.0
            for tile in range(0, n, TILE):
                stop = min(tile + TILE, n)
                for k in range(size):
                    count[k] = _find_active(
                        values[which[group + k, 1]], own_rows, b, tile, stop, active[k], v[k]
                    )  # fmt: skip
                for k in range(size):
                    for j in range(0, features, 2):
                        # The last of an odd number goes with itself, the second time into a spare table.
                        f, g = own[j], own[min(j + 1, features - 1)]
                        second = tables[k, j + 1]
                        if product:
                            _sum_bins(columns[f], codes[f], active[k, : count[k]], v[k], tables[k, j])
                            _sum_bins(columns[g], codes[g], active[k, : count[k]], v[k], second)
                        else:
                            _sum_shifted_bins(
                                columns[f], columns[g], slopes[f], slopes[g], codes[f], codes[g],
                                own_bins[f * n : (f + 1) * n], own_bins[g * n : (g + 1) * n],
                                active[k, : count[k]], v[k], most, tables[k, j], second,
                            )  # fmt: skip
            for j in range(features):
                at = slice(offsets[own[j]], offsets[own[j] + 1])
                for k in range(size):
                    _add_up(tables[k, j].reshape(3, most, 2), knots[at], out[place, which[group + k, 0], :, at])


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
def _add_up(table, knots, out):  # type: ignore[no-untyped-def]
    """Turn the bins of a feature into ⟨v, c⟩ of both children at every knot; the first of them is the feature itself.

    For products the bins of x − b and x + b are empty.
    """
    last = knots.size - 1
    s, sx, r, rx = 0.0, 0.0, 0.0, 0.0
    for k in range(last):
        # From the last bin down for children above the knot, from the first bin up for those below.
        i = last - k
        s += table[0, i, 0] - table[1, i, 0]
        sx += table[0, i, 1] - table[1, i, 1]
        r += table[0, k, 0] - table[2, k, 0]
        rx += table[0, k, 1] - table[2, k, 1]
        out[0, i] = sx - knots[i] * s
        out[1, k + 1] = knots[k + 1] * r - rx


@compiled
def _join(out, parents, ones, columns, shift):  # type: ignore[no-untyped-def]
    """Finish columns that are not summed as they are: factor · (what was summed) + a column summed beside + shift.

    columns : (V, 3) place in out, factor, place of the column beside or -1
    """
    for p in range(len(out)):
        for j in range(len(columns)):
            k, factor, beside = columns[j]
            for side in range(2):
                for i in range(out.shape[3]):
                    total = factor * out[p, k, side, i] + shift[j] * ones[parents[p], side, i]
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
        workers: Workers,
    ) -> None:
        self.grid, self._workers = grid, workers
        self._columns, self._weights = columns, weights
        self._y = y if weights.size == 0 else y * weights
        self._least = columns.min(axis=1)
        self._slopes, self._product = np.ones(len(columns)) if product else slopes, product
        self._knots = grid.knots * self._slopes[grid.feature]
        if grid.most_bins > 256:
            raise ValueError(f"children have at most 255 knots a feature, got {grid.most_bins - 1}")
        d, n = columns.shape
        self._codes: NDArray[np.uint8] = np.empty((d, n), np.uint8)
        self._cells = np.empty((d, CELLS * grid.most_bins), np.uint32)
        parts = workers.split(d, work=n * d * 4)

        def task(k: int) -> None:
            for f in range(*parts[k]):
                knots = self._knots[grid.offsets[f] + 1 : grid.offsets[f + 1]]
                encode(columns[f] * self._slopes[f], knots, self._codes[f])
                if knots.size > 0:
                    lay_cells(knots, self._cells[f])

        workers.run(task, len(parts))
        self._parents = ParentRows(d, grid.knots.size, has_bins=not product)
        self._terms = TermValues(columns, weights, self._slopes, product)

    def open(self, parent: Hinges, features: NDArray[np.bool_]) -> ChildOpening:
        """Begin with a parent: its children with the given features (d,); one pass."""
        table = TermTable.of([parent], self._slopes, self._product)
        if not self._product:
            # Beside another hinge a lone hinge has its slope too.
            table = replace(table, slope=self._slopes[table.feature])
        parents, used = self._parents, features & (np.diff(self.grid.offsets) > 1)
        k = parents.add(parent, self._columns, table, used)
        rows, value = (a[parents.start[k] : parents.start[k + 1]] for a in (parents.rows, parents.value))
        mass, norms = np.zeros((2, 2, self.grid.knots.size))
        parts = self._workers.split(len(used), work=16 * rows.size * len(used))

        def task(part: int) -> None:
            open_children(
                self._columns, self._slopes, self._codes, self._cells, self.grid.offsets, self._knots, self._weights,
                rows, value, parents.bins_of(k), used, parts[part], self._product, mass, norms, parents.ones[k],
            )  # fmt: skip

        self._workers.run(task, len(parts))
        responses = np.zeros((1, len(self._y), 2, self.grid.knots.size))
        self._add_products([k], self._y, np.repeat(np.arange(len(self._y)), 2).reshape(-1, 2), responses)
        return ChildOpening(mass=mass, norms=norms, responses=responses[0])

    def close(self, parent: Hinges) -> None:
        """Forget a parent."""
        self._parents.remove(parent)

    def products(self, parents: Sequence[Hinges], terms: Sequence[Hinges]) -> Floats:
        """Products of terms with the children of parents, (parents, terms, 2, C); one pass.

        A feature itself is nowhere zero, so it is summed as the hinges that make it: x = (x − t)₊ − (t − x)₊ + t, with
        t the knot of a hinge among the terms; without one, t is the feature's least value. 1 was summed at the opening.
        """
        out = np.zeros((len(parents), len(terms), 2, self.grid.knots.size))
        hinge = {term[0][0]: k for k, term in reversed(list(enumerate(terms))) if len(term) == 1 and term[0][2] == 1}
        places, summed = [], []
        joined: list[tuple[int, int, int]] = []
        shift: list[float] = []
        for k, term in enumerate(terms):
            if term == ():
                joined.append((k, 0, -1))
                shift.append(1.0)
                continue
            f, _, sign = term[0]
            if sign == 0:
                beside = hinge.get(f, -1)
                t, side = (terms[beside][0][1], -1) if beside >= 0 else (float(self._least[f]), 1)
                term = ((f, t, side),)
                joined.append((k, side, beside))
                shift.append(t)
            places.append(k)
            summed.append(term)
        index = [self._parents.index(parent) for parent in parents]
        for part, rows in self._terms.batches(summed):
            self._add_products(index, self._terms.values, np.column_stack([places[part], rows]), out)
        if joined:
            _join(out, np.array(index, np.int64), self._parents.ones, np.array(joined), np.array(shift))
        return out

    def _add_products(self, parents: list[int], values: Floats, which: NDArray[np.int64], out: Floats) -> None:
        """Write products of weighted columns with the children of parents; see ``_sum_products``."""
        kept, d = self._parents, len(self._columns)
        # (parent, features) in parts of about equal work.
        total = sum(int(kept.start[k + 1] - kept.start[k]) for k in parents) * d
        threads = len(self._workers.split(self._workers.threads, work=total * len(which)))
        pieces = 1 if len(parents) >= 2 * threads else threads
        edges = [d * piece // pieces for piece in range(pieces + 1)]
        jobs = [(place, k, a, b) for place, k in enumerate(parents) for a, b in pairwise(edges) if a < b]

        def task(thread: int) -> None:
            own = np.array(jobs[thread::threads], np.int64).reshape(-1, 4)
            _sum_products(
                self._columns, self._slopes, self._codes, self.grid.offsets, self._knots, self.grid.most_bins,
                kept.start, kept.rows,
                kept.value, kept.bins, kept.used, values, which, own, out,
            )  # fmt: skip

        self._workers.run(task, threads)
