"""A column of dates: days since the first one, and the parts of the calendar that may matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.instants import DAY, moment_text, moments, wall_clock
from knotwork.data.columns.number import gap_name, write_numbers
from knotwork.data.columns.part import Part
from knotwork.data.columns.surprise import Surprise
from knotwork.errors import DataError

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _day_of_year(clock: Any) -> Floats:
    return ((clock.astype("datetime64[D]") - clock.astype("datetime64[Y]")).astype(np.float64)) + 1


def _weekday(clock: Any) -> Floats:
    return (clock.astype("datetime64[D]").astype(np.int64) + 3) % 7.0  # 1970 began on a Thursday


def _hour(clock: Any) -> Floats:
    return (clock - clock.astype("datetime64[D]")).astype(np.float64) / 3600e6


# By name, from what the clocks show.
CALENDAR: dict[str, Callable[[Any], Floats]] = {"day of year": _day_of_year, "weekday": _weekday, "hour": _hour}


@dataclass(frozen=True)
class Date:
    """Dates, with times of the day or without: a number of days, and parts of the calendar as numbers of their own.

    origin : the midnight that days are counted from, of the first day in training: microseconds since 1970 in UTC
    zone : the time zone whose calendar counts, None for dates without one
    calendar : the parts of the calendar that are features, of :data:`CALENDAR`
    daily : whether all dates of training were midnights
    fill : days that stand for a gap, the median of training; None if gaps are refused
    indicator : whether training had gaps

    Examples
    --------
    >>> Date("sold", 1.5e15, None, ("weekday",), True).feature_names
    ('sold', 'sold: weekday')
    """

    name: str
    origin: float
    zone: str | None
    calendar: tuple[str, ...]
    daily: bool
    fill: float | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Days, whether they are missing, and the parts of the calendar."""
        gap = (gap_name(self.name),) if self.indicator else ()
        return (self.name, *gap, *(f"{self.name}: {part}" for part in self.calendar))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The date, and each part of the calendar."""
        date = Part(
            self.name, fill=self.fill if self.indicator else None, origin=self.origin, zone=self.zone, daily=self.daily
        )
        steps = {"weekday": WEEKDAYS}
        return (date, *(Part(f"{self.name}: {part}", steps=steps.get(part)) for part in self.calendar))

    @property
    def note(self) -> str:
        """How to read it."""
        gaps = f"; missing ones count as {self.parts[0].text(self.fill or 0.0)}" if self.indicator else ""
        return f"{self.name}: days since {moment_text(self.origin, self.zone, self.daily)}{gaps}"

    def write(self, values: Any, out: Floats) -> Surprise:
        """Write the features of a series into their place."""
        found = moments(values, self.name, self.zone)
        if (found.zone is None) != (self.zone is None):
            had, has, advice = (
                (f"the time zone {self.zone}", "none", "say in which zone its times are (tz_localize)")
                if self.zone
                else ("no time zone", found.zone, "convert it to the zone of training and take the zone away")
            )
            raise DataError(f"column {self.name!r} had {had} in training and now has {has}; {advice}")
        return self.write_moments(found.values, out)

    def write_moments(self, values: Floats, out: Floats) -> Surprise:
        """Write the features of moments, NaN for gaps, into their place."""
        width = 1 + self.indicator
        surprise = write_numbers((values - self.origin) / DAY, self.fill, self.indicator, out[:, :width])
        if self.calendar:
            gaps = np.isnan(out[:, 0])  # without a fill
            clock = wall_clock(self.origin + np.where(gaps, 0.0, out[:, 0]) * DAY, self.zone)
            for k, part in enumerate(self.calendar):
                out[:, width + k] = CALENDAR[part](clock)
        return surprise
