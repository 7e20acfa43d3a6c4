"""Where a CSV file goes wrong: a second, slow and exact look, taken only when the fast one has failed.

The fast reader works in blocks and does not know lines. This one goes through the file record by record and names the
line, as an editor counts them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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


def find_junk(
    path: Path, dialect: Dialect, names: Collection[str], missing: Sequence[str] = ()
) -> dict[str, tuple[int, str]]:
    """Return line and text of the first value of each of some columns that is neither a number nor missing."""
    places = {name: dialect.names.index(name) for name in names}
    found: dict[str, tuple[int, str]] = {}
    with open_text(path) as file:
        lines = records(path, file, dialect.delimiter)
        next(lines)
        for begins, record in lines:
            for name, place in list(places.items()):
                text = record[place].strip()
                if text not in GAP_WORDS and text not in missing and not is_number(text, dialect.decimal):
                    found[name] = begins, text
                    del places[name]
            if not places:
                return {name: found[name] for name in names}
    raise AssertionError(f"columns hold numbers only: {', '.join(places)}")
