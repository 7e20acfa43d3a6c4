"""What rows become in a compiled kernel: values of terms, and bins between knots."""

from __future__ import annotations

import numpy as np

from knotwork.spline.compiled import compiled, compiled_reduction

# Rows that go through a binary search at a time.
TILE = 256


@compiled_reduction
def evaluate_term(columns, start, n, feature, knot, sign, slope, product, out):  # type: ignore[no-untyped-def]
    """Write a term on rows ``start`` to ``start + n``: the least of its hinges, or their product; 1 without any."""
    if feature.size == 0:
        out[:n] = 1.0
        return
    _evaluate_hinge(columns[feature[0]], start, n, knot[0], sign[0], slope[0], out)
    for h in range(1, feature.size):
        x, t, s, a = columns[feature[h]], knot[h], sign[h], slope[h]
        if product:
            for i in range(n):
                out[i] *= max(s * (x[start + i] - t), 0.0)
        else:
            for i in range(n):
                out[i] = min(out[i], max(s * (x[start + i] - t), 0.0) * a)


@compiled_reduction
def _evaluate_hinge(x, start, n, knot, sign, slope, out):  # type: ignore[no-untyped-def]
    if sign == 0:
        for i in range(n):
            out[i] = x[start + i]
    elif slope == 1.0:
        for i in range(n):
            out[i] = max(sign * (x[start + i] - knot), 0.0)
    else:
        for i in range(n):
            out[i] = max(sign * (x[start + i] - knot), 0.0) * slope


@compiled
def padded(knots):  # type: ignore[no-untyped-def]
    """Return knots with infinity behind them, one less than a power of two in all, as ``find_bins`` takes them."""
    size = 1
    while size <= knots.size:
        size *= 2
    out = np.empty(size - 1)
    for k in range(size - 1):
        out[k] = knots[k] if k < knots.size else np.inf
    return out


@compiled
def find_bins(x, knots, bins):  # type: ignore[no-untyped-def]
    """Write the number of knots below each value, given ``padded`` knots.

    All values take a step of the binary search before any takes the next: there is nothing to foresee, and several
    go at once.
    """
    for i in range(x.size):
        bins[i] = 0
    step = np.uint32((knots.size + 1) // 2)
    while step > 0:
        for i in range(x.size):
            further = bins[i] + step
            bins[i] = further if knots[further - np.uint32(1)] < x[i] else bins[i]
        step //= np.uint32(2)


@compiled
def encode(x, knots, slope, code):  # type: ignore[no-untyped-def]
    """Write the bin of every value times a slope: the number of knots below it."""
    knots, values, bins = padded(knots), np.empty(TILE), np.empty(TILE, np.uint32)
    for start in range(0, x.size, TILE):
        n = min(TILE, x.size - start)
        for i in range(n):
            values[i] = x[start + i] * slope
        find_bins(values[:n], knots, bins)
        for i in range(n):
            code[start + i] = bins[i]
