"""Learning how to encode a table: what each column is, what fills its gaps, and the matrix of the training rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from knotwork.arrays import Floats, read_numbers
from knotwork.data.columns.kinds import Column
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number, weighted_median, write_numbers
from knotwork.data.columns.series import factorise, floats, texts
from knotwork.data.columns.skipped import Skipped
from knotwork.data.table import TableEncoder, all_finite, as_frame, numeric_matrix, require_finite, unmasked
from knotwork.errors import ColumnWarning, DataError


class Learned(NamedTuple):
    """A column, and what writes its features of the training rows into their place, (N, features)."""

    column: Column
    write: Callable[[Floats], Any]


def learn_encoder(X: Any, missing: str = "indicator") -> TableEncoder:
    """Learn how to encode a table: a frame's columns by their types, an array's as numbers named x0, x1, …

    >>> import pandas as pd
    >>> encoder = learn_encoder(pd.DataFrame({"Sex": ["M", "F"], "Length": [0.4, 0.5]}))
    >>> encoder.feature_names
    ('Sex=F', 'Sex=M', 'Length')
    """
    return learn_table(X, missing=missing)[0]


def learn_table(X: Any, *, weights: Floats | None = None, missing: str = "indicator") -> tuple[TableEncoder, Floats]:
    """Learn how to encode a table, and encode it.

    Parameters
    ----------
    X : frame of any library, or array (N, d)
    weights : (N,) not negative; rows of weight 0 are encoded and teach nothing
    missing : "indicator" gives columns with gaps a feature that says where they are; "error" refuses gaps

    Returns
    -------
    the encoder, and the matrix of the rows (N, features)
    """
    X = unmasked(X)
    frame = as_frame(X)
    if frame is None:
        matrix = X if getattr(getattr(X, "dtype", None), "kind", "O") in "biuf" else read_numbers(X, "X")
        names = [f"x{k}" for k in range(matrix.shape[1])]
    elif all(_is_numeric(dtype) for dtype in frame.schema.values()):
        matrix, names = numeric_matrix(frame), [str(name) for name in frame.columns]
    else:
        return _joined([_learn(column, weights, missing) for column in frame.iter_columns()], len(frame), missing)
    if missing == "error" or all_finite(matrix):
        encoder = TableEncoder(tuple(Number(name) for name in names), missing)
        require_finite(matrix, names)
        return encoder, matrix
    return _joined(
        [_number(name, column, weights) for name, column in zip(names, matrix.T, strict=True)], len(matrix), missing
    )


def _joined(learned: list[Learned], rows: int, missing: str) -> tuple[TableEncoder, Floats]:
    encoder = TableEncoder(tuple(column for column, _ in learned), missing)
    _require_distinct(encoder)
    if not encoder.feature_names:
        reasons = "; ".join(f"{c.name!r} {c.reason}" for c in encoder.columns if isinstance(c, Skipped))
        raise DataError(f"a fit needs a column that says something, got none ({reasons}); add features")
    matrix = np.empty((len(encoder.feature_names), rows)).T
    position = 0
    for column, write in learned:
        width = len(column.feature_names)
        write(matrix[:, position : position + width])
        position += width
    require_finite(matrix, encoder.feature_names)
    return encoder, matrix


def _require_distinct(encoder: TableEncoder) -> None:
    """Refuse columns that could not be told apart in a formula."""
    first: dict[str, int] = {}
    for name, source in zip(encoder.feature_names, encoder.source, strict=True):
        if first.setdefault(name, source) != source:
            one, other = encoder.columns[first[name]].name, encoder.columns[source].name
            raise DataError(
                f"columns must have different names once they are encoded (column=category, column is missing), "
                f"columns {one!r} and {other!r} both give {name!r}; rename one of them"
            )


def _is_numeric(dtype: nw.dtypes.DType) -> bool:
    return dtype.is_numeric() or dtype == nw.Boolean


def _learn(column: nw.Series[Any], weights: Floats | None, missing: str) -> Learned:
    """Learn one column of a frame; refuse by name what no features can be made of."""
    name = str(column.name)
    if _is_numeric(column.dtype) or (column.dtype == nw.Object and _object_kind(column) == "number"):
        numbers = floats(column, name)
        if missing == "error":
            return Learned(Number(name), lambda out: write_numbers(numbers, None, False, out))
        return _number(name, numbers, weights)
    if missing == "error" and column.null_count():
        raise DataError(
            f"columns must have no missing values, column {name!r} has {column.null_count()} of them; "
            f"drop those rows, give the gap a category of its own with fill_null/fillna('missing'), or fit with "
            f"missing='indicator'"
        )
    if column.dtype in (nw.Object, nw.String, nw.Categorical) or isinstance(column.dtype, nw.Enum):
        return _levels(name, column, weights)
    raise DataError(
        f"columns must hold numbers, booleans, text or categories, column {name!r} holds {column.dtype}; "
        f"turn it into a number (a date into days since a start, say) or leave it out"
    )


def _number(name: str, numbers: Floats, weights: Floats | None) -> Learned:
    gaps = np.isnan(numbers)
    counted = ~gaps if weights is None else ~gaps & (weights > 0)
    gapless = not gaps.any() if weights is None else not (gaps & (weights > 0)).any()
    if not gapless and not counted.any():
        return _left_out(name, "has no values")
    if gapless:  # what rows of weight 0 lack is nobody's business
        return Learned(Number(name), lambda out: write_numbers(np.nan_to_num(numbers) if gaps.any() else numbers,
                                                              None, False, out))  # fmt: skip
    fill = weighted_median(numbers[counted], None if weights is None else weights[counted])
    return Learned(Number(name, fill, indicator=True), lambda out: write_numbers(numbers, fill, True, out))


def _left_out(name: str, reason: str) -> Learned:
    warnings.warn(f"column {name!r} was left out: it {reason}", ColumnWarning, stacklevel=6)
    return Learned(Skipped(name, reason), lambda out: None)


def _object_kind(column: nw.Series[Any]) -> str:
    """Say whether Python objects are texts or numbers; refuse others, and mixtures."""
    from pandas.api.types import infer_dtype

    values = texts(column)
    kind = infer_dtype(values, skipna=True)
    if kind in ("string", "empty"):
        return "text" if kind == "string" else "number"
    if kind in ("integer", "floating", "mixed-integer-float", "boolean", "decimal"):
        return "number"
    present = column.drop_nulls().to_list()
    if all(isinstance(v, (bool, int, float, np.number, np.bool_)) for v in present):
        return "number"
    kinds = sorted({type(v).__name__ for v in present})
    found = f"mixes {' and '.join(kinds)}" if len(kinds) > 1 else f"holds {kinds[0]}"
    raise DataError(
        f"a column must hold values of one kind, column {column.name!r} {found}; "
        f"convert it to text (astype(str)) or to numbers (pandas.to_numeric) first"
    )


def _levels(name: str, column: nw.Series[Any], weights: Floats | None) -> Learned:
    codes, levels = factorise(column)
    counts = np.bincount(codes + 1, weights if weights is None else weights > 0, minlength=len(levels) + 1)
    present = [level for level, count in zip(levels, counts[1:], strict=True) if count]
    if not present:
        return _left_out(name, "has no values")
    if isinstance(column.dtype, nw.Enum):  # somebody has given these an order
        kept = set(present)
        ordered = tuple(c for c in column.dtype.categories if c in kept)
    else:
        ordered = tuple(sorted(present))
    how = Levels(name, ordered, gaps=bool(counts[0]))
    return Learned(how, lambda out: how.write_codes(codes, levels, out))
