"""The columns of a table inside an ONNX graph: what each kind takes, its features, and values to check it with.

Every column is an input (rows, 1) of its own name. Numbers and booleans are doubles, NaN where they are missing; text
is strings, "" where it is missing (unless training had "" as a category). What ``predict`` refuses, an infinity or a
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
from knotwork.data.columns.kinds import Column
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number
from knotwork.data.columns.skipped import Skipped
from knotwork.data.table import TableEncoder
from knotwork.errors import NetworkError
from knotwork.export.feed import as_text
from knotwork.export.nodes import DOUBLE, Nodes

INTEGER = np.dtype(np.int64)
# Text that no table has.
UNSEEN = "\ue000 training did not see this"
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
    if not isinstance(column, Levels):
        return False
    levels = (*column.categories, *column.pooled)
    if all(isinstance(level, str) for level in levels):
        return True
    if all(isinstance(level, (Real, np.bool_)) for level in levels):
        return False
    kinds = sorted({type(level).__name__ for level in levels})
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
                blocks += _number(nodes, column.name, column)
            case Levels():
                blocks.append(_levels(nodes, column.name, column, encoder.missing == "error"))
            case Skipped():
                pass
    return blocks[0] if len(blocks) == 1 else nodes.node("Concat", *blocks, axis=1)


def _number(nodes: Nodes, x: str, column: Number) -> list[str]:
    if column.fill is None:
        return [x]
    gap = nodes.node("IsNaN", x)
    filled = nodes.node("Where", gap, nodes.tensor(column.fill, DOUBLE), x)
    return [filled, nodes.cast(gap, DOUBLE)] if column.indicator else [filled]


def _levels(nodes: Nodes, x: str, column: Levels, refuse_gaps: bool) -> str:
    """Indicators: a code for each row, and a row of a table for each code."""
    width = len(column.feature_names)
    zeros, refused = width, width + 1  # the last rows of the table
    pool = len(column.categories) if column.pooled else zeros
    gap = width - 1 if column.gaps else refused if refuse_gaps else pool
    place = {level: k for k, level in enumerate(column.categories)} | dict.fromkeys(column.pooled, pool)
    table = nodes.tensor(np.vstack([np.eye(width), np.zeros(width), np.full(width, np.nan)]), DOUBLE)
    code = _code(nodes, x, place, pool, gap, _is_text(column))
    flat = nodes.node("Reshape", code, nodes.tensor([-1], INTEGER))
    return nodes.node("Gather", table, flat, axis=0)


def _code(nodes: Nodes, x: str, place: dict[Any, int], default: int, missing: int, is_text: bool) -> str:
    """Look every value up: (rows, 1) → (rows, 1) integers."""
    if is_text:
        return nodes.look_up(x, {"": missing} | place, default)
    levels = nodes.tensor(np.array([[float(level) for level in place]]), DOUBLE)
    places = nodes.tensor(np.array([[code - default for code in place.values()]]), INTEGER)
    hits = nodes.cast(nodes.node("Equal", x, levels), INTEGER)
    found = nodes.node("ReduceSum", nodes.node("Mul", hits, places), nodes.tensor([1], INTEGER), keepdims=1)
    found = nodes.node("Add", found, nodes.tensor(default, INTEGER))
    return nodes.node("Where", nodes.node("IsNaN", x), nodes.tensor(missing, INTEGER), found)


def refused(nodes: Nodes, rows: str) -> str:
    """Return 0 where all features of a row are finite and NaN elsewhere: (rows, d) → (rows, 1)."""
    zeros = nodes.node("Mul", rows, nodes.tensor(0.0, DOUBLE))
    return nodes.node("ReduceSum", zeros, nodes.tensor([1], INTEGER), keepdims=1)


def raw_rows(encoder: TableEncoder, rows: Floats, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Make a table whose features are like some rows (N, d): the same numbers, with gaps, and categories at random."""
    table: dict[str, NDArray[Any]] = {}
    position = 0
    for column in encoder.columns:
        block = rows[:, position : position + len(column.feature_names)]
        position += block.shape[1]
        odd = rng.random(len(rows)) < SURPRISES
        match column:
            case Number():
                values = block[:, 0].copy()
                if column.fill is not None:
                    values[odd] = np.nan
            case Levels():
                values = _some_levels(column, len(rows), encoder.missing != "error", odd, rng)
            case Skipped():
                values = np.zeros(len(rows))
        table[column.name] = values
    return table


def _some_levels(
    column: Levels, rows: int, gaps: bool, odd: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[Any]:
    levels: Sequence[Any] = (*column.categories, *column.pooled)
    is_text = _is_text(column)
    values = np.empty(rows, dtype=object)
    values[:] = [levels[k] for k in rng.integers(len(levels), size=rows)]
    unseen: Any = UNSEEN if is_text else float(max(levels)) + 1.5
    # Where "" is a category, a file has no way to say that a text is missing.
    strange = [None if is_text else np.nan, unseen] if gaps and "" not in levels else [unseen]
    values[odd] = [strange[k] for k in rng.integers(len(strange), size=int(odd.sum()))]
    return values if is_text else values.astype(np.float64)


def feed(table: dict[str, NDArray[Any]], inputs: Sequence[Input]) -> dict[str, NDArray[Any]]:
    """Return a table as onnxruntime takes it."""
    return {
        column.name: as_text(table[column.name]) if column.is_text else table[column.name].astype(np.float64)[:, None]
        for column in inputs
    }
