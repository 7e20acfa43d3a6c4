"""Row sums on the CPU: histogram passes over columns in memory.

Rows are cut into blocks, a number that depends on N alone, and each block is summed on its own; the blocks' sums
are added in order. The result is the same to the last bit for any number of threads.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled, compiled_reduction
from knotwork.compute.workers import Workers, row_blocks
from knotwork.spline.moments.additive import TILE as RESIDUAL_ROWS
from knotwork.spline.moments.additive import AdditiveTerms, additive_residual, additive_values
from knotwork.spline.moments.bins import MIN_ROWS, SEARCH_TILE, Cells, encode, encode_by_cells, padded
from knotwork.spline.moments.children import CpuChildren
from knotwork.spline.moments.evaluate import evaluate_term
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import Opening, Residual, TermTable
from knotwork.spline.moments.pairs import add_pair

# Rows whose values and products are kept in the nearest cache while all features pass over them.
TILE = 2048
# Where a histogram of one column has its sums.
FIRST = np.zeros(1, np.int64)
# Rows on which all terms are evaluated at a time for their residual.
RESIDUAL_TILE = 256


@compiled
def _opening_sums(columns, codes, offsets, w, y, rows, features, table):  # type: ignore[no-untyped-def]
    """Per bin, behind a zero: Σw, Σwx, Σwx², and Σy, Σyx for each response, weighted before.

    Features without knots are left out.
    """
    unit, pairs = w.size == 0, np.uint64(2 + len(y))
    for f in range(features[0], features[1]):
        base = np.uint64(offsets[f])
        if offsets[f + 1] - offsets[f] == 1:
            continue
        for row in range(rows[0], rows[1]):
            i = np.uint64(row)
            weight = 1.0 if unit else w[i]
            x, value, at = columns[f, i], y[0, i], (base + np.uint64(codes[f, i])) * pairs
            add_pair(table, at, 0.0, weight)
            add_pair(table, at + np.uint64(1), weight * x, weight * x * x)
            add_pair(table, at + np.uint64(2), value, value * x)
        for k in range(1, len(y)):
            for row in range(rows[0], rows[1]):
                i = np.uint64(row)
                at = (base + np.uint64(codes[f, i])) * pairs + np.uint64(2 + k)
                add_pair(table, at, y[k, i], y[k, i] * columns[f, i])


def _full_column_sums(x: Floats, w: Floats, y: Floats) -> Floats:
    """Return the same sums for features without knots: all rows are in one bin, where numpy rounds least."""
    wx = x if w.size == 0 else w * x
    cells = np.empty((len(x), 3 + 2 * len(y)))
    cells[:, 0] = x.shape[1] if w.size == 0 else w.sum()
    cells[:, 1], cells[:, 2] = wx.sum(axis=1), np.einsum("fi,fi->f", wx, x)
    cells[:, 3::2], cells[:, 4::2] = y.sum(axis=1), np.einsum("ki,fi->fk", y, x)
    return cells


@compiled_reduction
def _pair_sums(columns, codes, offsets, w, rows, features, split, knot, side, value, table):  # type: ignore[no-untyped-def]
    """Per bin: Σ w·b and Σ w·b·x for both hinges b of feature ``split`` at ``knot``.

    A row is below the knot or above it (the first and the second half of the table), so two columns cost one pass.
    side, value : room for a tile
    """
    bins = np.uint32(offsets[-1])
    unit = w.size == 0
    for start in range(rows[0], rows[1], TILE):
        n = rows[1] - start if start + TILE > rows[1] else TILE
        at = np.uint64(start)
        for i in range(n):
            b = columns[split, at + np.uint64(i)] - knot
            value[i] = abs(b) * (1.0 if unit else w[at + np.uint64(i)])
            side[i] = np.uint32(0) if b < 0.0 else bins
        for f in range(features[0], features[1]):
            base = np.uint32(offsets[f])
            if offsets[f + 1] - offsets[f] > 1:
                for i in range(n):
                    cell = side[i] + base + np.uint32(codes[f, at + np.uint64(i)])
                    add_pair(table, np.uint64(cell), value[i], value[i] * columns[f, at + np.uint64(i)])
            else:
                # All rows are in one bin: sums that stay in registers.
                v, vx, u, ux = 0.0, 0.0, 0.0, 0.0
                for i in range(n):
                    a = 0.0 if side[i] > 0 else value[i]
                    b = value[i] - a
                    v += a
                    u += b
                    vx += a * columns[f, at + np.uint64(i)]
                    ux += b * columns[f, at + np.uint64(i)]
                table[base, 0] += v
                table[base, 1] += vx
                table[base + bins, 0] += u
                table[base + bins, 1] += ux


@compiled
def _hinge_sums(columns, codes, offsets, w, rows, features, x, knot, sign, active, value, table):  # type: ignore[no-untyped-def]
    """Per bin: Σ w·b and Σ w·b·x for a hinge b of the values x; rows where it is zero are never looked at.

    active, value : room for a tile
    """
    unit = w.size == 0
    for start in range(rows[0], rows[1], TILE):
        count = 0
        for row in range(start, rows[1] if start + TILE > rows[1] else start + TILE):
            i = np.uint64(row)
            b = sign * (x[i] - knot)
            active[count] = i
            value[count] = b if unit else b * w[i]
            count += b > 0.0
        # Two features at a time, so that what is read of a row serves both; the first of an odd number is alone.
        paired = features[0] + (features[1] - features[0]) % 2
        for f in range(features[0], paired):
            base = np.uint32(offsets[f])
            for a in range(count):
                i, v = active[a], value[a]
                add_pair(table, np.uint64(base + np.uint32(codes[f, i])), v, v * columns[f, i])
        for f in range(paired, features[1], 2):
            base, other = np.uint32(offsets[f]), np.uint32(offsets[f + 1])
            for a in range(count):
                i, v = active[a], value[a]
                add_pair(table, np.uint64(base + np.uint32(codes[f, i])), v, v * columns[f, i])
                add_pair(table, np.uint64(other + np.uint32(codes[f + 1, i])), v, v * columns[f + 1, i])


@compiled
def suffix_products(tables, places, offsets, knots, out):  # type: ignore[no-untyped-def]
    """Turn histograms of v into ⟨v, c⟩ for every candidate c: Σ_{x>t} v·x − t·Σ_{x>t} v.

    tables : (blocks, sides × bins, ·) Σ v and Σ v·x at each of the places and behind it; out : (places × sides, bins)
    """
    sides, one = len(out) // places.size, np.uint64(1)
    for s in range(len(out)):
        base, first = np.uint64(s % sides * knots.size), np.uint64(places[s // sides])
        for f in range(offsets.size - 1):
            v, vx = 0.0, 0.0
            for k in range(offsets[f + 1] - 1, offsets[f] - 1, -1):
                i = np.uint64(k)
                for b in range(len(tables)):
                    block = np.uint64(b)
                    v += tables[block, base + i, first]
                    vx += tables[block, base + i, first + one]
                out[s, i] = vx - knots[i] * v


@compiled_reduction
def _residual_sums(columns, y, w, begin, feature, lines, product, coef, rows, r, b, dots):  # type: ignore[no-untyped-def]
    """Add the residual's products, see :class:`Residual`, on some rows.

    lines : (·, 3) knot, slope and floor of each hinge; r and b : room for a tile, b (2 + M, ·) behind r and a one
    coef : (2 + M, p) 0 and the intercept first; dots : (2 + M, p) the first row for the RSS
    """
    for start in range(rows[0], rows[1], RESIDUAL_TILE):
        n, at = rows[1] - start if start + RESIDUAL_TILE > rows[1] else RESIDUAL_TILE, np.uint64(start)
        for m in range(begin.size - 1):
            for i in range(n):
                b[m + 2, i] = 1.0 if product else np.inf
            for h in range(begin[m], begin[m + 1]):
                f, t, a, floor = feature[h], lines[h, 0], lines[h, 1], lines[h, 2]
                for i in range(n):
                    v = a * (columns[f, at + np.uint64(i)] - t)
                    v = v if v > floor else floor
                    if product:
                        b[m + 2, i] *= v
                    else:
                        b[m + 2, i] = v if v < b[m + 2, i] else b[m + 2, i]
        for k in range(len(y)):
            for i in range(n):
                r[i] = y[k, at + np.uint64(i)]
            for m in range(1, len(b)):
                for i in range(n):
                    r[i] -= coef[m, k] * b[m, i]
            for i in range(n):
                b[0, i] = r[i]
                r[i] *= w[at + np.uint64(i)] if w.size > 0 else 1.0
            for m in range(len(b)):
                total = 0.0
                for i in range(n):
                    total += r[i] * b[m, i]
                dots[m, k] += total


class CpuRows:
    """Rows in memory, (d, N) standardised columns with p responses (p, N); a :class:`RowSums`."""

    def __init__(
        self,
        columns: Floats,
        y: Floats,
        weights: Floats | None,
        grid: CandidateGrid,
        workers: Workers,
    ) -> None:
        self.grid = grid
        self.columns, self.responses, self.workers = columns, y, workers
        self.weights = np.empty(0) if weights is None else weights
        d, n = columns.shape
        dtype = np.uint8 if grid.max_bins <= 256 else np.uint16 if grid.max_bins <= 65_536 else np.uint32
        self.codes: NDArray[np.unsignedinteger] = np.empty((d, n), dtype)
        edges, most = grid.offsets.tolist(), grid.max_bins - 1
        parts = workers.split(d, work=n * d * 4)

        def task(k: int) -> None:
            room = np.empty(SEARCH_TILE, np.uint32)
            for f in range(*parts[k]):
                own = grid.knots[edges[f] + 1 : edges[f + 1]]
                if own.size == 0:
                    self.codes[f] = 0
                    continue
                cells = Cells.of(own) if n >= MIN_ROWS else None
                if cells is None:
                    encode(columns[f], padded(own, most), 1.0, room, self.codes[f])
                else:
                    encode_by_cells(
                        columns[f], cells.knots, cells.low, cells.factor, cells.start, cells.shared, room, self.codes[f]
                    )  # fmt: skip

        workers.run(task, len(parts))
        self._blocks = row_blocks(n)
        self._jobs = self._share(work=n * d)
        self._opening: Opening | None = None
        self._lines: dict[int, Floats] = {}
        self._tables: dict[int, Floats] = {}
        self._rooms = [(np.empty(TILE, np.uint32), np.empty(TILE)) for _ in self._jobs]
        self._additive: tuple[TermTable, AdditiveTerms | None] | None = None

    def _share(self, work: int) -> list[tuple[range, tuple[int, int]]]:
        """Share (blocks, features) among the threads: by blocks if there are enough, else by features."""
        d, blocks = len(self.columns), len(self._blocks)
        if blocks >= self.workers.threads:
            return [(range(*part), (0, d)) for part in self.workers.split(blocks, work)]
        return [(range(blocks), part) for part in self.workers.split(d, work)]

    def opening(self) -> Opening:
        """Sum what the search starts from: one pass."""
        if self._opening is None:
            self._opening = self._open()
        return self._opening

    def _open(self) -> Opening:
        grid, w, t = self.grid, self.weights, self.grid.knots
        y = self.responses if w.size == 0 else self.responses * w
        tables = np.zeros((len(self._blocks), t.size, 4 + 2 * len(y)))
        jobs, single = self._jobs, np.flatnonzero(np.diff(grid.offsets) == 1)

        def task(k: int) -> None:
            blocks, features = jobs[k]
            for block in blocks:
                rows, table = self._blocks[block], tables[block]
                _opening_sums(self.columns, self.codes, grid.offsets, w, y, rows, features, table)
                part, own = slice(*rows), single[(single >= features[0]) & (single < features[1])]
                if own.size:
                    table[grid.offsets[own], 1:] = _full_column_sums(self.columns[own, part], w[part], y[:, part])

        self.workers.run(task, len(jobs))
        # The products of zero and 1 with …: the first are the masses, because a table begins with zeros.
        products = np.empty((3 + len(y), t.size))
        suffix_products(tables, np.array([0, 1, 2, *range(4, tables.shape[2], 2)]), grid.offsets, t, products)
        mass, sums, cross = products[:3]
        return Opening(
            total=float(mass[0]),
            mass=mass,
            sums=sums,
            norms=cross - t * sums,
            cross=cross,
            responses=products[3:].T,
            squares=np.einsum("kn,kn->k", y, self.responses),
        )

    def line_products(self, feature: int) -> Floats:
        """Products of a feature itself with every candidate: (C,), one pass."""
        line: Floats = self.pair_products(feature, 0.0)[0]
        return line

    def pair_products(self, feature: int, knot: float) -> Floats:
        """Products of a feature x itself and of (x − t)₊ with every candidate: (2, C), one pass."""
        # Both hinges in one pass; x − t is their difference.
        products = self._histogram(2, [(_pair_sums, (feature, knot))])
        line, above = products
        np.subtract(above, line, out=line)
        line += knot * self.opening().sums
        self._lines[feature] = line
        return products

    def hinge_products(self, feature: int, knot: float) -> Floats:
        """Products of (x − t)₊ with every candidate: (1, C), one pass."""
        if feature not in self._lines or not self._is_crowded(feature, knot):
            return self._histogram(1, [(_hinge_sums, (self.columns[feature], knot, 1))])
        # The side with fewer rows is the cheaper pass: (x − t)₊ = (t − x)₊ + x − t.
        found = self._histogram(1, [(_hinge_sums, (self.columns[feature], knot, -1))])
        found += self._lines[feature] - knot * self.opening().sums
        return found

    def products(self, terms: TermTable) -> Floats:
        """Products of interactions with every candidate: (M, C), one pass."""
        passes: list[tuple[Any, tuple[Any, ...]]] = []
        for m in range(len(terms)):
            values = np.empty(self.columns.shape[1])
            evaluate_term(self.columns, terms, m, values)
            passes.append((_hinge_sums, (values, 0.0, 1)))
        return self._histogram(len(terms), passes)

    def _is_crowded(self, feature: int, knot: float) -> bool:
        """Whether more than half of the observations are above a knot."""
        first, last = self.grid.offsets[feature : feature + 2].tolist()
        place = bisect_left(self.grid.knots, knot, first + 1, last)
        if place == last or self.grid.knots[place] != knot:
            return False
        opening = self.opening()
        return bool(2 * opening.mass[place] > opening.total)

    def _histogram(self, count: int, passes: list[tuple[Any, tuple[Any, ...]]]) -> Floats:
        """Run kernels over all blocks and turn their bins into products with every candidate: (count, C).

        passes : kernels, and what each is to sum
        """
        grid, jobs, tables = self.grid, self._jobs, self._empty_tables(count)
        size = count * grid.knots.size // len(passes)

        def task(k: int) -> None:
            (blocks, features), room = jobs[k], self._rooms[k]
            for block in blocks:
                for m, (kernel, which) in enumerate(passes):
                    kernel(
                        self.columns, self.codes, grid.offsets, self.weights, self._blocks[block], features, *which,
                        *room, tables[block, m * size : (m + 1) * size],
                    )  # fmt: skip

        self.workers.run(task, len(jobs))
        products = np.empty((count, grid.knots.size))
        suffix_products(tables, FIRST, grid.offsets, grid.knots, products)
        return products

    def _empty_tables(self, count: int) -> Floats:
        """Return empty histograms of so many columns: the same memory in every pass, which is near and has pages."""
        tables = self._tables.get(count)
        if tables is None:
            tables = self._tables[count] = np.zeros((len(self._blocks), count * self.grid.knots.size, 2))
        else:
            tables.fill(0.0)
        return tables

    def children(self, grid: CandidateGrid, slopes: Floats, product: bool, slots: int, min_mass: float) -> CpuChildren:
        """Return the sums behind interactions, for so many parents at a time.

        grid : their knots; slopes : (d,) of the hinges in a minimum
        min_mass : observations on either side of its knot below which a child need not be summed
        """
        return CpuChildren(
            self.columns, self.responses, self.weights, grid, slopes, product, slots, min_mass, self.workers
        )  # fmt: skip

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Sum the residual of a linear combination of terms: intercept (p,), coef (M, p); one pass."""
        if self._additive is None or self._additive[0] is not terms:  # a refit asks for the same terms twice
            self._additive = terms, AdditiveTerms.of(terms, self.grid) if terms.feature.size > 0 else None
        if self._additive[1] is not None:
            return self._additive_residual(self._additive[1], intercept, coef)
        p, n = self.responses.shape
        dots = np.zeros((len(self._blocks), 2 + len(coef), p))
        parts = self.workers.split(len(self._blocks), work=n * len(coef) * p // 4)
        lines = np.empty((terms.feature.size, 3))
        lines[:, 0], lines[:, 1] = terms.knot, terms.slope * np.where(terms.sign == 0, 1, terms.sign)
        lines[:, 2] = np.where(terms.sign == 0, -np.inf, 0.0)
        factors = np.concatenate([np.zeros((1, p)), intercept[None], coef])

        def task(k: int) -> None:
            r, b = np.empty(RESIDUAL_TILE), np.ones((2 + len(coef), RESIDUAL_TILE))
            for block in range(*parts[k]):
                _residual_sums(
                    self.columns, self.responses, self.weights, terms.start, terms.feature, lines, terms.product,
                    factors, self._blocks[block], r, b, dots[block],
                )  # fmt: skip

        self.workers.run(task, len(parts))
        found = dots.sum(axis=0)
        return Residual(rss=found[0], dots=found[1:])

    def values(self, terms: TermTable, intercept: Floats, coef: Floats) -> Floats:
        """Evaluate a linear combination of additive terms, at knots of the grid: (p, N)."""
        out = np.repeat(intercept[:, None], self.columns.shape[1], axis=1)
        additive = AdditiveTerms.of(terms, self.grid, min_terms=0) if len(terms) else None
        if additive is not None:
            lines = additive.lines(np.zeros_like(intercept), coef)
            additive_values(self.columns, self.codes, self.grid.offsets, additive.features, lines, out)
        return out

    def _additive_residual(self, terms: AdditiveTerms, intercept: Floats, coef: Floats) -> Residual:
        p, n = self.responses.shape
        size, blocks = self.grid.knots.size, len(self._blocks)
        tables, sums = np.zeros((blocks, p * size, 2)), np.zeros((blocks, 2, p))
        lines = terms.lines(intercept, coef)
        parts = self.workers.split(blocks, work=n * terms.features.size * p)

        def task(k: int) -> None:
            r = np.empty(RESIDUAL_ROWS)
            for block in range(*parts[k]):
                additive_residual(
                    self.columns, self.codes, self.grid.offsets, terms.features, lines, self.responses, self.weights,
                    self._blocks[block], r, tables[block].reshape(-1), sums[block],
                )  # fmt: skip

        self.workers.run(task, len(parts))
        products = np.empty((p, size))
        suffix_products(tables, FIRST, self.grid.offsets, self.grid.knots, products)
        total, squares = sums.sum(axis=0)
        return Residual(rss=squares, dots=terms.dots(products, total))
