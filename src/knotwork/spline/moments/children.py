"""Row sums of interactions on the CPU: one more histogram per side, and every knot is priced at once.

With b ≥ 0 a parent and x a feature, the children at a knot t are

    min(b, (x − t)₊) = (x − t)₊ − (x − b − t)₊        and        min(b, (t − x)₊) = (t − x)₊ − (t − x − b)₊,

so that their products with a column v are suffix sums over bins of x and of x − b, and prefix sums over bins of x and
of x + b. Children that are products, b·(x − t)₊, need the bins of x alone. Rows where the parent is zero are never
looked at. Features are scaled under the minimum, so that b and x are comparable.

A thread sums all rows of some (parent, feature) pairs, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.compiled import compiled
from knotwork.spline.knots import CandidateGrid
from knotwork.spline.model import Floats
from knotwork.spline.moments.evaluate import encode, evaluate_term
from knotwork.spline.moments.moments import ChildOpening, Hinges, TermTable
from knotwork.spline.workers import Workers

# Feature, knot, sign and slope of a term's hinges, and whether they are multiplied.
_Arrays = tuple[NDArray[np.int64], Floats, NDArray[np.int64], Floats, bool]

# Rows whose values stay in the nearest cache while all features pass over them.
TILE = 1024


@dataclass(frozen=True)
class _Parent:
    """A parent's rows, and their bins.

    rows, value : (n,) where the parent is positive, and how much
    features : those that its children may use, rising
    below, above : (features, n) bins of x − b and of x + b; empty for products
    """

    rows: NDArray[np.uint32]
    value: Floats
    features: NDArray[np.int64]
    below: NDArray[np.uint8]
    above: NDArray[np.uint8]


@compiled
def _positive_rows(columns, feature, knot, sign, slope, product, rows, value):  # type: ignore[no-untyped-def]
    """Write the rows where a term is positive and its values there; return their number."""
    count = 0
    tile = np.empty(TILE)
    for start in range(0, columns.shape[1], TILE):
        n = min(TILE, columns.shape[1] - start)
        evaluate_term(columns, start, n, feature, knot, sign, slope, product, tile)
        for i in range(n):
            if tile[i] > 0.0:
                rows[count] = start + i
                value[count] = tile[i]
                count += 1
    return count


@compiled
def _encode_shifted(column, slope, rows, value, knots, below, above):  # type: ignore[no-untyped-def]
    """Write the bins of x − b and x + b."""
    shifted = np.empty(rows.size)
    for i in range(rows.size):
        shifted[i] = column[rows[i]] * slope - value[i]
    encode(shifted, knots, below)
    for i in range(rows.size):
        shifted[i] = column[rows[i]] * slope + value[i]
    encode(shifted, knots, above)


@compiled
def _square_sums(column, slope, code, rows, value, w, below, above, product, table):  # type: ignore[no-untyped-def]
    """Per bin of x: Σw, Σwx, Σwx²; per bin of x − b and of x + b: Σw, Σwx, Σw(x² − b²). table : (3, bins, 3).

    For products, per bin of x: Σw, and Σwb², Σwb²x, Σwb²x² in the second table.
    """
    for i in range(rows.size):
        weight = w[rows[i]] if w.size > 0 else 1.0
        x, b = column[rows[i]] * slope, value[i]
        at = np.uint32(code[rows[i]])
        table[0, at, 0] += weight
        if product:
            weight *= b * b
            table[1, at, 0] += weight
            table[1, at, 1] += weight * x
            table[1, at, 2] += weight * x * x
            continue
        table[0, at, 1] += weight * x
        table[0, at, 2] += weight * x * x
        rest = weight * (x - b) * (x + b)
        at = np.uint32(below[i])
        table[1, at, 0] += weight
        table[1, at, 1] += weight * x
        table[1, at, 2] += rest
        at = np.uint32(above[i])
        table[2, at, 0] += weight
        table[2, at, 1] += weight * x
        table[2, at, 2] += rest


@compiled
def _square_products(table, knots, product, mass, norms):  # type: ignore[no-untyped-def]
    """Turn the bins of one feature into mass and ⟨c, c⟩ of both children at every knot; (2, knots) each."""
    bins = knots.size + 1
    # Children above the knot: sums from the last bin down.
    s = np.zeros((3, 3))
    for k in range(bins - 1, 0, -1):
        t = knots[k - 1]
        s += table[:, k]
        mass[0, k - 1] = s[0, 0]
        if product:
            norms[0, k - 1] = s[1, 2] - t * (2 * s[1, 1] - t * s[1, 0])
        else:
            norms[0, k - 1] = (s[0, 2] - s[1, 2]) - t * (2 * (s[0, 1] - s[1, 1]) - t * (s[0, 0] - s[1, 0]))
    s[:] = 0.0
    for k in range(bins - 1):
        t = knots[k]
        s += table[:, k]
        mass[1, k] = s[0, 0]
        if product:
            norms[1, k] = s[1, 2] - t * (2 * s[1, 1] - t * s[1, 0])
        else:
            norms[1, k] = (s[0, 2] - s[2, 2]) - t * (2 * (s[0, 1] - s[2, 1]) - t * (s[0, 0] - s[2, 0]))


@compiled
def _product_sums(columns, slopes, codes, values, rows, value, features, below, above, part, product, tables):  # type: ignore[no-untyped-def]
    """Per bin of x, x − b and x + b: Σv and Σv times the binned value, for columns v.

    values : (V, N), weighted; part : which of ``features``; tables : (part, V, 3, bins, 2)
    One column at a time: its bins then stay in the nearest cache, and rows where it is zero are left out.
    """
    active = np.empty(TILE, np.uint32)
    v = np.empty(TILE)
    for start in range(0, rows.size, TILE):
        for k in range(len(values)):
            count = 0
            for i in range(start, min(start + TILE, rows.size)):
                active[count] = i
                v[count] = values[k, rows[i]] * value[i] if product else values[k, rows[i]]
                count += v[count] != 0.0
            for j in range(part[0], part[1]):
                f = features[j]
                _bin_sums(
                    columns[f], slopes[f], codes[f], rows, value, below[j], above[j], active[:count], v, product,
                    tables[j - part[0], k],
                )  # fmt: skip


@compiled
def _bin_sums(column, slope, code, rows, value, below, above, active, v, product, table):  # type: ignore[no-untyped-def]
    if product:
        for a in range(active.size):
            row = rows[active[a]]
            at = np.uint32(code[row])
            table[0, at, 0] += v[a]
            table[0, at, 1] += v[a] * column[row] * slope
        return
    for a in range(active.size):
        i = active[a]
        row = rows[i]
        x, b = column[row] * slope, value[i]
        at = np.uint32(code[row])
        table[0, at, 0] += v[a]
        table[0, at, 1] += v[a] * x
        at = np.uint32(below[i])
        table[1, at, 0] += v[a]
        table[1, at, 1] += v[a] * (x - b)
        at = np.uint32(above[i])
        table[2, at, 0] += v[a]
        table[2, at, 1] += v[a] * (x + b)


@compiled
def _products(tables, features, offsets, knots, out):  # type: ignore[no-untyped-def]
    """Turn bins into ⟨v, c⟩ of both children at every knot: tables (features, V, 3, bins, 2), out (V, 2, C)."""
    for j in range(len(features)):
        first, last = offsets[features[j]], offsets[features[j] + 1]
        for v in range(len(out)):
            table = tables[j, v]
            s, sx, u, ux = 0.0, 0.0, 0.0, 0.0
            for k in range(last - first - 1, 0, -1):
                s += table[0, k, 0]
                sx += table[0, k, 1]
                u += table[1, k, 0]
                ux += table[1, k, 1]
                out[v, 0, first + k] = (sx - knots[first + k] * s) - (ux - knots[first + k] * u)
            s, sx, u, ux = 0.0, 0.0, 0.0, 0.0
            for k in range(1, last - first):
                s += table[0, k - 1, 0]
                sx += table[0, k - 1, 1]
                u += table[2, k - 1, 0]
                ux += table[2, k - 1, 1]
                out[v, 1, first + k] = (knots[first + k] * s - sx) - (knots[first + k] * u - ux)


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
        self._columns, self._y, self._weights = columns, y, weights
        self._slopes, self._product = np.ones(len(columns)) if product else slopes, product
        self._knots = grid.knots * self._slopes[grid.feature]
        self._bins = grid.most_bins
        if self._bins > 256:
            raise ValueError(f"children have at most 255 knots a feature, got {self._bins - 1}")
        d, n = columns.shape
        self._codes: NDArray[np.uint8] = np.empty((d, n), np.uint8)
        parts = workers.split(d, work=n * d * 4)

        def task(k: int) -> None:
            for f in range(*parts[k]):
                encode(columns[f] * self._slopes[f], self._knots_of(f), self._codes[f])

        workers.run(task, len(parts))
        self._parents: dict[Hinges, _Parent] = {}
        self._laid_out: dict[Hinges, _Arrays] = {}

    def _knots_of(self, f: int) -> Floats:
        return self._knots[self.grid.offsets[f] + 1 : self.grid.offsets[f + 1]]

    def _places(self, f: int) -> slice:
        return slice(self.grid.offsets[f] + 1, self.grid.offsets[f + 1])

    def open(self, parent: Hinges, features: NDArray[np.bool_]) -> ChildOpening:
        """Begin with a parent: its children with the given features (d,); one pass."""
        kept = self._parents[parent] = self._find_rows(parent, features)
        size = self.grid.knots.size
        mass, norms = np.zeros((2, size)), np.zeros((2, size))
        parts = self._workers.split(len(kept.features), work=16 * kept.rows.size * len(kept.features))

        def task(k: int) -> None:
            for j in range(*parts[k]):
                f = kept.features[j]
                knots = self._knots_of(f)
                below, above = kept.below[j], kept.above[j]
                column, slope = self._columns[f], self._slopes[f]
                if not self._product:
                    _encode_shifted(column, slope, kept.rows, kept.value, knots, below, above)
                table = np.zeros((3, knots.size + 1, 3))
                _square_sums(
                    column, slope, self._codes[f], kept.rows, kept.value, self._weights, below, above, self._product,
                    table,
                )  # fmt: skip
                at = self._places(f)
                _square_products(table, knots, self._product, mass[:, at], norms[:, at])

        self._workers.run(task, len(parts))
        responses = self._products_with([kept], self._weighted(self._y))[0]
        return ChildOpening(mass=mass, norms=norms, responses=np.moveaxis(responses, 0, -1))

    def close(self, parent: Hinges) -> None:
        """Forget a parent."""
        del self._parents[parent]

    def products(self, parents: Sequence[Hinges], terms: Sequence[Hinges]) -> Floats:
        """Products of terms with the children of parents, (parents, terms, 2, C); one pass."""
        values = np.empty((len(terms), self._columns.shape[1]))
        for value, term in zip(values, terms, strict=True):
            evaluate_term(self._columns, 0, value.size, *self._arrays(term), value)
        return self._products_with([self._parents[p] for p in parents], self._weighted(values))

    def _arrays(self, term: Hinges) -> _Arrays:
        # Every new parent is met by all terms so far.
        if term not in self._laid_out:
            table = TermTable.of([term], self._slopes, self._product)
            self._laid_out[term] = table.feature, table.knot, table.sign, table.slope, table.product
        return self._laid_out[term]

    def _weighted(self, values: Floats) -> Floats:
        return values if self._weights.size == 0 else values * self._weights

    def _find_rows(self, parent: Hinges, features: NDArray[np.bool_]) -> _Parent:
        n = self._columns.shape[1]
        rows, value = np.empty(n, np.uint32), np.empty(n)
        feature, knot, sign, slope, product = self._arrays(parent)
        # Beside another hinge a lone hinge has its slope too.
        slope = self._slopes[feature] if not product else slope
        count = _positive_rows(self._columns, feature, knot, sign, slope, product, rows, value)
        used = np.flatnonzero(features & (np.diff(self.grid.offsets) > 1))
        shape = (len(used), 0 if self._product else count)
        return _Parent(
            rows=rows[:count].copy(),
            value=value[:count].copy(),
            features=used,
            below=np.empty(shape, np.uint8),
            above=np.empty(shape, np.uint8),
        )

    def _products_with(self, parents: list[_Parent], values: Floats) -> Floats:
        """Products of weighted columns (V, N) with the children of parents: (parents, V, 2, C)."""
        out = np.zeros((len(parents), len(values), 2, self.grid.knots.size))
        # (parent, features) in parts of about equal work.
        total = sum(p.rows.size * len(p.features) for p in parents)
        threads = len(self._workers.split(self._workers.threads, work=total * len(values)))
        jobs: list[tuple[int, tuple[int, int]]] = []
        for k, parent in enumerate(parents):
            count = len(parent.features)
            pieces = 1 if len(parents) >= 2 * threads else threads
            edges = [count * piece // pieces for piece in range(pieces + 1)]
            jobs += [(k, (a, b)) for a, b in pairwise(edges) if a < b]

        def task(thread: int) -> None:
            for k, part in jobs[thread::threads]:
                self._sum_products(parents[k], values, part, out[k])

        self._workers.run(task, threads)
        return out

    def _sum_products(self, parent: _Parent, values: Floats, part: tuple[int, int], out: Floats) -> None:
        tables = np.zeros((part[1] - part[0], len(values), 3, self._bins, 2))
        _product_sums(
            self._columns, self._slopes, self._codes, values, parent.rows, parent.value, parent.features,
            parent.below, parent.above, part, self._product, tables,
        )  # fmt: skip
        _products(tables, parent.features[slice(*part)], self.grid.offsets, self._knots, out)
