"""Text in CSV files that spreadsheets would run as a formula: marked by an apostrophe, as they do it themselves.

A cell that begins with =, +, -, @, a tab or a carriage return and is no number gets an apostrophe in front. So does one
that begins with apostrophes and then with one of these, so that ``unmarked`` gets every text back. No other changes.
"""

from __future__ import annotations

import re

from knotwork.data.dialect import is_number

_FORMULA = re.compile(r"'*([=+\-@\t\r].*)", re.DOTALL)


def marked(text: str) -> str:
    """Mark a text that a spreadsheet would run.

    >>> marked("=HYPERLINK(1)"), marked("-1.5"), marked("'quoted'"), marked("'=1+1")
    ("'=HYPERLINK(1)", '-1.5', "'quoted'", "''=1+1")
    """
    return f"'{text}" if _is_formula(text) else text


def unmarked(text: str) -> str:
    """Return the text that :func:`marked` was given.

    >>> unmarked("'=HYPERLINK(1)"), unmarked("'quoted'"), unmarked("''=1+1")
    ('=HYPERLINK(1)', "'quoted'", "'=1+1")
    """
    return text[1:] if text.startswith("'") and _is_formula(text) else text


def _is_formula(text: str) -> bool:
    found = _FORMULA.fullmatch(text)
    return found is not None and not is_number(found[1])
