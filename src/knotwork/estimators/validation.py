"""Validation rows chosen by a splitter of scikit-learn, or by hand: groups stay together, time stays in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knotwork.errors import DataError, KnotworkError, one_line

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class ValidationSplit:
    """The rows of a table to train on and to validate on, by number; rows in neither are left out."""

    training: Rows
    validation: Rows

    def within(self, kept: Rows, rows: int) -> ValidationSplit:
        """Return the split of some rows of the table: their numbers among the rows kept, those of others left out."""
        place = np.full(rows, -1, dtype=np.intp)
        place[kept] = np.arange(len(kept))
        return ValidationSplit(*(side[side >= 0] for side in (place[self.training], place[self.validation])))


def choose_split(validation: Any, X: Any, y: Any, groups: ArrayLike | None, rows: int) -> ValidationSplit:
    """Split a table by the last split of a splitter: that of ``TimeSeriesSplit`` with the latest rows.

    Parameters
    ----------
    validation : a splitter of scikit-learn, or an iterable of (training, validation) pairs of row numbers or masks
    X, y, groups : what the splitter is asked with, as the user passed them; rows : their number

    Examples
    --------
    >>> from sklearn.model_selection import TimeSeriesSplit
    >>> split = choose_split(TimeSeriesSplit(2), np.zeros((6, 1)), np.zeros(6), None, 6)
    >>> split.training.tolist(), split.validation.tolist()
    ([0, 1, 2, 3], [4, 5])
    """
    last = None
    for pair in _pairs("validation", validation, X, y, groups, rows):
        last = pair
    return _read_pair("validation", last, rows, type(validation).__name__)


def all_splits(cv: Any, X: Any, y: Any, groups: ArrayLike | None, rows: int) -> list[ValidationSplit]:
    """Split a table in all the ways that a splitter does; what it takes is what :func:`choose_split` does."""
    return [_read_pair("cv", pair, rows, type(cv).__name__) for pair in _pairs("cv", cv, X, y, groups, rows)]


def _pairs(what: str, splitter: Any, X: Any, y: Any, groups: ArrayLike | None, rows: int) -> Iterator[Any]:
    """Yield what a splitter gives, at least one; ``what`` is the parameter."""
    name = type(splitter).__name__
    if groups is not None:
        groups = _read_groups(groups, rows)
    count = 0
    try:
        pairs: Iterable[Any] = splitter.split(X, y, groups) if _is_splitter(splitter) else splitter
        for pair in pairs:
            yield pair
            count += 1
    except KnotworkError:
        raise
    except Exception as error:  # splitters of other people may raise anything
        said = one_line(error).rstrip(".")
        remedy = "; pass them: fit(X, y, groups=…)" if groups is None and "group" in said else ""
        raise DataError(f"{what}={name} must split the rows, it refused them: {said}{remedy}") from None
    if not count:
        raise DataError(
            f"{what} must give at least one split, {name} gave none; pass a splitter or [(training, validation)]"
        )


def _read_pair(what: str, pair: Any, rows: int, name: str) -> ValidationSplit:
    try:
        training, validation_rows = pair
    except (TypeError, ValueError):
        raise _no_pair(what, name) from None
    split = ValidationSplit(_read_rows(training, rows, what, name), _read_rows(validation_rows, rows, what, name))
    both = np.intersect1d(split.training, split.validation)
    if both.size:
        raise DataError(
            f"a row is trained on or validated on, {what}={name} has {both.size} of {rows} rows on both sides, "
            f"first {both[0]}; leave them out of one"
        )
    return split


def _is_splitter(validation: Any) -> bool:
    return hasattr(validation, "split") and not isinstance(validation, (str, bytes, np.ndarray))


def _no_pair(what: str, name: str) -> DataError:
    other = "leave it out and set validation_fraction" if what == "validation" else "a number of folds"
    return DataError(
        f"{what} must be a splitter of scikit-learn or an iterable of (training, validation) pairs of row numbers, "
        f"got {name}; pass KFold(5, shuffle=True), one pair in a list, [(training, validation)], or {other}"
    )


def _read_groups(groups: ArrayLike, rows: int) -> NDArray[Any]:
    try:
        labels = np.asarray(groups)
    except Exception as error:  # objects that turn themselves into arrays may raise anything
        raise DataError(f"groups must be a label for each row, they cannot be read: {one_line(error)}") from None
    if labels.shape != (rows,):
        raise DataError(f"groups must be a label for each of {rows} rows, got an array of shape {labels.shape}")
    return labels


def _read_rows(side: Any, rows: int, what: str, name: str) -> Rows:
    """Read the numbers of rows, or a mask."""
    try:
        numbers = np.asarray(side)
    except Exception:  # likewise
        raise _no_pair(what, name) from None
    if numbers.shape == (0,):
        return np.zeros(0, dtype=np.intp)
    if numbers.dtype == bool and numbers.shape == (rows,):
        return np.flatnonzero(numbers)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise _no_pair(what, name)
    if numbers.min() < 0 or numbers.max() >= rows:
        wrong = numbers.min() if numbers.min() < 0 else numbers.max()
        raise DataError(
            f"rows are numbered from 0 to {rows - 1}, {what}={name} has row {wrong}; number them by their place in "
            f"the table"
        )
    return numbers.astype(np.intp)
