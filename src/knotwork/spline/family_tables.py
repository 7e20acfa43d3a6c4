"""The children of all parents, in tables side by side: every update and every search is one compiled call.

A family has a slot. Only children with enough rows on both sides of their knot are kept, and ``place`` says where they
are in the grid of children. They lie in strips, those above their knots beside those below: all that is known of a
strip stays in the nearest cache while new columns of the span pass over it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.candidates import BETTER, STRIP, Known, orthogonalise
from knotwork.spline.compiled import compiled, compiled_reduction
from knotwork.spline.model import Floats
from knotwork.spline.moments.moments import ChildOpening

# Knots to a strip.
HALF = STRIP // 2
# Share of the greatest norm among a parent's children below which a child is nothing.
NOTHING = 1e-10


@compiled
def _open(slots, mass, norms, responses, least_mass, size, place, own_norms, cross, dots, base):  # type: ignore[no-untyped-def]
    """Fill slots with new families, (slots, …, 2, C); room for children that are not there gets those of norm zero."""
    for s in range(slots.size):
        slot, n = slots[s], 0
        greatest = norms[s].max()
        for i in range(mass.shape[2]):
            place[slot, n] = i
            n += min(mass[s, 0, i], mass[s, 1, i]) >= least_mass
        size[slot] = n
        cross[slot] = 0.0
        for side in range(2):
            for e in range((n + HALF - 1) // HALF * HALF):
                strip, j, i = e // HALF, e % HALF, place[slot, e]
                is_there = e < n
                own_norms[slot, strip, side, j] = norms[s, side, i] if is_there else 0.0
                for k in range(dots.shape[2]):
                    dots[slot, strip, k, side, j] = responses[s, k, side, i] if is_there else 0.0
                # A child that is zero on the rows has a norm of rounding errors; nothing is left of it beside any span.
                is_nothing = norms[s, side, i] <= NOTHING * greatest
                base[slot, strip, side, j] = np.inf if is_nothing else 0.0


@compiled_reduction
def _absorb(slots, products, first, factor, projection, size, place, q, norms, cross, dots, base):  # type: ignore[no-untyped-def]
    """Take the columns from ``first`` on into account, products (slots, columns, 2, C) over the whole grid."""
    last = first + products.shape[1]
    for s in range(slots.size):
        slot, n = slots[s], size[slots[s]]
        for strip in range((n + HALF - 1) // HALF):
            rows, own_norms, own_base = q[slot, strip], norms[slot, strip], base[slot, strip]
            own_cross, own_place = cross[slot, strip], place[slot, strip * HALF : min(n, (strip + 1) * HALF)]
            for m in range(first, last):
                for side in range(2):
                    raw = products[s, m - first, side]
                    rows[m, side * HALF : (side + 1) * HALF] = 0.0
                    for i in range(own_place.size):
                        rows[m, side * HALF + i] = raw[own_place[i]]
            orthogonalise(rows, first, last, factor)
            for m in range(first, last):
                above, below = rows[m, :HALF], rows[m, HALF:]
                for i in range(HALF):
                    own_norms[0, i] -= above[i] * above[i]
                    own_norms[1, i] -= below[i] * below[i]
                    own_cross[i] -= above[i] * below[i]
                for k in range(projection.shape[1]):
                    part, along = projection[m, k], dots[slot, strip, k]
                    for i in range(HALF):
                        along[0, i] -= above[i] * part
                        along[1, i] -= below[i] * part
                if m == 0:
                    own_base += own_norms


@compiled
def _best(slots, size, norms, cross, dots, base, collinear, room, drops):  # type: ignore[no-untyped-def]
    """Return (slot, child, which) of the best step; which is 0 or 1 for one child of a knot, 2 for both.

    drops : the RSS drop of each slot's best step, written
    """
    found, best, which, best_drop = -1, -1, 0, 0.0
    for slot in slots:
        own, take, own_drop = -1, 0, 0.0
        for strip in range((size[slot] + HALF - 1) // HALF):
            i, sides, drop = _best_of(
                norms[slot, strip], cross[slot, strip], dots[slot, strip], base[slot, strip], collinear, room, own_drop
            )  # fmt: skip
            if i >= 0:
                own, take, own_drop = strip * HALF + i, sides, drop
        drops[slot] = own_drop
        if own >= 0 and own_drop > best_drop * BETTER:
            found, best, which, best_drop = slot, own, take, own_drop
    return found, best, which


@compiled
def _best_of(norms, cross, dots, base, collinear, room, best_drop):  # type: ignore[no-untyped-def]
    """Return (child, which, drop) of the best step in a strip, child -1 if none is better than what there is."""
    best, which = -1, 0
    for i in range(HALF):
        above, below = 0.0, 0.0
        if norms[0, i] >= collinear * base[0, i] and norms[0, i] > 0.0:
            for k in range(len(dots)):
                above += dots[k, 0, i] ** 2 / norms[0, i]
        if norms[1, i] >= collinear * base[1, i] and norms[1, i] > 0.0:
            for k in range(len(dots)):
                below += dots[k, 1, i] ** 2 / norms[1, i]
        drop, take = above, 0
        if below > above:
            drop, take = below, 1
        if room >= 2 and above > 0.0 and below > 0.0:
            slope = cross[i] / norms[0, i]
            norm = norms[1, i] - slope * cross[i]
            if norm >= collinear * base[1, i] and norm > 0.0:
                drop, take = above, 2
                for k in range(len(dots)):
                    drop += (dots[k, 1, i] - slope * dots[k, 0, i]) ** 2 / norm
        if drop > best_drop * BETTER:
            best, which, best_drop = i, take, drop
    return best, which, best_drop


class FamilyTables:
    """Slots for families of children outside the span of a model; a slot's arrays are those of ``Candidates``.

    place : (slots, C) where a family's knots are in the grid, as many as ``_size`` says
    q : (slots, strips, columns of the span, children of a strip); norms, base : (slots, strips, 2, knots of a strip)
    drops : (slots,) RSS drop of the best step at the last look
    """

    def __init__(self, slots: int, candidates: int, responses: int, most: int) -> None:
        strips = -(-candidates // HALF)
        self._size = np.zeros(slots, np.int64)
        self.place = np.zeros((slots, strips * HALF + 1), np.int64)
        self.drops = np.empty(slots)
        self._q = np.empty((slots, strips, most, STRIP))
        self._norms, self._base = np.empty((2, slots, strips, 2, HALF))
        self._cross = np.empty((slots, strips, HALF))
        self._dots = np.empty((slots, strips, responses, 2, HALF))

    def open(self, slots: NDArray[np.int64], opening: ChildOpening, least_mass: float) -> None:
        """Fill slots with new families."""
        _open(
            slots, opening.mass, opening.norms, opening.responses, least_mass, self._size, self.place, self._norms,
            self._cross, self._dots, self._base,
        )  # fmt: skip
        self.drops[slots] = np.inf

    def absorb(
        self, slots: NDArray[np.int64], products: Floats, first: int, factor: Floats, projection: Floats
    ) -> None:
        """Take columns of the span from number ``first`` on into account: raw products (slots, columns, 2, C)."""
        _absorb(
            slots, products, first, factor, projection, self._size, self.place, self._q, self._norms, self._cross,
            self._dots, self._base,
        )  # fmt: skip

    def best(self, slots: NDArray[np.int64], collinear: float, room: int) -> tuple[int, int, int]:
        """Return (slot, child, which) of the best step; slot -1 if there is none."""
        found: tuple[int, int, int] = _best(
            slots, self._size, self._norms, self._cross, self._dots, self._base, collinear, room, self.drops
        )
        return found

    def known(self, slot: int, side: int, child: int, columns: int) -> Known:
        """Return what is known of a child beside a span of so many columns."""
        strip, i = divmod(child, HALF)
        q, dots = self._q[slot, strip, :columns, side * HALF + i], self._dots[slot, strip, :, side, i]
        return q.copy(), float(self._norms[slot, strip, side, i]), dots.copy()
