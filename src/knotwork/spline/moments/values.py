"""Columns of a span, weighted: every new parent meets all of them, so they are kept while there is room."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.model import Floats
from knotwork.spline.moments.evaluate import evaluate_term
from knotwork.spline.moments.moments import TermTable

# Memory for columns, and for how many there is room at first.
MOST_BYTES, FIRST_COLUMNS = 64 * 2**20, 48


class SpanValues:
    """Values of the columns of a span, times the weights if there are any: rows of ``values``.

    A feature itself is nowhere zero, and to sum over every row is slow, so a hinge stands in for it:
    x = t − (t − x)₊ + (x − t)₊ where (x − t)₊ is the next column, else x = t + (x − t)₊ with t its least value.

    joined, shift : columns that are not what they seem: (column, factor, next or -1) and what the products with 1 are
        taken by; the product is factor · (what was summed) + that of the next column + shift · (that of 1)
    """

    def __init__(self, columns: Floats, weights: Floats) -> None:
        self._columns, self._weights = columns, weights
        n = columns.shape[1]
        self._most = max(2, MOST_BYTES // (8 * n))
        self.values = np.empty((min(FIRST_COLUMNS, self._most), n))
        self._terms: list[tuple[NDArray[np.int64], Floats, NDArray[np.int64], Floats, bool]] = []
        self._held: dict[int, int] = {}  # the column that a row has now
        self.joined: list[tuple[int, int, int]] = []
        self.shift: list[float] = []

    def __len__(self) -> int:
        return len(self._terms)

    def add(self, terms: TermTable) -> None:
        """Add columns to the span."""
        for m, (a, b) in enumerate(zip(terms.start[:-1].tolist(), terms.start[1:].tolist(), strict=True)):
            feature, knot, sign = terms.feature[a:b], terms.knot[a:b], terms.sign[a:b]
            if a == b:
                self._join(0, -1, 1.0)
            elif sign[0] == 0:
                has_next = terms.start[m + 2 :].size > 0 and terms.start[m + 2] == b + 1
                if has_next and terms.feature[b] == feature[0] and terms.sign[b] == 1:
                    knot, sign = terms.knot[b : b + 1], -terms.sign[b : b + 1]
                    self._join(-1, len(self) + 1, float(knot[0]))
                else:
                    knot, sign = self._columns[feature[0]].min(keepdims=True), np.ones(1, np.int64)
                    self._join(1, -1, float(knot[0]))
            self._terms.append((feature, knot, sign, terms.slope[a:b], terms.product))

    def batches(self, first: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Go through the columns from a number on, in parts that fit: the number of the first, and their rows then.

        The intercept has no row, -1; its products are there already.
        """
        for start in range(first, len(self), self._most):
            stop = min(start + self._most, len(self))
            yield start, np.array([self._hold(column) for column in range(start, stop)], np.int64)

    def _join(self, factor: int, beside: int, shift: float) -> None:
        self.joined.append((len(self), factor, beside))
        self.shift.append(shift)

    def _hold(self, column: int) -> int:
        """Return the row of ``values`` that a column is in, after it has been put there."""
        term, row = self._terms[column], column % self._most
        if len(term[0]) == 0:
            return -1
        if self._held.get(row) == column:
            return row
        if row >= len(self.values):
            grown = np.empty((min(2 * row, self._most), self.values.shape[1]))
            grown[:row] = self.values
            self.values = grown
        out = self.values[row]
        evaluate_term(self._columns, 0, out.size, *term, out)
        if self._weights.size > 0:
            out *= self._weights
        self._held[row] = column
        return row
