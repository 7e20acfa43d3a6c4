"""What the columns of a table are for: the target, the features, and those better left out.

Nothing is left out in silence: every column that is not used comes with the reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from knotwork.data.files import Table, infinities
from knotwork.data.names import require_columns
from knotwork.data.pieces import MAX_CHARACTERS, MAX_TEXTS, Values
from knotwork.data.refused import refuse_columns
from knotwork.errors import DataError

Task = Literal["regression", "classification"]

# Share of different texts from which on they name the rows.
NAMES = 0.95
# In fewer rows numbers in order are no sign of anything.
FEWEST_ROWS = 10
MAX_CLASSES = 10
TOO_MUCH_TEXT = f"more than {MAX_TEXTS} different texts, or more than {MAX_CHARACTERS >> 20} MB of them"


@dataclass(frozen=True)
class ColumnSelection:
    """The features in the file's order, and the columns left out, each with its reason."""

    features: tuple[str, ...]
    left_out: dict[str, str]


def choose_columns(
    table: Table,
    target: str,
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    *,
    groups: str | None = None,
    time: str | None = None,
) -> ColumnSelection:
    """Choose the features: all columns but the target, those excluded, and those that tell a model nothing.

    A column that looks like an identifier is left out, unless it is included by name or is the only one there is. So is
    the one that names groups of rows, unless it is included; the one that says when a row is from is a feature.
    Columns that cannot be used as they are are refused together, in the file's order.
    """
    names = tuple(table.kinds)
    split_by = [name for name in (groups, time) if name is not None]
    require_columns([target, *exclude, *include, *split_by], names, table.path)
    if target in split_by:
        raise DataError(f"the target cannot say which rows to hold out, got {target!r} as both; name another column")
    if target in exclude or target in include:
        raise DataError(
            f"the target cannot be a feature, got {target!r} as both; name other columns in --exclude, --include"
        )
    both = [name for name in include if name in exclude]
    if both:
        raise DataError(f"a column is either included or excluded, {both[0]!r} is both; name it once")
    left_out = dict.fromkeys(exclude, "excluded")
    if groups is not None and groups not in include:
        left_out.setdefault(groups, f"names the groups (--include {shown(groups)} uses it)")
    needed = [name for name in names if name not in left_out or name in split_by]
    refused = {name: why for name in needed if (why := _unreadable(table, name, target, include))}
    identifiers = {}
    for name in needed:
        if name == target or name in left_out or name in include or name in refused:
            continue
        reason = _useless(table, name)
        if reason:
            left_out[name] = reason
        elif table.kinds[name] != "date" and _is_identifier(table.columns[name]):
            identifiers[name] = f"looks like an identifier: all values differ (--include {shown(name)} uses it)"
    features = tuple(n for n in names if n != target and n not in left_out)
    if set(features) - set(identifiers):
        features = tuple(n for n in features if n not in identifiers)
        left_out |= identifiers
    numbers = {n: x for n in (target, *features) if isinstance(x := table.columns.get(n), np.ndarray)}
    refused |= infinities(table.path, numbers)
    refuse_columns({name: refused[name] for name in names if name in refused})
    if not features:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise DataError(
            f"a fit needs a column other than the target, {table.path} has none ({reasons or 'only the target'})"
        )
    return ColumnSelection(features, {name: left_out[name] for name in names if name in left_out})


def guess_task(values: Values) -> tuple[Task, str]:
    """Say whether a target is a quantity or a class, and why.

    >>> guess_task(np.array([0.0, 1.0, 2.0, 1.0]))
    ('classification', 'it holds the whole numbers 0 to 2')
    >>> guess_task(np.array([5.0, 6.0, 7.0, 3.0]))
    ('regression', 'it holds numbers')
    """
    if not isinstance(values, np.ndarray):
        return "classification", "it holds text"
    known = values[~np.isnan(values)]
    distinct = np.unique(known)
    if len(distinct) == 2 and (distinct == np.floor(distinct)).all():
        return "classification", f"it has only the values {distinct[0]:g} and {distinct[1]:g}"
    # Codes of classes count from 0 or 1 and come again; grades such as 3 to 9 are quantities.
    counted = np.array_equal(distinct, np.arange(len(distinct)) + distinct[0]) and distinct[0] in (0, 1)
    if counted and 2 < len(distinct) <= MAX_CLASSES and len(distinct) < len(known):
        return "classification", f"it holds the whole numbers {distinct[0]:g} to {distinct[-1]:g}"
    return "regression", "it holds numbers"


def shown(name: str) -> str:
    """Return a name as one types it in a shell."""
    return shlex.quote(name)


def _unreadable(table: Table, name: str, target: str, include: Sequence[str]) -> str | None:
    """Say why a column cannot be used for want of values that one can read; None if it can, or may be left out."""
    if name in table.refused:
        return table.refused[name]
    kept, date = name in table.columns, table.kinds[name] == "date"
    if name == target and (date or not kept):
        return (
            f"the target must hold numbers, booleans or classes, column {name!r} of {table.path} holds "
            f"{'dates' if date else TOO_MUCH_TEXT}; choose another target or turn it into numbers"
        )
    if date and not kept:
        return (
            f"dates must be written as 2024-12-31 or 2024-12-31 23:59 (ISO 8601), column {name!r} of {table.path} "
            f"holds other notations or durations; rewrite them, take them as categories (--category {shown(name)}) or "
            f"leave the column out (--exclude {shown(name)})"
        )
    if name in include and not kept:
        return (
            f"text must have few different values, column {name!r} of {table.path} holds {TOO_MUCH_TEXT}; "
            f"group them, or do not include it"
        )
    return None


def _useless(table: Table, name: str) -> str | None:
    force = f"(--include {shown(name)} uses it)"
    if name not in table.columns:
        return f"holds {TOO_MUCH_TEXT}"
    values = table.columns[name]
    if isinstance(values, np.ndarray):
        known = values[~np.isnan(values)]
        if not known.size:
            return "has no values"
        same = "the same date" if table.kinds[name] == "date" else f"{known[0]:g}"
        return f"is {same} in every row" if (known == known[0]).all() else None
    if len(values.categories) == 0:
        return "has no values"
    if len(values.categories) == 1:
        return f"is {values.categories[0]!r} in every row"
    if len(values.categories) == table.rows:
        return f"looks like an identifier: all values differ {force}"
    if len(values.categories) > max(FEWEST_ROWS, NAMES * table.rows):
        return f"looks like an identifier: {len(values.categories)} different values in {table.rows} rows {force}"
    return None


def _is_identifier(values: Values) -> bool:
    """Whether numbers only count the rows: whole, all different, and in order or without gaps."""
    if not isinstance(values, np.ndarray) or len(values) < FEWEST_ROWS or not (values == np.floor(values)).all():
        return False
    steps = np.diff(values)
    if (steps > 0).all() or (steps < 0).all():
        return True
    return bool(np.ptp(values) == len(values) - 1 and np.unique(values).size == len(values))
