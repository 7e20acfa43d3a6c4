"""What rows become in a compiled kernel: values of terms, and bins between knots."""

from __future__ import annotations

import numpy as np

from knotwork.spline.compiled import compiled, compiled_reduction

# Cells per knot in the table that finds the bin of a value.
CELLS = 16


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
def cells_per_unit(knots):  # type: ignore[no-untyped-def]
    """Return how many of the equal cells over the knots' range there are to a unit."""
    width = knots[-1] - knots[0]
    return (CELLS * knots.size - 1) / width if width > 0.0 else 0.0


@compiled
def lay_cells(knots, below):  # type: ignore[no-untyped-def]
    """Lay equal cells over the knots' range and write the number of knots below each; most cells hold none."""
    factor, cells = cells_per_unit(knots), CELLS * knots.size
    below[: cells + 1] = 0
    for t in knots:
        below[int((t - knots[0]) * factor) + 1] += 1
    for cell in range(cells):
        below[cell + 1] += below[cell]


@compiled
def bin_of(x, knots, below, factor):  # type: ignore[no-untyped-def]
    """Return the number of knots below a value: those below its cell, and those found by search inside of it."""
    # Values beyond the knots belong to the outermost cells; no branch, as it could not be foreseen.
    cell = np.uint32(min(max((x - knots[0]) * factor, 0.0), CELLS * knots.size - 1.0))
    a, b = below[cell], below[cell + np.uint32(1)]
    while a < b:
        middle = (a + b) >> np.uint32(1)
        if knots[middle] < x:
            a = middle + np.uint32(1)
        else:
            b = middle
    return a


@compiled
def encode(x, knots, code):  # type: ignore[no-untyped-def]
    """Write the bin of every value: the number of knots below it."""
    if knots.size == 0:
        code[:] = 0
        return
    below = np.empty(CELLS * knots.size + 1, np.uint32)
    lay_cells(knots, below)
    factor = cells_per_unit(knots)
    for i in range(x.size):
        code[i] = bin_of(x[i], knots, below, factor)
