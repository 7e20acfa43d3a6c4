"""Bytes made up by atheris, a fuzzer that is led by what they reach, for the readers of saved models and of tables.

Only where atheris is installed (``pip install atheris``, Linux): it is no dependency of the tests.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.torture.outcome import Outcome

NAME = "fuzz_readers"
# Inputs, half of them models and half of them tables.
DEFAULT_COUNT = 20_000
SECONDS, MEGABYTES = 20, 4096


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Try ``count`` inputs; see ``tests.torture``."""
    if importlib.util.find_spec("atheris") is None:
        return Outcome(0, {"atheris is not installed": 1})
    outcome = Outcome()
    for kind, runs in (("model", count // 2), ("csv", count - count // 2)):
        report(f"{runs} inputs of the reader of {kind}, from case {first}")
        place = folder / kind
        place.mkdir()
        options = [
            f"-runs={runs}", f"-seed={1 + seed + first}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}",
            f"-artifact_prefix={place}{os.sep}",  # inputs that failed, which would lie in the repository else
        ]  # fmt: skip
        command = [sys.executable, "-m", "tests.torture.fuzz.readers", kind, str(place), *options]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=Path(__file__).parents[2])
        bad = [] if run.returncode == 0 else [f"cases from {first}, {kind}: {_end(run.stderr)}"]
        outcome += Outcome(runs, {f"{kind} inputs": runs}, bad)
    return outcome


def _end(text: str) -> str:
    """Return the line of an output that says what happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("===", "ERROR", "==")) or "Error" in line]
    return " | ".join((errors or lines or ["no word"])[-4:])[:400]
