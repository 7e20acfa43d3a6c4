"""Where a CSV file goes wrong: a second, slow and exact look, taken only when the fast one has failed.

The fast reader works in blocks and does not know lines. This one goes through the file record by record and names the
line, as an editor counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from knotwork.data.columns.wording import GAP_WORDS
from knotwork.data.dialect import Dialect, is_number, not_utf8, records
from knotwork.data.stream import open_text
from knotwork.errors import DataError


def require_even_lines(path: Path, dialect: Dialect) -> None:
    """Refuse a file with a line of too many or too few fields, an open quote or bytes that are not UTF-8."""
    width = len(dialect.names)
    try:
        with open_text(path) as file:
            for begins, record in records(path, file, dialect.delimiter):
                if len(record) != width:
                    raise DataError(
                        f"every line must have as many fields as there are column names, here {width}, line {begins} "
                        f"of {path} has {len(record)}; put values that contain the delimiter "
                        f"{dialect.delimiter!r} in quotes, or correct the line"
                    )
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None


def find_junk(path: Path, dialect: Dialect, name: str, missing: Sequence[str] = ()) -> tuple[int, str]:
    """Return line and text of the first value of a column that is neither a number nor missing."""
    place = dialect.names.index(name)
    with open_text(path) as file:
        lines = records(path, file, dialect.delimiter)
        next(lines)
        for begins, record in lines:
            text = record[place].strip()
            if text not in GAP_WORDS and text not in missing and not is_number(text, dialect.decimal):
                return begins, text
    raise AssertionError(f"column {name!r} holds numbers only")
