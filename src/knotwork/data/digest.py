"""Whether a source gives the same rows in every reading: sums of bits that do not depend on their order.

A fit adds up numbers of several readings. If a source draws its rows anew, each of these sums is right and the model is
wrong. So every reading sums the bits of each column of numbers, modulo 2**64, times an odd number that follows from the
y and the weight of the row: one multiplication a value. Rows may come in another order and in other parts. Columns of
text are not looked at; y is, whatever it holds.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.data.table import as_frame
from knotwork.errors import DataError

Words = NDArray[np.uint64]

# Odd numbers that spread bits (those of splitmix64), and all 64 bits.
SPREAD, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
ALL = (1 << 64) - 1
# Rows of an array at a time.
BLOCK = 1024


@dataclass(frozen=True)
class Digest:
    """What is kept of the rows of a reading: their number, and a sum for y and for every column of numbers by name."""

    rows: int
    y: int
    columns: dict[str, int]

    def plus(self, other: Digest) -> Digest:
        """Return the digest of these rows and others."""
        both = {name: (value + other.columns.get(name, 0)) & ALL for name, value in self.columns.items()}
        return Digest(self.rows + other.rows, (self.y + other.y) & ALL, other.columns | both)

    def require_same(self, later: Digest) -> None:
        """Refuse a later reading that had other rows; it may have had fewer columns."""
        if self.rows != later.rows:
            what = f"got {self.rows} rows and then {later.rows}"
        elif self.y != later.y:
            what = "y or sample_weight has other values than before"
        else:
            changed = [name for name, value in later.columns.items() if self.columns.get(name, value) != value]
            if not changed:
                return
            what = f"column {changed[0]!r} has other values than before"
        raise DataError(
            f"a source must give the same rows each time it is read, {what}; keep it as it is while a fit runs, and "
            f"leave out what draws or changes rows at random"
        )


def digest(X: Any, y: Any, weight: Any, count: int) -> Digest:
    """Look at so many rows. What cannot be looked at is left out: the task that reads the part will refuse it."""
    own, keys = _keys(y, weight, count)
    frame = as_frame(X)
    if frame is None:
        sums = _array_sums(X, keys)
        return Digest(count, own, {f"x{k}": value for k, value in enumerate(sums)})
    columns = {}
    for column in frame.iter_columns():
        if not (column.dtype.is_numeric() or column.dtype.is_temporal()):
            continue
        bits = _bits(column.to_numpy())
        if bits is not None and len(bits) == count:
            columns[str(column.name)] = int(keys @ bits.astype(np.uint64, copy=False))
    return Digest(count, own, columns)


def _array_sums(X: Any, keys: Words) -> list[int]:
    """Return the sum of every column of an array (N, d); rows are turned into columns while they are in the cache."""
    bits = _bits(X)
    if bits is None or bits.ndim != 2 or len(bits) != len(keys):
        return []
    sums = np.zeros(bits.shape[1], np.uint64)
    for first in range(0, len(bits), BLOCK):
        rows = slice(first, first + BLOCK)
        sums += np.array(bits[rows].T, np.uint64, order="C") @ keys[rows]
    return [int(value) for value in sums.tolist()]


def _keys(y: Any, weight: Any, count: int) -> tuple[int, Words]:
    """Return the sum for y and weights, and an odd number for every row: 1 where y is no number."""
    keys: Words = np.zeros(count, np.uint64)
    labels = 0
    for values in (y, weight):
        if values is None:
            continue
        array = np.asarray(values)
        bits = _bits(array)
        if bits is None:
            labels = (labels + _texts(array)) & ALL
        elif bits.shape[:1] == (count,):
            for column in bits.reshape(count, -1).T:
                keys ^= column
                keys *= SPREAD
                keys ^= keys >> np.uint64(32)
                keys *= MIX
    return (int(keys.sum()) + labels) & ALL, keys | np.uint64(1)


def _texts(values: NDArray[Any]) -> int:
    """Return a sum for labels of any kind; equal ones are looked at once."""
    try:
        counts = Counter(values.ravel().tolist())
    except TypeError:  # lists, say
        return 0
    return sum(count * zlib.crc32(str(label).encode(errors="replace")) for label, count in counts.items()) & ALL


def _bits(values: Any) -> NDArray[Any] | None:
    """Return the bits of numbers, dates and durations as integers of the same shape; None for anything else."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biufmM" or values.dtype.itemsize > 8:
        return None
    return values.view(f"u{values.dtype.itemsize}")
