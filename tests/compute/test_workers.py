"""Threads of a fit: every task is done, errors reach the caller, and no thread is left."""

import gc
import threading
import time

import pytest

from knotwork.compute.workers import Workers


def test_every_task_is_done_once():
    done = []
    with Workers(3) as workers:
        for _ in range(50):
            workers.run(done.append, 7)
    assert sorted(done) == sorted([*range(7)] * 50)


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_an_error_reaches_the_caller_when_all_tasks_have_ended(failing):
    ended = []

    def task(k):
        if k == failing:
            raise ValueError(f"task {k}")
        time.sleep(0.01)
        ended.append(k)

    with Workers(2) as workers:
        with pytest.raises(ValueError, match=f"task {failing}"):
            workers.run(task, 4)
        assert sorted(ended) == sorted({0, 1, 2, 3} - {failing})
        workers.run(ended.append, 4)  # threads are still there
    assert len(ended) == 7


@pytest.mark.parametrize("leaves", [True, False])
def test_no_thread_is_left(leaves):
    before = threading.active_count()
    workers = Workers(3)
    workers.run(lambda k: None, 3)
    assert threading.active_count() == before + 2
    if leaves:
        workers.__exit__()
    else:  # nobody leaves the block, but nobody can reach the threads either
        del workers
        gc.collect()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
