"""Moments in time and lengths of time as float64: microseconds since 1970 in UTC, microseconds.

Floats hold microseconds exactly within 285 years of 1970.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.series import texts, what_it_holds
from knotwork.data.columns.wording import is_gap_word
from knotwork.errors import DataError

DAY = 86_400e6
UNITS = {"days": DAY, "hours": 3600e6, "seconds": 1e6}

ISO_DATE = re.compile(
    r"\s*\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?\s*(?P<zone>Z|[+-]\d\d(:?\d\d)?)?)?\s*", re.IGNORECASE
)


@dataclass(frozen=True)
class Moments:
    """Moments (N,), NaN for gaps, and the time zone that they are told in: None for none."""

    values: Floats
    zone: str | None


def moments(column: nw.Series[Any], name: str, zone: str | None = None) -> Moments:
    """Read dates and times of a day: of a type of their own, Python's, or texts as ISO 8601 writes them.

    zone : of a column that has no value to tell it by
    """
    zoned = zoned_dates(column)
    if zoned is not None:
        return zoned
    if column.dtype == nw.Date or isinstance(column.dtype, nw.Datetime):
        its_zone = column.dtype.time_zone if isinstance(column.dtype, nw.Datetime) else None
        return Moments(np.asarray(column.dt.timestamp("us").to_numpy(), dtype=np.float64), its_zone)
    if column.dtype in (nw.String, nw.Object, nw.Categorical):
        codes, levels = factorise_objects(column)
        known = [k for k, level in enumerate(levels) if not is_gap_word(level)]
        found = parsed_dates([levels[k] for k in known])
        if not known:  # gaps are of no zone
            return Moments(np.full(len(codes), np.nan), zone)
        if found is not None:
            values = np.full(len(levels) + 1, np.nan)  # the last is a gap's
            values[known] = found.values
            return Moments(values[codes], found.zone)
    raise DataError(
        f"column {name!r} held dates in training and now holds {what_it_holds(column)}; convert it to dates, or write "
        f"them as 2024-12-31"
    )


def zoned_dates(column: nw.Series[Any]) -> Moments | None:
    """Read pandas' dates of a time zone, some of which narwhals does not know (America/New_York); None for others."""
    import pandas as pd

    native = nw.to_native(column)
    if not isinstance(native, pd.Series) or not isinstance(native.dtype, pd.DatetimeTZDtype):
        return None
    whole = native.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
    values = np.where(np.isnat(whole), np.nan, whole.astype(np.int64).astype(np.float64))
    return Moments(values, str(native.dtype.tz))


def parsed_dates(levels: list[Any]) -> Moments | None:
    """Return Python's dates, or texts of dates as ISO 8601 writes them; None if they are none."""
    import pandas as pd

    if not levels or not all(not isinstance(v, str) or ISO_DATE.fullmatch(v) for v in levels):
        return None
    # One with a zone makes them all moments in UTC, whichever row it is in.
    zoned = any(_has_zone(level) for level in levels)
    try:
        found = pd.to_datetime(pd.Index(levels, dtype=object), format="ISO8601", utc=zoned)
        whole = np.asarray(found.tz_localize(None) if found.tz is not None else found, dtype="datetime64[us]")
    except (ValueError, TypeError, OverflowError, AttributeError):
        return None
    if np.isnat(whole).any():
        return None
    return Moments(whole.astype(np.int64).astype(np.float64), "UTC" if zoned else None)


def _has_zone(value: Any) -> bool:
    if not isinstance(value, str):
        return getattr(value, "tzinfo", None) is not None
    found = ISO_DATE.fullmatch(value)
    return found is not None and found.group("zone") is not None


def lengths(column: nw.Series[Any], name: str) -> Floats:
    """Read durations, or times of a day since midnight, as microseconds: (N,), NaN for gaps."""
    if isinstance(column.dtype, nw.Duration):
        values = column.to_numpy()
        if values.dtype.kind == "m":  # narwhals loses a microsecond of some that pandas has, to rounding
            whole = values.astype("timedelta64[us]")
            return np.where(np.isnat(whole), np.nan, whole.astype(np.int64))
        return np.asarray(column.dt.total_microseconds().to_numpy(), dtype=np.float64)
    if column.dtype in (nw.Time, nw.Object):
        codes, levels = factorise_objects(column)
        found = [_length(level) for level in levels]
        if None not in found:
            return np.array([*found, np.nan], dtype=np.float64)[codes]
    raise DataError(
        f"column {name!r} held durations or times in training and now holds {what_it_holds(column)}; convert it first"
    )


def factorise_objects(column: nw.Series[Any]) -> tuple[Any, list[Any]]:
    """Return codes and different values of a column of Python objects, as they are."""
    import pandas as pd

    codes, levels = pd.factorize(texts(column))
    return codes, list(levels)


def _length(value: Any) -> float | None:
    import datetime as dt

    if isinstance(value, dt.time):
        seconds = 3600 * value.hour + 60 * value.minute + value.second
        return 1e6 * seconds + value.microsecond
    return value / dt.timedelta(microseconds=1) if isinstance(value, dt.timedelta) else None


def wall_clock(values: Floats, zone: str | None) -> Any:
    """Return what the clocks of a zone show at moments without gaps: datetime64[us], (N,)."""
    import pandas as pd

    whole = np.rint(values).astype(np.int64).astype("datetime64[us]")
    if zone is None or zone == "UTC":
        return whole
    return np.asarray(pd.DatetimeIndex(whole, tz="UTC").tz_convert(zone).tz_localize(None), dtype="datetime64[us]")


def moment_text(value: float, zone: str | None, daily: bool) -> str:
    """Return a moment as people write it, to the minute; the date alone at midnight, or if ``daily``.

    >>> moment_text(1.6e15, "Europe/Berlin", daily=False)
    '2020-09-13 14:27'
    """
    try:
        clock = wall_clock(np.array([value + (0 if daily else 30e6)]), zone)[0]
        day = np.datetime_as_string(clock, "D")
    except (ValueError, OverflowError):
        return f"{value / DAY:.6g} days since 1970"
    minutes = int((clock - clock.astype("datetime64[D]")) / np.timedelta64(1, "m"))
    return str(day) if daily or not minutes else f"{day} {minutes // 60:02d}:{minutes % 60:02d}"
