"""Splitting rows by what they hold, so that copies of a row never land on both sides.

Every distinct row of features gets a number from its values and the seed; the rows with the smallest numbers are held
out. A split by position would put copies of training rows among the validation rows and make a network that memorises
rows look too good. This split does not depend on the order of the rows, or on whether a row is repeated or has a
weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import CHUNK, Floats
from knotwork.errors import NetworkError


def row_numbers(X: NDArray[np.floating], seed: int) -> NDArray[np.uint64]:
    """Return a pseudo-random number per row, equal for equal rows: (N, d) → (N,)."""
    numbers = np.empty(len(X), dtype=np.uint64)
    for start in range(0, len(X), CHUNK):
        part = X[start : start + CHUNK]  # stays in the cache while it is turned into columns
        numbers[start : start + CHUNK] = mixed_columns(part.T, seed, rows=len(part))
    return numbers


def mixed_columns(
    columns: Iterable[NDArray[np.floating]], seed: int, before: NDArray[np.uint64] | None = None, rows: int = 0
) -> NDArray[np.uint64]:
    """Mix columns of numbers, (N,) each, into a pseudo-random number per row, on top of those ``before``."""
    from pandas.util import hash_array

    from knotwork.data.mixing import mix_in

    mixed = np.full(rows, _first(seed), dtype=np.uint64) if before is None else before.copy()
    # −0.0 is the same value as 0.0
    if isinstance(columns, np.ndarray) and columns.dtype == np.float64:
        mix_in(np.add(columns, 0.0, order="C").view(np.uint64), mixed)
        return mixed
    for column in columns:
        values = np.ascontiguousarray(column) + 0.0
        if values.dtype == np.float64:
            mix_in(values[None].view(np.uint64), mixed)
        else:
            mixed = mix(mixed, hash_array(values))
    return mixed


def _first(seed: int) -> int:
    return (seed * 0x9E3779B97F4A7C15 + 1) % 2**64


def mix(mixed: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix one more number into those of the rows."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is the point
        mixed = (mixed ^ numbers) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(31))


def held_out(X: NDArray[np.floating], share: float, seed: int) -> NDArray[np.bool_]:
    """Mark about this share of the distinct rows, at least one and never all; none if all rows are the same.

    >>> X = np.array([[1.0], [2.0], [3.0], [1.0], [4.0]])
    >>> out = held_out(X, 0.3, seed=0)
    >>> bool(out[0] == out[3]), bool(1 <= out.sum() <= 3)
    (True, True)
    """
    numbers = row_numbers(X, seed)
    return numbers < bound_of(numbers, share)


def bound_of(numbers: NDArray[np.uint64], share: float) -> np.uint64:
    """Return the number of a row below which about this share of the distinct rows lies."""
    if not 0 < share < 1:
        raise NetworkError(f"a share of the rows must lie between 0 and 1, got {share}")
    distinct = np.unique(numbers)
    if distinct.size == 1:
        return np.uint64(0)
    found: np.uint64 = distinct[min(max(1, round(share * distinct.size)), distinct.size - 1)]
    return found


@dataclass(frozen=True)
class HeldRows:
    """Rows that are held out of a larger table, known by what they hold; numbers : theirs, rising."""

    numbers: NDArray[np.uint64]
    seed: int

    @classmethod
    def of(cls, X: NDArray[np.floating], seed: int) -> HeldRows:
        """Remember rows (N, d)."""
        return cls(np.unique(row_numbers(X, seed)), seed)

    def among(self, X: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Mark the rows that are held out, or copies of them: (N, d) → (N,).

        >>> X = np.array([[1.0], [2.0], [3.0], [1.0]])
        >>> HeldRows.of(X[:1], seed=0).among(X).tolist()
        [True, False, False, True]
        """
        if not len(self.numbers):
            return np.zeros(len(X), dtype=bool)
        own = row_numbers(X, self.seed)
        place = np.minimum(np.searchsorted(self.numbers, own), len(self.numbers) - 1)
        return np.asarray(self.numbers[place] == own)


def folds_of(
    X: Floats, count: int, seed: int, classes: NDArray[np.intp] | None = None, *, every_class: bool = True
) -> NDArray[np.intp]:
    """Return the fold of each row, 0 to count − 1: (N, d) → (N,); copies of a row are in one fold.

    Folds are of one size, or nearly, in distinct rows, and so are the classes in each of them, if there are any. There
    are fewer folds than asked for where there are fewer distinct rows, or fewer of some class: then each fold lacks
    some of them, and no training rows lack all.

    classes : (N,) codes; a row that occurs in several classes counts as one of the rarest
    every_class : False makes as many folds as asked for where a class has fewer rows, too: some then hold out none

    >>> X = np.array([[1.0], [2.0], [3.0], [1.0], [4.0]])
    >>> folds = folds_of(X, 2, seed=0)
    >>> bool(folds[0] == folds[3]), np.bincount(folds[[0, 1, 2, 4]]).tolist()
    (True, [2, 2])
    """
    _, first, place = np.unique(row_numbers(X, seed), return_index=True, return_inverse=True)
    if classes is None:
        kinds = np.zeros(len(first), dtype=np.intp)
    else:
        rarity = np.argsort(np.argsort(np.bincount(classes), kind="stable"), kind="stable")
        kinds = np.full(len(first), len(rarity), dtype=np.intp)
        np.minimum.at(kinds, place, rarity[classes])
    # Dealt out like cards, class by class; within a class the numbers of the rows are their order.
    order = np.argsort(kinds, kind="stable")
    rarest = int(np.unique(kinds, return_counts=True)[1].min())
    dealt = np.empty(len(order), dtype=np.intp)
    dealt[order] = np.arange(len(order)) % max(1, min(count, rarest) if every_class else count)
    return dealt[place]


def occurrences(place: NDArray[np.intp], y: NDArray[Any]) -> Floats:
    """Count, for each row, those before it that have the same place and response: (N,), (N, p) → (N,).

    Which of two equal rows comes first does not matter: they are equal. So rows can be told apart, as a set, whatever
    their order.

    >>> occurrences(np.array([0, 1, 0, 0]), np.array([[5.0], [5.0], [5.0], [6.0]])).tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    order = np.lexsort((*y.T, place))
    same = (np.diff(place[order]) == 0) & (np.diff(y[order], axis=0) == 0).all(axis=1)
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    times = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    out = np.empty(len(order), dtype=np.float64)
    out[order] = times
    return out
