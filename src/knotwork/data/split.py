"""Splitting rows by what they hold, so that copies of a row never land on both sides.

Every distinct row of features gets a number from its values and the seed; the rows with the smallest numbers are held
out. A split by position would put copies of training rows among the validation rows and make a network that memorises
rows look too good. This split does not depend on the order of the rows, or on whether a row is repeated or has a
weight.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.errors import NetworkError


def row_numbers(X: Floats, seed: int) -> NDArray[np.uint64]:
    """Return a pseudo-random number per row, equal for equal rows: (N, d) → (N,)."""
    return mixed_columns(X.T, seed, rows=len(X))


def mixed_columns(
    columns: Iterable[Floats], seed: int, before: NDArray[np.uint64] | None = None, rows: int = 0
) -> NDArray[np.uint64]:
    """Mix columns of numbers, (N,) each, into a pseudo-random number per row, on top of those ``before``."""
    from pandas.util import hash_array

    mixed = np.full(rows, _first(seed), dtype=np.uint64) if before is None else before
    for column in columns:
        # Adding zero makes −0.0 the same value as 0.0.
        mixed = mix(mixed, hash_array(np.ascontiguousarray(column) + 0.0))
    return mixed


def _first(seed: int) -> int:
    return (seed * 0x9E3779B97F4A7C15 + 1) % 2**64


def mix(mixed: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix one more number into those of the rows."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is the point
        mixed = (mixed ^ numbers) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(31))


def held_out(X: Floats, share: float, seed: int) -> NDArray[np.bool_]:
    """Mark about this share of the distinct rows, at least one and never all; none if all rows are the same.

    >>> X = np.array([[1.0], [2.0], [3.0], [1.0], [4.0]])
    >>> out = held_out(X, 0.3, seed=0)
    >>> bool(out[0] == out[3]), bool(1 <= out.sum() <= 3)
    (True, True)
    """
    if not 0 < share < 1:
        raise NetworkError(f"a share of the rows must lie between 0 and 1, got {share}")
    numbers = row_numbers(X, seed)
    distinct = np.unique(numbers)
    if distinct.size == 1:
        return np.zeros(len(X), dtype=bool)
    count = min(max(1, round(share * distinct.size)), distinct.size - 1)
    return numbers < distinct[count]
