"""Bins between knots."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled

# Rows that go through a search at a time.
SEARCH_TILE = 256
# Cells in which knots are looked up, how many knots may share one, and from how many rows on that pays.
CELLS, MAX_SHARED, MIN_ROWS = 1024, 4, 2048


def padded(knots: Floats, size: int) -> Floats:
    """Return knots with infinity behind them, one less than a power of two above ``size`` in all, for ``encode``.

    >>> padded(np.arange(4.0), 4)
    array([ 0.,  1.,  2.,  3., inf, inf, inf])
    """
    out = np.full((1 << int(size).bit_length()) - 1, np.inf)
    out[: knots.size] = knots
    return out


def padded_rows(knots: Floats, offsets: NDArray[np.int64]) -> list[Floats]:
    """Return the knots of each feature of a grid, padded alike."""
    edges = offsets.tolist()
    max_knots = max(b - a for a, b in pairwise(edges)) - 1
    return [padded(knots[a + 1 : b], max_knots) for a, b in pairwise(edges)]


@compiled
def encode(x, knots, slope, bins, code):  # type: ignore[no-untyped-def]
    """Write the bin of every value times a slope, the number of knots below it, given ``padded`` knots.

    All values of a tile take a step of the binary search before any takes the next: there is nothing to foresee, and
    several go at once.
    bins : room for a tile
    """
    one = np.uint32(1)
    for start in range(0, x.size, SEARCH_TILE):
        n = x.size - start if start + SEARCH_TILE > x.size else SEARCH_TILE
        at = np.uint64(start)
        for i in range(n):
            bins[i] = 0
        step = np.uint32((knots.size + 1) // 2)
        while step > 0:
            for i in range(n):
                further = bins[i] + step
                bins[i] = further if knots[further - one] < x[at + np.uint64(i)] * slope else bins[i]
            step >>= one
        for i in range(n):
            code[at + np.uint64(i)] = bins[i]


@dataclass(frozen=True)
class Cells:
    """Equally wide cells between the first knot and the last: where a search for a value begins.

    knots : with infinity behind them; low, factor : the cell of x is (x − low)·factor
    start : (CELLS,) number of knots in the cells before; shared : maximum number of knots in a cell
    """

    knots: Floats
    low: float
    factor: float
    start: NDArray[np.uint32]
    shared: int

    @classmethod
    def of(cls, knots: Floats) -> Cells | None:
        """Return the cells for some knots, None where too many would share one.

        >>> Cells.of(np.arange(256.0)).shared, Cells.of(np.exp(np.arange(256.0)))
        (1, None)
        """
        if knots.size < 2:
            return None
        low, start, ended = float(knots[0]), np.zeros(CELLS, np.uint32), np.empty(knots.size + 1)
        factor = float((CELLS - 1) / (knots[-1] - knots[0]))
        if not math.isfinite(factor) or (shared := _count_cells(knots, low, factor, start)) > MAX_SHARED:
            return None
        ended[:-1], ended[-1] = knots, np.inf
        return cls(ended, low, factor, start, shared)


@compiled
def _count_cells(knots, low, factor, start):  # type: ignore[no-untyped-def]
    """Write the number of knots in the cells before each; return the maximum number in a cell. ``start`` is zero."""
    shared, last = 0, start.size - 1
    for k in range(knots.size):
        cell = min(int((knots[k] - low) * factor), last)
        start[cell] += np.uint32(1)
        shared = max(shared, int(start[cell]))
    before = np.uint32(0)
    for cell in range(start.size):
        own = start[cell]
        start[cell] = before
        before += own
    return shared


@compiled
def encode_by_cells(x, knots, low, factor, start, shared, bins, code):  # type: ignore[no-untyped-def]
    """Write what ``encode`` does, in half of the time: the cell says how many knots are below it, a few are compared.

    Rounding is the same for knots and values, and keeps their order: a knot in a lower cell is lower.
    """
    one, zero, last = np.uint32(1), np.uint32(0), float(start.size - 1)
    for begin in range(0, x.size, SEARCH_TILE):
        n = x.size - begin if begin + SEARCH_TILE > x.size else SEARCH_TILE
        at = np.uint64(begin)
        for i in range(n):
            cell = (x[at + np.uint64(i)] - low) * factor
            cell = cell if cell > 0.0 else 0.0
            bins[i] = start[np.uint32(np.int32(cell if cell < last else last))]
        for _ in range(shared):
            for i in range(n):
                bins[i] += one if knots[bins[i]] < x[at + np.uint64(i)] else zero
        for i in range(n):
            code[at + np.uint64(i)] = bins[i]
