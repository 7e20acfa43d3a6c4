"""What an attack allows: seconds for a call, and errors that are refusals of ours."""

from __future__ import annotations

import contextlib
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path

from sklearn.exceptions import NotFittedError

from knotwork.errors import KnotworkError


class Timeout(BaseException):
    """A call took too long."""


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer."""

    def ring(*_: object) -> None:
        raise Timeout

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


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
