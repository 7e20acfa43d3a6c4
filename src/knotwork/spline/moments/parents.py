"""Rows of parents, one parent after the other in flat arrays: a compiled kernel gets all of them at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.compiled import compiled
from knotwork.spline.model import Floats
from knotwork.spline.moments.evaluate import evaluate_term
from knotwork.spline.moments.moments import Hinges, TermTable

# Rows of a parent that are evaluated at a time.
TILE = 1024
# What a full array grows by: copying then costs as much as two passes over the rows, however many parents come.
GROWTH = 1.5


@compiled
def _positive_rows(columns, feature, knot, sign, slope, product, rows, value):  # type: ignore[no-untyped-def]
    """Write the rows where a term is positive and its values there; return their number."""
    count = 0
    tile = np.empty(TILE)
    for start in range(0, columns.shape[1], TILE):
        n = min(TILE, columns.shape[1] - start)
        evaluate_term(columns, start, n, feature, knot, sign, slope, product, tile)
        for i in range(n):
            if tile[i] > 0.0:
                rows[count] = start + i
                value[count] = tile[i]
                count += 1
    return count


class ParentRows:
    """The parents that are open: parent k owns ``start[k]`` to ``start[k + 1]`` of the arrays.

    rows, value : where a parent is positive, and how much
    bins : (features, rows) of a parent, flat, from features · ``start[k]`` on: the bin of x − b, and 256 times that of
        x + b; not there for products
    used : (parents, d) the features that its children may use
    ones : (parents, 2, C) products of the children with 1
    """

    def __init__(self, features: int, candidates: int, has_bins: bool) -> None:
        self._index: dict[Hinges, int] = {}
        self._width = features if has_bins else 0
        self.start = np.zeros(1, np.int64)
        self.rows, self.value, self.bins = np.empty(0, np.uint32), np.empty(0), np.empty(0, np.uint16)
        self.used = np.empty((0, features), np.bool_)
        self.ones = np.empty((0, 2, candidates))

    def index(self, parent: Hinges) -> int:
        """Return the number of a parent."""
        return self._index[parent]

    def add(self, parent: Hinges, columns: Floats, table: TermTable, used: NDArray[np.bool_]) -> int:
        """Find the rows of a new parent, whose bins and products with 1 are to be filled in; return its number."""
        n = columns.shape[1]
        rows, value = np.empty(n, np.uint32), np.empty(n)
        count = _positive_rows(
            columns, table.feature, table.knot, table.sign, table.slope, table.product, rows, value
        )  # fmt: skip
        first, last = int(self.start[-1]), int(self.start[-1]) + count
        if last > self.rows.size:
            self._grow(max(last, int(GROWTH * self.rows.size)))
        self.rows[first:last], self.value[first:last] = rows[:count], value[:count]
        self.start = np.append(self.start, last)
        self.used = np.concatenate([self.used, used[None]])
        self.ones = np.concatenate([self.ones, np.zeros((1, *self.ones.shape[1:]))])
        self._index[parent] = len(self._index)
        return self._index[parent]

    def bins_of(self, k: int) -> NDArray[np.uint16]:
        """Return the bins of a parent, (features, rows)."""
        first, last = self.start[k : k + 2] * self._width
        return self.bins[first:last].reshape(self._width, -1) if self._width else np.empty((0, 0), np.uint16)

    def remove(self, parent: Hinges) -> None:
        """Forget a parent; those behind it move up."""
        gone = self._index.pop(parent)
        first, last, end = (int(self.start[k]) for k in (gone, gone + 1, -1))
        for array, width in ((self.rows, 1), (self.value, 1), (self.bins, self._width)):
            array[first * width : (first + end - last) * width] = array[last * width : end * width]
        self.start = np.delete(self.start, gone + 1)
        self.start[gone + 1 :] -= last - first
        self.used, self.ones = np.delete(self.used, gone, axis=0), np.delete(self.ones, gone, axis=0)
        for other, k in self._index.items():
            self._index[other] = k - (k > gone)

    def _grow(self, size: int) -> None:
        end = int(self.start[-1])
        for name, width in (("rows", 1), ("value", 1), ("bins", self._width)):
            old = getattr(self, name)
            new = np.empty(size * width, old.dtype)
            new[: end * width] = old[: end * width]
            setattr(self, name, new)
