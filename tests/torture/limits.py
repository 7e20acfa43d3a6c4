"""What an attack allows: seconds for a call, and errors that are refusals of ours.

Seconds are those of a machine of one's own: the time that passes, less the time that threads stood in line for a
processor. So a machine with other work on it makes nothing look hung, and what sleeps or spins for ever still is.
"""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from sklearn.exceptions import NotFittedError

from knotwork.errors import KnotworkError


class Timeout(BaseException):
    """A call took too long."""


class Clock:
    """The seconds that a process takes from now on, less those that its threads wait for a processor."""

    def __init__(self, process: int | str = "self") -> None:
        self._process = process
        self._begun, self._waited = time.monotonic(), waited(process)

    def seconds(self) -> float:
        """Return the seconds so far; where nobody counts the waiting, all that passed."""
        passed = time.monotonic() - self._begun
        return passed - min(passed, max(0.0, waited(self._process) - self._waited))


def waited(process: int | str = "self") -> float:
    """Return the seconds that the threads of a process have waited for a processor; 0 where Linux does not say."""
    found = 0
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # the thread has ended
            found += int(path.read_text().split()[1])
    return found / 1e9


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer. A timer that was set before, pytest's for the whole test say, goes on."""
    clock, begun = Clock(), time.monotonic()

    def ring(*_: object) -> None:
        left = seconds - clock.seconds()
        if left <= 0:
            raise Timeout
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))

    previous = signal.signal(signal.SIGALRM, ring)
    outer, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if outer:
            signal.setitimer(signal.ITIMER_REAL, max(outer - (time.monotonic() - begun), 0.01))


def fault(error: BaseException) -> str | None:
    """Say what is wrong with an error; None if it is a refusal: ours, or one that scikit-learn's validation raised."""
    if isinstance(error, (KnotworkError, NotFittedError)):
        return None
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = Path(last.filename)
    raised = (last.line or "").lstrip().startswith("raise")
    ours = "knotwork" in place.parts or "sklearn" in place.parts
    if isinstance(error, (TypeError, ValueError)) and raised and ours:
        return None
    return (
        f"{type(error).__name__}: {' '.join(str(error).split())[:160]} ({place.parent.name}/{place.name}:{last.lineno})"
    )
