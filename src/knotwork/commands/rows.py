"""Which rows of a table a fit uses: those with a target, less a part held out to measure the error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from knotwork.data.split import held_out, row_numbers
from knotwork.errors import DataError

if TYPE_CHECKING:
    from knotwork.data.column_selection import ColumnSelection
    from knotwork.data.files import Table


@dataclass(frozen=True)
class Rows:
    """The rows of a table by what they serve for, as numbers; ``notes`` says which were dropped.

    groups : a code for each training row if rows are held out by groups
    """

    train: NDArray[np.intp]
    test: NDArray[np.intp]
    notes: tuple[str, ...] = ()
    groups: NDArray[np.float64] | None = None


def choose_rows(
    table: Table,
    target: str,
    column_selection: ColumnSelection,
    drop_missing: bool,
    test_size: float,
    seed: int,
    *,
    groups: str | None = None,
    time: str | None = None,
) -> Rows:
    """Drop rows without a target, and those with missing features if asked to; hold a part out.

    Whole groups are held out if a column names them, the latest rows if a column says when; training rows are then in
    the order of time.
    """
    notes = []
    kept = ~table.missing(target)
    if not kept.all():
        notes.append(dropped_note(int(table.rows - kept.sum()), table.rows, target))
    counts = {name: int((table.missing(name) & kept).sum()) for name in column_selection.features}
    gaps = {name: count for name, count in counts.items() if count}
    before = kept.sum()
    for name in gaps if drop_missing else ():
        kept &= ~table.missing(name)
    if gaps and drop_missing:
        notes.append(f"{before - kept.sum()} rows with missing values in {', '.join(map(repr, gaps))} were dropped")
    elif gaps:
        shown = ", ".join(f"{name!r} ({count} row{'s' * (count > 1)})" for name, count in gaps.items())
        notes.append(f"missing values are kept, and may have an effect of their own: {shown}")
    rows = np.flatnonzero(kept)
    if len(rows) < 2:
        raise DataError(f"a fit needs at least 2 rows with a target, {table.path} has {len(rows)}; add rows")
    codes = None
    if groups is not None:
        codes = _codes(table, groups, rows, "--groups")
    elif time is not None:
        times = _codes(table, time, rows, "--time")
        order = np.argsort(times, kind="stable")
        rows, times = rows[order], times[order]
    if test_size == 0:
        return Rows(rows, rows[:0], tuple(notes), codes)
    if codes is not None:
        held = held_out(codes[:, None], test_size, seed)
        notes.append(
            f"whole groups of {groups!r} are held out, {np.unique(codes[held]).size} of {np.unique(codes).size}"
        )
    elif time is not None:
        held = _latest(times, test_size)
        notes.append(f"the latest rows by {time!r} are held out")
    else:
        held = _held_out(table, column_selection.features, rows, test_size, seed)
    if len(rows) - held.sum() < 2 or not held.any():
        notes.append("too few different rows to hold any out: the error is that of the training rows")
        return Rows(rows, rows[:0], tuple(notes), codes)
    return Rows(rows[~held], rows[held], tuple(notes), None if codes is None else codes[~held])


def dropped_note(dropped: int, rows: int, target: str) -> str:
    """Say how many rows were dropped for want of a target.

    >>> dropped_note(1, 300, "y"), dropped_note(12, 300, "y")
    ("1 of 300 rows has no 'y' and was dropped", "12 of 300 rows have no 'y' and were dropped")
    """
    verbs = ("has", "was") if dropped == 1 else ("have", "were")
    return f"{dropped} of {rows} rows {verbs[0]} no {target!r} and {verbs[1]} dropped"


def _codes(table: Table, name: str, rows: NDArray[np.intp], option: str) -> NDArray[np.float64]:
    """Return a column as numbers: equal where its values are, and in their order."""
    values = table.columns.get(name)
    if values is None:
        raise DataError(
            f"{option} takes a column of numbers, of dates as 2024-12-31 or of texts, {name!r} of {table.path} holds "
            f"too many texts; turn it into numbers first"
        )
    gaps = table.missing(name)[rows]
    if gaps.any():
        raise DataError(
            f"{option} takes a column without missing values, {name!r} of {table.path} has {gaps.sum()} of them; fill "
            f"them in before"
        )
    if isinstance(values, np.ndarray):
        return values[rows]
    ranks = np.argsort(np.argsort(np.asarray(values.categories, dtype=str)))
    return ranks[values.codes[rows]].astype(np.float64)


def _latest(times: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Mark about this share of the rows, the latest; rows of one time stay together."""
    first = np.sort(times)[-max(1, round(share * len(times)))]
    held = times >= first
    return times > first if held.all() else held


def _held_out(
    table: Table, features: Sequence[str], rows: NDArray[np.intp], share: float, seed: int
) -> NDArray[np.bool_]:
    """Mark rows to hold out, by what they hold: copies of a row stay together, or the error would look too low."""
    mixed = np.zeros(len(rows))
    for name in features:
        values = table.columns[name]
        column = (values if isinstance(values, np.ndarray) else values.codes.astype(np.float64))[rows]
        mixed = row_numbers(np.column_stack([mixed, column]), seed).astype(np.float64)
    return held_out(mixed[:, None], share, seed)
