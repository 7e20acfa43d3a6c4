"""From any table to finite numbers: an encoder remembers how, so that prediction sees what training saw.

Numbers and booleans pass through; a gap in them is filled, and a second feature says so if training had gaps. Text and
categories become one indicator column per category, named ``column=category``. What each kind of column does is in
:mod:`knotwork.data.columns`; how the kinds are found is in :mod:`knotwork.data.learn`.
Frames of any library come in through narwhals; arrays are already checked by scikit-learn.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.exceptions import NarwhalsError

from knotwork.arrays import Floats, read_numbers
from knotwork.data.columns.kinds import Categories, Column
from knotwork.data.columns.number import Number, gap_name
from knotwork.data.columns.part import Part
from knotwork.data.columns.series import SHOWN, floats, listing
from knotwork.data.columns.skipped import Skipped
from knotwork.errors import CategoryWarning, DataError, MissingWarning, warn


@dataclass(frozen=True)
class TableEncoder:
    """How a table becomes a matrix: its columns in order.

    missing : "indicator" fills gaps, "error" refuses them
    """

    columns: tuple[Column, ...]
    missing: str = "error"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns, in the order of the matrix."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def source(self) -> tuple[int, ...]:
        """Which column of the table each encoded column comes from."""
        return tuple(k for k, column in enumerate(self.columns) for _ in column.feature_names)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What people move and read, in the order of the matrix."""
        return tuple(part for column in self.columns for part in column.parts)

    def notes(self, used: Container[int], *, skipped: bool = True) -> tuple[str, ...]:
        """How to read the features that are not the columns as they came, a sentence a column.

        used : the features that the model reads; only then do gaps have an effect of their own
        skipped : whether to name the columns without features, too
        """
        found, position = [], 0
        for column in self.columns:
            names = column.feature_names
            if column.note is not None and (skipped or not isinstance(column, Skipped)):
                gap = getattr(column, "indicator", False) and position + names.index(gap_name(column.name))
                own = ", with an effect of their own" if gap and gap in used else ""
                found.append(column.note + own)
            position += len(names)
        return tuple(found)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Which features are numbers, dates and orders among them; the others are indicators."""
        found, position = [], 0
        for part in self.parts:
            if part.categories is None:
                found.append(position)
            position += part.width
        return tuple(found)

    def value_text(self, feature: int, value: float) -> str:
        """Return a value of a feature as people read it: that of a date as a date, say."""
        for part in self.parts:
            if feature < part.width:
                number = part.categories is None and feature == 0
                return part.text(value) if number else f"{value:.6g}"
            feature -= part.width
        return f"{value:.6g}"

    def encode(self, X: Any) -> Floats:
        """Encode a frame, its columns found by name, or an array (N, columns).

        Infinities are refused, and so are gaps if ``missing`` is "error". Gaps and categories that training did not
        see are filled, with a warning.
        """
        X = unmasked(X)
        frame = self._in_order(as_frame(X))
        plain = all(isinstance(column, Number) and not column.indicator for column in self.columns)
        if frame is None and not all(isinstance(column, Number) for column in self.columns):
            frame = self._as_table(X)
        if frame is not None:
            matrix = numeric_matrix(frame) if plain else self._write(frame.iter_columns(), len(frame))
        else:
            array = X if getattr(getattr(X, "dtype", None), "kind", "O") in "biuf" else read_numbers(X, "X")
            matrix = array if plain else self._write(array.T, len(array))
        if plain and not all_finite(matrix) and self.missing != "error":
            matrix = self._write(matrix.T, len(matrix))
        require_finite(matrix, self.feature_names)
        return matrix

    def with_means(self, means: Floats) -> TableEncoder:
        """Return the encoder that fills gaps in numbers which had none in training by their means, (features,)."""
        if self.missing == "error":
            return self
        columns: list[Column] = []
        position = 0
        for column in self.columns:
            if isinstance(column, Number) and not column.indicator:
                column = Number(column.name, float(means[position]))
            columns.append(column)
            position += len(column.feature_names)
        return replace(self, columns=tuple(columns))

    def _write(self, columns: Iterable[Any], rows: int) -> Floats:
        """Write column by column into place: no second copy of the table."""
        matrix = np.empty((len(self.feature_names), rows)).T
        filled: list[str] = []
        position = 0
        for how, values in zip(self.columns, columns, strict=True):
            out = matrix[:, position : position + len(how.feature_names)]
            position += out.shape[1]
            if self.missing == "error":
                require_no_gaps(values, how)
            surprise = how.write(values, out)
            if surprise.gaps:
                filled.append(how.name)
            if surprise.unseen and isinstance(how, Categories):
                warn(
                    f"column {how.name!r} has categories that training did not see ({listing(surprise.unseen)}); "
                    f"{how.unseen_means}",
                    CategoryWarning,
                )
        if filled:
            warn(
                f"columns that had no missing values in training have some now ({listing(filled)}): missing numbers "
                f"count as the training rows' mean, missing dates and ordered categories as their median, and missing "
                f"text as an unknown category",
                MissingWarning,
            )
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
                f"a table must have the columns {listing(names)}, got {len(frame.columns)} columns without "
                f"{listing(missing)}; add them"
            )
        return frame

    def _as_table(self, X: Any) -> nw.DataFrame[Any]:
        """Give an array's columns their names; its values must be what the categories are."""
        array = np.asarray(X)
        chosen = [column for column in self.columns if isinstance(column, Categories)]
        text = [column.name for column in chosen if any(isinstance(c, str) for c in column.known)]
        if array.ndim != 2 or array.shape[1] != len(self.columns) or (text and array.dtype.kind not in "OUS"):
            raise DataError(
                f"a model with text or categorical columns ({listing(text or [column.name for column in chosen])}) "
                f"takes a table with the columns it was fitted to, got an array; pass a data frame"
            )
        import pandas as pd

        columns = {
            k: floats(array[:, k], column.name) if isinstance(column, Number) else array[:, k]
            for k, column in enumerate(self.columns)
        }
        return nw.from_native(pd.DataFrame(columns), eager_only=True)


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Wrap a pandas, polars, pyarrow … table; None for everything else."""
    if isinstance(X, np.ndarray):
        return None
    X = _dense(X)
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except NarwhalsError as error:
        raise DataError(
            f"column names must differ and be known, the table's are not ({' '.join(str(error).split())}); rename them"
        ) from None
    if isinstance(nw.from_native(frame, pass_through=True), nw.LazyFrame):
        raise DataError(f"a table must be in memory, got a {type(X).__name__}; pass what its collect() returns")
    return frame if isinstance(frame, nw.DataFrame) else None


def _dense(X: Any) -> Any:
    """Return pandas' sparse columns as what they hold, which narwhals does not know; everything else as it came."""
    if not type(X).__module__.startswith("pandas") or getattr(X, "ndim", 0) != 2:
        return X
    import pandas as pd

    sparse = {k: dtype.subtype for k, dtype in enumerate(X.dtypes) if isinstance(dtype, pd.SparseDtype)}
    if not sparse:
        return X
    dense = X.copy(deep=False)
    for k, dtype in sparse.items():  # by place: names may be equal, which is refused elsewhere
        dense.isetitem(k, X.iloc[:, k].astype(dtype))
    return dense


def unmasked(X: Any) -> Any:
    """Return a masked array as numbers with NaN for what is masked, everything else as it came."""
    if not np.ma.isMaskedArray(X):
        return X
    if not np.ma.is_masked(X):
        return X.data
    return np.ma.filled(X.astype(object if X.dtype == object else np.float64), np.nan)


def numeric_matrix(frame: nw.DataFrame[Any]) -> Floats:
    """Return a frame's columns as a float matrix, a view of the frame's own memory where there is one; NaN for gaps."""
    by_column = frame.implementation.is_pyarrow()  # which would be copied into rows, and back into columns by a fit
    if not by_column and all(dtype in (nw.Float64, nw.Float32) for dtype in frame.schema.values()):
        matrix = frame.to_numpy()
        if matrix.dtype.kind == "f":
            return matrix.astype(np.float64, copy=False)
    matrix = np.empty((len(frame.columns), len(frame))).T
    for k, column in enumerate(frame.iter_columns()):
        matrix[:, k] = floats(column, str(column.name))
    return matrix


def require_no_gaps(values: Any, column: Column) -> None:
    """Refuse text and categories with gaps; those of numbers are NaN, which nobody takes."""
    count = values.null_count() if not isinstance(column, Number | Skipped) else 0
    if count:
        raise gaps_refused(column.name, count)


def gaps_refused(name: str, count: int) -> DataError:
    """Return the error for a column of categories with gaps."""
    return DataError(
        f"columns must have no missing values, column {name!r} has {count} of them; drop those rows, give the gap a "
        f"category of its own with fill_null/fillna('missing'), or fit with missing='indicator'"
    )


def all_finite(matrix: Floats) -> bool:
    """Whether the sum of a matrix is finite: it is nearly always if its numbers are, and takes no copy."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(matrix.sum()))


def require_finite(matrix: Floats, names: Sequence[str], what: str = "column") -> None:
    """Refuse NaN and infinities, naming the column and its first rows."""
    if all_finite(matrix):
        return
    for k, name in enumerate(names):
        bad = np.flatnonzero(~np.isfinite(matrix[:, k]))
        if bad.size:
            kind = "NaN" if np.isnan(matrix[bad[0], k]) else "inf"
            rows = ", ".join(str(r) for r in bad[:SHOWN])
            if what != "column":
                advice = "drop those rows"
            elif kind == "NaN":
                advice = "drop those rows, fill them in (sklearn.impute.SimpleImputer), or fit with missing='indicator'"
            else:
                advice = "drop those rows, or make such values missing ones (NaN)"
            raise DataError(
                f"{what}s must be finite, {what} {name!r} contains {kind} (NaN or inf in {bad.size} of {len(matrix)} "
                f"rows, first {rows}); {advice}"
            )
