"""Finished work is kept, one small file per task, so that an interrupted run goes on where it stopped.

A task is a function of this room and its arguments. Its file is named after both and after the code that computes it:
another configuration, or another version of the code, never meets an old result.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from knotwork.atomic import atomic_file
from knotwork.experiments.protocol import Plan
from knotwork.experiments.threads import one_thread, one_thread_for_ever

Record = dict[str, Any]
# What a result depends on, besides its own file.
CODE = ("knotwork.spline", "knotwork.network", "knotwork.data", "knotwork.experiments.protocol",
        "knotwork.experiments.runs")  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A call ``module.function(plan, **arguments)`` whose result is plain JSON.

    module : of this room; arguments : plain values, in pairs
    settings : the names of the plan's settings that the result depends on
    """

    module: str
    function: str
    plan: Plan
    arguments: tuple[tuple[str, Any], ...]
    settings: tuple[str, ...]

    @property
    def key(self) -> str:
        """Name of the stored result."""
        settings = {name: value for name, value in asdict(self.plan).items() if name in self.settings}
        what = [self.module, self.function, settings, self.arguments, _code_of(self.module)]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]

    def __call__(self) -> Record:
        """Compute the result."""
        module = importlib.import_module(f"knotwork.experiments.{self.module}")
        return getattr(module, self.function)(self.plan, **dict(self.arguments))


def task(module: str, function: str, plan: Plan, settings: Sequence[str], **arguments: Any) -> Task:
    """Name a piece of work."""
    unknown = set(settings) - set(asdict(plan))
    assert not unknown, unknown
    return Task(module, function, plan, tuple(sorted(arguments.items())), tuple(settings))


@cache
def _code_of(module: str) -> str:
    digest = hashlib.sha256()
    for name in (*CODE, f"knotwork.experiments.{module}"):
        file = importlib.import_module(name).__file__
        assert file is not None
        path = Path(file)
        sources = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
        for source in sources:
            digest.update(source.read_bytes())
    return digest.hexdigest()


def read(folder: Path, work: Task) -> Record | None:
    """Return a stored result, None if there is none (an incomplete file counts as none)."""
    try:
        record: Record = json.loads((folder / f"{work.key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record


def compute(folder: Path, work: Task) -> Record:
    """Compute a result and store it by an atomic write."""
    record = work()
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record)
    with atomic_file(folder / f"{work.key}.json") as fresh:
        fresh.write_text(text, encoding="utf-8")
    # As it will be read next time.
    stored: Record = json.loads(text)
    return stored


def _begin_worker() -> None:
    # Ctrl-C reaches every process of the terminal: runs under way are finished and stored, no more are begun.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    one_thread_for_ever()


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def run_tasks(
    folder: Path, tasks: Sequence[Task], *, jobs: int, progress: Callable[[bool], None] | None = None
) -> dict[Task, Record]:
    """Run what is not stored yet, ``jobs`` at a time in processes of one thread (1: in this process), return all.

    ``progress`` is told of each finished task, and whether its result was stored already.
    """
    found = {work: record for work in tasks if (record := read(folder, work)) is not None}
    tell = progress or (lambda stored: None)
    for _ in found:
        tell(True)
    todo = [work for work in tasks if work not in found]
    if jobs == 1 or len(todo) < 2:
        with one_thread():
            for work in todo:
                found[work] = compute(folder, work)
                tell(False)
    elif todo:
        with _pool(min(jobs, len(todo))) as pool:
            pending: dict[Future[Record], Task] = {pool.submit(compute, folder, work): work for work in todo}
            for done in as_completed(pending):
                found[pending[done]] = done.result()
                tell(False)
    return {work: found[work] for work in tasks}
