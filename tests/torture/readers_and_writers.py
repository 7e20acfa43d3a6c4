"""Processes that save into one folder and others that load from it, all at once.

A reader finds one of the models that were saved, whole; a writer is never refused. A case is a round of two writers and
two readers.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import knotwork as kw
from tests.torture.kill_saving import models
from tests.torture.outcome import Outcome

NAME = "readers_and_writers"
DEFAULT_COUNT = 60
SHORT_COUNT = 1
FORKS = True
# Seconds of a round, and those after which a process that says nothing counts as hung: a save waits for up to 60.
SECONDS, PATIENCE = 1.0, 90.0


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Run ``count`` rounds; see ``tests.torture``."""
    made = models()[:3]
    counts: Counter[str] = Counter()
    bad: list[str] = []
    for case in range(first, first + count):
        report(f"case {case}")
        place = folder / "model"
        shutil.rmtree(place, ignore_errors=True)
        kw.save(made[0], place)
        for what, number, sentence in _round(place, made, [seed, case]):
            counts[what] += number
            if sentence:
                bad.append(f"case {case}: {sentence}")
        if len(os.listdir(place)) != 2:
            bad.append(f"case {case}: left {sorted(os.listdir(place))}")
    return Outcome(count, dict(counts), bad)


def _round(place: Path, made: list[kw.Spline], seed: list[int]) -> list[tuple[str, int, str | None]]:
    context = multiprocessing.get_context("fork")
    works = [_save, _save, _load, _load]
    pipes = [context.Pipe() for _ in works]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the children only save and load
        processes = [
            context.Process(target=_work, args=(w, place, made, [*seed, k], theirs), daemon=True)
            for k, (w, (_, theirs)) in enumerate(zip(works, pipes, strict=True))
        ]
        for process in processes:
            process.start()
    found = [
        ours.recv() if ours.poll(PATIENCE) else (f"{w.__name__[1:]}s", 0, f"{w.__name__[1:]} hung or died")
        for w, (ours, _) in zip(works, pipes, strict=True)
    ]
    for process in processes:
        process.join(PATIENCE)
        process.kill()
    return found


def _work(work, place, made, seed, pipe) -> None:  # type: ignore[no-untyped-def]
    """Save or load until the round is over; report how often, and the first thing that went wrong."""
    rng, number, sentence = np.random.default_rng(seed), 0, None
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and sentence is None:
        try:
            sentence = work(place, made, rng)
            number += 1
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            sentence = f"{work.__name__[1:]} raised {type(error).__name__}: {error} ({last.name})"
    pipe.send((f"{work.__name__[1:]}s", number, sentence))


def _save(place: Path, made: list[kw.Spline], rng: np.random.Generator) -> None:
    kw.save(made[rng.integers(3)], place, overwrite=True)


def _load(place: Path, made: list[kw.Spline], rng: np.random.Generator) -> str | None:
    found = kw.load(place)
    return None if any(found == model for model in made) else "a model that nobody saved"
