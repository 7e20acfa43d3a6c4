"""Rows of parents, one parent after the other in flat arrays: a compiled kernel gets all of them at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.spline.moments.evaluate import evaluate_term
from knotwork.spline.moments.moments import TermTable

# What a full array grows by: copying then costs as much as two passes over the rows, however many parents come. An
# array above LARGE bytes gets no more than it needs.
GROWTH, LARGE = 1.5, 32 * 2**20
# Memory for the parents' rows and bins, over that for the columns; bins of further parents are found anew for every
# pass. There is always room for MIN_BYTES.
MAX_SHARE, MIN_BYTES = 1.375, 64 * 2**20


@compiled
def parent_values(columns, rows, slot, hinges, feature, knot, factor, product, out):  # type: ignore[no-untyped-def]
    """Write a parent on rows where it is positive: the minimum of its hinges, or their product."""
    x, t, slope = columns[feature[slot, 0]], knot[slot, 0], factor[slot, 0]
    for i in range(rows.size):
        out[i] = (x[rows[i]] - t) * slope
    for h in range(1, hinges[slot]):
        x, t, slope = columns[feature[slot, h]], knot[slot, h], factor[slot, h]
        for i in range(rows.size):
            value = (x[rows[i]] - t) * slope
            if product:
                out[i] *= value
            else:
                out[i] = value if value < out[i] else out[i]


class ParentRows:
    """The parents that are open, each in a slot: ``count[slot]`` entries of the arrays from ``begin[slot]`` on.

    rows : where a parent is positive. How much is not kept: that takes twice as much memory, and a kernel computes it
        from ``hinges[slot]`` hinges (x − knot)·factor, (slots, d) each, as fast as it would read it
    bins : (features, rows) of a parent, flat, from ``bins_begin[slot]`` on: the bin of x − b, and 256 times that of
        x + b. Where that is -1 there was no room for them; for products there is none at all
    used : (slots, d) the features that its children may use
    ones : (slots, 2, C) products of the children with 1
    """

    def __init__(self, slots: int, columns: Floats, candidates: int, has_bins: bool) -> None:
        features = len(columns)
        self._width = features if has_bins else 0
        self._max_bytes = max(MIN_BYTES, int(MAX_SHARE * columns.nbytes))
        self._end = self._bins_end = 0
        self.begin, self.count = np.zeros((2, slots), np.int64)
        self.bins_begin = np.full(slots, -1, np.int64)
        self.rows, self.bins = np.empty(0, np.uint32), np.empty(0, np.uint16)
        self.hinges, self.feature = np.zeros(slots, np.int64), np.zeros((slots, features), np.int64)
        self.knot, self.factor = np.zeros((2, slots, features))
        self.used = np.empty((slots, features), np.bool_)
        self.ones = np.empty((slots, 2, candidates))

    def add(self, slot: int, columns: Floats, parent: TermTable, used: NDArray[np.bool_]) -> None:
        """Find the rows of a new parent, whose bins and products with 1 are to be filled in."""
        values = np.empty(columns.shape[1])
        evaluate_term(columns, parent, 0, values)
        rows = np.flatnonzero(values > 0.0)
        first, count, size = self._end, rows.size, self._width * rows.size
        _grow(self.rows, first + count)
        self.rows[first : first + count] = rows
        own = slice(0, parent.feature.size)
        self.hinges[slot], self.feature[slot, own], self.knot[slot, own] = own.stop, parent.feature, parent.knot
        self.factor[slot, own] = parent.sign * parent.slope
        self.begin[slot], self.count[slot], self._end = first, count, first + count
        self.used[slot], self.ones[slot] = used, 0.0
        self.bins_begin[slot] = -1
        if size > 0 and 4 * self._end + 2 * (self._bins_end + size) <= self._max_bytes:
            _grow(self.bins, self._bins_end + size)
            self.bins_begin[slot] = self._bins_end
            self._bins_end += size

    def rows_of(self, slot: int) -> NDArray[np.uint32]:
        """Return the rows of a parent."""
        return self.rows[int(self.begin[slot]) : int(self.begin[slot] + self.count[slot])]

    def bins_of(self, slot: int) -> NDArray[np.uint16] | None:
        """Return the bins (features, rows) of a parent, to be filled in or to be read; None if they are not kept."""
        first, count = int(self.bins_begin[slot]), int(self.count[slot])
        return None if first < 0 else self.bins[first : first + self._width * count].reshape(self._width, count)

    def remove(self, slot: int) -> None:
        """Forget a parent; those behind it move up."""
        first, count, size = int(self.begin[slot]), int(self.count[slot]), int(self._width * self.count[slot])
        self.rows[first : self._end - count] = self.rows[first + count : self._end]
        self.begin[self.begin > first] -= count
        self._end -= count
        first = int(self.bins_begin[slot])
        if first >= 0:
            self.bins[first : self._bins_end - size] = self.bins[first + size : self._bins_end]
            self.bins_begin[self.bins_begin > first] -= size
            self._bins_end -= size
        self.count[slot], self.bins_begin[slot] = 0, -1


def _grow(array: NDArray[np.generic], size: int) -> None:
    """Let an array have at least so many entries, where it is: the system moves large ones without a copy."""
    if size > array.size:
        large = size * array.itemsize > LARGE
        array.resize(size if large else max(size, int(GROWTH * array.size)), refcheck=False)
