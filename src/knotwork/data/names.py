"""Columns by name: a name that is not there gets the nearest ones that are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from knotwork.errors import DataError

SHOWN = 12


def require_columns(wanted: Iterable[str], present: Sequence[str], path: Path) -> None:
    """Refuse names that a file does not have, all of them in one sentence, with the nearest it does have."""
    known = set(present)
    missing = [name for name in dict.fromkeys(wanted) if name not in known]
    if not missing:
        return
    named = ", ".join(f"{name!r}{_nearest(name, present)}" for name in missing)
    shown = ", ".join(repr(name) for name in present[:SHOWN])
    more = f" and {len(present) - SHOWN} more" if len(present) > SHOWN else ""
    raise DataError(f"{path} has no column {named}; its columns are {shown}{more}")


def require_distinct(names: Sequence[str], path: Path) -> None:
    """Refuse a file with two columns of one name."""
    first: dict[str, int] = {}
    for k, name in enumerate(names, start=1):
        if name in first:
            raise DataError(
                f"column names must differ, {path} has {name!r} in columns {first[name]} and {k}; rename one of them"
            )
        first[name] = k


def _nearest(name: str, present: Sequence[str]) -> str:
    """Return the nearest name in words, regardless of capitals.

    >>> _nearest("shell wieght", ["Shell weight", "Length"]), _nearest("zebra", ["Length"])
    (" (did you mean 'Shell weight'?)", '')
    """
    lowered = {other.casefold(): other for other in present}
    found = get_close_matches(name.casefold(), lowered, n=1)
    return f" (did you mean {lowered[found[0]]!r}?)" if found else ""
