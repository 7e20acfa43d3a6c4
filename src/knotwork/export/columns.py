"""The columns of a table inside an ONNX graph: what each kind takes, its features, and values to check it with.

Every column is an input (rows, 1) of its own name. Numbers and booleans are doubles, NaN where they are missing; text
is strings, "" where it is missing (unless training had "" as a category); dates are seconds since 1970, durations and
times of the day seconds (:mod:`knotwork.export.dates`). What ``predict`` refuses, an infinity or a
gap in a model of ``missing="error"``, makes the outputs NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.columns.date import Date
from knotwork.data.columns.duration import Duration
from knotwork.data.columns.instants import DAY, UNITS
from knotwork.data.columns.kinds import Categories, Column
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number
from knotwork.data.columns.ordered import Ordered
from knotwork.data.columns.skipped import Skipped
from knotwork.data.table import TableEncoder
from knotwork.errors import NetworkError
from knotwork.export.dates import SECOND, date, duration, filled
from knotwork.export.feed import as_text
from knotwork.export.nodes import DOUBLE, Nodes

INTEGER = np.dtype(np.int64)
# Text that no table has.
UNSEEN = "\ue000 training did not see this"
# Moments that the rows of a check may have: years 1800 to 2200.
RANGE = (-5.36e15, 7.25e15)
# Share of the rows of a check that have a gap, or a category that training did not see.
SURPRISES = 0.15


@dataclass(frozen=True)
class Input:
    """An input of the graph: a column's name, and whether it is text."""

    name: str
    is_text: bool


def inputs_of(encoder: TableEncoder) -> list[Input]:
    """Return the inputs of a table's columns, less those that nothing is made of."""
    found = []
    for column in encoder.columns:
        if isinstance(column, Skipped):
            continue
        name = column.name
        if not name or "\0" in name or not _is_unicode(name):
            raise NetworkError(
                f"an ONNX file's inputs are named after the columns and need printable names, got {name!r}; rename the "
                f"column, or pass inputs='features'"
            )
        found.append(Input(name, _is_text(column)))
    return found


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_text(column: Column) -> bool:
    if not isinstance(column, Categories):
        return False
    if all(isinstance(level, str) for level in column.known):
        return True
    if all(isinstance(level, Real) for level in column.known):
        return False
    kinds = sorted({type(level).__name__ for level in column.known})
    raise NetworkError(
        f"an ONNX file takes categories that are text or numbers, column {column.name!r} has {' and '.join(kinds)}; "
        f"turn them into text before the fit, or pass inputs='features'"
    )


def features(nodes: Nodes, encoder: TableEncoder) -> str:
    """Write the encoder as nodes; return the name of the features (rows, d), doubles."""
    blocks = []
    for column in encoder.columns:
        match column:
            case Number():
                blocks += filled(nodes, column.name, column.fill, column.indicator)
            case Date():
                blocks += date(nodes, column.name, column)
            case Duration():
                blocks += duration(nodes, column.name, column)
            case Levels() | LevelMeans() | Ordered():
                blocks.append(_looked_up(nodes, column.name, _look_up(column, encoder.missing), _is_text(column)))
            case Skipped():
                pass
    return blocks[0] if len(blocks) == 1 else nodes.node("Concat", *blocks, axis=1)


@dataclass(frozen=True)
class LookUp:
    """Categories by a table: each has a row of it, and so have all unseen ones together, and gaps.

    rows : of each category; table : (rows, features)
    """

    rows: dict[Any, int]
    unseen: int
    gap: int
    table: Floats


def _look_up(column: Categories, missing: str) -> LookUp:
    """Return the table of a column: a row for each category, for those that training did not see, and for gaps."""
    width = len(column.feature_names)
    match column:
        case Levels():
            own, known = len(column.categories), column.categories
            table = np.eye(own, width)
            unseen = np.eye(1, width, own)[0] if column.pooled else np.zeros(width)
            gap = np.eye(1, width, width - 1)[0] if column.gaps else unseen
        case LevelMeans():
            known, table, unseen = column.levels, column.means, column.default
            gap = column.default if column.gap is None else column.gap
        case Ordered():
            known = column.categories
            table = np.outer(np.arange(len(known)), np.eye(1, width)[0])
            # What has no place in the order counts as missing.
            unseen = gap = np.array([np.nan if column.fill is None else column.fill, 1.0])[:width]
    if missing == "error":
        gap = np.full(width, np.nan)
    rows = {level: k for k, level in enumerate(known)}
    count = len(rows)
    if isinstance(column, Levels):  # those too rare are like those that training did not see
        rows |= dict.fromkeys(column.pooled, count)
    return LookUp(rows, count, count + 1, np.vstack([table, unseen, gap]))


def _looked_up(nodes: Nodes, x: str, look_up: LookUp, is_text: bool) -> str:
    """Look every value up: (rows, 1) → (rows, features)."""
    if is_text:
        code = nodes.look_up(x, {"": look_up.gap} | look_up.rows, look_up.unseen)
    else:
        code = _code_of_number(nodes, x, look_up)
    flat = nodes.node("Reshape", code, nodes.tensor([-1], INTEGER))
    return nodes.node("Gather", nodes.tensor(look_up.table, DOUBLE), flat, axis=0)


def _code_of_number(nodes: Nodes, x: str, look_up: LookUp) -> str:
    """Compare with all categories: (rows, 1) → (rows, 1) integers."""
    levels = nodes.tensor([[float(level) for level in look_up.rows]], DOUBLE)
    beyond = nodes.tensor([[row - look_up.unseen for row in look_up.rows.values()]], INTEGER)
    hits = nodes.cast(nodes.node("Equal", x, levels), INTEGER)
    found = nodes.node("ReduceSum", nodes.node("Mul", hits, beyond), nodes.tensor([1], INTEGER), keepdims=1)
    found = nodes.node("Add", found, nodes.tensor(look_up.unseen, INTEGER))
    return nodes.node("Where", nodes.node("IsNaN", x), nodes.tensor(look_up.gap, INTEGER), found)


def refused(nodes: Nodes, rows: str) -> str:
    """Return 0 where all features of a row are finite and NaN elsewhere: (rows, d) → (rows, 1)."""
    zeros = nodes.node("Mul", rows, nodes.tensor(0.0, DOUBLE))
    return nodes.node("ReduceSum", zeros, nodes.tensor([1], INTEGER), keepdims=1)


def raw_rows(encoder: TableEncoder, rows: Floats, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Make a table whose features are like some rows (N, d): the same numbers, with gaps, and categories at random.

    Its values are those that a file takes, with None for missing text; :func:`as_table` makes a frame of them.
    """
    table: dict[str, NDArray[Any]] = {}
    position = 0
    for column in encoder.columns:
        block = rows[:, position : position + len(column.feature_names)]
        position += block.shape[1]
        odd = rng.random(len(rows)) < SURPRISES
        match column:
            case Levels() | LevelMeans() | Ordered():
                values = _some_levels(column, len(rows), encoder.missing, odd, rng)
            case Number() | Date() | Duration():
                values = _in_raw_units(column, block[:, 0])
                if column.fill is not None:
                    values[odd] = np.nan
            case Skipped():
                values = np.zeros(len(rows))
        table[column.name] = values
    return table


def _in_raw_units(column: Number | Date | Duration, values: Floats) -> Floats:
    """Return what a file is given for a feature: numbers as they are, dates and durations in seconds."""
    match column:
        case Date():
            return np.rint(np.clip(column.origin + values * DAY, *RANGE)) / SECOND
        case Duration():
            return np.rint(np.clip(values * UNITS[column.unit], *RANGE)) / SECOND
    return values.copy()


def as_table(encoder: TableEncoder, table: dict[str, NDArray[Any]]) -> Any:
    """Return values that a file takes as the table that ``predict`` takes: dates as dates."""
    import pandas as pd

    frame = {}
    for column in encoder.columns:
        values: Any = table[column.name]
        if isinstance(column, (Date, Duration)):
            gaps = np.isnan(values)
            whole = np.rint(np.where(gaps, 0.0, values) * SECOND).astype(np.int64)
            kind = "datetime64[us]" if isinstance(column, Date) else "timedelta64[us]"
            values = pd.Series(whole.astype(kind)).mask(gaps)
            if isinstance(column, Date) and column.zone is not None:
                values = values.dt.tz_localize("UTC").dt.tz_convert(column.zone)
        frame[column.name] = values
    return pd.DataFrame(frame)


def _some_levels(
    column: Categories, rows: int, missing: str, odd: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[Any]:
    levels, is_text = column.known, _is_text(column)
    values = np.empty(rows, dtype=object)
    values[:] = [levels[k] for k in rng.integers(len(levels), size=rows)]
    gap: Any = None if is_text else np.nan
    unseen: Any = UNSEEN if is_text else float(max(levels)) + 1.5
    strange = [unseen]
    if isinstance(column, Ordered) and column.fill is None:
        strange = []  # refused
    elif missing != "error" and "" not in levels:  # where "" is a category, a file cannot say that a text is missing
        strange.append(gap)
    if strange:
        values[odd] = [strange[k] for k in rng.integers(len(strange), size=int(odd.sum()))]
    return values if is_text else values.astype(np.float64)


def feed(table: dict[str, NDArray[Any]], inputs: Sequence[Input]) -> dict[str, NDArray[Any]]:
    """Return a table as onnxruntime takes it."""
    return {
        column.name: as_text(table[column.name]) if column.is_text else table[column.name].astype(np.float64)[:, None]
        for column in inputs
    }
