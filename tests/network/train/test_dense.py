"""Gradients of members, computed by hand, against those of autograd."""

import numpy as np
import pytest
import torch
from torch import nn

from knotwork.data.losses import ResponseLoss
from knotwork.network.activations import activation_rule
from knotwork.network.chain import read_chain
from knotwork.network.members import Stacked
from knotwork.network.start.initial import kaiming
from knotwork.network.train.dense import DenseGradients
from knotwork.network.train.losses import Deviance, LogLoss, OwnLoss, SquaredError
from knotwork.network.train.rows import Part

CPU = torch.device("cpu")
LOSSES = {
    "squared": (SquaredError(), 2),
    "poisson": (Deviance(ResponseLoss("poisson", power=1.0)), 1),
    "two classes": (LogLoss(1), 1),
    "three classes": (LogLoss(3, smoothing=0.1), 3),
    "own": (OwnLoss(nn.L1Loss(reduction="none"), outputs=1), 1),
}


def members(outputs: int, widths: tuple[int, ...], activation: str = "relu") -> Stacked:
    rule = activation_rule(activation)
    return Stacked([read_chain(kaiming(4, widths, outputs, rule, k)) for k in range(3)], torch.float64, CPU)


def batch(loss, outputs: int, rows: int) -> Part:
    rng = np.random.default_rng(rows)
    classes = isinstance(loss, LogLoss)
    y = rng.integers(max(2, outputs), size=(3, rows)) if classes else rng.poisson(2.0, size=(3, rows, outputs)) * 1.0
    weight = rng.random((3, rows))
    weight[1, 1:] = 0  # rows that count nothing, as at the end of a short member
    return Part(torch.from_numpy(rng.normal(size=(3, rows, 4))), torch.from_numpy(y), torch.from_numpy(weight))


@pytest.mark.parametrize("widths", [(), (5,), (6, 3, 5)])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_autograd(name: str, widths: tuple[int, ...]) -> None:
    loss, outputs = LOSSES[name]
    net = members(outputs, widths)
    dense = DenseGradients.of(net)
    assert dense is not None
    for rows, gain in ((7, 1.0), (3, 2.5), (11, 1.0)):  # memory is used again for fewer rows, and grows for more
        part = batch(loss, outputs, rows)
        expected = torch.autograd.grad(part.mean(part.costs(net, loss.learning)) * gain, list(net.parameters()))
        dense(part, loss, gain)
        for p, gradient in zip(net.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, gradient, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(dense.forward(part.x), net(part.x).detach(), rtol=1e-12, atol=1e-12)


def test_outputs_are_not_overwritten_by_the_next_batch() -> None:
    dense = DenseGradients.of(members(1, (5, 5)))
    assert dense is not None
    x = torch.ones(3, 6, 4, dtype=torch.float64)
    first = dense.forward(x)
    before = first.clone()
    dense.forward(2 * x)
    assert torch.equal(first, before)


def test_other_networks_are_left_to_autograd() -> None:
    assert DenseGradients.of(members(1, (5,), "gelu")) is None
    assert DenseGradients.of(nn.Sequential(nn.Linear(2, 1))) is None
    frozen = members(1, (5,))
    frozen.biases[0].requires_grad_(False)
    assert DenseGradients.of(frozen) is None
