"""Interactions in the forward search: the children of terms that are never negative.

A parent b is a hinge or an interaction of hinges. Its children combine it with a hinge of a feature it does not have,
by minimum or by product; those of one knot, b with (x − t)₊ and b with (t − x)₊, enter together. The list of parents
is bounded: the parents whose children would have reduced the RSS least in the last search leave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.candidates import BETTER, Known
from knotwork.spline.family_tables import FamilyTables
from knotwork.spline.knots import child_candidates
from knotwork.spline.moments.moments import ChildStep, Hinges, Opening, RowSums, TermTable

# Knots per feature that children may have; more of them cost time and gain nothing that can be measured.
CHILD_KNOTS = 63


@dataclass(frozen=True)
class Interactions:
    """Which interactions a search may make.

    degree : maximum number of features in a term
    product : whether hinges are multiplied; else a term is their minimum
    max_parents : how many terms may have children at a time
    features : (d,) which features may take part
    minimum : (d,) of each feature, standardised
    min_mass : observations that a child must have on both sides of its knot
    """

    degree: int
    product: bool
    max_parents: int
    features: NDArray[np.bool_]
    minimum: Floats
    min_mass: float


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

    def __init__(
        self, rows: RowSums, opening: Opening, options: Interactions, max_columns: int, collinear: float
    ) -> None:
        self._options = options
        linear = rows.grid.linear
        variance = opening.norms[linear] / opening.total - (opening.sums[linear] / opening.total) ** 2
        self._grid = child_candidates(rows.grid, CHILD_KNOTS, np.where(variance > 0, options.minimum, np.nan))
        self._bends = np.diff(rows.grid.offsets) > 1
        # Scaled by their stds, features in any units of measurement are comparable in a minimum.
        self.slopes: Floats = 1 / np.sqrt(np.where(variance > 0, variance, 1.0))
        slots = min(options.max_parents, max_columns)
        self._sums = rows.children(self._grid, self.slopes, options.product, slots, options.min_mass)
        self._tables = FamilyTables(slots, self._grid.knots.size, opening.responses.shape[1], max_columns, collinear)
        self._slots: dict[Hinges, int] = {}
        self._free = list(range(slots))
        self._step: tuple[NDArray[np.int64], NDArray[np.int64], ChildStep]

    def best(self) -> Move | None:
        """Return the best step that adds children, None if there is none."""
        tables, best, drop = self._tables, None, 0.0
        drops = tables.drops.tolist()
        for parent, slot in self._slots.items():
            if drops[slot] > drop * BETTER:
                best, drop = parent, drops[slot]
        if best is None:
            return None
        slot = self._slots[best]
        child, which = tables.best[slot].tolist()
        place = tables.place[slot, child]
        f, knot = int(self._grid.feature[place]), float(self._grid.knots[place])
        sides = (0, 1) if which == 2 else (which,)
        # In the order of the features: the same hinges are the same term, whichever came first.
        terms = tuple(tuple(sorted((*best, (f, knot, 1 - 2 * side)))) for side in sides)
        return Move(drop, terms, child, best, sides)

    def known(self, move: Move, columns: int) -> list[Known]:
        """Return what is known of the parts of a step's children orthogonal to a span of so many columns."""
        assert move.parent is not None
        slot = self._slots[move.parent]
        return [self._tables.known(slot, side, move.position, columns) for side in move.sides]

    def advance(self, columns: TermTable, terms: Sequence[Hinges]) -> None:
        """Add columns to the span, make parents of the terms that they are for, and sum what that takes."""
        found = dict.fromkeys(parent for term in terms if (parent := self._parent_of(term)) is not None)
        new = [parent for parent in found if parent not in self._slots]
        new = new[max(0, len(new) - self._options.max_parents) :]
        self._make_room(len(new))
        slots = np.array(list(self._slots.values()), np.int64)
        new_slots = np.array([self._free.pop() for _ in new], np.int64)
        features = np.array([self._other_features(parent) for parent in new], np.bool_).reshape(
            len(new), self._bends.size
        )
        self._step = slots, new_slots, self._sums.advance(columns, slots, new_slots, new, features)
        self._slots |= dict(zip(new, new_slots.tolist(), strict=True))

    def absorb(self, first: int, factor: Floats, projection: Floats, room: int, all_of_it: float) -> None:
        """Take the columns that were added last into account, from number ``first`` on.

        factor, projection : of the span with them; room : how many terms the next step may add
        all_of_it : the RSS, if steps that explain all of it are to count as equal, or infinity
        """
        slots, new_slots, step = self._step
        rest = factor, projection, room, all_of_it
        if slots.size:
            self._tables.absorb(slots, step.products, first, *rest)
        if new_slots.size:
            self._tables.open(new_slots, step.opening, self._options.min_mass)
            self._tables.absorb(new_slots, step.whole, 0, *rest)

    def _make_room(self, new: int) -> None:
        """Close the families that would have reduced the RSS least, so that there is room for new ones."""
        while len(self._slots) + new > self._options.max_parents:
            weakest = min(self._slots, key=lambda parent: self._tables.drops[self._slots[parent]])
            self._free.append(self._slots.pop(weakest))
            self._sums.close(self._free[-1])

    def _other_features(self, parent: Hinges) -> NDArray[np.bool_]:
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
        return None if self._bends[f] else ((f, float(self._options.minimum[f]), 1),)
