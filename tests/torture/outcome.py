"""What an attack tried and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """Cases tried, how often each thing happened, and a sentence for each case that broke a promise.

    >>> Outcome(2, {"refused": 2}) + Outcome(1, {"refused": 0, "done": 1}, ["case 2: crashed"])
    Outcome(tried=3, counts={'done': 1, 'refused': 2}, bad=['case 2: crashed'])
    """

    tried: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def __add__(self, other: Outcome) -> Outcome:
        counts = Counter(self.counts)
        counts.update(other.counts)
        return Outcome(self.tried + other.tried, dict(sorted(counts.items())), self.bad + other.bad)


def total(outcomes: Iterable[Outcome]) -> Outcome:
    """Add outcomes up."""
    return sum(outcomes, Outcome())
