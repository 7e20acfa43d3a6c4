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

from knotwork.spline.candidates import Known
from knotwork.spline.family_tables import FamilyTables
from knotwork.spline.knots import child_candidates
from knotwork.spline.model import Floats
from knotwork.spline.moments.moments import Hinges, Opening, RowSums, TermTable

# Knots per feature that children may have; more of them cost time and gain nothing that can be measured.
CHILD_KNOTS = 63
# Terms that a step adds at most.
MOST_NEW = 2


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

    position : of a hinge in the grid, or (with a ``parent``) of a knot in the family's table
    sides : which children of the knot they are, 0 for (x − t)₊ and 1 for (t − x)₊
    """

    drop: float
    terms: tuple[Hinges, ...]
    position: int
    parent: Hinges | None = None
    sides: tuple[int, ...] = ()


class Families:
    """All parents that may have children now, each in a slot."""

    def __init__(self, rows: RowSums, opening: Opening, options: Interactions, most: int) -> None:
        self._options = options
        linear = rows.grid.linear
        variance = opening.norms[linear] / opening.total - (opening.sums[linear] / opening.total) ** 2
        self._grid = child_candidates(rows.grid, CHILD_KNOTS, np.where(variance > 0, options.least, np.nan))
        self._bends = np.diff(rows.grid.offsets) > 1
        # In deviations, features of any units are comparable under the minimum.
        self.slopes: Floats = 1 / np.sqrt(np.where(variance > 0, variance, 1.0))
        slots = min(options.max_parents, most) + MOST_NEW
        self._sums = rows.children(self._grid, self.slopes, options.product, slots)
        self._tables = FamilyTables(slots, self._grid.knots.size, opening.responses.shape[1], most)
        self._slots: dict[Hinges, int] = {}
        self._free = list(range(slots))

    def best(self, collinear: float, room: int) -> Move | None:
        """Return the best step that adds children, None if there is none."""
        slot, child, which = self._tables.best(self._open_slots(), collinear, room)
        if slot < 0:
            return None
        parent = next(parent for parent, own in self._slots.items() if own == slot)
        place = self._tables.place[slot, child]
        f, knot = int(self._grid.feature[place]), float(self._grid.knots[place])
        sides = (0, 1) if which == 2 else (which,)
        # In the order of the features: the same hinges are the same term, whichever came first.
        terms = tuple(tuple(sorted((*parent, (f, knot, 1 - 2 * side)))) for side in sides)
        return Move(float(self._tables.drops[slot]), terms, child, parent, sides)

    def known(self, move: Move, columns: int) -> list[Known]:
        """Return what is known of the children of a step beside a span of so many columns."""
        assert move.parent is not None
        slot = self._slots[move.parent]
        return [self._tables.known(slot, side, move.position, columns) for side in move.sides]

    def extend(self, columns: TermTable, first: int, factor: Floats, projection: Floats) -> None:
        """Add columns to the span, from number ``first`` on, given the triangular factor with them."""
        self._sums.extend(columns)
        if self._slots:
            self._absorb(self._open_slots(), first, factor, projection)

    def adopt(self, terms: Sequence[Hinges], factor: Floats, projection: Floats) -> None:
        """Make parents of new terms, given the triangular factor of the span."""
        found = dict.fromkeys(parent for term in terms if (parent := self._parent_of(term)) is not None)
        new = [parent for parent in found if parent not in self._slots]
        if not new:
            return
        self._slots |= {parent: self._free.pop() for parent in new}
        slots = np.array([self._slots[parent] for parent in new])
        opening = self._sums.open(slots, new, np.array([self._features_beside(parent) for parent in new]))
        self._tables.open(slots, opening, self._options.least_mass)
        self._absorb(slots, 0, factor, projection)
        while len(self._slots) > self._options.max_parents:
            weakest = min(self._slots, key=lambda parent: self._tables.drops[self._slots[parent]])
            self._free.append(self._slots.pop(weakest))
            self._sums.close(self._free[-1])

    def _open_slots(self) -> NDArray[np.int64]:
        return np.array(list(self._slots.values()), np.int64)

    def _absorb(self, slots: NDArray[np.int64], first: int, factor: Floats, projection: Floats) -> None:
        """Let families take the columns of the span from number ``first`` on into account."""
        self._tables.absorb(slots, self._sums.products(slots, first), first, factor, projection)

    def _features_beside(self, parent: Hinges) -> NDArray[np.bool_]:
        features = self._options.features.copy()
        features[[f for f, _, _ in parent]] = False
        return features

    def _parent_of(self, term: Hinges) -> Hinges | None:
        """Return what may have children for a new term: itself, or a hinge in place of a feature that never bends."""
        if len(term) >= self._options.degree or not all(self._options.features[f] for f, _, _ in term):
            return None
        ((f, _, sign), *_) = term
        if sign != 0:
            return term
        return None if self._bends[f] else ((f, float(self._options.least[f]), 1),)
