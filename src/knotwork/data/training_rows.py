"""Which rows a model was fitted to, in a few kilobytes: enough to say later whether rows were among them.

Every row gets a 64-bit number from its values, and the fit keeps the smallest 1024 distinct ones. Of other rows, those
whose numbers are as small were in the fit if, and only if, their number was kept. So their share among the rows is
estimated from all of them, in any order, subsets included; up to 1024 training rows it is exact.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.mixing import mix_rows
from knotwork.data.table import TableEncoder

KEPT = 1024
# Rows that are mixed at a time, so that copies of single precision stay small.
CHUNK = 65536


@dataclass(frozen=True)
class TrainingRows:
    """What a fit remembers of its rows.

    count : number of rows; digest : of their numbers in order, as hexadecimal text
    smallest : (≤ 1024,) the smallest distinct numbers, rising, as 64 bits each
    """

    count: int
    digest: str
    smallest: NDArray[np.int64]

    @classmethod
    def of(cls, matrix: Floats, y: Any, encoder: TableEncoder) -> TrainingRows:
        """Take note of encoded rows (N, d) and their responses (N,) or (N, p), classes by their positions."""
        numbers = _numbers(matrix, y, encoder)
        return cls(len(numbers), _digest(numbers), _smallest(numbers).view(np.int64))

    def same(self, matrix: Floats, y: Any, encoder: TableEncoder) -> bool:
        """Whether these are all the training rows, in their order."""
        return len(matrix) == self.count and _digest(_numbers(matrix, y, encoder)) == self.digest

    def share(self, matrix: Floats, y: Any, encoder: TableEncoder) -> float | None:
        """Return the share of rows that were in the fit; None if none of them has a number small enough to tell."""
        numbers = _numbers(matrix, y, encoder)
        kept = self.smallest.view(np.uint64)
        if len(kept) == KEPT:  # larger numbers were not kept
            numbers = numbers[numbers <= kept[-1]]
        return float(np.isin(numbers, kept).mean()) if numbers.size else None


def _smallest(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the smallest distinct numbers, rising; without sorting all of them."""
    count = KEPT
    while count < len(numbers):
        found = np.partition(numbers, count)[:count]
        found.sort()
        found = found[np.concatenate([[True], found[1:] != found[:-1]])]  # np.unique takes twice as long
        if len(found) >= KEPT:
            return found[:KEPT]
        count *= 4  # rows are repeated
    return np.unique(numbers)[:KEPT]


def _digest(numbers: NDArray[np.uint64]) -> str:
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<u8").data).hexdigest()


@cache
def _factors(width: int) -> NDArray[np.uint64]:
    """Return an odd number for each of so many columns."""
    drawn = np.random.default_rng(22).integers(2**63, size=width, dtype=np.uint64)
    return drawn * np.uint64(2) + np.uint64(1)


def _numbers(matrix: Floats, y: Any, encoder: TableEncoder) -> NDArray[np.uint64]:
    """Return a pseudo-random number per row, equal for equal rows.

    Columns of many categories do not count: the fit encodes training rows by other rows' responses.
    """
    stable = [not isinstance(encoder.columns[source], LevelMeans) for source in encoder.source]
    columns = np.flatnonzero(stable)
    responses = np.asarray(y, dtype=np.float64).reshape(len(matrix), -1)
    width = sum(stable) + responses.shape[1]
    factors = _factors(width)
    numbers = np.empty(len(matrix), dtype=np.uint64)
    for start in range(0, len(matrix), CHUNK):
        rows = slice(start, start + CHUNK)
        bits = [np.asarray(part[rows], dtype=np.float64).view(np.uint64) for part in (matrix, responses)]
        mix_rows(bits[0], columns, bits[1], factors, numbers[rows])
    return numbers
