"""The children of all parents, in tables side by side: every update is one compiled call.

A family has a slot. Only knots with enough rows on both sides are kept, and ``place`` says where they are in the grid
of children. What is known of both children lies in strips of knots, in one piece of memory each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled, compiled_reduction
from knotwork.spline.candidates import BETTER, STRIP, Known, orthogonalise
from knotwork.spline.moments.moments import ChildOpening

# What is known of a strip of knots, one after the other: norms and bases of both children, their products with each
# other, and those with the residual of each response. One array with fixed places, or loops are not vectorised.
BOTH = 2 * STRIP
BASE, CROSS, DOTS = BOTH, 2 * BOTH, 2 * BOTH + STRIP
# Share of the maximum norm among a parent's children below which a child counts as zero.
NOTHING = 1e-10


@compiled_reduction
def _absorb(  # type: ignore[no-untyped-def]
    slots, products, first, factor, projection, size, place, q, known, collinear, room, all_of_it, raw, new, score,
    best, drops,
):  # fmt: skip
    """Take the columns from ``first`` on into account, products (slots, columns, 2, C) over the whole grid.

    raw, new, score : room for the products of a slot, for two strips and for four
    all_of_it : the RSS; drops that differ from it by rounding alone are equal
    best, drops : the best step of each slot, (number of the knot, which), and its RSS drop, written
    """
    columns = products.shape[1]
    for s in range(slots.size):
        slot, n, found, which, drop = slots[s], size[slots[s]], -1, 0, 0.0
        rows = q[slot]
        for m in range(columns):
            for side in range(2):
                for i in range(n):
                    raw[m, side * n + i] = products[s, m, side, place[slot, i]]
        orthogonalise(rows, raw, 2 * n, columns, first, factor, new)
        for start in range(0, n, STRIP):
            own, stop = known[slot, start // STRIP], min(start + STRIP, n)
            for m in range(first, first + columns):
                _take_out(rows[m, start:stop], rows[m, n + start : n + stop], projection[m], own)
                if m == 0:
                    for i in range(BOTH):
                        own[BASE + i] += own[i]
            _score(own, collinear, room, score)
            for i in range(stop - start):
                fall = all_of_it if score[3 * STRIP + i] * BETTER > all_of_it else score[3 * STRIP + i]
                if fall > drop * BETTER:
                    found, drop = start + i, fall
                    which = 2 if score[2 * STRIP + i] > 0.0 else 1 if score[STRIP + i] > score[i] * BETTER else 0
        best[slot, 0], best[slot, 1], drops[slot] = found, which, drop


@compiled_reduction
def _take_out(above, below, projection, known):  # type: ignore[no-untyped-def]
    """Take the parts along a new column out of what is known of a strip, given its products with the children."""
    for i in range(above.size):
        known[i] -= above[i] * above[i]
        known[STRIP + i] -= below[i] * below[i]
        known[CROSS + i] -= above[i] * below[i]
    for k in range(projection.size):
        dots, part = known[DOTS + k * BOTH : DOTS + (k + 1) * BOTH], projection[k]
        for i in range(above.size):
            dots[i] -= above[i] * part
            dots[STRIP + i] -= below[i] * part


@compiled
def _score(known, collinear, room, score):  # type: ignore[no-untyped-def]
    """Write the RSS drops at the knots of a strip: of one child, of the other, of both, and the one that counts.

    Both count where neither is in the span of the model and the other, else the better one. No branches: the loops are
    vectorised.
    """
    score[:] = 0.0
    for at in range(DOTS, known.size, BOTH):
        dots = known[at : at + BOTH]
        for i in range(STRIP):
            a, b = dots[i], dots[STRIP + i]
            rest = b - known[CROSS + i] / known[i] * a
            score[i] += a * a
            score[STRIP + i] += b * b
            score[2 * STRIP + i] += rest * rest
    for i in range(STRIP):
        first, second, cross = known[i], known[STRIP + i], known[CROSS + i]
        second_left = second - cross / first * cross
        minimum, other_minimum = collinear * known[BASE + i], collinear * known[BASE + STRIP + i]
        above = score[i] / first if (first >= minimum) & (first > 0.0) else 0.0
        below = score[STRIP + i] / second if (second >= other_minimum) & (second > 0.0) else 0.0
        are_new = (above > 0.0) & (below > 0.0) & (second_left >= other_minimum) & (second_left > 0.0) & (room >= 2)
        both = above + score[2 * STRIP + i] / second_left if are_new else 0.0
        score[i], score[STRIP + i], score[2 * STRIP + i] = above, below, both
        score[3 * STRIP + i] = both if both > 0.0 else max(above, below)


class FamilyTables:
    """Slots for families of children outside the span of a model.

    place : (slots, C) where a family's knots are in the grid, as many as ``_size`` says
    best : (slots, 2) the best step, as the number of a knot (-1 for none) and which of its children, 2 for both
    drops : (slots,) the RSS drop of that step
    """

    def __init__(self, slots: int, candidates: int, responses: int, max_columns: int, collinear: float) -> None:
        strips = -(-candidates // STRIP)
        self._collinear = collinear
        self.best = np.empty((slots, 2), np.int64)
        self.drops = np.empty(slots)
        self._size, self.place = np.zeros(slots, np.int64), np.empty((slots, candidates), np.int64)
        self._known = np.empty((slots, strips, DOTS + responses * BOTH))
        # As in ``Candidates``: the children above their knots, then those below.
        self._q = np.empty((slots, max_columns, 2 * candidates))

    def open(self, slots: NDArray[np.int64], opening: ChildOpening, min_mass: float) -> None:
        """Fill slots with new families; ``min_mass`` observations make a child."""
        for s, slot in enumerate(slots.tolist()):
            norms = opening.norms[s]
            place = np.flatnonzero(opening.mass[s].min(axis=0) >= min_mass)
            n = self._size[slot] = place.size
            self.place[slot, :n] = place
            # A child that is zero on the rows has a norm of rounding errors: it counts as part of every span.
            base = np.where(norms <= NOTHING * norms.max(initial=0.0), np.inf, 0.0)
            # The fields of a strip in order; children of a knot have nothing in common at first.
            fields = np.concatenate([norms, base, np.zeros((1, base.shape[1])), *opening.responses[s]])
            strips, width = self._known[slot].shape
            padded = np.zeros((width // STRIP, strips * STRIP))
            padded[:, :n] = fields[:, place]
            self._known[slot] = padded.reshape(-1, strips, STRIP).swapaxes(0, 1).reshape(strips, width)

    def absorb(
        self,
        slots: NDArray[np.int64],
        products: Floats,
        first: int,
        factor: Floats,
        projection: Floats,
        room: int,
        all_of_it: float,
    ) -> None:
        """Take columns of the span from number ``first`` on into account: raw products (slots, columns, 2, C).

        room : how many terms the next step may add; all_of_it : the RSS, or infinity
        """
        _absorb(
            slots, products, first, factor, projection, self._size, self.place, self._q, self._known, self._collinear,
            room, all_of_it, np.empty((products.shape[1], self._q.shape[2])), np.empty(BOTH), np.empty(4 * STRIP),
            self.best, self.drops,
        )  # fmt: skip

    def known(self, slot: int, side: int, child: int, columns: int) -> Known:
        """Return what is known of the part of a child orthogonal to a span of so many columns."""
        known, at = self._known[slot, child // STRIP], side * STRIP + child % STRIP
        q = self._q[slot, :columns, side * int(self._size[slot]) + child]
        return q.copy(), float(known[at]), known[DOTS + at :: BOTH].copy()
