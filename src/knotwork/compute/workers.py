"""Ordinary threads for compiled kernels, alive for one fit.

A pool that outlives the fit would be copied by ``fork`` without its threads and hang the child; numba's own pools
break in more ways. What a part computes never depends on how many threads there are, only who computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar
from weakref import finalize

T = TypeVar("T")
# A task, its number, and where its end is told: by an error or by None.
_Jobs = SimpleQueue[tuple[Callable[[int], Any], int, SimpleQueue[BaseException | None]] | None]

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
        self._jobs: _Jobs | None = None
        self._pool: list[Thread] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._jobs is not None:
            _dismiss(self._jobs, len(self._pool))
        for thread in self._pool:
            thread.join()
        self._jobs, self._pool = None, []

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
        jobs = self._started()
        results: SimpleQueue[BaseException | None] = SimpleQueue()
        for k in range(count - 1):
            jobs.put((task, k, results))
        errors: list[BaseException | None] = []
        try:
            task(count - 1)
        finally:
            errors += [results.get() for _ in range(count - 1)]
        for error in errors:
            if error is not None:
                raise error

    def _started(self) -> _Jobs:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            self._pool = [Thread(target=_serve, args=(self._jobs,), daemon=True) for _ in range(self.threads - 1)]
            for thread in self._pool:
                thread.start()
            finalize(self, _dismiss, self._jobs, len(self._pool))  # where nobody leaves the ``with`` block
        return self._jobs


def _serve(jobs: _Jobs) -> None:
    """Do jobs until there is none: queues hand them over in half of the time of an executor's futures."""
    while (job := jobs.get()) is not None:
        task, k, results = job
        try:
            task(k)
        except BaseException as error:  # the caller raises it
            results.put(error)
        else:
            results.put(None)
        del job, task, results  # or an idle thread would keep what they hold


def _dismiss(jobs: _Jobs, threads: int) -> None:
    for _ in range(threads):
        jobs.put(None)
