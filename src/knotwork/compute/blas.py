"""One thread for BLAS, so that equal input gives equal bits whatever the number of threads is set to.

BLAS adds the parts of a product in another order for every number of threads. Our products are small: a second thread
gains little, and on a busy machine the threads wait for each other.

And its working memory, taken early: OpenBLAS takes it with its first large product and keeps it; where it gets none, it
ends the process, which no Python code can catch.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from knotwork.arrays import Floats

# Address space that must be there before OpenBLAS is asked to take its buffer: 32 MiB for x86, and some for the rest.
BUFFER = 64 << 20
# A matrix whose product with a vector needs the buffer, and no second thread.
SHAPE = (1000, 4)

_lock = threading.Lock()
_open = 0  # blocks that are open now, in all threads
_limits: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the BLAS of NumPy and SciPy to one thread while any block of this kind is open, in whatever thread.

    The limit is the process's: a block that restored it on its own would lift it for fits in other threads.
    """
    global _open, _limits
    with _lock:
        if _open == 0:
            _limits = _taken().limit(limits=1, user_api="blas")
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if _open == 0:
                _taken()
                _limits.restore_original_limits()
                _taken()


_found: ThreadpoolController | None = None


def _taken() -> ThreadpoolController:
    """Return the controller of the libraries, for this thread to set.

    threadpoolctl (from 3.7 on) lets the thread that first set OpenBLAS's threads set them, and silently no other; the
    lock above does what that is for.
    """
    found = _controller()
    for library in found.lib_controllers:
        release = getattr(library, "clear_controlling_thread", None)
        if release is not None:
            release(force=True)
    return found


def _controller() -> ThreadpoolController:
    """Return the libraries that are there; looking for them takes milliseconds, so they are looked for once."""
    global _found
    if _found is None:
        from scipy.linalg.blas import dgemv  # SciPy's BLAS is not NumPy's, and must be there to be found

        take_buffer(lambda a, b: dgemv(1.0, a, b))
        _found = ThreadpoolController()
    return _found


def take_buffer(product: Callable[[Floats, Floats], object] = np.matmul) -> None:
    """Let a BLAS take its working memory by a product, NumPy's if none is given.

    Raises
    ------
    MemoryError, where there is not enough
    """
    try:
        mmap.mmap(-1, BUFFER).close()
    except OSError:
        raise MemoryError(
            f"linear algebra needs {BUFFER >> 20} MB of working memory, and there is less; free some or raise the limit"
        ) from None
    product(np.ones(SHAPE), np.ones(SHAPE[1]))


def _reset_in_child() -> None:
    """Begin anew in a forked child: the blocks of other threads are not there."""
    global _lock, _open
    _lock = threading.Lock()
    if _open:
        _limits.restore_original_limits()
    _open = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
