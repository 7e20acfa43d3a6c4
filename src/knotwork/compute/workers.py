"""Ordinary threads for compiled kernels, alive for one fit.

A pool that outlives the fit would be copied by ``fork`` without its threads and hang the child; numba's own pools
break in more ways. What a part computes never depends on how many threads there are, only who computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")

# Below this many touched values a second thread costs more to wake than it saves.
MIN_WORK = 100_000
# And below this many a thread of its own is not worth starting.
MIN_ASIDE = 250_000
MAX_THREADS = 256
# Rows per block of the fixed summation order, and the maximum number of blocks.
MIN_BLOCK, MAX_BLOCKS = 16_384, 16


def thread_count(n_jobs: int | None) -> int:
    """Number of threads for ``n_jobs``: None and -1 are every core this process may use, -2 all but one.

    The limit is numba's, which follows the CPU affinity and ``NUMBA_NUM_THREADS``; joblib's process pools set
    that variable in their workers, so nested parallelism does not multiply.
    """
    import numba

    cores = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if n_jobs is None:
        return cores
    return min(n_jobs, MAX_THREADS) if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def row_blocks(n: int) -> list[tuple[int, int]]:
    """Cut n rows into blocks that depend on n alone: sums over blocks, added in order, do not depend on the threads.

    >>> row_blocks(70_000)
    [(0, 17500), (17500, 35000), (35000, 52500), (52500, 70000)]
    """
    blocks = 1
    while blocks < MAX_BLOCKS and n >= 2 * blocks * MIN_BLOCK:
        blocks *= 2  # a power of two, so that two, four or eight threads get equal shares
    return list(pairwise(n * b // blocks for b in range(blocks + 1)))


def begun(task: Callable[[], T], threads: int, work: int) -> Callable[[], T]:
    """Begin a task that others do not wait for; return what gives its result.

    It has a thread of its own if there are several and so much work, of which the caller's first parts may leave one
    idle; else it is done at once.

    >>> begun(lambda: 7, threads=2, work=10**9)()
    7
    """
    if threads == 1 or work < MIN_ASIDE:
        result = task()
        return lambda: result
    pool = ThreadPoolExecutor(1, thread_name_prefix="knotwork")
    waiting = pool.submit(task)
    pool.shutdown(wait=False)
    return waiting.result


class Workers:
    """A few threads, started when first needed and gone with the ``with`` block.

    >>> with Workers(2) as workers:
    ...     workers.split(10, work=10**9)
    [(0, 5), (5, 10)]
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def split(self, count: int, work: int) -> list[tuple[int, int]]:
        """Cut range(count) into as many equal parts as threads are worth waking for this much work."""
        parts = max(1, min(self.threads, count, work // MIN_WORK))
        if parts == 1:
            return [(0, count)]
        edges = [count * k // parts for k in range(parts + 1)]
        return list(pairwise(edges))

    def run(self, task: Callable[[int], Any], count: int) -> None:
        """Call task(0) … task(count − 1), the last here and the others in the pool; raise what any of them raised."""
        if count == 1:
            task(0)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="knotwork")
        waiting = [self._pool.submit(task, k) for k in range(count - 1)]
        task(count - 1)
        for future in waiting:
            future.result()
