"""Threads of a step follow from its size alone."""

from torch import nn

from knotwork.network.train.threads import step_threads


def test_larger_steps_take_more_threads() -> None:
    net = nn.Linear(1023, 1, bias=True)  # 1024 numbers
    assert [step_threads(net, rows) for rows in (1, 2**13 - 1, 2**13, 2**18 - 1, 2**18)] == [1, 1, 2, 2, 4]
