"""How many threads a step of training takes: as many as its size says, never as many as the machine has.

Sums over rows are added in another order for every number of threads. A number that depends on the step alone gives
equal bits on every machine of one kind, and small steps are over before a second thread has woken up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# Threads of a step, and from how many products of a row and a weight on it takes so many. A single network of 128 × 128
# takes one at its batches of 128; eight members take two, which is 1.8 times as fast on two cores.
THREADS = {2: 2**23, 4: 2**28}

_lock = threading.Lock()
_open = 0  # blocks that are open now, in all threads
_outside = 0  # torch's threads before the first of them


def step_threads(net: nn.Module, batch_size: int) -> int:
    """Return the number of threads for the steps of a network.

    >>> step_threads(nn.Linear(100, 100), 128)
    1
    """
    work = batch_size * sum(p.numel() for p in net.parameters())
    return max((count for count, least in THREADS.items() if work >= least), default=1)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use that many threads in this thread of Python, and leave its setting as it was."""
    global _open, _outside
    with _lock:
        before = torch.get_num_threads()
        if _open == 0:
            _outside = before
        elif before in (1, *THREADS):
            # Python threads that are new to torch take over what was set last: here, by another block.
            before = _outside
        _open += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            torch.set_num_threads(before)


def _reset_in_child() -> None:
    global _lock, _open
    _lock, _open = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
