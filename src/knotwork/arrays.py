"""The arrays that everything here computes with, and how values become one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.errors import DataError, KnotworkError, one_line

Floats = NDArray[np.float64]
# Rows of a table that are processed at a time: their values stay in the processor's cache.
CHUNK = 4096
# Texts that every program takes for numbers. Python's float() also takes 1_771 and digits of other scripts.
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)


class FrozenArrays:
    """Base of records whose arrays nobody can write to: copies and pickles of arrays can be written to otherwise."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        self.__dict__.update(state)


def as_float(value: Any) -> float | None:
    """Return a number, or the text of one, as a float; None if it is none.

    >>> as_float(" -1.5e3 "), as_float("1_771"), as_float("１"), as_float("x")
    (-1500.0, None, None, None)
    """
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def require_number_texts(values: Any) -> None:
    """Refuse texts that numpy would take for numbers and nobody else: those that :func:`as_float` refuses."""
    if hasattr(values, "detach") or getattr(getattr(values, "dtype", None), "kind", "O") not in "OUT":
        return
    for value in np.asarray(values).ravel():
        if isinstance(value, str) and as_float(value) is None:
            raise ValueError(f"could not convert string to float: {value[:100]!r}")


def read_numbers(values: Any, what: str, error: type[KnotworkError] = DataError) -> Floats:
    """Return values (an array, a frame of numbers, a tensor, lists) as a float64 array; one that is such stays itself.

    >>> read_numbers([[1, 2], [3, 4]], "X").shape
    (2, 2)
    """
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    try:
        if np.ma.is_masked(values):
            raise ValueError("some are masked")
        plain = np.asarray(values.detach().cpu().double() if hasattr(values, "detach") else values)
        if plain.dtype.kind in "cMm":
            raise TypeError(f"got {plain.dtype}")
        require_number_texts(plain)
        return plain.astype(np.float64, copy=False)
    except OverflowError:
        raise error(
            f"{what} must hold numbers within the range of floats (1.8e308), got larger integers; divide them, or take "
            f"their logarithm"
        ) from None
    except Exception as problem:  # objects that turn themselves into arrays may raise anything
        raise error(f"{what} must hold numbers: {one_line(problem)}") from None


def read_array(values: Any, what: str, error: type[KnotworkError] = DataError) -> NDArray[Any]:
    """Return values (numbers or labels: an array, a tensor, lists) as an array of what they hold.

    >>> read_array(["a", "b"], "y").dtype.kind
    'U'
    """
    if np.ma.is_masked(values):
        raise error(f"{what} must have no masked values, which would be taken for numbers; leave those rows out")
    try:
        array = values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    except Exception as problem:  # objects that turn themselves into arrays may raise anything
        raise error(f"{what} must hold numbers or labels: {one_line(problem)}") from None
    if array.dtype.kind not in "biufUSO":
        raise error(f"{what} must hold numbers or labels, got {array.dtype}; convert it first")
    return array
