"""Interactions in the forward search: the children of terms that are never negative.

A parent b is a hinge or an interaction of hinges. Its children combine it with a hinge of a feature it does not have,
by minimum or by product; those of one knot, b with (x − t)₊ and b with (t − x)₊, enter together. The list of parents
is bounded: the ones whose children would have helped least at the last look leave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.candidates import Candidates
from knotwork.spline.compiled import compiled
from knotwork.spline.knots import child_candidates
from knotwork.spline.model import Floats
from knotwork.spline.moments.moments import Hinges, Opening, RowSums

# A later candidate must be better by more than rounding, so that of two equal ones the first is taken.
BETTER = 1 + 1e-11
# Share of the greatest norm among a parent's children below which a child is nothing.
NOTHING = 1e-10
# Knots per feature that children may have; more of them cost time and gain nothing that can be measured.
CHILD_KNOTS = 63


@dataclass(frozen=True)
class Interactions:
    """Which interactions a search may make.

    degree : most features in a term
    product : whether hinges are multiplied; else the least of them counts
    max_parents : how many terms may have children at a time
    features : (d,) which features may take part
    least : (d,) least value of each feature, standardised
    least_mass : observations that a child must have on both sides of its knot
    """

    degree: int
    product: bool
    max_parents: int
    features: NDArray[np.bool_]
    least: Floats
    least_mass: float


@dataclass(frozen=True)
class Move:
    """A possible step: the fall in RSS, the terms it adds, and where they are among the candidates.

    position : of a hinge in the grid, or (with a ``parent``) of the first child in the family's table
    """

    drop: float
    terms: tuple[Hinges, ...]
    position: int
    parent: Hinges | None = None
    positions: tuple[int, ...] = ()


@compiled
def _best_children(valid, norms, cross, dots, base, collinear, room):  # type: ignore[no-untyped-def]
    """Return (knot position, which, RSS drop) of the best step; which is 0 or 1 for one child, 2 for both.

    norms, dots, base : of the children above the knots, then of those below
    """
    best, which, best_drop = -1, 0, 0.0
    half, p = valid.size, dots.shape[1]
    for i in range(half):
        if not valid[i]:
            continue
        j = i + half
        above, below = 0.0, 0.0
        if norms[i] >= collinear * base[i] and norms[i] > 0.0:
            for k in range(p):
                above += dots[i, k] ** 2 / norms[i]
        if norms[j] >= collinear * base[j] and norms[j] > 0.0:
            for k in range(p):
                below += dots[j, k] ** 2 / norms[j]
        drop, take = above, 0
        if below > above:
            drop, take = below, 1
        if room >= 2 and above > 0.0 and below > 0.0:
            slope = cross[i] / norms[i]
            norm = norms[j] - slope * cross[i]
            if norm >= collinear * base[j] and norm > 0.0:
                drop, take = above, 2
                for k in range(p):
                    drop += (dots[j, k] - slope * dots[i, k]) ** 2 / norm
        if drop > best_drop * BETTER:
            best, which, best_drop = i, take, drop
    return best, which, best_drop


@dataclass
class _Family:
    """The children of a parent: both sides of every knot, in one table."""

    table: Candidates
    valid: NDArray[np.bool_]
    drop: float = np.inf


class Families:
    """All parents that may have children now."""

    def __init__(self, rows: RowSums, opening: Opening, options: Interactions, most: int) -> None:
        self._options, self._most = options, most
        linear = rows.grid.linear
        variance = opening.norms[linear] / opening.total - (opening.sums[linear] / opening.total) ** 2
        self._grid = child_candidates(rows.grid, CHILD_KNOTS, np.where(variance > 0, options.least, np.nan))
        self._bends = np.diff(rows.grid.offsets) > 1
        # In deviations, features of any units are comparable under the minimum.
        self.slopes: Floats = 1 / np.sqrt(np.where(variance > 0, variance, 1.0))
        self._sums = rows.children(self._grid, self.slopes, options.product)
        size = self._grid.knots.size
        self._partner = np.concatenate([np.arange(size, 2 * size), np.arange(size)])
        self._families: dict[Hinges, _Family] = {}

    def table_of(self, parent: Hinges) -> Candidates:
        """Return the children of a parent."""
        return self._families[parent].table

    def best(self, collinear: float, room: int) -> Move | None:
        """Return the best step that adds children, None if there is none."""
        best = None
        for parent, family in self._families.items():
            table = family.table
            place, which, drop = _best_children(
                family.valid, table.norms, table.cross, table.dots, table.base, collinear, room
            )
            family.drop = drop
            if place >= 0 and (best is None or drop > best.drop * BETTER):
                best = self._move(parent, place, which, drop)
        return best

    def _move(self, parent: Hinges, place: int, which: int, drop: float) -> Move:
        f, knot, size = int(self._grid.feature[place]), float(self._grid.knots[place]), self._grid.knots.size
        sides = ((1, place), (-1, place + size))
        chosen = sides if which == 2 else sides[which : which + 1]
        # In the order of the features: the same hinges are the same term, whichever came first.
        terms = tuple(tuple(sorted((*parent, (f, knot, sign)))) for sign, _ in chosen)
        return Move(drop, terms, place, parent, tuple(position for _, position in chosen))

    def products(self, terms: Sequence[Hinges]) -> Floats:
        """Products of terms with the children of all families: (families, terms, 2·C)."""
        products = self._sums.products(list(self._families), terms)
        return products.reshape(len(self._families), len(terms), 2 * self._grid.knots.size)

    def absorb(self, products: Floats, r: Floats, length: float, projection: Floats) -> None:
        """Take a new column of the span into account: its raw products, (families, 2·C)."""
        for family, row in zip(self._families.values(), products, strict=True):
            family.table.absorb(row, r, length, projection)

    def adopt(self, terms: Sequence[Hinges], span: Sequence[Hinges], factor: Floats, projection: Floats) -> None:
        """Make parents of new terms, given the raw columns of the span with their triangular factor."""
        for term in terms:
            parent = self._parent_of(term)
            if parent is not None and parent not in self._families:
                self._families[parent] = self._open(parent, span, factor, projection)
        while len(self._families) > self._options.max_parents:
            weakest = min(self._families, key=lambda parent: self._families[parent].drop)
            del self._families[weakest]
            self._sums.close(weakest)

    def _parent_of(self, term: Hinges) -> Hinges | None:
        """Return what may have children for a new term: itself, or a hinge in place of a feature that never bends."""
        if len(term) >= self._options.degree or not all(self._options.features[f] for f, _, _ in term):
            return None
        ((f, _, sign), *_) = term
        if sign != 0:
            return term
        return None if self._bends[f] else ((f, float(self._options.least[f]), 1),)

    def _open(self, parent: Hinges, span: Sequence[Hinges], factor: Floats, projection: Floats) -> _Family:
        features = self._options.features.copy()
        features[[f for f, _, _ in parent]] = False
        opening = self._sums.open(parent, features)
        dots = opening.responses.reshape(-1, projection.shape[1])
        table = Candidates(self._partner, opening.norms.ravel(), np.zeros(dots.shape[0]), dots, self._most)
        table.absorb_span(self._sums.products([parent], span)[0].reshape(len(span), -1), factor, projection)
        # A child that is zero on the rows has a norm of rounding errors; nothing is left of it outside any span.
        table.base[opening.norms.ravel() <= NOTHING * opening.norms.max()] = np.inf
        return _Family(table, opening.mass.min(axis=0) >= self._options.least_mass)
