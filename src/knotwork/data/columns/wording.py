"""What texts look like: numbers, dates, and words for no value. For columns and files whose values are all text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from knotwork.arrays import as_float

# Texts that stand for no value.
GAP_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "<NA>", "null", "NULL")

# Dates in the ways that people write them.
DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d{4}/\d\d?/\d\d?([T ].*)?|\d\d?[/.]\d\d?[/.]\d{2,4}([T ].*)?")

# Thousands, currencies and the like: 1,234.50 or $ 99 or 12 %. Meant as numbers, but not to be read by guessing.
LIKE_A_NUMBER = re.compile(r"[+-]?[$€£]?\s*\d[\d.,' ]*\s*[%$€£]?")

# Codes such as 007 are no numbers.
LEADING_ZERO = re.compile(r"\s*[+-]?0\d")

# Share of numbers that makes a column with other values in it a column of numbers with a mistake.
MOSTLY = 0.5


def is_gap_word(value: Any) -> bool:
    """Whether a value is a text that stands for no value.

    >>> [is_gap_word(v) for v in ("", " NA ", "None", 0)]
    [True, True, False, False]
    """
    return isinstance(value, str) and value.strip() in GAP_WORDS


def meant_otherwise(levels: Sequence[Any]) -> str | None:
    """Say what the different values of a text column look like, if they look like numbers or dates; None if not.

    >>> meant_otherwise(["1.5", "2.5", "k.A."])
    "2 of its 3 different values look like numbers, 'k.A.' does not; to have numbers, convert it (pandas.to_numeric)"
    """
    texts = [str(level).strip() for level in levels if not is_gap_word(level)]
    if not texts or any(LEADING_ZERO.match(text) and as_float(text) is not None for text in texts):
        return None
    if all(DATE.fullmatch(text) for text in texts):
        return (
            f"its values look like dates that are not written as 2024-12-31 (ISO 8601), {texts[0]!r} say; to have "
            f"dates, convert it (pandas.to_datetime)"
        )
    others = [text for text in texts if as_float(text) is None and not LIKE_A_NUMBER.fullmatch(text)]
    if len(texts) - len(others) <= MOSTLY * len(texts):
        return None
    odd = f", {others[0]!r} does not" if others else f", {texts[0]!r} say"
    return (
        f"{len(texts) - len(others)} of its {len(texts)} different values look like numbers{odd}; to have numbers, "
        f"convert it (pandas.to_numeric)"
    )
