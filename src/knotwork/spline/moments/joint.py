"""Products of all candidates of one column with all of another, from one histogram over their joint bins.

With u = x − s the distance of a value from the last knot s below it, and v = z − t that of the other column's, a cell
holds Σw, Σwu, Σwv and Σwuv. Going down the knots s, from one to the next that is a gap lower,

    Σ (x − s)   over x > s   grows by   gap·Σw + Σwu,
    Σ (x − s)·v over x > s   grows by   gap·Σwv + Σwuv,

for every bin of z; going down the knots t in the same way gives Σ (x − s)₊(z − t)₊. The numbers added are those of the
rows above both knots, none of them negative: nothing cancels. The columns themselves are the candidates without a knot,
which the grid lays out with a knot of 0.
"""

from __future__ import annotations

import numpy as np

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.spline.moments.pairs import add_four

# Sums of a cell; the bytes to which cells are aligned, so that none lies across two lines of the cache.
SUMS, LINE = 4, 64


def cells(size: int) -> Floats:
    """Return empty cells of a histogram, flat.

    >>> cells(2).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    room = np.zeros(8 * SUMS * size + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + 8 * SUMS * size].view(np.float64)


@compiled
def joint_sums(x, z, x_code, z_code, x_knots, z_knots, w, table):  # type: ignore[no-untyped-def]
    """Add every row to its cell; table : flat, the cells of a bin of x side by side."""
    width = np.uint64(z_knots.size)
    for row in range(x.size):
        i = np.uint64(row)
        a, b = np.uint64(x_code[i]), np.uint64(z_code[i])
        weight = w[i] if w.size > 0 else 1.0
        u, v = x[i] - x_knots[a], z[i] - z_knots[b]
        first = weight * u
        add_four(table, a * width + b, weight, first, weight * v, first * v)


@compiled
def joint_counts(x_code, z_code, w, width, table):  # type: ignore[no-untyped-def]
    """Add the weight of every row to its cell; table : flat, one sum a cell, the first quarter of ``cells``."""
    for row in range(x_code.size):
        i = np.uint64(row)
        table[np.uint64(x_code[i]) * width + np.uint64(z_code[i])] += w[i] if w.size > 0 else 1.0


@compiled
def spread_counts(table, u, v):  # type: ignore[no-untyped-def]
    """Turn counts into the four sums, as if all values of a bin were their mean: u, v are those means' distances."""
    for j in range(u.size):
        a = u.size - 1 - j
        for k in range(v.size):
            b = v.size - 1 - k
            count = table[a * v.size + b]
            at = 4 * (a * v.size + b)
            table[at] = count
            table[at + 1] = count * u[a]
            table[at + 2] = count * v[b]
            table[at + 3] = count * u[a] * v[b]


@compiled
def joint_products(table, x_knots, z_knots, room, first, out):  # type: ignore[no-untyped-def]
    """Write the products of all candidates of x, the rows of ``out``, with those of z, its columns from ``first`` on.

    table : the cells, empty afterwards; room : (4, ·) as many as bins of z at least
    """
    size = z_knots.size
    # Over the rows above the knot of x, for each bin of z: Σw, Σw(x − s), Σwv, Σw(x − s)v.
    total, above, inner, both = room[0], room[1], room[2], room[3]
    for b in range(size):
        total[b] = 0.0
        above[b] = 0.0
        inner[b] = 0.0
        both[b] = 0.0
    for j in range(x_knots.size):
        a = x_knots.size - 1 - j
        gap = x_knots[a + 1] - x_knots[a] if j > 0 else 0.0
        cell = table[4 * a * size : 4 * (a + 1) * size]
        for b in range(size):
            above[b] += gap * total[b] + cell[4 * b + 1]
            both[b] += gap * inner[b] + cell[4 * b + 3]
            total[b] += cell[4 * b]
            inner[b] += cell[4 * b + 2]
            cell[4 * b] = 0.0
            cell[4 * b + 1] = 0.0
            cell[4 * b + 2] = 0.0
            cell[4 * b + 3] = 0.0
        product, outer, behind = 0.0, 0.0, z_knots[size - 1]
        for k in range(size):
            last = np.uint64(size - 1 - k)
            product += (behind - z_knots[last]) * outer + both[last]
            outer += above[last]
            behind = z_knots[last]
            out[a, first + last] = product
