"""Processes killed while they save: the folder holds the model from before or the new one, and nothing piles up.

A kill comes at a random moment, or just before one of the file operations of a save. Some folders suffer two of them
in a row, some are empty before, some hold a model of schema 2.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import knotwork as kw
from knotwork.errors import KnotworkError
from tests.saved.make import HERE
from tests.torture.outcome import Outcome
from tests.torture.processes import ended, forked

NAME = "kill_saving"
DEFAULT_COUNT = 200
SHORT_COUNT = 12
FORKS = True
# File operations that Python announces; a save has about thirty of them.
OPERATIONS = 40
# Seconds within which a random moment lies: a few saves long.
MOMENTS = 0.04


def models() -> list[kw.Spline]:
    """Models of different sizes; the last is the one of the fixture of schema 2."""
    made = [
        kw.Spline(tuple(kw.Hinge(0, 0.1 * k, 1) for k in range(size)), [float(size)], np.ones((size, 1)), ("x",))
        for size in (1, 20, 300)
    ]
    return [*made, kw.load(HERE / "0.1.0-schema-2" / "spline")]


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Kill ``count`` processes; see ``tests.torture``."""
    made = models()
    counts: Counter[str] = Counter()
    bad: list[str] = []
    for case in range(first, first + count):
        report(f"case {case}")
        rng = np.random.default_rng([seed, case])
        place = folder / "model"
        shutil.rmtree(place, ignore_errors=True)
        begin = rng.choice(["empty", "model", "schema 2"], p=[0.1, 0.7, 0.2])
        if begin == "model":
            kw.save(made[0], place)
        elif begin == "schema 2":
            shutil.copytree(HERE / "0.1.0-schema-2" / "spline", place)
            (place / "expected.json").unlink()
        for _ in range(2 if rng.random() < 0.4 else 1):
            how = kill(place, made[:3], rng)
            counts[how] += 1
            sentence = "save raised" if how == "save raised" else wrong(place, made, begin == "empty")
            if sentence:
                bad.append(f"case {case}, {begin} folder: {sentence}")
        kw.save(made[1], place, overwrite=True)
        left = sorted(os.listdir(place))
        if kw.load(place) != made[1] or len(left) != 2 + (begin == "schema 2" and "model.safetensors" in left):
            bad.append(f"case {case}, {begin} folder: the next save left {left}")
    return Outcome(count, dict(counts), bad)


def kill(place: Path, made: list[kw.Spline], rng: np.random.Generator) -> str:
    """Begin to save in another process, and kill it; return how."""
    operation = int(rng.integers(OPERATIONS)) if rng.random() < 0.6 else None
    moment, offset = float(rng.uniform(0, MOMENTS)), int(rng.integers(3))

    def save_for_ever() -> None:
        if operation is not None:
            _kill_before(operation)
        for k in itertools.count(offset):
            kw.save(made[k % 3], place, overwrite=True)

    child = forked(save_for_ever)
    if operation is None:
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
    if ended(child) != -signal.SIGKILL:
        return "save raised"
    return "killed at a moment" if operation is None else "killed before a file operation"


def _kill_before(operation: int) -> None:
    """Let this process kill itself at one of its next file operations."""
    left = itertools.count(operation, -1)

    def hook(event: str, _: object) -> None:
        if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.chmod", "os.scandir") and not next(
            left
        ):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def wrong(place: Path, made: list[kw.Spline], empty: bool) -> str | None:
    """Say what is wrong with what a killed process has left."""
    try:
        found = kw.load(place)
    except KnotworkError as error:
        return None if empty and not (place / "model.json").exists() else f"it does not load: {error}"
    except Exception as error:
        return f"load raised {type(error).__name__}: {error}"
    return None if any(found == model for model in made) else "it holds another model"
