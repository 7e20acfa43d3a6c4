"""Other processes, forked: they begin in milliseconds, with everything imported."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable


def forked(work: Callable[[], object]) -> int:
    """Begin some work in another process; return its number. It ends with exit code 1 if the work raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads; the children use none
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def ended(child: int, seconds: float = 120.0) -> int:
    """Wait for a process; return its exit code, or the negative number of the signal that ended it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"the child did not end within {seconds:.0f} s")
