"""Products of all knots of one column from one pass and a short look-up for each.

The bins of the column are put together to a few strata, of about equally many rows. One pass sums, for every stratum
and every bin of each other column z,

    Σw, Σwu, Σwz and Σwuz,    u = x − s the distance from the knot s below the stratum,

which is small enough to stay in a near cache, where a histogram over all bins of both columns does not. Summed up from
the highest stratum down, these are the sums over all rows above each s. Then Σ w(x − t)₊ and Σ w(x − t)₊z for any
knot t are those of the nearest s, moved by s − t, with the rows between t and s added or taken out: on average a
quarter of a stratum's, which are looked for by their codes. An s below t is taken only if more of its stratum lie above
t than below, so that little cancels. The column itself is the candidate with the knot 0, below the first stratum.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.spline.moments.cpu import TILE, CpuRows
from knotwork.spline.moments.pairs import SUMS, add_outer, add_pair

# Strata of a column: 2048 cells of 32 bytes for each column of 255 knots; and fewer where clearing those would take
# longer than the rows.
STRATA, MIN_ROWS = 8, 1024


def strata_of(rows: int, bins: int) -> int:
    """Return the number of strata of a column.

    >>> strata_of(50_000, 256), strata_of(4177, 256), strata_of(50_000, 1)
    (8, 4, 1)
    """
    return max(1, min(STRATA, rows // MIN_ROWS, bins))


class Strata:
    """The strata of one column, and what its candidates' products with those of all columns are looked up from.

    rows : the table; mass : (C,) observations above each candidate's knot; table : room for ``room_for`` numbers
    """

    def __init__(self, rows: CpuRows, feature: int, mass: Floats, table: Floats) -> None:
        grid = rows.grid
        first, last = grid.offsets[feature : feature + 2].tolist()
        self._rows, self._feature, self._table = rows, feature, table
        knots = grid.knots[first:last]
        count = strata_of(rows.columns.shape[1], last - first)
        below = mass[first] - mass[first:last]
        self._below = [*below.tolist(), float(mass[first])]
        stratum = np.minimum(below * (count / mass[first]), count - 1).astype(np.uint32)
        # The first bin of each stratum, and one behind the last; a stratum may be empty.
        begin = np.searchsorted(stratum, np.arange(count + 1))
        low = knots[np.minimum(begin[:-1], last - first - 1)]
        self._begin: list[int] = begin.tolist()
        self._low: list[float] = [*low.tolist(), 0.0]
        parts = rows.workers.split(len(rows.columns), work=rows.columns.size)

        def task(k: int) -> None:
            room = np.empty(TILE, np.uint32), np.empty(TILE), np.empty(TILE)
            _sum_strata(
                rows.columns, rows.codes, grid.offsets, rows.weights, parts[k], feature, stratum, low, *room, table
            )

        rows.workers.run(task, len(parts))

    @staticmethod
    def room_for(rows: CpuRows, feature: int) -> int:
        """Numbers in the table of a column."""
        offsets = rows.grid.offsets
        bins = int(offsets[feature + 1] - offsets[feature])
        return SUMS * strata_of(rows.columns.shape[1], bins) * int(offsets[-1])

    def products(self, place: int, room: tuple[NDArray[np.uint32], Floats, Floats], out: Floats) -> None:
        """Write the products of the candidate at a place with those of all other columns, into (C,).

        room : for as many rows as there are, twice, and (C, 2)
        """
        rows, count, begin, below = self._rows, len(self._low) - 1, self._begin, self._below
        nearest = bisect_left(begin, place)
        first, last = place, begin[nearest]
        if first < last and 2 * below[place] < below[begin[nearest - 1]] + below[last]:
            nearest -= 1
            first, last = begin[nearest], place
        _look_up(
            rows.columns, rows.codes, rows.grid.offsets, rows.grid.knots, rows.weights, self._feature, place, first,
            last, nearest, count, self._low[nearest], *room, self._table, out,
        )  # fmt: skip


@compiled
def _sum_strata(  # type: ignore[no-untyped-def]
    columns, codes, offsets, w, features, split, stratum, low, base, weight, first, table
):  # fmt: skip
    """Fill in the sums above each stratum of column ``split``, for some features.

    stratum : (bins,) of each bin of the column; low : (strata,) the knot below each
    base, weight, first : room for a tile; table : flat, for each feature the cells of each stratum side by side
    """
    count, unit = low.size, w.size == 0
    for k in range(4 * count * offsets[features[0]], 4 * count * offsets[features[1]]):
        table[k] = 0.0
    for start in range(0, columns.shape[1], TILE):
        n, at = columns.shape[1] - start if start + TILE > columns.shape[1] else TILE, np.uint64(start)
        for i in range(n):
            row = at + np.uint64(i)
            base[i] = stratum[codes[split, row]]
            weight[i] = 1.0 if unit else w[row]
            first[i] = weight[i] * (columns[split, row] - low[base[i]])
        for g in range(features[0], features[1]):
            if g == split:
                continue
            x, code, width = columns[g], codes[g], np.uint32(offsets[g + 1] - offsets[g])
            own = table[4 * count * offsets[g] : 4 * count * offsets[g + 1]]
            for i in range(n):
                row = at + np.uint64(i)
                add_outer(own, np.uint64(base[i] * width + np.uint32(code[row])), weight[i], first[i], x[row])
    # From the highest stratum down, over all rows above the knot below it.
    for g in range(features[0], features[1]):
        width = 4 * (offsets[g + 1] - offsets[g])
        for j in range(1, count):
            s = count - 1 - j
            gap = low[s + 1] - low[s]
            lower = table[count * 4 * offsets[g] + s * width : count * 4 * offsets[g] + (s + 1) * width]
            upper = table[count * 4 * offsets[g] + (s + 1) * width : count * 4 * offsets[g] + (s + 2) * width]
            for k in range(0, width, 4):
                lower[k] += upper[k]
                lower[k + 1] += upper[k + 1] + gap * upper[k]
                lower[k + 2] += upper[k + 2]
                lower[k + 3] += upper[k + 3] + gap * upper[k + 2]


@compiled
def _look_up(  # type: ignore[no-untyped-def]
    columns, codes, offsets, knots, w, split, place, first, last, nearest, count, low, active, value, sums, table, out
):  # fmt: skip
    """Write the products of a candidate of column ``split`` with those of all others, (C,).

    first, last : the bins whose rows are between its knot and ``low``, that of the nearest stratum; the sums above the
        last of ``count`` strata are zero
    active, value : room for all rows; sums : (2 C,) room
    """
    d, unit = len(columns), w.size == 0
    knot = knots[offsets[split] + place]
    gap, rows = low - knot, 0
    if first < last:
        # Below the knot their distances are negative: taken out, they are added.
        side = 1.0 if first == place else -1.0
        start, width = np.uint32(first), np.uint32(last - first)
        for i in range(columns.shape[1]):
            active[rows] = np.uint32(i)
            rows += 1 if np.uint32(codes[split, i]) - start < width else 0
        for k in range(rows):
            i = active[k]
            value[k] = side * (columns[split, i] - knot) * (1.0 if unit else w[i])
    for g in range(d):
        if g == split:
            continue
        begin, bins = offsets[g], offsets[g + 1] - offsets[g]
        own = sums[2 * begin : 2 * (begin + bins)]
        if nearest < count:
            cell = table[4 * (count * begin + nearest * bins) : 4 * (count * begin + (nearest + 1) * bins)]
            for b in range(bins):
                own[2 * b] = cell[4 * b + 1] + gap * cell[4 * b]
                own[2 * b + 1] = cell[4 * b + 3] + gap * cell[4 * b + 2]
        else:
            for b in range(2 * bins):
                own[b] = 0.0
        x, code = columns[g], codes[g]
        for k in range(rows):
            i = active[k]
            add_pair(own, np.uint64(code[i]), value[k], value[k] * x[i])
        v, vx = 0.0, 0.0
        for j in range(bins):
            b = bins - 1 - j
            v += own[2 * b]
            vx += own[2 * b + 1]
            out[begin + b] = vx - knots[begin + b] * v
