"""What rows become in a compiled kernel: values of terms, and bins between knots."""

from __future__ import annotations

import numpy as np

from knotwork.spline.compiled import compiled


@compiled
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


@compiled
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
def encode(x, knots, code):  # type: ignore[no-untyped-def]
    """Write the bin of every value: the number of knots below it.

    A table of equal cells over the knots' range says which knots lie below a value's cell; the few inside the
    cell are searched. Most cells hold none, so that a value costs one look-up.
    """
    t = knots
    if t.size == 0:
        code[:] = 0
        return
    low, high = t[0], t[-1]
    cells = 16 * t.size
    factor = (cells - 1) / (high - low) if high > low else 0.0
    below = np.zeros(cells + 1, np.uint32)
    for k in range(t.size):
        below[int((t[k] - low) * factor) + 1] += 1
    for cell in range(cells):
        below[cell + 1] += below[cell]
    for i in range(x.size):
        if x[i] <= low:
            code[i] = 0
        elif x[i] > high:
            code[i] = t.size
        else:
            place = np.uint32((x[i] - low) * factor)
            a, b = below[place], below[place + np.uint32(1)]
            while a < b:
                middle = (a + b) >> np.uint32(1)
                if t[middle] < x[i]:
                    a = middle + np.uint32(1)
                else:
                    b = middle
            code[i] = a
