"""Monotone effects as scikit-learn asks for them: ``monotonic_cst`` of columns, as signs of encoded features."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from knotwork.data.columns.date import Date
from knotwork.data.columns.kinds import Column
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.columns.levels import Levels
from knotwork.data.table import TableEncoder
from knotwork.parameters import shown


def monotone_features(monotonic_cst: Any, encoder: TableEncoder) -> tuple[int, ...] | None:
    """Return 1, −1 or 0 for each encoded feature; None if nothing is asked for.

    A column's own numbers get its sign; whether it is missing has an effect of its own.
    """
    if monotonic_cst is None:
        return None
    signs = _by_column(monotonic_cst, encoder)
    found: list[int] = []
    for column, sign in zip(encoder.columns, signs, strict=True):
        if sign != 0:
            _require_order(column)
        found += [sign if place == 0 else 0 for place in range(len(column.feature_names))]
    return tuple(found) if any(found) else None


def _by_column(monotonic_cst: Any, encoder: TableEncoder) -> list[int]:
    names = [column.name for column in encoder.columns]
    if isinstance(monotonic_cst, Mapping):
        unknown = [key for key in monotonic_cst if key not in names]
        if unknown:
            raise ValueError(f"monotonic_cst must name columns of X, got {unknown[0]!r}; they are {names[:8]}")
        values = [monotonic_cst.get(name, 0) for name in names]
    else:
        try:
            array = np.asarray(monotonic_cst, dtype=object)
        except Exception as error:  # an object of the caller's, which may raise anything
            raise ValueError(
                f"monotonic_cst must have one entry for each of the {len(names)} columns, got {shown(monotonic_cst)}, "
                f"which is no array"
            ) from error
        if array.shape != (len(names),):
            raise ValueError(
                f"monotonic_cst must have one entry for each of the {len(names)} columns, got shape {array.shape}"
            )
        values = array.tolist()
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, Real) or isinstance(value, bool) or value not in (-1, 0, 1):
            raise ValueError(f"monotonic_cst must hold -1, 0 or 1 for each column, got {shown(value)} for {name!r}")
    return [int(value) for value in values]


def _require_order(column: Column) -> None:
    if isinstance(column, Levels | LevelMeans):
        raise ValueError(
            f"monotonic_cst is for columns with an order, {column.name!r} holds categories without one; make it an "
            f"ordered categorical, or leave it out"
        )
    if isinstance(column, Date) and column.calendar:
        raise ValueError(
            f"monotonic_cst cannot hold for {column.name!r}, whose {', '.join(column.calendar)} count too; pass the "
            f"date as a number of days"
        )
