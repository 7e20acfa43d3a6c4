"""The one decorator for compiled kernels.

``nogil`` and no numba thread pool: kernels are run from ordinary Python threads that live as long as one fit.
numba's own pools do not survive ``fork`` and, in the default one, crash when two Python threads use them.
Kernels are cached on disk; the only time anybody waits for the compiler it is announced.

Compiling takes time with every loop, slice, call and kind of argument. So a kernel has plain loops over whole arrays,
room to work in comes from outside, and its arguments are of the same types in every call. An index that is not counted
from 0 is unsigned: a signed one might be negative for all that the compiler knows, and loops are not vectorised then.
"""

import gc
import sys
from typing import Any

import numba
from numba.core import event

# Division by zero is that of IEEE: a check of each would keep loops from being vectorised. Nobody calls kernels through
# pointers, so the C wrapper, which that needs, is not compiled.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
compiled = numba.njit(**_OPTIONS)
# For reductions over (finite) rows: lets the compiler keep several partial results, the same ones in every run.
compiled_reduction = numba.njit(**_OPTIONS, fastmath={"reassoc", "contract", "nsz", "nnan"})


class _Compilation(event.Listener):
    """Says once per process that kernels are being compiled, and keeps the garbage collector out of it.

    The compiler makes millions of small objects and no garbage to speak of: looking for it takes a tenth of the time.
    numba compiles one function at a time, and one that another calls while it compiles that one.
    """

    def __init__(self) -> None:
        self._said = False
        self._depth = 0
        self._collecting = False

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._collecting = gc.isenabled()
            gc.disable()
        self._depth += 1
        if not self._said and event.data["dispatcher"].py_func.__module__.startswith("knotwork."):
            self._said = True
            print(
                "knotwork: compiling kernels for a first fit of this kind (some seconds; later fits load them)",
                file=sys.stderr,
            )

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._collecting:
            gc.enable()


event.register("numba:compile", _Compilation())  # type: ignore[no-untyped-call]
