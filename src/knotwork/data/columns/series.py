"""Reading one column of any frame library, or of an array: numbers with NaN for gaps, or codes of its texts.

NaN, None, pandas' NA and NaT, polars' and Arrow's nulls are all gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats, as_float
from knotwork.data.columns.wording import is_gap_word
from knotwork.errors import DataError, MissingWarning, warn

# How many offending values or rows a message lists.
SHOWN = 5


def floats(values: Any, name: str) -> Floats:
    """Return a series or an array of numbers as float64, (N,), NaN where it has gaps; texts of numbers count."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False)
    try:
        if isinstance(values, np.ndarray):
            return _of_objects(values, name)
        if values.dtype == nw.String:
            return _of_objects(texts(values), name)
        if values.dtype == nw.Boolean:
            return np.asarray(values.cast(nw.Float64).to_numpy(), dtype=np.float64)
        array = values.to_numpy()
        return _of_objects(array, name) if array.dtype == object else np.asarray(array, dtype=np.float64)
    except OverflowError:
        raise DataError(
            f"numbers must be within the range of floats (1.8e308), column {name!r} holds larger integers; "
            f"divide them, or take their logarithm"
        ) from None
    except Warning:  # made an error by whoever filters warnings
        raise
    except Exception:  # each library has its own error for what it cannot convert
        kind = "text" if isinstance(values, np.ndarray) else what_it_holds(values)
        raise DataError(
            f"column {name!r} held numbers in training and now holds {kind}; convert it to numbers first"
        ) from None


def what_it_holds(values: nw.Series[Any]) -> str:
    """Name a column's type in a user's words; one that has none goes by its own name."""
    return "text" if values.dtype == nw.String else str(values.dtype)


def _of_objects(values: NDArray[Any], name: str) -> Floats:
    """Return Python's numbers, or their texts, as float64."""
    import pandas as pd

    gaps = pd.isna(values)
    if any(isinstance(value, str) for value in values):
        return _of_texts(values, name)
    numbers = np.full(len(values), np.nan)
    numbers[~gaps] = np.asarray(values[~gaps], dtype=np.float64)
    return numbers


def _of_texts(values: NDArray[Any], name: str) -> Floats:
    """Return texts of numbers as float64; those that are none are gaps, and said, unless all are."""
    import pandas as pd

    codes, levels = pd.factorize(values)
    found = [np.nan if is_gap_word(level) else as_float(level) for level in levels]
    odd = [level for level, number in zip(levels, found, strict=True) if number is None]
    if odd and len(odd) == len(levels):
        raise ValueError("no numbers")
    if odd:
        warn(
            f"column {name!r} held numbers in training and now has texts that are not numbers ({listing(odd)}); they "
            f"count as missing",
            MissingWarning,
        )
    return np.array([*(np.nan if number is None else number for number in found), np.nan])[codes]


def texts(column: nw.Series[Any]) -> NDArray[Any]:
    """Return the values of a column of texts, categories or Python objects, with None or NaN for gaps: (N,)."""
    if column.dtype == nw.Categorical and column.implementation.is_pyarrow():
        # The nulls of a dictionary get lost otherwise; categories may be whole numbers.
        native = nw.to_native(column)
        decoded = native.cast(native.type.value_type)
        values = np.empty(len(column), dtype=object)
        values[:] = decoded.to_pylist()
        return values
    return np.asarray(column.to_numpy(), dtype=object)


def factorise(values: Any) -> tuple[NDArray[np.intp], list[Any]]:
    """Return each row's code, −1 for a gap, and the different values in order of their codes.

    By hashing: sorting the rows would take several times as long.
    """
    import pandas as pd

    native = values if isinstance(values, np.ndarray) else nw.to_native(values)
    if not isinstance(native, (np.ndarray, pd.Series)):
        native = texts(values)
    codes, distinct = pd.factorize(native)
    return codes, [level if isinstance(level, (str, int, float)) else str(level) for level in distinct.tolist()]


def recognised(levels: list[Any], known: Sequence[Any]) -> list[Any]:
    """Return levels as training had them: a whole number that comes as text, from a file say, is that number.

    >>> recognised(["3", "x", 5], [3, 5])
    [3, 'x', 5]
    """
    exact = set(known)
    if all(level in exact for level in levels):
        return levels
    by_text = {str(level): level for level in known}
    by_text |= {str(level).lower(): level for level in known if isinstance(level, bool)}  # as Arrow writes them
    return [level if level in exact else by_text.get(str(level), level) for level in levels]


def ordered_categories(column: nw.Series[Any]) -> tuple[Any, ...] | None:
    """Return all categories of a column in the order that somebody has given them, None if nobody has."""
    import pandas as pd

    native = nw.to_native(column)
    if isinstance(native, pd.Series):
        kind = native.dtype
        if not isinstance(kind, pd.CategoricalDtype) or not kind.ordered:
            return None
        return tuple(c if isinstance(c, (str, int, float)) else str(c) for c in kind.categories.tolist())
    if column.implementation.is_pyarrow() and getattr(getattr(native, "type", None), "ordered", False):
        return tuple(native.unify_dictionaries().chunk(0).dictionary.to_pylist()) if len(native) else None
    return tuple(column.dtype.categories) if isinstance(column.dtype, nw.Enum) else None


def listing(values: Sequence[str]) -> str:
    """Name the first few of some values.

    >>> listing([str(k) for k in range(7)])
    "'0', '1', '2', '3', '4' and 2 more"
    """
    shown = ", ".join(repr(v) for v in values[:SHOWN])
    return shown if len(values) <= SHOWN else f"{shown} and {len(values) - SHOWN} more"
