"""Row sums on the CPU: histogram passes over columns in memory.

Rows are cut into blocks, a number that depends on N alone, and each block is summed on its own; the blocks' sums
are added in order. The result is the same to the last bit for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.compiled import compiled, compiled_reduction
from knotwork.spline.knots import CandidateGrid
from knotwork.spline.moments.children import CpuChildren
from knotwork.spline.moments.evaluate import encode, evaluate_term
from knotwork.spline.moments.moments import Opening, Residual, TermTable
from knotwork.spline.workers import Workers, row_blocks

# Rows whose values and products are kept in the nearest cache while all features pass over them.
TILE = 2048


@compiled_reduction
def _whole_column_sums(x, y, w, cell):  # type: ignore[no-untyped-def]
    """Add Σw, Σwx, Σwx², and Σwy, Σwyx of each response to the only bin of a feature without knots."""
    unit = w.size == 0
    total, first, second = 0.0, 0.0, 0.0
    for i in range(x.size):
        weight = 1.0 if unit else w[i]
        total += weight
        first += weight * x[i]
        second += weight * x[i] * x[i]
    cell[0] += total
    cell[1] += first
    cell[2] += second
    for k in range(len(y)):
        first, second = 0.0, 0.0
        for i in range(x.size):
            wy = y[k, i] if unit else w[i] * y[k, i]
            first += wy
            second += wy * x[i]
        cell[3 + 2 * k] += first
        cell[4 + 2 * k] += second


@compiled
def _opening_sums(columns, codes, offsets, y, w, rows, features, table):  # type: ignore[no-untyped-def]
    """Per bin: Σw, Σwx, Σwx², and Σwy, Σwyx for each response."""
    unit = w.size == 0
    for f in range(features[0], features[1]):
        cells = table[offsets[f] : offsets[f + 1]]
        if len(cells) == 1:
            part = slice(rows[0], rows[1])
            _whole_column_sums(columns[f, part], y[:, part], w[part], cells[0])
            continue
        x = columns[f]
        code = codes[f]
        for i in range(rows[0], rows[1]):
            weight = 1.0 if unit else w[i]
            wy = weight * y[0, i]
            bin_ = np.uint32(code[i])
            cells[bin_, 0] += weight
            cells[bin_, 1] += weight * x[i]
            cells[bin_, 2] += weight * x[i] * x[i]
            cells[bin_, 3] += wy
            cells[bin_, 4] += wy * x[i]
        for k in range(1, y.shape[0]):
            first, second = np.uint32(3 + 2 * k), np.uint32(4 + 2 * k)
            for i in range(rows[0], rows[1]):
                wy = y[k, i] if unit else w[i] * y[k, i]
                bin_ = np.uint32(code[i])
                cells[bin_, first] += wy
                cells[bin_, second] += wy * x[i]


@compiled
def _suffix_sums(tables, offsets, out):  # type: ignore[no-untyped-def]
    """Add up histograms (blocks, bins, sums) and sum each feature's bins from the last to the first."""
    for f in range(offsets.size - 1):
        for i in range(offsets[f + 1] - 1, offsets[f] - 1, -1):
            for k in range(out.shape[1]):
                out[i, k] = out[i + 1, k] if i + 1 < offsets[f + 1] else 0.0
                for block in range(tables.shape[0]):
                    out[i, k] += tables[block, i, k]


@compiled_reduction
def _single_bin_sums(x, value, below):  # type: ignore[no-untyped-def]
    """Σv and Σvx of the rows above, then of those below, for a feature without knots."""
    v, vx, w, wx = 0.0, 0.0, 0.0, 0.0
    for i in range(x.size):
        a = 0.0 if below[i] > 0 else value[i]
        b = value[i] if below[i] > 0 else 0.0
        v += a
        w += b
        vx += a * x[i]
        wx += b * x[i]
    return v, vx, w, wx


@compiled
def _pair_sums(columns, codes, offsets, w, rows, features, split, knot, table):  # type: ignore[no-untyped-def]
    """Per bin: Σ w·b and Σ w·b·x for both hinges b of feature ``split`` at ``knot``.

    A row is above the knot or below it (the first and the second half of the table), so two columns cost one pass.
    """
    value = np.empty(TILE)
    side = np.empty(TILE, np.uint32)
    bins = np.uint32(offsets[-1])
    unit = w.size == 0
    for start in range(rows[0], rows[1], TILE):
        n = min(TILE, rows[1] - start)
        b = columns[split, start : start + n]
        for i in range(n):
            value[i] = abs(b[i] - knot) * (1.0 if unit else w[start + i])
            side[i] = bins if b[i] < knot else np.uint32(0)
        for f in range(features[0], features[1]):
            x = columns[f, start : start + n]
            base = np.uint32(offsets[f])
            if offsets[f + 1] - offsets[f] == 1:
                above, above_x, below, below_x = _single_bin_sums(x, value, side)
                table[base, 0] += above
                table[base, 1] += above_x
                table[base + bins, 0] += below
                table[base + bins, 1] += below_x
                continue
            code = codes[f, start : start + n]
            for i in range(n):
                bin_ = side[i] + base + np.uint32(code[i])
                table[bin_, 0] += value[i]
                table[bin_, 1] += value[i] * x[i]


@compiled
def _term_sums(columns, codes, offsets, w, rows, features, begin, feature, knot, sign, slope, product, table):  # type: ignore[no-untyped-def]
    """Per bin: Σ w·b and Σ w·b·x for each term b, one after the other; rows where it is zero are never looked at."""
    active = np.empty(TILE, np.uint32)
    value = np.empty(TILE)
    unit = w.size == 0
    for start in range(rows[0], rows[1], TILE):
        n = min(TILE, rows[1] - start)
        for m in range(begin.size - 1):
            h = slice(begin[m], begin[m + 1])
            evaluate_term(columns, start, n, feature[h], knot[h], sign[h], slope[h], product, value)
            count = 0
            for i in range(n):
                b = value[i]
                active[count] = start + i
                value[count] = b if unit else b * w[start + i]
                count += b > 0.0
            for f in range(features[0], features[1]):
                x = columns[f]
                code = codes[f]
                base = np.uint32(m * offsets[-1] + offsets[f])
                for a in range(count):
                    i = active[a]
                    bin_ = base + np.uint32(code[i])
                    table[bin_, 0] += value[a]
                    table[bin_, 1] += value[a] * x[i]


@compiled
def _suffix_products(tables, offsets, knots, out):  # type: ignore[no-untyped-def]
    """Turn histograms of v into ⟨v, c⟩ for every candidate c: Σ_{x>t} v·x − t·Σ_{x>t} v.

    tables : (blocks, sides × bins, 2); out : (sides, bins)
    """
    for s in range(len(out)):
        base = s * knots.size
        for f in range(offsets.size - 1):
            v, vx = 0.0, 0.0
            for i in range(offsets[f + 1] - 1, offsets[f] - 1, -1):
                for block in range(len(tables)):
                    v += tables[block, base + i, 0]
                    vx += tables[block, base + i, 1]
                out[s, i] = vx - knots[i] * v


@compiled_reduction
def _residual_sums(columns, y, w, begin, feature, knot, sign, slope, product, intercept, coef, rows, rss, dots):  # type: ignore[no-untyped-def]
    p = y.shape[0]
    r = np.empty((p, TILE))
    b = np.empty(TILE)
    for start in range(rows[0], rows[1], TILE):
        n = min(TILE, rows[1] - start)
        for k in range(p):
            for i in range(n):
                r[k, i] = y[k, start + i] - intercept[k]
        for m in range(begin.size - 1):
            h = slice(begin[m], begin[m + 1])
            evaluate_term(columns, start, n, feature[h], knot[h], sign[h], slope[h], product, b)
            for k in range(p):
                beta = coef[m, k]
                for i in range(n):
                    r[k, i] -= beta * b[i]
        for k in range(p):
            squares, total = 0.0, 0.0
            for i in range(n):
                weighted = r[k, i] * w[start + i] if w.size > 0 else r[k, i]
                squares += weighted * r[k, i]
                total += weighted
                r[k, i] = weighted
            rss[k] += squares
            dots[0, k] += total
        for m in range(begin.size - 1):
            h = slice(begin[m], begin[m + 1])
            evaluate_term(columns, start, n, feature[h], knot[h], sign[h], slope[h], product, b)
            for k in range(p):
                total = 0.0
                for i in range(n):
                    total += r[k, i] * b[i]
                dots[1 + m, k] += total


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
        self._columns, self._y, self._workers = columns, y, workers
        self._weights = np.empty(0) if weights is None else weights
        d, n = columns.shape
        dtype = np.uint8 if grid.most_bins <= 256 else np.uint16 if grid.most_bins <= 65_536 else np.uint32
        self._codes: NDArray[np.unsignedinteger] = np.empty((d, n), dtype)
        parts = workers.split(d, work=n * d * 4)

        def task(k: int) -> None:
            for f in range(*parts[k]):
                encode(columns[f], grid.knots[grid.offsets[f] + 1 : grid.offsets[f + 1]], 1.0, self._codes[f])

        workers.run(task, len(parts))
        self._blocks = row_blocks(n)
        self._jobs = self._share(work=n * d)

    def _share(self, work: int) -> list[tuple[range, tuple[int, int]]]:
        """Share (blocks, features) among the threads: by blocks if there are enough, else by features."""
        d, blocks = len(self._columns), len(self._blocks)
        if blocks >= self._workers.threads:
            return [(range(*part), (0, d)) for part in self._workers.split(blocks, work)]
        return [(range(blocks), part) for part in self._workers.split(d, work)]

    def opening(self) -> Opening:
        """Sum what the search starts from: one pass."""
        grid, y = self.grid, self._y
        tables = np.zeros((len(self._blocks), grid.knots.size, 3 + 2 * len(y)))
        jobs = self._jobs

        def task(k: int) -> None:
            blocks, features = jobs[k]
            for block in blocks:
                _opening_sums(
                    self._columns, self._codes, grid.offsets, y, self._weights,
                    self._blocks[block], features, tables[block],
                )  # fmt: skip

        self._workers.run(task, len(jobs))
        above = np.empty(tables.shape[1:])
        _suffix_sums(tables, grid.offsets, above)
        mass, x, xx, t = above[:, 0], above[:, 1], above[:, 2], grid.knots
        weighted = y if self._weights.size == 0 else y * self._weights
        return Opening(
            total=float(mass[0]),
            mass=mass,
            sums=x - t * mass,
            norms=xx - t * (2 * x - t * mass),
            cross=xx - t * x,
            responses=above[:, 4::2] - t[:, None] * above[:, 3::2],
            squares=np.einsum("kn,kn->k", weighted, y),
        )

    def pair_products(self, feature: int, knot: float) -> Floats:
        """Products of (x − t)₊ and of (t − x)₊ with every candidate: (2, C), one pass."""
        return self._histogram(2, _pair_sums, feature, knot)

    def products(self, terms: TermTable) -> Floats:
        """Products of terms, none of them linear, with every candidate: (M, C), one pass."""
        hinges = (terms.start, terms.feature, terms.knot, terms.sign, terms.slope)
        return self._histogram(len(terms), _term_sums, *hinges, terms.product)

    def _histogram(self, count: int, kernel: Callable[..., None], *which: Any) -> Floats:
        """Run a kernel over all blocks and turn its bins into products with every candidate: (count, C)."""
        grid = self.grid
        tables = np.zeros((len(self._blocks), count * grid.knots.size, 2))
        jobs = self._jobs

        def task(k: int) -> None:
            blocks, features = jobs[k]
            for block in blocks:
                kernel(
                    self._columns, self._codes, grid.offsets, self._weights, self._blocks[block], features, *which,
                    tables[block],
                )  # fmt: skip

        self._workers.run(task, len(jobs))
        products = np.empty((count, grid.knots.size))
        _suffix_products(tables, grid.offsets, grid.knots, products)
        return products

    def children(
        self, grid: CandidateGrid, slopes: Floats, product: bool, slots: int, least_mass: float
    ) -> CpuChildren:
        """Return the sums behind interactions, for so many parents at a time.

        grid : their knots; slopes : (d,) of the hinges under the minimum
        least_mass : observations on either side of its knot below which a child need not be summed
        """
        return CpuChildren(
            self._columns, self._y, self._weights, grid, slopes, product, slots, least_mass, self._workers
        )  # fmt: skip

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Sum the residual of a linear combination of terms: intercept (p,), coef (M, p); one pass."""
        p, n = self._y.shape
        rss = np.zeros((len(self._blocks), p))
        dots = np.zeros((len(self._blocks), 1 + len(coef), p))
        parts = self._workers.split(len(self._blocks), work=n * len(coef) * p // 4)

        def task(k: int) -> None:
            for block in range(*parts[k]):
                _residual_sums(
                    self._columns, self._y, self._weights, terms.start, terms.feature, terms.knot, terms.sign,
                    terms.slope, terms.product, intercept, coef, self._blocks[block], rss[block], dots[block],
                )  # fmt: skip

        self._workers.run(task, len(parts))
        return Residual(rss=rss.sum(axis=0), dots=dots.sum(axis=0))
