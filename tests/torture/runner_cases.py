"""An attack for the tests of the runner; it has no name, so the runner does not find it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.torture.outcome import Outcome


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Seed 1 dies at case 7, seed 2 hangs there; otherwise every tenth case is bad."""
    bad = []
    for case in range(first, first + count):
        report(f"case {case}")
        if case == 7 and seed == 1:
            os._exit(9)
        if case == 7 and seed == 2:
            time.sleep(600)
        if case % 10 == 0:
            bad.append(f"case {case}")
    return Outcome(count, {"even": len(range(first + first % 2, first + count, 2))}, bad)
