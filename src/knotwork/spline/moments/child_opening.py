"""What is summed once when a parent opens: the bins of its rows, and the children's mass, norms and sums.

The squares of the children at a knot t are, with b ≥ 0 the parent and x a feature,

    min(b, (x − t)₊)² = (x − t)₊² − ((x − t)² − b²) where x − b > t,

and the same with x + b below the knot: sums over bins again.
"""

from __future__ import annotations

import numpy as np

from knotwork.spline.compiled import compiled
from knotwork.spline.moments.evaluate import TILE, find_bins, padded
from knotwork.spline.moments.pairs import add_pair


@compiled
def open_children(  # type: ignore[no-untyped-def]
    columns, slopes, codes, offsets, knots, w, rows, value, bins, used, part, product, mass, norms, ones
):
    """Fill in the bins (features, rows) of a parent, and mass, norms and products with 1 of its children, (2, C).

    part : from which feature to which
    """
    for f in range(part[0], part[1]):
        if not used[f]:
            continue
        at = slice(offsets[f] + 1, offsets[f + 1])
        t = knots[at]
        table = np.zeros((3, t.size + 1, 4))
        if product:
            _product_table(columns[f], codes[f], w, rows, value, table)
            _product_squares(table, t, mass[:, at], norms[:, at], ones[:, at])
        else:
            _shifted_bins(columns[f], slopes[f], t, rows, value, bins[f])
            _min_table(columns[f], slopes[f], codes[f], w, rows, value, bins[f], table.reshape(-1))
            _min_squares(table, t, mass[:, at], norms[:, at], ones[:, at])


@compiled
def _shifted_bins(column, slope, knots, rows, value, bins):  # type: ignore[no-untyped-def]
    """Write the bin of x − b, and 256 times that of x + b."""
    knots, shifted, found = padded(knots), np.empty((2, TILE)), np.empty((2, TILE), np.uint32)
    for start in range(0, rows.size, TILE):
        n = min(TILE, rows.size - start)
        for i in range(n):
            x, b = column[rows[start + i]] * slope, value[start + i]
            shifted[0, i], shifted[1, i] = x - b, x + b
        for side in range(2):
            find_bins(shifted[side, :n], knots, found[side])
        for i in range(n):
            bins[start + i] = found[0, i] | (found[1, i] << np.uint32(8))


@compiled
def _min_table(column, slope, code, w, rows, value, bins, table):  # type: ignore[no-untyped-def]
    """Per bin of x: Σw, Σwx, Σwx²; per bin of x − b and of x + b: Σw, Σwx, Σw(x² − b²), Σwb; table (3, ·, 4), flat."""
    lower, upper = np.uint32(table.size // 6), np.uint32(table.size // 3)
    for i in range(rows.size):
        weight = w[rows[i]] if w.size > 0 else 1.0
        x, b = column[rows[i]] * slope, value[i]
        first, rest = weight * x, weight * (x - b) * (x + b)
        at = np.uint32(2) * np.uint32(code[rows[i]])
        add_pair(table, at, weight, first)
        add_pair(table, at + np.uint32(1), first * x, 0.0)
        at = lower + np.uint32(2) * (np.uint32(bins[i]) & np.uint32(255))
        add_pair(table, at, weight, first)
        add_pair(table, at + np.uint32(1), rest, weight * b)
        at = upper + np.uint32(2) * (np.uint32(bins[i]) >> np.uint32(8))
        add_pair(table, at, weight, first)
        add_pair(table, at + np.uint32(1), rest, weight * b)


@compiled
def _min_squares(table, knots, mass, norms, ones):  # type: ignore[no-untyped-def]
    """Turn the bins of one feature into sums of both children at every knot; (2, knots) each."""
    for side in range(2):
        total, w, x, xx, b = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(knots.size):
            # Above a knot are the bins behind it, below it those before.
            k = knots.size - 1 - i if side == 0 else i
            t, own, other = knots[k], table[0, k + 1 - side], table[1 + side, k + 1 - side]
            total += own[0]
            w += own[0] - other[0]
            x += own[1] - other[1]
            xx += own[2] - other[2]
            b += other[3]
            mass[side, k] = total
            norms[side, k] = xx - t * (2 * x - t * w)
            ones[side, k] = (x - t * w) * (1 - 2 * side) + b


@compiled
def _product_table(column, code, w, rows, value, table):  # type: ignore[no-untyped-def]
    """Per bin of x: Σw; Σwb, Σwbx; Σwb², Σwb²x, Σwb²x²."""
    for i in range(rows.size):
        weight = w[rows[i]] if w.size > 0 else 1.0
        x, b = column[rows[i]], value[i]
        at = np.uint32(code[rows[i]])
        table[0, at, 0] += weight
        weight *= b
        table[1, at, 0] += weight
        table[1, at, 1] += weight * x
        weight *= b
        table[2, at, 0] += weight
        table[2, at, 1] += weight * x
        table[2, at, 2] += weight * x * x


@compiled
def _product_squares(table, knots, mass, norms, ones):  # type: ignore[no-untyped-def]
    for side in range(2):
        total, b, bx, bb, bbx, bbxx = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(knots.size):
            k = knots.size - 1 - i if side == 0 else i
            t, at = knots[k], k + 1 - side
            total += table[0, at, 0]
            b += table[1, at, 0]
            bx += table[1, at, 1]
            bb += table[2, at, 0]
            bbx += table[2, at, 1]
            bbxx += table[2, at, 2]
            mass[side, k] = total
            ones[side, k] = (bx - t * b) * (1 - 2 * side)
            norms[side, k] = bbxx - t * (2 * bbx - t * bb)
