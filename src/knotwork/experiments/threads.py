"""One thread for small networks.

A step on a hundred rows is over before a second thread has woken up; on a busy machine the threads wait for each other
and an epoch takes ten times as long and more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread inside the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread_for_ever() -> None:
    """Limit a worker process to one thread, whichever library asks."""
    # Read when OpenMP is loaded, which torch and scikit-learn do on their first import.
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
