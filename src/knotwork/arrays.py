"""The arrays that everything here computes with, and how values become one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.errors import DataError, KnotworkError, one_line

Floats = NDArray[np.float64]
# Rows of a table that are processed at a time: their values stay in the processor's cache.
CHUNK = 4096


class FrozenArrays:
    """Base of records whose arrays nobody can write to: copies and pickles of arrays can be written to otherwise."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        self.__dict__.update(state)


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
