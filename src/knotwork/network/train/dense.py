"""Gradients of networks that are trained together, computed into memory that all steps share.

Autograd allocates the hidden layers and their gradients anew in every step: for eight networks of three layers of 128
units and batches of 256 rows, ten arrays of a megabyte, whose pages the system hands out and takes back each time. Here
they are allocated once. The loss, which may be any, is still differentiated by autograd.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from knotwork.network.members import Stacked
from knotwork.network.train.losses import Loss
from knotwork.network.train.rows import Part


@dataclass
class DenseGradients:
    """Linear layers of M networks with ReLU between them.

    weights : (M, out, in) of each layer; biases : (M, 1, out)
    parameters : those that these are views of, weights first, whose ``grad`` is set
    """

    weights: list[Tensor]
    biases: list[Tensor]
    parameters: list[nn.Parameter]
    _memory: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, net: nn.Module) -> DenseGradients | None:
        """Take networks apart; None if they have other layers, or lie on a GPU. A single small one gains nothing."""
        if not isinstance(net, Stacked) or not all(type(m) is nn.ReLU for m in net.activations):
            return None
        weights, biases = list(net.weights), list(net.biases)
        if any(p.device.type != "cpu" or not p.requires_grad for p in (*weights, *biases)):
            return None
        return cls(
            [w.detach() for w in weights], [b.detach().view(net.members, 1, -1) for b in biases], weights + biases
        )

    def forward(self, x: Tensor, hidden: list[Tensor] | None = None) -> Tensor:
        """Run the networks, and note what every layer reads: (M, N, d) → (M, N, outputs).

        What is noted is overwritten by the next call.
        """
        last = len(self.weights) - 1
        with torch.no_grad():
            for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                if hidden is not None:
                    hidden.append(x)
                product = weight.transpose(1, 2)
                if k == last:  # what the loss sees is its own: it may keep it
                    return torch.baddbmm(bias, x, product)
                room = self._room(f"hidden {k}", x.shape[1], weight.shape[1])
                x = torch.baddbmm(bias, x, product, out=room).relu_()
        raise AssertionError("a network has a last layer")

    def __call__(self, batch: Part, loss: Loss, gain: float) -> None:
        """Set the gradients of the mean cost of a batch."""
        inputs: list[Tensor] = []
        output = self.forward(batch.x, inputs).requires_grad_()
        cost = batch.mean(batch.costs(lambda _: output, loss.learning))
        if gain != 1:
            cost = cost * gain
        (slope,) = torch.autograd.grad(cost, output)
        with torch.no_grad():
            self._backward(slope, inputs)

    def _backward(self, slope: Tensor, inputs: list[Tensor]) -> None:
        count = len(self.weights)
        for p in self.parameters:
            if p.grad is None:
                p.grad = torch.empty_like(p)
        for k in reversed(range(count)):
            weight, bias = self.parameters[k].grad, self.parameters[count + k].grad
            assert weight is not None
            assert bias is not None
            torch.bmm(slope.transpose(1, 2), inputs[k], out=weight.view(self.weights[k].shape))
            torch.sum(slope, 1, keepdim=True, out=bias.view(self.biases[k].shape))
            if k > 0:
                room = self._room(f"slope {k % 2}", slope.shape[1], self.weights[k].shape[2])
                before = torch.bmm(slope, self.weights[k], out=room)
                slope = torch.ops.aten.threshold_backward.grad_input(before, inputs[k], 0.0, grad_input=before)

    def _room(self, name: str, rows: int, units: int) -> Tensor:
        """Return memory for (M, rows, units) numbers, that of the last call by this name if it is large enough."""
        members = len(self.weights[0])
        size = members * rows * units
        if name not in self._memory or self._memory[name].numel() < size:
            self._memory[name] = torch.empty(size, dtype=self.weights[0].dtype)
        return self._memory[name][:size].view(members, rows, units)
