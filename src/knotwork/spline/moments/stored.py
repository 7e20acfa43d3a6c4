"""All sums of an additive fit, kept: rows are looked at once, and added, taken out and left out as sums.

A :class:`StoredSums` holds what a search and its coefficients need of some rows. Sums of parts add up, so a fit to all
folds but one, to blocks of rows drawn with replacement, or to a stream of batches is a fit to a combination of parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.compute.workers import Workers
from knotwork.errors import DataError
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.joint import SUMS, cells, joint_products, joint_sums
from knotwork.spline.moments.moments import ChildSums, Opening, Residual, TermTable


@dataclass(frozen=True)
class StoredSums:
    """Sums over some rows, for the C candidates of a grid and p responses, which need not be centred.

    opening : as for a search, of the responses as they are
    response_sums : (p,) ⟨1, y⟩
    products : flat, for each feature the products of its candidates with those of all later features
    """

    grid: CandidateGrid
    opening: Opening
    response_sums: Floats
    products: Floats

    @classmethod
    def of(cls, rows: CpuRows) -> StoredSums:
        """Sum rows: one pass over each pair of features."""
        grid, y = rows.grid, rows.responses
        edges = grid.offsets.tolist()
        knots = [grid.knots[a:b] for a, b in pairwise(edges)]
        d, n = rows.columns.shape
        # Asked for at once: large pages then.
        products = np.empty(sum((b - a) * (edges[-1] - b) for a, b in pairwise(edges)))
        strips = strips_of(grid, products)
        pairs = [(f, g) for f in range(d) for g in range(f + 1, d)]
        parts = rows.workers.split(len(pairs), work=len(pairs) * (n + grid.max_bins**2))

        def task(k: int) -> None:
            table, room = cells(grid.max_bins**2), np.empty((SUMS, grid.max_bins))
            for f, g in pairs[slice(*parts[k])]:
                joint_sums(
                    rows.columns[f], rows.columns[g], rows.codes[f], rows.codes[g], knots[f], knots[g], rows.weights,
                    table,
                )  # fmt: skip
                joint_products(table, knots[f], knots[g], room, edges[g] - edges[f + 1], strips[f])

        if pairs:
            rows.workers.run(task, len(parts))
        sums = y.sum(axis=1) if rows.weights.size == 0 else y @ rows.weights
        return cls(grid, rows.opening(), sums, products)

    @classmethod
    def sum_of(cls, parts: Sequence[StoredSums], workers: Workers) -> StoredSums:
        """Return the sums of all parts together."""
        first = parts[0].products
        total = np.empty_like(first)
        shares = workers.split(16, work=first.size * len(parts))

        def task(k: int) -> None:
            own = slice(*(first.size * edge // 16 for edge in shares[k]))
            np.add(first[own], parts[1].products[own] if len(parts) > 1 else 0.0, out=total[own])
            for part in parts[2:]:
                np.add(total[own], part.products[own], out=total[own])

        workers.run(task, len(shares))
        sums = np.sum([part.response_sums for part in parts], axis=0)
        return cls(parts[0].grid, combined(parts, [1.0] * len(parts)), sums, total)

    def plus(self, other: StoredSums, factor: float = 1.0) -> StoredSums:
        """Return the sums of these rows and others; those of theirs times a factor."""
        return StoredSums(
            grid=self.grid,
            opening=combined((self, other), (1.0, factor)),
            response_sums=self.response_sums + factor * other.response_sums,
            products=self.products + factor * other.products,
        )


def strips_of(grid: CandidateGrid, products: Floats) -> tuple[Floats, ...]:
    """Return flat products by feature: (bins, candidates of all later features) each."""
    strips, first, end = [], 0, int(grid.offsets[-1])
    for a, b in pairwise(grid.offsets.tolist()):
        size = (b - a) * (end - b)
        strips.append(products[first : first + size].reshape(b - a, end - b))
        first += size
    return tuple(strips)


def combined(parts: Sequence[StoredSums], factors: Sequence[float]) -> Opening:
    """Combine what searches start from: Σ factor·part."""

    def of(name: str) -> Floats:
        total = factors[0] * getattr(parts[0].opening, name)
        for factor, part in zip(factors[1:], parts[1:], strict=True):
            total = total + factor * getattr(part.opening, name)
        return total

    return Opening(
        total=float(of("total")),
        mass=of("mass"),
        sums=of("sums"),
        norms=of("norms"),
        cross=of("cross"),
        responses=of("responses"),
        squares=of("squares"),
    )


@dataclass(frozen=True)
class TermProducts:
    """Products of 1 and M terms with each other, (1 + M, 1 + M), and with responses as they are, (1 + M, p); ⟨y, y⟩."""

    gram: Floats
    responses: Floats
    squares: Floats

    def rss(self, beta: Floats) -> Floats:
        """Sum the squares of y − [1, B]·beta for each response: beta (…, 1 + M, p) → (…, p)."""
        inner = np.einsum("...mp,mp->...p", beta, self.responses)
        return self.squares - 2 * inner + np.einsum("...mp,...mp->...p", beta, self.gram @ beta)


class StoredRows:
    """A combination of parts, Σ factor·part, as the search sees it; a :class:`RowSums` for additive models.

    means : (p,) of the responses, from which the search sees the distances
    """

    def __init__(self, parts: Sequence[StoredSums], factors: Sequence[float]) -> None:
        self.grid = parts[0].grid
        self._factors = factors
        self._products = [part.products for part in parts]
        self._edges: list[int] = self.grid.offsets.tolist()
        self._knots: list[float] = self.grid.knots.tolist()
        self._raw = raw = combined(parts, factors)
        self._response_sums = sum(
            (f * part.response_sums for f, part in zip(factors, parts, strict=True)), start=np.zeros(raw.squares.size)
        )
        self.means = self._response_sums / raw.total
        self._opening = Opening(
            total=raw.total,
            mass=raw.mass,
            sums=raw.sums,
            norms=raw.norms,
            cross=raw.cross,
            responses=raw.responses - raw.sums[:, None] * self.means,
            squares=np.maximum(raw.squares - self.means * self._response_sums, 0.0),
        )

    def opening(self) -> Opening:
        """Return what the search starts from."""
        return self._opening

    def line_products(self, feature: int) -> Floats:
        """Products of a feature itself with every candidate: (C,)."""
        return self._look_up(self._edges[feature])[0]

    def pair_products(self, feature: int, knot: float) -> Floats:
        """Products of a feature x itself and of (x − t)₊ with every candidate: (2, C)."""
        return self._look_up(self._edges[feature], self._position(feature, knot))

    def hinge_products(self, feature: int, knot: float) -> Floats:
        """Products of (x − t)₊ with every candidate: (1, C)."""
        return self._look_up(self._position(feature, knot))

    def products(self, terms: TermTable) -> Floats:
        """Refuse: products of interactions are not among the sums."""
        raise _additive_only()

    def children(self, grid: CandidateGrid, slopes: Floats, product: bool, slots: int, min_mass: float) -> ChildSums:
        """Refuse: products of interactions are not among the sums."""
        raise _additive_only()

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Sum the residual of a linear combination of terms."""
        own, beta = self.term_products(terms), np.concatenate([intercept[None] + self.means, coef])
        return Residual(rss=np.maximum(own.rss(beta), 0.0), dots=own.responses - own.gram @ beta)

    def term_products(self, terms: TermTable) -> TermProducts:
        """Products of additive terms with each other and the responses as they are."""
        places = [self._edges[f] if sign == 0 else self._position(f, knot) for ((f, knot, sign),) in terms.entries()]
        lines = [self._edges[f] for f in terms.feature.tolist()]
        signs, knots = terms.sign.tolist(), terms.knot.tolist()
        positions = sorted({*places, *(line for line, sign in zip(lines, signs, strict=True) if sign < 0)})
        at, used = {position: 1 + k for k, position in enumerate(positions)}, np.array(positions, np.int64)
        # The terms in 1 and the candidates: (t − x)₊ = (x − t)₊ + t − x.
        mix = np.zeros((1 + len(terms), 1 + used.size))
        mix[0, 0] = 1.0
        for m, (place, line, knot, sign) in enumerate(zip(places, lines, knots, signs, strict=True)):
            mix[1 + m, at[place]] = 1.0
            if sign < 0:
                mix[1 + m, 0], mix[1 + m, at[line]] = knot, -1.0
        gram = np.zeros((1 + used.size, 1 + used.size))
        for factor, products in zip(self._factors, self._products, strict=True):
            _add_between(products, self.grid.offsets, self.grid.feature, used, factor, gram)
        own, ends = np.empty(self._edges[-1]), np.searchsorted(used, self._edges).tolist()
        for (position, k), feature in zip(at.items(), self.grid.feature[used].tolist(), strict=True):
            own_products(self._raw, self.grid, feature, position - self._edges[feature], own)
            first, last = ends[feature : feature + 2]
            gram[k, 1 + first : 1 + last] = own[used[first:last]]
        gram[0, 0], gram[0, 1:] = self._raw.total, self._raw.sums[used]
        gram[1:, 0] = gram[0, 1:]
        responses = np.concatenate([self._response_sums[None], self._raw.responses[used]])
        return TermProducts(mix @ gram @ mix.T, mix @ responses, self._raw.squares)

    def _position(self, feature: int, knot: float) -> int:
        return bisect_left(self._knots, knot, self._edges[feature] + 1, self._edges[feature + 1])

    def _look_up(self, *positions: int) -> Floats:
        """Return the products of candidates with every candidate: (·, C)."""
        out = np.zeros((len(positions), self._edges[-1]))
        for position, products in zip(positions, out, strict=True):
            feature = int(self.grid.feature[position])
            place = position - self._edges[feature]
            for factor, stored in zip(self._factors, self._products, strict=True):
                _add_products(stored, self.grid.offsets, feature, place, factor, products)
            own_products(self._raw, self.grid, feature, place, products)
        return out


@compiled
def _add_products(products, offsets, feature, place, factor, out):  # type: ignore[no-untyped-def]
    """Add the products of a candidate with those of other features, times a factor; ``products`` as stored."""
    end, first = offsets[-1], 0
    for g in range(feature):
        width = end - offsets[g + 1]
        at = first + offsets[feature] - offsets[g + 1] + place
        for i in range(offsets[g], offsets[g + 1]):
            out[i] += factor * products[at]
            at += width
        first += (offsets[g + 1] - offsets[g]) * width
    at = first + place * (end - offsets[feature + 1])
    for i in range(offsets[feature + 1], end):
        out[i] += factor * products[at]
        at += 1


@compiled
def _add_between(products, offsets, feature, positions, factor, gram):  # type: ignore[no-untyped-def]
    """Add products of candidates of different features with each other, times a factor; ``products`` as stored.

    positions : (M,) rising; gram : (1 + M, 1 + M), the first row and column left as they are
    """
    end, first, begun = offsets[-1], 0, 0
    for i in range(positions.size):
        f = feature[positions[i]]
        while begun < f:  # the products of each feature stand behind those of the ones before
            first += (offsets[begun + 1] - offsets[begun]) * (end - offsets[begun + 1])
            begun += 1
        row = first + (positions[i] - offsets[f]) * (end - offsets[f + 1]) - offsets[f + 1]
        for j in range(i + 1, positions.size):
            if feature[positions[j]] != f:
                value = factor * products[row + positions[j]]
                gram[1 + i, 1 + j] += value
                gram[1 + j, 1 + i] += value


def own_products(opening: Opening, grid: CandidateGrid, feature: int, place: int, out: Floats) -> None:
    """Write the products of the candidate at a place of a feature's with those of the same feature, into (C,)."""
    _own_products(opening.norms, opening.sums, opening.cross, grid.knots, grid.offsets, feature, place, out)


@compiled
def _own_products(norms, sums, cross, knots, offsets, feature, place, out):  # type: ignore[no-untyped-def]
    first, at = offsets[feature], offsets[feature] + place
    # Of two hinges of a feature the higher one lies within the other: (x − s)₊ = (x − t) + (t − s) where x > t > s.
    for i in range(first, offsets[feature + 1]):
        high = i if i > at else at
        out[i] = norms[high] + abs(knots[i] - knots[at]) * sums[high]
    out[first] = cross[at]
    if place == 0:
        for i in range(first, offsets[feature + 1]):
            out[i] = cross[i]


def _additive_only() -> DataError:
    return DataError("sums that are kept are those of additive models, got interactions; choose max_degree=1")
