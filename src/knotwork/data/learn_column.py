"""Learning what one column of a frame is: numbers, a few categories, many, categories in an order, or nothing."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats, as_float
from knotwork.data.columns.instants import Moments, moments, parsed_dates, zoned_dates
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number, write_numbers
from knotwork.data.columns.ordered import Ordered
from knotwork.data.columns.series import factorise, floats, listing, ordered_categories, texts
from knotwork.data.columns.wording import LEADING_ZERO, is_gap_word, meant_otherwise
from knotwork.data.learn_time import learn_date, learn_duration
from knotwork.data.learned import Learned, ManyLevels, fill_of, left_out
from knotwork.data.table import gaps_refused
from knotwork.errors import ColumnWarning, DataError, warn

# Categories that get an indicator each; more become numbers learned from the response.
MAX_LEVELS = 30
# A category is rare if it has fewer rows than this, and than this share of all rows.
RARE_ROWS, RARE_SHARE = 20, 0.005
# Share of different texts from which on a column is a name of its rows, not a property.
NAMES = 0.95


def learn_column(column: nw.Series[Any], weights: Floats | None, missing: str) -> Learned | ManyLevels:
    """Learn one column of a frame; refuse by name what no features can be made of."""
    name, kind = str(column.name), kind_of(column)
    if kind == "number":
        return learn_number(name, floats(column, name), weights, missing)
    if missing == "error" and column.null_count():
        raise gaps_refused(name, column.null_count())
    if kind == "date":
        return learn_date(name, moments(column, name), weights, missing)
    if kind == "length":
        return learn_duration(name, column, weights, missing)
    return _learn_categories(name, column, weights, missing)


def kind_of(column: nw.Series[Any]) -> str:
    """Say what a column holds: "number", "date", "length" (of time) or "category"."""
    dtype = column.dtype
    if is_numeric(dtype):
        return "number"
    if dtype == nw.Object or str(getattr(nw.to_native(column), "dtype", "")) == "object":  # texts in the first rows
        return _object_kind(column)
    if dtype == nw.Date or isinstance(dtype, nw.Datetime) or zoned_dates(column) is not None:
        return "date"
    if dtype == nw.Time or isinstance(dtype, nw.Duration):
        return "length"
    if dtype in (nw.String, nw.Categorical) or isinstance(dtype, nw.Enum):
        return "category"
    raise DataError(
        f"columns must hold numbers, booleans, text, categories, dates or durations, column {column.name!r} holds "
        f"{dtype}; turn it into one of these, or leave it out"
    )


def is_numeric(dtype: nw.dtypes.DType) -> bool:
    """Whether a column holds numbers or booleans."""
    return dtype.is_numeric() or dtype == nw.Boolean


def learn_number(name: str, numbers: Floats, weights: Floats | None, missing: str) -> Learned:
    """Learn a column of numbers, (N,) with NaN for gaps; rows of weight 0 teach nothing."""
    if missing == "error":
        return Learned(Number(name), lambda out: write_numbers(numbers, None, False, out))
    fill, indicator = fill_of(numbers, weights)
    if fill is None and indicator:
        return left_out(name, "has no values")
    if fill is None:  # where the fit does not look, any number will do
        return Learned(Number(name), lambda out: write_numbers(numbers, 0.0, False, out))
    return Learned(Number(name, fill, indicator=True), lambda out: write_numbers(numbers, fill, True, out))


# What pandas calls the kinds of Python objects.
_KINDS = {
    "category": ("string", "empty"),
    "number": ("integer", "floating", "mixed-integer-float", "boolean", "decimal"),
    "date": ("date", "datetime", "datetime64"),
    "length": ("time", "timedelta", "timedelta64"),
}


def _object_kind(column: nw.Series[Any]) -> str:
    """Say what Python objects are; refuse mixtures."""
    from pandas.api.types import infer_dtype

    inferred = infer_dtype(texts(column), skipna=True)
    for kind, names in _KINDS.items():
        if inferred in names:
            return kind
    present = column.drop_nulls().to_list()
    if all(isinstance(v, (bool, int, float, np.number, np.bool_)) for v in present):
        return "number"
    kinds = sorted({type(v).__name__ for v in present})
    found = f"mixes {' and '.join(kinds)}" if len(kinds) > 1 else f"holds {kinds[0]}"
    raise DataError(
        f"a column must hold values of one kind, column {column.name!r} {found}; "
        f"convert it to text (astype(str)) or to numbers (pandas.to_numeric) first"
    )


def _learn_categories(name: str, column: nw.Series[Any], weights: Floats | None, missing: str) -> Learned | ManyLevels:
    codes, levels = factorise(column)
    kinds = sorted({type(level).__name__ for level in levels if not isinstance(level, str)})
    if kinds and any(isinstance(level, str) for level in levels):
        raise DataError(
            f"categories must be texts or numbers, those of column {name!r} mix str and {' and '.join(kinds)}; convert "
            f"them with astype(str)"
        )
    text = column.dtype == nw.String or column.dtype == nw.Object
    rows = np.count_nonzero(codes >= 0)
    return learn_levels(
        name, codes, levels, weights, missing, order=ordered_categories(column), text=text, rows=int(rows)
    )


def learn_levels(
    name: str,
    codes: NDArray[np.intp],
    levels: list[Any],
    weights: Floats | None,
    missing: str,
    *,
    order: tuple[Any, ...] | None,
    text: bool,
    rows: int,
) -> Learned | ManyLevels:
    """Learn texts or categories from their codes (N,), −1 for a gap, or from each level once with its count as weight.

    order : all categories, if somebody has given them an order; text : whether they are texts, of dates or numbers say
    rows : how many have a value
    """
    counts = np.bincount(codes + 1, weights, minlength=len(levels) + 1).astype(np.float64)
    gaps, counts = counts[0], counts[1:]
    if not counts.any():
        return left_out(name, "has no values")
    if order is not None:
        return _learn_order(name, order, codes, levels, weights, missing)
    read = _read_texts(name, codes, levels, weights, missing) if text else None
    if read is not None:
        return read
    present = np.flatnonzero(counts)
    meant = meant_otherwise(levels) if text and len(levels) > MAX_LEVELS else None
    if meant is not None:
        warn(f"column {name!r} is text and taken for categories, though {meant}", ColumnWarning)
    if len(levels) > MAX_LEVELS and len(levels) >= NAMES * rows:
        return left_out(name, f"has {len(levels)} different values in {rows} rows, which say nothing about a new row")
    if len(present) > MAX_LEVELS:
        return ManyLevels(name, codes, levels)
    rare = min(RARE_ROWS, RARE_SHARE * (counts.sum() + gaps))
    kept, pooled = (sorted(levels[k] for k in present if (counts[k] < rare) == small) for small in (False, True))
    if len(pooled) < 2:  # a pool of one is that one
        kept, pooled = sorted([*kept, *pooled]), []
    how = Levels(name, tuple(kept), tuple(pooled), gaps=bool(gaps))
    return Learned(how, lambda out: how.write_codes(codes, levels, out))


def _read_texts(
    name: str, codes: NDArray[np.intp], levels: list[Any], weights: Floats | None, missing: str
) -> Learned | None:
    """Learn texts that all are dates or numbers, but for words for no value, as what they are; None if they are not."""
    words = [level for level in levels if is_gap_word(level)]
    meant = [level for level in levels if not is_gap_word(level)]
    dates = parsed_dates(meant)
    numbers = None if dates is not None else _as_numbers(meant)
    if dates is None and numbers is None:
        return None
    kind = "numbers" if dates is None else "dates"
    gaps = f", {listing(words)} as missing" if words else ""
    warn(
        f"column {name!r} holds {kind} as text and is read as {kind}{gaps}; to have categories, make it one of a "
        f"categorical type",
        ColumnWarning,
    )
    found = np.full(len(levels) + 1, np.nan)  # the last is a gap's
    found[[k for k, level in enumerate(levels) if not is_gap_word(level)]] = numbers if dates is None else dates.values
    if dates is None:
        return learn_number(name, found[codes], weights, missing)
    return learn_date(name, Moments(found[codes], dates.zone), weights, missing)


def _as_numbers(levels: list[Any]) -> Floats | None:
    """Return texts as numbers if all are; few whole ones are categories that somebody has numbered."""
    found = [as_float(level) for level in levels]
    if None in found:
        return None
    numbers = np.array(found, dtype=np.float64)
    if not numbers.size or not np.isfinite(numbers).all() or any(LEADING_ZERO.match(level) for level in levels):
        return None
    return None if len(levels) <= MAX_LEVELS and (numbers == np.floor(numbers)).all() else numbers


def _learn_order(
    name: str,
    order: tuple[Any, ...],
    codes: NDArray[np.intp],
    levels: list[Any],
    weights: Floats | None,
    missing: str,
) -> Learned:
    ranks = Ordered(name, order).ranks(codes, levels)
    if missing == "error":
        return Learned(Ordered(name, order), lambda out: write_numbers(ranks, None, False, out))
    fill, indicator = fill_of(ranks, weights, always=True)
    return Learned(Ordered(name, order, fill, indicator), lambda out: write_numbers(ranks, fill, indicator, out))
