"""The weights of a network in training: their moving average, copies of them, and the way back."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def average_(averaged: nn.Module, net: nn.Module, weight: float | Tensor) -> None:
    """Move the averaged weights towards the current ones."""
    ours: list[Tensor] = list(averaged.parameters())
    theirs: list[Tensor] = list(net.parameters())
    with torch.no_grad():
        if isinstance(weight, Tensor):
            torch._foreach_lerp_(ours, theirs, [weight.to(p.dtype) for p in ours])
        else:
            torch._foreach_lerp_(ours, theirs, weight)
        # BatchNorm's statistics go with the weights that they are of; what else a layer remembers is its latest.
        for (name, own), other in zip(averaged.named_buffers(), net.buffers(), strict=True):
            if name.endswith(("running_mean", "running_var")):
                own.lerp_(other, weight)
            else:
                own.copy_(other)


def tensors_of(net: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers themselves, by name."""
    return {name: value for name, value in net.state_dict().items() if isinstance(value, Tensor)}


def state_of(net: nn.Module) -> dict[str, Tensor]:
    """Return a copy of them."""
    return {name: value.detach().clone() for name, value in tensors_of(net).items()}


def restore_(net: nn.Module, state: dict[str, Tensor]) -> None:
    """Put such a copy back, in place."""
    with torch.no_grad():
        for name, value in tensors_of(net).items():
            value.copy_(state[name])
