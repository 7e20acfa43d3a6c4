"""Columns of a span, weighted: every new parent meets all of them, so they are kept while there is room."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.moments.evaluate import evaluate_term
from knotwork.spline.moments.moments import TermTable

# Memory for columns: a share of that for the features, but at least MIN_BYTES and at most MAX_BYTES. For how many there
# is room at first.
SHARE, MIN_BYTES, MAX_BYTES, FIRST_COLUMNS = 0.25, 20 * 2**20, 64 * 2**20, 48


class SpanValues:
    """Values of the columns of a span, times the weights if there are any: rows of ``values``.

    A feature itself is nowhere zero, and to sum over every row is slow, so a hinge stands in for it:
    x = t − (t − x)₊ + (x − t)₊ where (x − t)₊ is the next column, else x = t + (x − t)₊ with t its minimum.
    The intercept, the first column, has no values: its products are known.

    joined, shift : columns that another one stands in for: (column, factor, partner or -1), and the factor of the
        product with 1; the product is factor · (the sum) + that of the partner, the next column + shift · (that of 1)
    """

    def __init__(self, columns: Floats, weights: Floats) -> None:
        self._columns, self._weights = columns, weights
        n = columns.shape[1]
        self._max = max(4, int(min(MAX_BYTES, max(MIN_BYTES, SHARE * columns.nbytes))) // (8 * n))
        self.values = np.empty((min(FIRST_COLUMNS, self._max), n))
        self._terms: list[TermTable] = []
        self._kept = 0
        self.joined: list[tuple[int, int, int]] = []
        self.shift: list[float] = []

    def __len__(self) -> int:
        return len(self._terms)

    def add(self, terms: TermTable) -> None:
        """Add columns to the span."""
        start, signs, features = terms.start.tolist(), terms.sign.tolist(), terms.feature.tolist()
        for m, (a, b) in enumerate(itertools.pairwise(start)):
            feature, knot, sign = terms.feature[a:b], terms.knot[a:b], terms.sign[a:b]
            if a == b:
                self._join(0, -1, 1.0)
            elif signs[a] == 0:
                if start[m + 2 : m + 3] == [b + 1] and features[b] == features[a] and signs[b] == 1:
                    knot, sign = terms.knot[b : b + 1], -terms.sign[b : b + 1]
                    self._join(-1, len(self) + 1, float(knot[0]))
                else:
                    knot, sign = self._columns[features[a]].min(keepdims=True), np.ones(1, np.int64)
                    self._join(1, -1, float(knot[0]))
            self._terms.append(TermTable(np.array([0, b - a]), feature, knot, sign, terms.slope[a:b], terms.product))

    def batches(self, first: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Go through the columns from a number on, in parts that fit: the number of the first, and their rows then.

        The row of the intercept is -1.
        """
        count = len(self)
        if count <= self._max:
            self._evaluate(self._kept, count, self._kept)
            self._kept = count
            rows = np.arange(first, count)
            rows[:1] -= first == 0
            yield first, rows
            return
        for start in range(first, count, self._max):
            stop = min(start + self._max, count)
            self._evaluate(start, stop, 0)
            rows = np.arange(stop - start)
            rows[:1] -= start == 0
            yield start, rows

    def _join(self, factor: int, partner: int, shift: float) -> None:
        self.joined.append((len(self), factor, partner))
        self.shift.append(shift)

    def _evaluate(self, first: int, last: int, row: int) -> None:
        """Write the values of columns into rows of ``values``, from number ``row`` on."""
        if row + last - first > len(self.values):
            grown = np.empty((min(2 * (row + last - first), self._max), self.values.shape[1]))
            grown[:row] = self.values[:row]
            self.values = grown
        for column in range(first, last):
            out = self.values[row + column - first]
            evaluate_term(self._columns, self._terms[column], 0, out)
            if self._weights.size > 0:
                out *= self._weights
