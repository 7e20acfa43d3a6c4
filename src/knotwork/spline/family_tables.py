"""The children of all parents, in tables side by side: every update and every search is one compiled call.

A family has a slot. Only children with enough rows on both sides of their knot are kept: those above their knots, then
those below, and ``place`` says where they are in the grid of children.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from knotwork.spline.candidates import BETTER, Known, absorb_rows
from knotwork.spline.compiled import compiled
from knotwork.spline.model import Floats
from knotwork.spline.moments.moments import ChildOpening

# Share of the greatest norm among a parent's children below which a child is nothing.
NOTHING = 1e-10


@compiled
def _absorb(slots, products, first, factor, projection, half, place, q, norms, cross, dots, base):  # type: ignore[no-untyped-def]
    """Take the columns from ``first`` on into account, products (slots, columns, 2, C) over the whole grid."""
    (most, p), last = projection.shape, first + products.shape[1]
    for s in range(slots.size):
        slot, n = slots[s], half[slots[s]]
        if n == 0:
            continue
        rows, residual = q[slot, : most * 2 * n].reshape(-1, 2 * n), dots[slot, : p * 2 * n].reshape(-1, 2 * n)
        for m in range(first, last):
            for side in range(2):
                for i in range(n):
                    rows[m, side * n + i] = products[s, m - first, side, place[slot, i]]
        absorb_rows(
            rows, first, last, factor, projection, np.arange(n, 2 * n), norms[slot, : 2 * n], cross[slot, :n],
            residual, base[slot, : 2 * n],
        )  # fmt: skip


@compiled
def _best(slots, half, norms, cross, dots, p, base, collinear, room, drops):  # type: ignore[no-untyped-def]
    """Return (slot, child, which) of the best step; which is 0 or 1 for one child of a knot, 2 for both.

    drops : the RSS drop of each slot's best step, written
    """
    found, best, which, best_drop = -1, -1, 0, 0.0
    for slot in slots:
        i, take, drop = _best_of(
            half[slot], norms[slot], cross[slot], dots[slot], p, base[slot], collinear, room
        )  # fmt: skip
        drops[slot] = drop
        if i >= 0 and drop > best_drop * BETTER:
            found, best, which, best_drop = slot, i, take, drop
    return found, best, which


@compiled
def _best_of(half, norms, cross, dots, p, base, collinear, room):  # type: ignore[no-untyped-def]
    best, which, best_drop = -1, 0, 0.0
    for i in range(half):
        j = i + half
        above, below = 0.0, 0.0
        if norms[i] >= collinear * base[i] and norms[i] > 0.0:
            for k in range(p):
                above += dots[2 * half * k + i] ** 2 / norms[i]
        if norms[j] >= collinear * base[j] and norms[j] > 0.0:
            for k in range(p):
                below += dots[2 * half * k + j] ** 2 / norms[j]
        drop, take = above, 0
        if below > above:
            drop, take = below, 1
        if room >= 2 and above > 0.0 and below > 0.0:
            slope = cross[i] / norms[i]
            norm = norms[j] - slope * cross[i]
            if norm >= collinear * base[j] and norm > 0.0:
                drop, take = above, 2
                for k in range(p):
                    drop += (dots[2 * half * k + j] - slope * dots[2 * half * k + i]) ** 2 / norm
        if drop > best_drop * BETTER:
            best, which, best_drop = i, take, drop
    return best, which, best_drop


class FamilyTables:
    """Slots for families of children outside the span of a model; a slot's arrays are those of ``Candidates``.

    place : (slots, C) where a family's knots are in the grid, as many as ``_half`` says
    q, dots : (slots, ·) products with the columns of the span and with the residual, row after row without gaps
    drops : (slots,) RSS drop of the best step at the last look
    """

    def __init__(self, slots: int, candidates: int, responses: int, most: int) -> None:
        self._half = np.zeros(slots, np.int64)
        self.place = np.empty((slots, candidates), np.int64)
        self.drops = np.empty(slots)
        self._q = np.empty((slots, most * 2 * candidates))
        self._norms, self._base = np.empty((2, slots, 2 * candidates))
        self._cross = np.empty((slots, candidates))
        self._responses = responses
        self._dots = np.empty((slots, responses * 2 * candidates))

    def open(
        self,
        slot: int,
        opening: ChildOpening,
        least_mass: float,
        products: Floats,
        factor: Floats,
        projection: Floats,
    ) -> None:
        """Fill a slot with a new family, given the raw products of all columns of the span with it: (columns, 2, C)."""
        place = np.flatnonzero(opening.mass.min(axis=0) >= least_mass)
        n = self._half[slot] = place.size
        self.place[slot, :n] = place
        norms, responses = opening.norms[:, place].ravel(), opening.responses[:, :, place].ravel()
        self._norms[slot, : 2 * n] = norms
        self._cross[slot, :n] = 0.0
        self._dots[slot, : responses.size] = responses
        self.drops[slot] = np.inf
        self.absorb([slot], products[None], 0, factor, projection)
        # A child that is zero on the rows has a norm of rounding errors; nothing is left of it outside any span.
        self._base[slot, : 2 * n][norms <= NOTHING * opening.norms.max()] = np.inf

    def absorb(self, slots: Sequence[int], products: Floats, first: int, factor: Floats, projection: Floats) -> None:
        """Take columns of the span from number ``first`` on into account: raw products (slots, columns, 2, C)."""
        _absorb(
            np.array(slots, np.int64), products, first, factor, projection, self._half, self.place, self._q,
            self._norms, self._cross, self._dots, self._base,
        )  # fmt: skip

    def best(self, slots: Sequence[int], collinear: float, room: int) -> tuple[int, int, int]:
        """Return (slot, child, which) of the best step; slot -1 if there is none."""
        found: tuple[int, int, int] = _best(
            np.array(slots, np.int64), self._half, self._norms, self._cross, self._dots, self._responses,
            self._base, collinear, room,
            self.drops,
        )  # fmt: skip
        return found

    def known(self, slot: int, side: int, child: int, columns: int) -> Known:
        """Return what is known of a child beside a span of so many columns."""
        width, at = 2 * self._half[slot], side * self._half[slot] + child
        q, dots = self._q[slot, at : columns * width : width], self._dots[slot, at : self._responses * width : width]
        return q.copy(), float(self._norms[slot, at]), dots.copy()
