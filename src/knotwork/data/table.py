"""From any table to finite numbers: an encoder remembers how, so that prediction sees what training saw.

Numbers and booleans pass through. Text and categories become one indicator column per category, named
``column=category``; a category that the training table did not contain gets zeros in all of them, with a warning.
Frames of any library come in through narwhals; arrays are already checked by scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.exceptions import NarwhalsError

from knotwork.arrays import Floats, read_numbers
from knotwork.errors import CategoryWarning, DataError

# How many offending values or rows a message lists.
SHOWN = 5


@dataclass(frozen=True)
class Column:
    """One column of the user's table: numeric if ``categories`` is None, else encoded as indicators of them.

    A column without any categories, ``()``, is skipped.
    """

    name: str
    categories: tuple[Any, ...] | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True)
class TableEncoder:
    """How a table becomes a matrix: its columns in order."""

    columns: tuple[Column, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns, in the order of the matrix."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def source(self) -> tuple[int, ...]:
        """Which column of the table each encoded column comes from."""
        return tuple(k for k, column in enumerate(self.columns) for _ in column.feature_names)

    def encode(self, X: Any) -> Floats:
        """Encode a frame, its columns found by name, or an array (N, columns); refuse what is not finite."""
        frame = self._in_order(as_frame(X))
        if frame is None and any(column.categories is not None for column in self.columns):
            frame = self._as_table(X)
        if frame is None:
            matrix = X if getattr(getattr(X, "dtype", None), "kind", "O") in "biuf" else read_numbers(X, "X")
        elif all(column.categories is None for column in self.columns):
            matrix = _numeric_matrix(frame)
        else:
            # Column by column into place: no second copy of the table.
            matrix = np.empty((len(self.feature_names), len(frame))).T
            position = 0
            for how, column in zip(self.columns, frame.iter_columns(), strict=True):
                width = len(how.feature_names)
                _encode_column(column, how, matrix[:, position : position + width])
                position += width
        require_finite(matrix, self.feature_names)
        return matrix

    def _in_order(self, frame: nw.DataFrame[Any] | None) -> nw.DataFrame[Any] | None:
        """Select the columns by name; a frame that has none of these names is read by position."""
        names = [column.name for column in self.columns]
        if frame is None or [str(name) for name in frame.columns] == names:
            return frame
        known = {str(name): name for name in frame.columns}
        missing = [name for name in names if name not in known]
        if not missing:
            return frame.select([known[name] for name in names])
        if len(missing) < len(names) or len(frame.columns) != len(names):
            raise DataError(
                f"a table must have the columns {_listing(names)}, got {len(frame.columns)} columns without "
                f"{_listing(missing)}; add them"
            )
        return frame

    def _as_table(self, X: Any) -> nw.DataFrame[Any]:
        """Give an array's columns their names; its values must be what the categories are."""
        array = np.asarray(X)
        chosen = [column for column in self.columns if column.categories]
        text = [column.name for column in chosen if any(isinstance(c, str) for c in column.categories or ())]
        if array.ndim != 2 or array.shape[1] != len(self.columns) or (text and array.dtype.kind not in "OUS"):
            raise DataError(
                f"a model with text or categorical columns ({_listing(text or [column.name for column in chosen])}) "
                f"takes a table with the columns it was fitted to, got an array; pass a data frame"
            )
        import pandas as pd

        columns = {
            k: array[:, k] if column.categories is not None else np.asarray(array[:, k], dtype=np.float64)
            for k, column in enumerate(self.columns)
        }
        return nw.from_native(pd.DataFrame(columns), eager_only=True)


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Wrap a pandas, polars, pyarrow … table; None for everything else."""
    if isinstance(X, np.ndarray):
        return None
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except NarwhalsError as error:
        raise DataError(
            f"column names must differ and be known, the table's are not ({' '.join(str(error).split())}); rename them"
        ) from None
    if isinstance(nw.from_native(frame, pass_through=True), nw.LazyFrame):
        raise DataError(f"a table must be in memory, got a {type(X).__name__}; pass what its collect() returns")
    return frame if isinstance(frame, nw.DataFrame) else None


def learn_encoder(X: Any) -> TableEncoder:
    """Learn how to encode a table: a frame's columns by their types, an array's as numbers named x0, x1, …

    >>> import pandas as pd
    >>> encoder = learn_encoder(pd.DataFrame({"Sex": ["M", "F"], "Length": [0.4, 0.5]}))
    >>> encoder.feature_names
    ('Sex=F', 'Sex=M', 'Length')
    """
    frame = as_frame(X)
    if frame is None:
        return TableEncoder(tuple(Column(f"x{k}") for k in range(X.shape[1])))
    encoder = TableEncoder(tuple(Column(str(c.name), _categories(c)) for c in frame.iter_columns()))
    _require_distinct(encoder)
    return encoder


def _require_distinct(encoder: TableEncoder) -> None:
    """Refuse columns that could not be told apart in a formula."""
    first: dict[str, int] = {}
    for name, source in zip(encoder.feature_names, encoder.source, strict=True):
        if first.setdefault(name, source) != source:
            one, other = encoder.columns[first[name]].name, encoder.columns[source].name
            raise DataError(
                f"columns must have different names once text is encoded as column=category, columns {one!r} and "
                f"{other!r} both give {name!r}; rename one of them"
            )


def _is_numeric(dtype: nw.dtypes.DType) -> bool:
    return dtype.is_numeric() or dtype == nw.Boolean


def _categories(column: nw.Series[Any]) -> tuple[Any, ...] | None:
    """Return the categories of a text or categorical column, None for a numeric one; refuse the rest by name."""
    if _is_numeric(column.dtype):
        return None
    if column.null_count():
        raise _missing(column)
    if column.dtype == nw.Object:
        return _object_categories(column)
    if column.dtype in (nw.String, nw.Categorical) or isinstance(column.dtype, nw.Enum):
        present = set(column.to_list())
        if isinstance(column.dtype, nw.Enum):  # somebody has given these an order
            return tuple(c for c in column.dtype.categories if c in present)
        return tuple(sorted(present))
    raise DataError(
        f"columns must hold numbers, booleans, text or categories, column {column.name!r} holds {column.dtype}; "
        f"turn it into a number (a date into days since a start, say) or leave it out"
    )


def _object_categories(column: nw.Series[Any]) -> tuple[Any, ...] | None:
    values = column.to_list()
    kinds = {type(v) for v in values}
    if kinds <= {str}:
        return tuple(sorted(set(values)))
    if all(isinstance(v, (bool, int, float, np.number, np.bool_)) for v in values):
        return None
    raise DataError(
        f"a column must hold values of one kind, column {column.name!r} mixes "
        f"{' and '.join(sorted(k.__name__ for k in kinds))}; "
        f"convert it to text (astype(str)) or to numbers (pandas.to_numeric) first"
    )


def _numeric_matrix(frame: nw.DataFrame[Any]) -> Floats:
    """Return a frame's columns as a float matrix, a view of the frame's own memory where there is one."""
    if all(dtype in (nw.Float64, nw.Float32) for dtype in frame.schema.values()):
        return np.asarray(frame.to_numpy(), dtype=np.float64)
    matrix = np.empty((len(frame.columns), len(frame))).T
    for k, column in enumerate(frame.iter_columns()):
        matrix[:, k] = _numbers(column)
    return matrix


def _missing(column: nw.Series[Any]) -> DataError:
    return DataError(
        f"columns must have no missing values, column {column.name!r} has {column.null_count()} of them; "
        f"drop those rows, or give the gap a category of its own with fill_null/fillna('missing')"
    )


def _not_numeric(column: nw.Series[Any]) -> DataError:
    return DataError(
        f"column {column.name!r} held numbers in training and now holds {column.dtype}; convert it to numbers first"
    )


def _numbers(column: nw.Series[Any]) -> Floats:
    if column.dtype == nw.String:
        raise _not_numeric(column)
    if column.dtype == nw.Boolean and column.null_count():
        raise _missing(column)
    try:
        return np.asarray(column.to_numpy(), dtype=np.float64)
    except OverflowError:
        raise DataError(
            f"numbers must be within the range of floats (1.8e308), column {column.name!r} holds larger integers; "
            f"divide them, or take their logarithm"
        ) from None
    except Exception:  # each library has its own error for what it cannot convert
        raise _not_numeric(column) from None


def _encode_column(column: nw.Series[Any], how: Column, out: Floats) -> None:
    if how.categories is None:
        out[:, 0] = _numbers(column)
        return
    if not how.categories:  # nothing comes from this column
        return
    if column.null_count():
        raise DataError(
            f"columns must have no missing values, column {how.name!r} has {column.null_count()} of them; "
            f"drop those rows, or give the gap a category of its own with fill_null/fillna('missing')"
        )
    place = {category: k for k, category in enumerate(how.categories)}
    values = column.to_list()
    codes = np.array([place.get(value, -1) for value in values])
    out[:] = codes[:, None] == np.arange(len(place))
    if (codes < 0).any():
        unseen = sorted({str(value) for value in values if value not in place})
        warnings.warn(
            f"column {how.name!r} has categories that training did not see ({_listing(unseen)}); "
            f"they count as none of {_listing([str(c) for c in how.categories])}: all their indicators are 0",
            CategoryWarning,
            stacklevel=4,
        )


def _listing(values: Sequence[str]) -> str:
    shown = ", ".join(repr(v) for v in values[:SHOWN])
    return shown if len(values) <= SHOWN else f"{shown} and {len(values) - SHOWN} more"


def require_finite(matrix: Floats, names: Sequence[str], what: str = "column") -> None:
    """Refuse NaN and infinities, naming the column and its first rows."""
    # One sum finds nearly every table finite without a copy; it may overflow, then we look closely.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(matrix.sum()):
            return
    for k, name in enumerate(names):
        bad = np.flatnonzero(~np.isfinite(matrix[:, k]))
        if bad.size:
            kind = "NaN" if np.isnan(matrix[bad[0], k]) else "inf"
            rows = ", ".join(str(r) for r in bad[:SHOWN])
            raise DataError(
                f"{what}s must be finite, {what} {name!r} contains {kind} (NaN or inf in {bad.size} of {len(matrix)} "
                f"rows, first {rows}); drop those rows or fill them in, for instance with "
                f"sklearn.impute.SimpleImputer"
            )
