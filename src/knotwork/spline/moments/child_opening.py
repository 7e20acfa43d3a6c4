"""What is summed once when a parent opens: the bins of its rows, and the children's mass, norms and sums.

The squares of the children at a knot t are, with b ≥ 0 the parent and x a feature,

    min(b, (x − t)₊)² = (x − t)₊² − ((x − t)² − b²) where x − b > t,

and the same with x + b below the knot: sums over bins again.
"""

from __future__ import annotations

import numpy as np

from knotwork.compute.compiled import compiled
from knotwork.spline.moments.bins import SEARCH_TILE as TILE
from knotwork.spline.moments.pairs import add_pair


@compiled
def find_bins(columns, slopes, padded, rows, value, bins, used, part, shifted, found):  # type: ignore[no-untyped-def]
    """Fill in the bins (features, rows) of a parent: of x − b, and 256 times those of x + b.

    padded : (features, ·) the knots of each, padded alike
    part : from which feature to which
    shifted, found : room for two tiles
    """
    one, tile = np.uint32(1), np.uint64(TILE)
    for f in range(part[0], part[1]):
        if not used[f]:
            continue
        slope = slopes[f]
        for start in range(0, rows.size, TILE):
            n = rows.size - start if start + TILE > rows.size else TILE
            at = np.uint64(start)
            for j in range(n):
                i = np.uint64(j)
                x, b = columns[f, rows[at + i]] * slope, value[at + i]
                shifted[i], shifted[tile + i] = x - b, x + b
            for k in range(2 * TILE):
                found[k] = 0
            step = np.uint32((padded.shape[1] + 1) // 2)
            while step > 0:
                for k in range(2 * TILE):
                    further = found[k] + step
                    found[k] = further if padded[f, further - one] < shifted[k] else found[k]
                step >>= one
            for j in range(n):
                i = np.uint64(j)
                bins[f, at + i] = found[i] | (found[tile + i] << np.uint32(8))


@compiled
def open_min(  # type: ignore[no-untyped-def]
    columns, slopes, codes, offsets, knots, w, rows, value, bins, used, part, table, mass, norms, ones
):  # fmt: skip
    """Fill in mass, norms and products with 1 of the children of a parent, (2, C), given its bins.

    part : from which feature to which; table : room for three tables of four sums a bin
    """
    one, half = np.uint32(1), np.uint32(table.size // 6)
    for f in range(part[0], part[1]):
        if not used[f]:
            continue
        slope = slopes[f]
        # Per bin of x: Σw, Σwx, Σwx²; per bin of x − b and of x + b: Σw, Σwx, Σw(x² − b²), Σwb.
        for k in range(table.size):
            table[k] = 0.0
        for k in range(rows.size):
            weight = w[rows[k]] if w.size > 0 else 1.0
            x, b = columns[f, rows[k]] * slope, value[k]
            first, rest, both = weight * x, weight * (x - b) * (x + b), np.uint32(bins[f, k])
            cell = np.uint32(2) * np.uint32(codes[f, rows[k]])
            add_pair(table, cell, weight, first)
            add_pair(table, cell + one, first * x, 0.0)
            cell = half + np.uint32(2) * (both & np.uint32(255))
            add_pair(table, cell, weight, first)
            add_pair(table, cell + one, rest, weight * b)
            cell = half + half + np.uint32(2) * (both >> np.uint32(8))
            add_pair(table, cell, weight, first)
            add_pair(table, cell + one, rest, weight * b)
        size = offsets[f + 1] - offsets[f] - 1
        for side in range(2):
            total, v, x, xx, b = 0.0, 0.0, 0.0, 0.0, 0.0
            for j in range(size):
                # Above a knot are the bins behind it, below it those before.
                k = size - 1 - j if side == 0 else j
                own = 4 * (k + 1 - side)
                other = own + 2 * (1 + side) * half
                total += table[own]
                v += table[own] - table[other]
                x += table[own + 1] - table[other + 1]
                xx += table[own + 2] - table[other + 2]
                b += table[other + 3]
                k += offsets[f] + 1
                t = knots[k]
                mass[side, k] = total
                norms[side, k] = xx - t * (2 * x - t * v)
                ones[side, k] = (x - t * v) * (1 - 2 * side) + b


@compiled
def open_product(columns, codes, offsets, knots, w, rows, value, used, part, table, mass, norms, ones):  # type: ignore[no-untyped-def]
    """Fill in mass, norms and products with 1 of the children of a parent that are products, (2, C).

    part : from which feature to which; table : (bins, 6) room
    """
    for f in range(part[0], part[1]):
        if not used[f]:
            continue
        # Per bin of x: Σw; Σwb, Σwbx; Σwb², Σwb²x, Σwb²x².
        for i in range(len(table)):
            for k in range(6):
                table[i, k] = 0.0
        for i in range(rows.size):
            weight = w[rows[i]] if w.size > 0 else 1.0
            x, b, at = columns[f, rows[i]], value[i], np.uint32(codes[f, rows[i]])
            table[at, 0] += weight
            weight *= b
            table[at, 1] += weight
            table[at, 2] += weight * x
            weight *= b
            table[at, 3] += weight
            table[at, 4] += weight * x
            table[at, 5] += weight * x * x
        size = offsets[f + 1] - offsets[f] - 1
        for side in range(2):
            total, b, bx, bb, bbx, bbxx = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(size):
                k = size - 1 - i if side == 0 else i
                at = np.uint32(k + 1 - side)
                total += table[at, 0]
                b += table[at, 1]
                bx += table[at, 2]
                bb += table[at, 3]
                bbx += table[at, 4]
                bbxx += table[at, 5]
                k += offsets[f] + 1
                t = knots[k]
                mass[side, k] = total
                ones[side, k] = (bx - t * b) * (1 - 2 * side)
                norms[side, k] = bbxx - t * (2 * bbx - t * bb)
