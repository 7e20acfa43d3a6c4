"""Columns of terms, weighted: every new parent meets all terms so far, so they are kept while there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.model import Floats
from knotwork.spline.moments.evaluate import evaluate_term
from knotwork.spline.moments.moments import Hinges, TermTable

# Memory for columns, and for how many there is room at first.
MOST_BYTES, FIRST_COLUMNS = 64 * 2**20, 48


class TermValues:
    """Values of terms, times the weights if there are any: rows of ``values``."""

    def __init__(self, columns: Floats, weights: Floats, slopes: Floats, product: bool) -> None:
        self._columns, self._weights, self._slopes, self._product = columns, weights, slopes, product
        n = columns.shape[1]
        self._most = max(2, MOST_BYTES // (8 * n))
        self.values = np.empty((min(FIRST_COLUMNS, self._most), n))
        self._rows: dict[Hinges, int] = {}

    def batches(self, terms: Sequence[Hinges]) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Go through terms in parts that fit: which of the terms, and the rows of ``values`` where they are then."""
        for start in range(0, len(terms), self._most):
            part = slice(start, start + self._most)
            yield part, np.array(self._find(terms[part]), np.int64)

    def _find(self, terms: Sequence[Hinges]) -> list[int]:
        missing = [term for term in dict.fromkeys(terms) if term not in self._rows]
        if len(self._rows) + len(missing) > self._most:
            self._rows.clear()
            missing = list(dict.fromkeys(terms))
        needed = len(self._rows) + len(missing)
        if needed > len(self.values):
            grown = np.empty((min(2 * needed, self._most), self.values.shape[1]))
            grown[: len(self.values)] = self.values
            self.values = grown
        for term in missing:
            row = self._rows[term] = len(self._rows)
            self._evaluate(term, self.values[row])
        return [self._rows[term] for term in terms]

    def _evaluate(self, term: Hinges, out: Floats) -> None:
        table = TermTable.of([term], self._slopes, self._product)
        evaluate_term(
            self._columns, 0, out.size, table.feature, table.knot, table.sign, table.slope, table.product, out
        )  # fmt: skip
        if self._weights.size > 0:
            out *= self._weights
