"""Columns of a span, weighted: every new parent meets all of them, so they are kept while there is room."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.moments.evaluate import evaluate_term
from knotwork.spline.moments.moments import TermTable

# Memory for columns: a share of that for the features, but at least MIN_BYTES and at most MAX_BYTES. For how many there
# is room at first.
SHARE, MIN_BYTES, MAX_BYTES, FIRST_COLUMNS = 0.25, 20 * 2**20, 64 * 2**20, 48


class SpanTerms:
    """The columns of a span, and what is summed in the place of some of them.

    A feature itself is nowhere zero, and to sum over every row is slow, so a hinge stands in for it:
    x = t − (t − x)₊ + (x − t)₊ where (x − t)₊ is the next column, else x = t + (x − t)₊ with t its minimum.
    The intercept, the first column, has no values: its products are known.

    terms : what is summed for each column; minimum : of a feature
    joined, shift : columns that another one stands in for: (column, factor, partner or -1), and the factor of the
        product with 1; the product is factor · (the sum) + that of the partner, the next column + shift · (that of 1)
    """

    def __init__(self, minimum: Callable[[int], float]) -> None:
        self._minimum = minimum
        self.terms: list[TermTable] = []
        self.joined: list[tuple[int, int, int]] = []
        self.shift: list[float] = []

    def __len__(self) -> int:
        return len(self.terms)

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
                    knot, sign = np.array([self._minimum(features[a])]), np.ones(1, np.int64)
                    self._join(1, -1, float(knot[0]))
            self.terms.append(TermTable(np.array([0, b - a]), feature, knot, sign, terms.slope[a:b], terms.product))

    def _join(self, factor: int, partner: int, shift: float) -> None:
        self.joined.append((len(self), factor, partner))
        self.shift.append(shift)

    def join(self, sums: Floats, ones: Floats, first: int) -> None:
        """Turn sums of columns from number ``first`` on, (slots, columns, 2, C), into products, in place.

        ones : (slots, 2, C) products with 1
        """
        for (m, factor, partner), shift in zip(self.joined, self.shift, strict=True):
            if m >= first:
                own = sums[:, m - first]
                own *= factor
                own += shift * ones
                if partner >= 0:
                    own += sums[:, partner - first]


class SpanValues:
    """Values of what is summed for the columns of a span, times the weights if there are any: rows of ``values``."""

    def __init__(self, columns: Floats, weights: Floats, span: SpanTerms) -> None:
        self._columns, self._weights, self._span = columns, weights, span
        n = columns.shape[1]
        self._max = max(4, int(min(MAX_BYTES, max(MIN_BYTES, SHARE * columns.nbytes))) // (8 * max(n, 1)))
        self.values = np.empty((min(FIRST_COLUMNS, self._max), n))
        self._kept = 0

    def batches(self, first: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Go through the columns from a number on, in parts that fit: the number of the first, and their rows then.

        The row of the intercept is -1.
        """
        count = len(self._span)
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

    def _evaluate(self, first: int, last: int, row: int) -> None:
        """Write the values of columns into rows of ``values``, from number ``row`` on."""
        if row + last - first > len(self.values):
            grown = np.empty((min(2 * (row + last - first), self._max), self.values.shape[1]))
            grown[:row] = self.values[:row]
            self.values = grown
        for column in range(first, last):
            out = self.values[row + column - first]
            evaluate_term(self._columns, self._span.terms[column], 0, out)
            if self._weights.size > 0:
                out *= self._weights
