"""The one decorator for compiled kernels.

``nogil`` and no numba thread pool: kernels are run from ordinary Python threads that live as long as one fit.
numba's own pools do not survive ``fork`` and, in the default one, crash when two Python threads use them.
Kernels are cached on disk; the only time anybody waits for the compiler it is announced.

Compiling takes time with every loop, slice, call and kind of argument. So a kernel has plain loops over whole arrays,
room to work in comes from outside, and its arguments are of the same types in every call. An index that is not counted
from 0 is unsigned: a signed one might be negative for all that the compiler knows, and loops are not vectorised then.
"""

import sys
import threading
from typing import Any

import numba
from numba.core import event

# Division by zero is that of IEEE: a check of each would keep loops from being vectorised. Nobody calls kernels through
# pointers, so the C wrapper, which that needs, is not compiled.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
compiled = numba.njit(**_OPTIONS)
# For reductions over (finite) rows: lets the compiler keep several partial results, the same ones in every run.
compiled_reduction = numba.njit(**_OPTIONS, fastmath={"reassoc", "contract", "nsz", "nnan"})


class _Announcer(event.Listener):
    """Says once per process that kernels are being compiled, and only if they really are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said = False

    def on_start(self, event: Any) -> None:
        if not event.data["dispatcher"].py_func.__module__.startswith("knotwork."):
            return
        with self._lock:
            if self._said:
                return
            self._said = True
        print("knotwork: compiling its kernels for this machine, once (a few seconds)", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]
