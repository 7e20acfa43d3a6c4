"""Which rows carry the values of knots: one look at the codes of a column for all of its knots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.spline.moments.cpu import CpuRows

# Rows with a value: how many there are, and the first of them.
Found = tuple[int, NDArray[np.intp]]


def rows_with(passes: CpuRows, feature: int, values: Floats, most: int) -> list[Found] | None:
    """Find the rows with each of some values (K,) of a column, ``most`` of them; None if one is no knot of the grid."""
    column, grid = passes.columns[feature], passes.grid
    knots = grid.knots[grid.offsets[feature] + 1 : grid.offsets[feature + 1]]
    places = np.searchsorted(knots, values)
    if knots.size == 0 or (knots[np.minimum(places, knots.size - 1)] != values).any():
        return None
    slot = np.full(knots.size + 1, -1)
    slot[places] = np.arange(values.size)
    counts, rows = np.zeros(values.size, np.int64), np.empty((values.size, min(most, column.size)), np.intp)
    _find(column, passes.codes[feature], slot, values, counts, rows)
    return [(int(count), row[:count].copy()) for count, row in zip(counts, rows, strict=True)]


@compiled
def _find(column, code, slot, values, counts, rows):  # type: ignore[no-untyped-def]
    """Write the rows with each value; slot : (bins,) which value a bin has, if any. A value lies below its knot."""
    for i in range(column.size):
        k = slot[code[i]]
        if k >= 0 and column[i] == values[k]:
            if counts[k] < rows.shape[1]:
                rows[k, counts[k]] = i
            counts[k] += 1
