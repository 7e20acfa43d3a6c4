"""A file's rows a block at a time, for a model whose columns are known: memory does not grow with the file.

Columns to carry along come as they are in the file: text of a CSV to the last character, leading zeros and "NA"
included, Parquet with its types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.data.csv_errors import find_junk, require_even_lines
from knotwork.data.dialect import Dialect, read_dialect
from knotwork.data.files import (
    csv_blocks,
    is_parquet,
    open_parquet,
    or_missing,
    parquet_batches,
    rows_of_block,
    too_long,
)
from knotwork.data.names import require_columns
from knotwork.data.pieces import Kind, as_numbers, without
from knotwork.data.refused import refuse_columns
from knotwork.data.stream import BlockTooLong
from knotwork.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Block:
    """Some rows: the columns of a model, numbers as float64 and text as it is, and the columns to carry along."""

    frame: pd.DataFrame
    carried: pd.DataFrame


def read_blocks(
    path: Path, columns: Mapping[str, Kind], carry: Sequence[str] = (), missing: Sequence[str] = ()
) -> Iterator[Block]:
    """Read a CSV or Parquet file in blocks.

    Parameters
    ----------
    path : the file; Parquet is known by its first bytes, whatever its name
    columns : the columns of the model and what each must hold
    carry : columns to carry along; they may be among the model's
    missing : words that mean a missing value in this file, in addition to the usual ones
    """
    if is_parquet(path):
        yield from _parquet_blocks(path, columns, carry, missing)
        return
    dialect = read_dialect(path)
    require_columns([*columns, *carry], dialect.names, path)
    done, most = 0, rows_of_block(dialect)
    while True:
        try:
            for block in _csv_rows(path, dialect, columns, carry, max(1, most), done, missing):
                done += len(block.frame)
                yield block
            break
        except BlockTooLong:  # an open quote, or longer lines than the first ones
            require_even_lines(path, dialect)
            if most == 0:
                raise too_long(path) from None
            most //= 8
    if not done:
        raise _no_rows(path)


def _csv_rows(
    path: Path,
    dialect: Dialect,
    columns: Mapping[str, Kind],
    carry: Sequence[str],
    most: int,
    skip: int,
    missing: Sequence[str],
) -> Iterator[Block]:
    """Yield blocks of a CSV file but for its first ``skip`` rows."""
    import pandas as pd

    text = {name for name, kind in columns.items() if kind in ("text", "date")}  # the model reads the dates
    blocks = csv_blocks(path, dialect, text, most, missing=missing)
    # A second look at the same rows: a column may be a number for the model and text to carry along.
    as_they_are = csv_blocks(path, dialect, set(carry), most, only=carry) if carry else None
    even, seen = False, 0
    for block in blocks:
        carried = pd.DataFrame(index=block.index) if as_they_are is None else next(as_they_are)
        if not even and block[dialect.names[-1]].isna().any():  # perhaps a line with too few fields
            require_even_lines(path, dialect)
            even = True
        fresh = slice(max(0, skip - seen), None)
        seen += len(block)
        if seen > skip:
            frame = _frame(path, {name: block[name].iloc[fresh] for name in columns}, columns, dialect, missing)
            yield Block(frame, carried[list(carry)].iloc[fresh].reset_index(drop=True))


def _parquet_blocks(
    path: Path, columns: Mapping[str, Kind], carry: Sequence[str], missing: Sequence[str]
) -> Iterator[Block]:
    import pandas as pd
    import pyarrow as pa

    file, rows = open_parquet(path, [*columns, *carry], columns)
    for batch in parquet_batches(path, file, rows, dict.fromkeys([*columns, *carry])):
        series = {}
        for name, kind in columns.items():
            values = batch.column(name)
            if kind == "text":
                values = values.cast(pa.string())
            elif pa.types.is_decimal(values.type):
                values = values.cast(pa.float64())
            series[name] = without(values.to_pandas(), missing)
        carried = batch.select(list(carry)).to_pandas(types_mapper=pd.ArrowDtype) if carry else pd.DataFrame()
        yield Block(_frame(path, series, columns, None, missing), carried)
    if not file.metadata.num_rows:
        raise _no_rows(path)


def _frame(
    path: Path,
    series: dict[str, pd.Series[Any]],
    columns: Mapping[str, Kind],
    dialect: Dialect | None,
    missing: Sequence[str],
) -> pd.DataFrame:
    """Return what the model takes; numbers lie in one matrix, so that a prediction needs no other copy."""
    import pandas as pd

    numeric = [name for name, kind in columns.items() if kind not in ("text", "date")]
    rows = len(next(iter(series.values())))
    matrix = np.empty((len(numeric), rows))
    junk = []
    for row, name in zip(matrix, numeric, strict=True):
        numbers = as_numbers(series[name])
        if numbers is None:
            junk.append(name)
        else:
            row[:] = numbers
    if junk:
        refuse_columns(_junk(path, junk, dialect, missing))
    if len(numeric) == len(columns):
        return pd.DataFrame(matrix.T, columns=pd.Index(numeric, dtype="str"), copy=False)
    found = dict(zip(numeric, matrix, strict=True))
    return pd.DataFrame(
        {name: found[name] if name in found else series[name].reset_index(drop=True) for name in columns}, copy=False
    )


def _junk(path: Path, names: Sequence[str], dialect: Dialect | None, missing: Sequence[str]) -> dict[str, str]:
    """Say of columns with text where numbers are meant where it is, a sentence each."""
    if dialect is None:
        return {name: f"column {name!r} of {path} must hold numbers, it is text there; convert it" for name in names}
    return {
        name: (
            f"column {name!r} must hold numbers, line {line} of {path} has {text!r}; "
            f"correct it, {or_missing(text)}or leave the field empty"
        )
        for name, (line, text) in find_junk(path, dialect, names, missing).items()
    }


def _no_rows(path: Path) -> DataError:
    return DataError(f"a table must have rows, {path} has column names only; check that it was written completely")
