"""How a CSV file is written: delimiter, decimal sign, names of the columns. Seen from its first lines.

The delimiter is the one of comma, semicolon, tab and bar that splits the first lines into the same number of fields
most often, then the one that makes the most of them. A decimal comma is possible where the delimiter is something else.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from knotwork.arrays import as_float
from knotwork.data.names import require_distinct
from knotwork.data.stream import MAX_LINE, open_text
from knotwork.errors import DataError

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SAMPLED = 100
# A field that is longer than this is a quote that was never closed.
LONGEST = 1 << 20
MAX_COLUMNS = 100_000

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+")
_SPREADSHEETS = "save the sheet as CSV (UTF-8) or Parquet"


@dataclass(frozen=True)
class Dialect:
    """A CSV file's delimiter and decimal sign, its column names in order, and the mean length of its first lines."""

    delimiter: str
    decimal: str
    names: tuple[str, ...]
    line_length: float

    def describe(self) -> str:
        """Return it in words."""
        signs = " with decimal commas" if self.decimal == "," else ""
        return f"CSV, fields separated by {DELIMITERS[self.delimiter]}{signs}"


def read_dialect(path: Path) -> Dialect:
    """Look at the first lines of a CSV file."""
    _require_text(path)
    with open_text(path) as file:
        try:
            lines = _first_lines(file)
        except UnicodeDecodeError as error:
            raise not_utf8(path, error) from None
    if not any(line.strip() for line in lines):
        raise DataError(f"a table must have a line of column names and rows below it, {path} is empty")
    delimiter = max(DELIMITERS, key=lambda sign: _fitness(path, lines, sign))
    fields = [record for _, record in records(path, iter(lines), delimiter)]
    cells = [cell for record in fields[1:] for cell in record]
    comma = delimiter != "," and any(_DECIMAL_COMMA.fullmatch(c) for c in cells)
    decimal = "," if comma and not any(_DECIMAL_POINT.fullmatch(c) for c in cells) else "."
    return Dialect(delimiter, decimal, _names(path, fields[0]), sum(map(len, lines)) / len(lines))


def _first_lines(file: TextIO) -> list[str]:
    lines, characters = [], 0
    for line in islice(file, SAMPLED):
        lines.append(line)
        characters += len(line)
        if characters > MAX_LINE:
            break
    return lines


def records(path: Path, lines: Iterator[str] | TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the records that are not blank, each with the number of the line on which it begins."""
    csv.field_size_limit(LONGEST)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    begins = 1
    try:
        for record in reader:
            if record:
                yield begins, record
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"quotes must be closed and a field must have at most {LONGEST >> 20} MB, {path} breaks off in the record "
            f"that begins on line {begins} ({error}); correct it"
        ) from None


def not_utf8(path: Path, error: UnicodeDecodeError) -> DataError:
    """Return the error for a file in another encoding."""
    return DataError(f"a CSV file must be text in UTF-8, {path} is not ({error.reason}); save it as CSV UTF-8")


def _fitness(path: Path, lines: list[str], delimiter: str) -> tuple[bool, float, int]:
    try:
        widths = [len(record) for _, record in records(path, iter(lines), delimiter)]
    except DataError:
        return False, 0.0, 0
    return widths[0] > 1, widths.count(widths[0]) / len(widths), widths[0]


def _require_text(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(4096)
    if head[:2] == b"PK":
        raise DataError(f"a table must be CSV or Parquet, {path} is a zip archive or a spreadsheet; {_SPREADSHEETS}")
    if head[:4] == b"\xd0\xcf\x11\xe0":
        raise DataError(f"a table must be CSV or Parquet, {path} is an old spreadsheet; {_SPREADSHEETS}")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"a CSV file must be text in UTF-8, {path} is in UTF-16; save it as CSV UTF-8")
    if head[:2] != b"\x1f\x8b" and b"\0" in head:
        raise DataError(f"a table must be CSV or Parquet, {path} is some other binary file; check the path")


def _names(path: Path, header: list[str]) -> tuple[str, ...]:
    if len(header) > MAX_COLUMNS:
        raise DataError(
            f"a CSV file must have at most {MAX_COLUMNS} columns, {path} has {len(header)}; leave some out, or "
            f"check that it is a table"
        )
    names = [name.strip() or f"column {k}" for k, name in enumerate(header, start=1)]
    if all(is_number(name) for name in names):
        raise DataError(
            f"the first line must name the columns, that of {path} holds only numbers ({', '.join(names[:3])}, …); "
            f"put a line of names above it"
        )
    require_distinct(names, path)
    return tuple(names)


def is_number(text: str, decimal: str = ".") -> bool:
    """Whether a text is a number, as the fast reader understands it.

    >>> is_number("-1.5e3"), is_number("1,5", decimal=","), is_number("1,5"), is_number("1_000")
    (True, True, False, False)
    """
    return as_float(text.replace(",", ".") if decimal == "," else text) is not None
