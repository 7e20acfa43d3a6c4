"""Dates and durations inside an ONNX graph: from seconds to days, and the parts of the calendar, by arithmetic.

Dates are doubles, seconds since 1970-01-01 00:00 in UTC, or on the clock for dates without a time zone; durations and
times of the day are seconds. NaN is missing.
"""

from __future__ import annotations

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.date import Date
from knotwork.data.columns.duration import Duration
from knotwork.data.columns.instants import DAY, UNITS, wall_clock
from knotwork.errors import NetworkError
from knotwork.export.nodes import DOUBLE, Nodes

SECOND = 1e6
HOUR = 3600 * SECOND
# Years whose changes of the clocks a file knows; before and after them the clocks stay as they are then.
YEARS = ("1900", "2100")


def date(nodes: Nodes, x: str, column: Date) -> list[str]:
    """Features of dates: seconds (rows, 1) → days, their gaps and the parts of the calendar, (rows, 1) each."""
    days = _over(nodes, _minus(nodes, _microseconds(nodes, x), column.origin), DAY)
    features = filled(nodes, days, column.fill, column.indicator)
    if not column.calendar:
        return features
    moment = nodes.node("Round", _plus(nodes, _times(nodes, features[0], DAY), column.origin))
    if column.zone not in (None, "UTC"):
        assert column.zone is not None
        moment = nodes.node("Add", moment, _offset(nodes, moment, column.zone))
    day = _day(nodes, moment)
    for part in column.calendar:
        match part:
            case "weekday":  # 1970 began on a Thursday
                features.append(_modulo(nodes, _plus(nodes, day, 3.0), 7.0))
            case "hour":
                features.append(_over(nodes, nodes.node("Sub", moment, _times(nodes, day, DAY)), HOUR))
            case "day of year":
                features.append(_day_of_year(nodes, day))
            case _:
                raise NetworkError(f"the part {part!r} of a date has no ONNX form here; pass inputs='features'")
    return features


def duration(nodes: Nodes, x: str, column: Duration) -> list[str]:
    """Features of durations: seconds (rows, 1) → days, hours or seconds, and their gaps, (rows, 1) each."""
    lengths = _over(nodes, _microseconds(nodes, x), UNITS[column.unit])
    return filled(nodes, lengths, column.fill, column.indicator)


def filled(nodes: Nodes, x: str, fill: float | None, indicator: bool) -> list[str]:
    """Numbers without gaps, and where they were: (rows, 1) each."""
    if fill is None:
        return [x]
    gap = nodes.node("IsNaN", x)
    numbers = nodes.node("Where", gap, nodes.tensor(fill, DOUBLE), x)
    return [numbers, nodes.cast(gap, DOUBLE)] if indicator else [numbers]


def _day(nodes: Nodes, moment: str) -> str:
    """Days since 1970. The last microsecond of a day that is centuries away is rounded into the next: put it back."""
    day = _floor_over(nodes, moment, DAY)
    rest = nodes.node("Sub", moment, _times(nodes, day, DAY))
    return nodes.node("Sub", day, nodes.cast(nodes.node("Less", rest, nodes.tensor(0.0, DOUBLE)), DOUBLE))


def _day_of_year(nodes: Nodes, day: str) -> str:
    """From days since 1970 to 1 … 366: years that begin in March end with their leap day.

    The era is one of 400 years, 146 097 days; H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    """
    shifted = _plus(nodes, day, 719_468.0)  # since 0000-03-01
    of_era = _modulo(nodes, shifted, 146_097.0)
    years = nodes.node("Sub", of_era, _floor_over(nodes, of_era, 1460.0))
    years = nodes.node("Add", years, _floor_over(nodes, of_era, 36_524.0))
    years = nodes.node("Sub", years, _floor_over(nodes, of_era, 146_096.0))
    year = _floor_over(nodes, years, 365.0)
    before = _times(nodes, year, 365.0)
    before = nodes.node("Add", before, _floor_over(nodes, year, 4.0))
    before = nodes.node("Sub", before, _floor_over(nodes, year, 100.0))
    since_march = nodes.node("Sub", of_era, before)
    # Is there a 29th of February before this first of March? In year 0 of an era, and every fourth but for hundreds.
    fourth, hundredth, first = (
        nodes.node("Equal", value, nodes.tensor(0.0, DOUBLE))
        for value in (_modulo(nodes, year, 4.0), _modulo(nodes, year, 100.0), year)
    )
    leap = nodes.node("Or", first, nodes.node("And", fourth, nodes.node("Not", hundredth)))
    spring = nodes.node("Add", _plus(nodes, since_march, 60.0), nodes.cast(leap, DOUBLE))
    january = nodes.node("GreaterOrEqual", since_march, nodes.tensor(306.0, DOUBLE))
    return nodes.node("Where", january, _minus(nodes, since_march, 305.0), spring)


def _offset(nodes: Nodes, moment: str, zone: str) -> str:
    """What the clocks of a zone are ahead of UTC, by a table of their changes: microseconds, (rows, 1)."""
    first, times, steps = clock_changes(zone)
    if not len(times):
        return nodes.tensor([[first]], DOUBLE)
    passed = nodes.cast(nodes.node("GreaterOrEqual", moment, nodes.tensor(times[None], DOUBLE)), DOUBLE)
    return _plus(nodes, nodes.node("MatMul", passed, nodes.tensor(steps[:, None], DOUBLE)), first)


def clock_changes(zone: str) -> tuple[float, Floats, Floats]:
    """Return what the clocks of a zone are ahead of UTC at first, when that changes, and by how much: microseconds.

    >>> first, times, steps = clock_changes("Europe/Berlin")
    >>> [str(t) for t in times[-2:].astype("int64").astype("datetime64[us]").astype("datetime64[m]")]
    ['2099-03-29T01:00', '2099-10-25T01:00']
    >>> (steps[-2:] / 3600e6).tolist()
    [1.0, -1.0]
    """
    start, end = (np.datetime64(year, "us").astype(np.float64) for year in YEARS)

    def ahead(times: Floats) -> Floats:
        return (wall_clock(times, zone).astype(np.int64) - np.rint(times)).astype(np.float64)

    grid = np.arange(start, end + DAY, DAY)
    found = ahead(grid)
    changed = np.flatnonzero(np.diff(found))
    low, high = grid[changed], grid[changed + 1]
    # To the second, by halving the day.
    while ((high - low) > SECOND).any():
        middle = np.floor((low + high) / 2 / SECOND) * SECOND
        before = ahead(middle) == found[changed]
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    return float(found[0]), high, np.diff(found)[changed]


def _microseconds(nodes: Nodes, x: str) -> str:
    return nodes.node("Round", _times(nodes, x, SECOND))


def _plus(nodes: Nodes, x: str, number: float) -> str:
    return nodes.node("Add", x, nodes.tensor(number, DOUBLE))


def _minus(nodes: Nodes, x: str, number: float) -> str:
    return nodes.node("Sub", x, nodes.tensor(number, DOUBLE))


def _times(nodes: Nodes, x: str, number: float) -> str:
    return nodes.node("Mul", x, nodes.tensor(number, DOUBLE))


def _over(nodes: Nodes, x: str, number: float) -> str:
    return nodes.node("Div", x, nodes.tensor(number, DOUBLE))


def _floor_over(nodes: Nodes, x: str, number: float) -> str:
    return nodes.node("Floor", _over(nodes, x, number))


def _modulo(nodes: Nodes, x: str, number: float) -> str:
    """x − number·⌊x/number⌋, from 0 on."""
    return nodes.node("Sub", x, _times(nodes, _floor_over(nodes, x, number), number))
