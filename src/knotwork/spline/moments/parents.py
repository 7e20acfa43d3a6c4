"""Rows of parents, one parent after the other in flat arrays: a compiled kernel gets all of them at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.moments.evaluate import evaluate_term
from knotwork.spline.moments.moments import TermTable

# What a full array grows by: copying then costs as much as two passes over the rows, however many parents come.
GROWTH = 1.5


class ParentRows:
    """The parents that are open, each in a slot: ``count[slot]`` entries of the arrays from ``begin[slot]`` on.

    rows, value : where a parent is positive, and how much
    bins : (features, rows) of a parent, flat, from features · ``begin[slot]`` on: the bin of x − b, and 256 times that
        of x + b; not there for products
    used : (slots, d) the features that its children may use
    ones : (slots, 2, C) products of the children with 1
    """

    def __init__(self, slots: int, features: int, candidates: int, has_bins: bool) -> None:
        self._width = features if has_bins else 0
        self._end = 0
        self.begin, self.count = np.zeros((2, slots), np.int64)
        self.rows, self.value, self.bins = np.empty(0, np.uint32), np.empty(0), np.empty(0, np.uint16)
        self.used = np.empty((slots, features), np.bool_)
        self.ones = np.empty((slots, 2, candidates))

    def add(self, slot: int, columns: Floats, parent: TermTable, used: NDArray[np.bool_]) -> None:
        """Find the rows of a new parent, whose bins and products with 1 are to be filled in."""
        n, first = columns.shape[1], self._end
        if first + n > self.rows.size:
            self._grow(max(first + n, int(GROWTH * self.rows.size)))
        values = np.empty(n)
        evaluate_term(columns, parent, 0, values)
        rows = np.flatnonzero(values > 0.0)
        count = rows.size
        self.rows[first : first + count] = rows
        self.value[first : first + count] = values[rows]
        self.begin[slot], self.count[slot], self._end = first, count, first + count
        self.used[slot], self.ones[slot] = used, 0.0

    def rows_of(self, slot: int) -> tuple[NDArray[np.uint32], Floats, NDArray[np.uint16]]:
        """Return rows, values and bins (features, rows) of a parent."""
        first, count, width = int(self.begin[slot]), int(self.count[slot]), self._width
        bins = self.bins[first * width : (first + count) * width].reshape(width, count)
        return self.rows[first : first + count], self.value[first : first + count], bins

    def remove(self, slot: int) -> None:
        """Forget a parent; those behind it move up."""
        first, count, end = int(self.begin[slot]), int(self.count[slot]), self._end
        last = first + count
        for array, width in ((self.rows, 1), (self.value, 1), (self.bins, self._width)):
            array[first * width : (end - count) * width] = array[last * width : end * width]
        self.begin[self.begin > first] -= count
        self.count[slot] = 0
        self._end -= count

    def _grow(self, size: int) -> None:
        end = self._end
        for name, width in (("rows", 1), ("value", 1), ("bins", self._width)):
            old = getattr(self, name)
            new = np.empty(size * width, old.dtype)
            new[: end * width] = old[: end * width]
            setattr(self, name, new)
