"""Learning a column of dates, durations or times of the day."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.date import CALENDAR, Date
from knotwork.data.columns.duration import Duration
from knotwork.data.columns.instants import DAY, UNITS, Moments, lengths, wall_clock
from knotwork.data.columns.number import write_numbers
from knotwork.data.learned import Learned, fill_of, left_out

# Days that dates must span for a part of the calendar to be one of their features: time alone would say it otherwise.
SPANS = {"day of year": 548.0, "weekday": 21.0, "hour": 2.0}


def learn_date(name: str, found: Moments, weights: Floats | None, missing: str) -> Learned:
    """Learn dates: days since the first, and the parts of the calendar that repeat within their span."""
    counted = ~np.isnan(found.values) if weights is None else ~np.isnan(found.values) & (weights > 0)
    values = found.values[counted]
    if not values.size:
        return left_out(name, "has no values")
    first = wall_clock(values.min(keepdims=True), found.zone)[0].astype("datetime64[D]")
    origin = _midnight(first, found.zone)
    clock = wall_clock(values, found.zone)
    days = (values.max() - values.min()) / DAY
    calendar = tuple(part for part, span in SPANS.items() if days >= span and np.ptp(CALENDAR[part](clock)) > 0)
    daily = bool((clock == clock.astype("datetime64[D]")).all())
    fill, indicator = fill_of((found.values - origin) / DAY, weights, always=True)
    if missing == "error":
        fill, indicator = None, False
    column = Date(name, origin, found.zone, calendar, daily, fill, indicator)
    return Learned(column, lambda out: column.write_moments(found.values, out))


def _midnight(day: Any, zone: str | None) -> float:
    """Return the moment at which a day begins in a zone, or the first one after a gap in its clocks."""
    import pandas as pd

    stamp = pd.Timestamp(day)
    if zone is not None:
        stamp = stamp.tz_localize(zone, ambiguous=True, nonexistent="shift_forward").tz_convert("UTC").tz_localize(None)
    return float(stamp.to_datetime64().astype("datetime64[us]").astype(np.int64))


def learn_duration(name: str, column: nw.Series[Any], weights: Floats | None, missing: str) -> Learned:
    """Learn durations in days, or in seconds where none has two days; times of the day in hours."""
    return learn_lengths(name, lengths(column, name), is_time_of_day(column), weights, missing)


def learn_lengths(name: str, values: Floats, of_day: bool, weights: Floats | None, missing: str) -> Learned:
    """Learn lengths of time, (N,) with NaN for gaps; ``of_day`` : whether they are times of the day."""
    present = values[~np.isnan(values)]
    if not present.size:
        return left_out(name, "has no values")
    unit = "hours" if of_day else "days" if np.abs(present).max() >= 2 * DAY else "seconds"
    numbers = values / UNITS[unit]
    fill, indicator = fill_of(numbers, weights, always=True)
    if missing == "error":
        fill, indicator = None, False
    return Learned(Duration(name, unit, fill, indicator), lambda out: write_numbers(numbers, fill, indicator, out))


def is_time_of_day(column: nw.Series[Any]) -> bool:
    """Whether a column holds times of the day, not durations."""
    return column.dtype == nw.Time or (column.dtype == nw.Object and _is_time(column))


def _is_time(column: nw.Series[Any]) -> bool:
    from pandas.api.types import infer_dtype

    return infer_dtype(column.to_numpy(), skipna=True) == "time"
