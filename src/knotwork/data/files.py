"""Tables from files: CSV and Parquet, in blocks, into columns of numbers and of text.

Blocks keep the memory small: on top of the columns read so far there is one block, about 32 MB as numbers. Numbers and
booleans become float64, dates as ISO 8601 writes them become microseconds since 1970, text becomes categories (a code a
row and every text once). A column is text if any of its values is; one that is mostly numbers is refused with the line
of the first value that is none, for that is a mistake far more often than a category. What is refused is no error until
somebody needs it: then all that is needed is named together.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.data.columns.instants import parsed_dates
from knotwork.data.columns.wording import DATE, GAP_WORDS, LIKE_A_NUMBER, MOSTLY
from knotwork.data.csv_errors import find_junk, require_even_lines
from knotwork.data.dialect import Dialect, is_number, not_utf8, read_dialect
from knotwork.data.names import require_columns, require_distinct
from knotwork.data.pieces import MAX_CHARACTERS, MAX_TEXTS, Kind, Pieces, Values, without
from knotwork.data.refused import refuse_columns
from knotwork.data.stream import BlockTooLong, CsvBytes, as_text
from knotwork.errors import DataError, MissingPackage, one_line

if TYPE_CHECKING:
    import pandas as pd


# Values of a block.
BLOCK = 4_000_000
# Bytes of a block of CSV.
MAX_BLOCK = 1 << 28


def infinities(path: Path, columns: Mapping[str, NDArray[np.float64]], before: int = 0) -> dict[str, str]:
    """Say where columns (N,) of a file are infinite, a sentence each; their rows come after ``before`` others."""
    found = {name: np.flatnonzero(np.isinf(values)) for name, values in columns.items()}
    return {
        name: (
            f"columns must be finite, column {name!r} of {path} has {columns[name][places[0]]:g} in data row "
            f"{before + places[0] + 1}; correct it, or leave the field empty"
        )
        for name, places in found.items()
        if places.size
    }


@dataclass(frozen=True)
class Table:
    """A table in memory.

    columns : numbers and booleans as float64, missing ones as NaN, dates as microseconds since 1970, text as pandas
        categories; columns of more than ``MAX_TEXTS`` texts or ``MAX_CHARACTERS`` in them, of durations, and of dates
        not written as ISO 8601 has it, are not kept
    kinds : of every column that was read, in order, then of those skipped
    rows : their number
    described : how it was read, in words
    zones : the time zones of dates that have one
    refused : columns that are not kept because they cannot be read, each with a sentence that says why
    """

    path: Path
    columns: Mapping[str, Values]
    kinds: Mapping[str, Kind]
    rows: int
    described: str
    zones: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def require(self, names: Iterable[str]) -> None:
        """Refuse columns that cannot be read, all of these together."""
        refuse_columns({name: self.refused[name] for name in names if name in self.refused})

    def missing(self, name: str) -> NDArray[np.bool_]:
        """Mark the rows in which a column has no value."""
        values = self._kept(name)
        return np.isnan(values) if isinstance(values, np.ndarray) else values.isna()

    def frame(self, names: Sequence[str], rows: NDArray[np.intp]) -> pd.DataFrame:
        """Return some columns of some rows; columns of numbers lie in one matrix, so that a fit needs no other copy."""
        import pandas as pd

        numeric = [name for name in names if self.kinds[name] not in ("text", "date")]
        matrix = np.empty((len(numeric), len(rows)))
        for row, name in zip(matrix, numeric, strict=True):
            np.take(self._kept(name), rows, out=row)
        if len(numeric) == len(names):
            return pd.DataFrame(matrix.T, columns=pd.Index(numeric, dtype="str"), copy=False)
        numbers = dict(zip(numeric, matrix, strict=True))

        def column(name: str) -> Any:
            if name in numbers:
                return numbers[name]
            values = self._kept(name).take(rows)
            return _moments(values, self.zones.get(name)) if isinstance(values, np.ndarray) else values

        return pd.DataFrame({name: column(name) for name in names}, copy=False)

    def _kept(self, name: str) -> Values:
        """Return a column; refuse one that was not kept."""
        if name in self.columns:
            return self.columns[name]
        self.require([name])
        rule = (
            "dates must be written as 2024-12-31 or 2024-12-31 23:59, all with a time zone or none"
            if self.kinds[name] == "date"
            else f"text must have at most {MAX_TEXTS} different values, of {MAX_CHARACTERS >> 20} MB together"
        )
        raise DataError(f"{rule}, column {name!r} of {self.path} has others; rewrite it")


def _moments(values: NDArray[np.float64], zone: str | None) -> pd.Series[Any]:
    """Return microseconds since 1970 as dates."""
    import pandas as pd

    whole = np.where(np.isnan(values), 0, values).astype(np.int64).astype("datetime64[us]")
    dates = pd.Series(whole).mask(np.isnan(values))
    return dates if zone is None else dates.dt.tz_localize("UTC").dt.tz_convert(zone)


def read_file(
    path: Path,
    *,
    as_text: Sequence[str] = (),
    skip: Sequence[str] = (),
    columns: Mapping[str, Kind] | None = None,
    missing: Sequence[str] = (),
    max_rows: int | None = None,
) -> Table:
    """Read a CSV or Parquet file; columns that cannot be read are refused when they are asked for.

    Parameters
    ----------
    path : the file; Parquet is known by its first bytes, whatever its name
    as_text : columns to take as text even if they hold numbers
    skip : columns not to look at
    columns : the columns to keep and what each must hold; None keeps all as they come
    missing : words that mean a missing value in this file, in addition to the usual ones
    max_rows : of a Parquet file about how many rows to read; None for all
    """
    if is_parquet(path):
        return _read_parquet(path, as_text, skip, columns, missing, max_rows)
    return _read_csv(path, as_text, skip, columns, missing)


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet; otherwise it is to be read as CSV. What is no file is refused."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is something else" if path.exists() else "does not exist"
        raise DataError(f"a table must be a CSV or Parquet file, {path} {what}; check the path")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"PAR1" and path.suffix.lower() == ".parquet":
        raise DataError(f"a Parquet file begins with PAR1, {path} does not; check that it was copied completely")
    return magic == b"PAR1"


def column_names(path: Path) -> tuple[str, ...]:
    """Return the names of a file's columns, in order."""
    return tuple(open_parquet(path, ())[0].schema_arrow.names) if is_parquet(path) else read_dialect(path).names


def _read_csv(
    path: Path,
    as_text: Sequence[str],
    skip: Sequence[str],
    columns: Mapping[str, Kind] | None,
    missing: Sequence[str],
) -> Table:
    dialect = read_dialect(path)
    wanted = _wanted(path, dialect.names, as_text, skip, columns)
    forced = {name for name, kind in wanted.items() if kind == "text"}
    most = rows_of_block(dialect)
    while True:
        pieces = {name: Pieces() for name in wanted}
        mixed = set()
        rows, suspicious = 0, False
        try:
            for block in csv_blocks(path, dialect, forced, max(1, most), missing=missing):
                rows += len(block)
                suspicious |= bool(block[dialect.names[-1]].isna().any())
                for name in wanted:
                    if name not in mixed and not pieces[name].add(block[name]):
                        mixed.add(name)
        except BlockTooLong:  # an open quote, or longer lines than the first ones
            require_even_lines(path, dialect)
            if most == 0:
                raise too_long(path) from None
            most //= 8
            continue
        if suspicious:  # a line with too few fields looks like one whose last values are missing
            require_even_lines(path, dialect)
        if not mixed:
            break
        # Text in some blocks only: read it as text from the beginning.
        forced |= mixed

    junk = _decide_kinds(pieces, wanted, set(as_text), dialect.decimal)
    refused = {
        name: (
            f"column {name!r} must hold numbers, line {line} of {path} has {text!r}; "
            f"{_advice(text, dialect.decimal)}, {or_missing(text)}leave the column out (--exclude) or take its values "
            f"as categories (--category)"
        )
        for name, (line, text) in (find_junk(path, dialect, junk, missing) if junk else {}).items()
    }
    return _table(path, pieces, rows, skip, dialect.describe(), refused=refused)


def _advice(text: str, decimal: str) -> str:
    """Say how to correct a value: a decimal comma, thousands or a unit is not read by guessing."""
    return f"write its numbers as 1234{decimal}5" if LIKE_A_NUMBER.fullmatch(text) else "correct it"


def or_missing(text: str) -> str:
    """Offer to take a word among numbers for a missing value; what looks like a number is none."""
    if LIKE_A_NUMBER.fullmatch(text):
        return ""
    return f"say that it means a missing value (--na {shlex.quote(text)}), "


def rows_of_block(dialect: Dialect) -> int:
    """Return how many rows of a CSV file to read at once."""
    return int(min(max(100, BLOCK // len(dialect.names)), MAX_BLOCK / 2 / max(dialect.line_length, 1)))


def too_long(path: Path) -> DataError:
    """Return the error for a record that no block holds."""
    return DataError(f"a record must have at most {MAX_BLOCK >> 20} MB, {path} has a longer one; correct it")


def csv_blocks(
    path: Path,
    dialect: Dialect,
    forced: set[str],
    rows: int,
    only: Sequence[str] | None = None,
    missing: Sequence[str] = (),
) -> Iterator[pd.DataFrame]:
    """Yield a CSV file in blocks of rows: columns ``forced`` as text; with ``only`` these columns, nothing missing."""
    import pandas as pd

    # Numbers to the last bit: what pandas does by itself since 3.1, where the option is deprecated.
    since = tuple(map(int, pd.__version__.split(".")[:2]))
    precise: dict[str, Any] = {} if since >= (3, 1) else {"float_precision": "round_trip"}
    try:
        with warnings.catch_warnings():
            # It only warns of fields that it drops.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            source = CsvBytes(path)
            source.allow(MAX_BLOCK)
            with as_text(source) as text:
                for block in pd.read_csv(
                    text, sep=dialect.delimiter, decimal=dialect.decimal, header=0, names=list(dialect.names),
                    index_col=False, dtype=dict.fromkeys(forced, str), keep_default_na=False,
                    na_values=[*GAP_WORDS, *missing], na_filter=only is None, skipinitialspace=True, low_memory=False,
                    usecols=None if only is None else list(only), **precise, chunksize=rows,
                ):  # fmt: skip
                    yield block
                    source.allow(MAX_BLOCK)
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        require_even_lines(path, dialect)
        raise DataError(f"a CSV file must be a table, {path} cannot be read as one ({error})") from None
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None


def open_parquet(path: Path, needed: Sequence[str], plain: Iterable[str] = ()) -> tuple[Any, int]:
    """Open a Parquet file that has these columns; return it and how many rows to read at once.

    plain : the columns that must hold numbers, booleans, text or dates
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingPackage(f"reading {path} (Parquet) needs pyarrow; pip install 'knotwork[parquet]'") from None
    try:
        # Row groups that are buffered ahead stay in memory until the file is closed, all of them in the end.
        file = pq.ParquetFile(path, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise _not_whole(path, error) from None
    names = tuple(file.schema_arrow.names)
    require_distinct(names, path)
    require_columns(needed, names, path)
    refuse_columns(_odd_types(path, file, plain))
    return file, max(1000, BLOCK // max(1, len(needed)))


def parquet_batches(path: Path, file: Any, rows: int, columns: Iterable[str]) -> Iterator[Any]:
    """Read so many rows at a time; damage is that of this file, whatever is written meanwhile."""
    import pyarrow as pa

    try:
        yield from file.iter_batches(rows, columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        raise _not_whole(path, error) from None


def _not_whole(path: Path, error: Exception) -> DataError:
    return DataError(f"a Parquet file must be whole, {path} cannot be read ({one_line(error)}); copy it again")


def _read_parquet(
    path: Path,
    as_text: Sequence[str],
    skip: Sequence[str],
    columns: Mapping[str, Kind] | None,
    missing: Sequence[str],
    max_rows: int | None = None,
) -> Table:
    file, _ = open_parquet(path, [*as_text, *skip, *(columns or ())])
    import pyarrow as pa

    wanted = _wanted(path, tuple(file.schema_arrow.names), as_text, skip, columns)
    refused = _odd_types(path, file, wanted)
    pieces = {name: Pieces(let_go=name in refused) for name in wanted}
    read = [name for name in wanted if name not in refused]
    rows = 0
    zones: dict[str, str] = {}
    dates = {n for n in read if pa.types.is_temporal(file.schema_arrow.field(n).type)}
    for batch in parquet_batches(path, file, max(1000, BLOCK // max(1, len(wanted))), read):
        rows += batch.num_rows
        for name in read:
            values = batch.column(name)
            if name in dates and name not in as_text:
                pieces[name].kind = "date"
                if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
                    pieces[name].let_go = True
                    continue
                zone = getattr(values.type, "tz", None)
                zones |= {} if zone is None else {name: zone}
                whole = values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
                pieces[name].numbers.append(np.asarray(whole.to_pandas(), dtype=np.float64))
                continue
            if wanted[name] == "text" or name in as_text:
                values = values.cast(pa.string())
            elif pa.types.is_decimal(values.type):
                values = values.cast(pa.float64())
            pieces[name].add(without(values.to_pandas(), missing))
        if max_rows is not None and rows >= max_rows:
            break

    # Whoever wrote the types meant them: text that looks like numbers is text.
    refused |= {
        name: (
            f"column {name!r} of {path} must hold numbers, it is text there; convert it, leave it out (--exclude) "
            f"or take its values as categories (--category)"
        )
        for name in _decide_kinds(pieces, wanted, set(wanted), ".")
    }
    return _table(path, pieces, rows, skip, "Parquet", zones, refused)


def _odd_types(path: Path, file: Any, names: Iterable[str]) -> dict[str, str]:
    """Say which columns of a Parquet file hold lists and the like, a sentence each."""
    from pyarrow import types

    plain = (
        types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_string,
        types.is_large_string, types.is_string_view, types.is_dictionary, types.is_temporal, types.is_null,
    )  # fmt: skip
    kinds = {name: file.schema_arrow.field(name).type for name in names}
    return {
        name: (
            f"columns must hold numbers, booleans or text, column {name!r} of {path} holds {kind}; "
            f"leave it out with --exclude, or turn it into columns of numbers"
        )
        for name, kind in kinds.items()
        if not any(is_kind(kind) for is_kind in plain)
    }


def _wanted(
    path: Path,
    names: Sequence[str],
    as_text: Sequence[str],
    skip: Sequence[str],
    columns: Mapping[str, Kind] | None,
) -> dict[str, Kind | None]:
    """Return the columns to read, in order, and what each must hold if that is known."""
    require_columns([*as_text, *skip, *(columns or ())], names, path)
    if columns is not None:
        return dict(columns)
    return {name: "text" if name in as_text else None for name in names if name not in skip}


def _decide_kinds(
    pieces: Mapping[str, Pieces], wanted: Mapping[str, Kind | None], as_text: set[str], decimal: str
) -> list[str]:
    """Decide the kinds of the columns; return those with text where numbers are meant, and let them go."""
    junk = []
    for name, column in pieces.items():
        if column.kind != "text":
            continue
        if wanted[name] in ("number", "boolean"):
            junk.append(name)
        if wanted[name] is not None or name in as_text:
            continue
        texts = [text.strip() for text in column.distinct]
        if all(DATE.fullmatch(text) for text in texts):
            column.kind = "date"
        elif sum(is_number(text, decimal) or bool(LIKE_A_NUMBER.fullmatch(text)) for text in texts) > MOSTLY * len(
            texts
        ):
            junk.append(name)
    for name in junk:
        pieces[name].let_go = True
    return junk


def _table(
    path: Path,
    pieces: dict[str, Pieces],
    rows: int,
    skipped: Sequence[str],
    described: str,
    zones: Mapping[str, str] | None = None,
    refused: Mapping[str, str] | None = None,
) -> Table:
    if rows == 0:
        raise DataError(f"a table must have rows, {path} has column names only; check that it was written completely")
    kinds: dict[str, Kind] = {name: column.kind or "number" for name, column in pieces.items()}
    columns: dict[str, Values] = {}
    known = dict(zones or {})
    for name, kind in kinds.items():
        values = pieces.pop(name).joined()  # in turn, so that only one column is ever in memory twice
        if kind == "date" and values is not None and not isinstance(values, np.ndarray):
            dates = parsed_dates(values.categories.tolist())
            values = None if dates is None else np.append(dates.values, np.nan)[values.codes]
            known |= {name: dates.zone} if dates is not None and dates.zone is not None else {}
        if values is not None:
            columns[name] = values
    kinds |= dict.fromkeys(skipped, "skipped")
    return Table(path, columns, kinds, rows, described, known, refused or {})
