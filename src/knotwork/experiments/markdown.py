"""Tables and numbers of the report, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Record = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, numbers to the right.

    >>> print(table(["a", "b"], [["x", "1"]]))
    | a | b |
    |---|---:|
    | x | 1 |
    """
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Return four digits, or nothing for a figure that does not exist."""
    return "" if value is None else f"{value:.4g}"


def spread(entry: Record) -> str:
    """Return a mean with its 95 % interval."""
    if entry["low"] is None:
        return number(entry["mean"])
    return f"{entry['mean']:.4g} [{entry['low']:.4g}, {entry['high']:.4g}]"
