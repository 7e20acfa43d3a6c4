"""A block of cases in a process of its own: a crash or a hang ends that process, not the run."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from tests.torture.outcome import Outcome

# Seconds without a word from the attack after which it counts as hung.
SILENCE = 900.0
# Seconds that a process has to end once it has said what came of its cases.
ENDING = 30.0


def run_block(module: str, first: int, count: int, seed: int, silence: float = SILENCE) -> Outcome:
    """Try some cases of an attack, given by its module's name."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    process = context.Process(target=_work, args=(theirs, module, first, count, seed, folder))
    process.start()
    theirs.close()
    last = "the beginning"
    try:
        while ours.poll(silence):
            message = ours.recv()
            if isinstance(message, Outcome):
                process.join(ENDING)
                return message
            last = message
        return _broken(first, count, f"hung for {silence:.0f} s after: {last}")
    except EOFError:
        process.join(ENDING)
        return _broken(first, count, f"ended with exit code {process.exitcode} after: {last}")
    finally:
        if process.is_alive():
            with suppress(ProcessLookupError):  # it had no time to begin its own session, see _work
                os.killpg(process.pid, signal.SIGKILL)  # and its children with it
            process.kill()
            process.join()
        shutil.rmtree(folder, ignore_errors=True)


def _work(pipe: Connection, module: str, first: int, count: int, seed: int, folder: Path) -> None:
    os.setsid()
    pipe.send(importlib.import_module(module).attack(first, count, seed, folder, pipe.send))


def _broken(first: int, count: int, what: str) -> Outcome:
    return Outcome(0, {"process lost": 1}, [f"cases {first} to {first + count - 1}: the process {what}"])
