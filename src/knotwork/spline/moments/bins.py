"""Bins between knots."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled

# Rows that go through a binary search at a time.
SEARCH_TILE = 256


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
