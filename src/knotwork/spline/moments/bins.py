"""Bins between knots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.compiled import compiled

# Rows that go through a binary search at a time.
TILE = 256


def padded(knots: Floats) -> Floats:
    """Return knots with infinity behind them, one less than a power of two in all, for a binary search.

    >>> padded(np.arange(4.0))
    array([ 0.,  1.,  2.,  3., inf, inf, inf])
    """
    out = np.full((1 << int(knots.size).bit_length()) - 1, np.inf)
    out[: knots.size] = knots
    return out


@compiled
def _encode(x, knots, slope, bins, code):  # type: ignore[no-untyped-def]
    """Write the bin of every value times a slope, given ``padded`` knots.

    All values of a tile take a step of the binary search before any takes the next: there is nothing to foresee, and
    several go at once.
    """
    one = np.uint32(1)
    for start in range(0, x.size, TILE):
        n = x.size - start if start + TILE > x.size else TILE
        for i in range(n):
            bins[i] = 0
        step = np.uint32((knots.size + 1) // 2)
        while step > 0:
            for i in range(n):
                further = bins[i] + step
                bins[i] = further if knots[further - one] < x[start + i] * slope else bins[i]
            step >>= one
        for i in range(n):
            code[start + i] = bins[i]


def encode(x: Floats, knots: Floats, slope: float, code: NDArray[np.unsignedinteger]) -> None:
    """Write the bin of every value times a slope: the number of knots below it."""
    _encode(x, padded(knots), slope, np.empty(TILE, np.uint32), code)
