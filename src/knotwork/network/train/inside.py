"""The part of a network that is trained, and the coordinates that it computes in.

A Sequential is trained between the Scalings at its ends. At an end without one, its first or last Linear is rewritten
for the measured coordinates, and back afterwards. The outputs of everything else are standardised behind the network:
its parameters stay what they are, and the loss does not depend on the unit of the responses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.network.chain import (
    TRANSPARENT,
    is_plain_sequential,
    leaves,
    read_layer,
    scaling_coordinates,
    without_scaling,
    write_layer_,
)
from knotwork.network.compile.balance import balance_
from knotwork.network.ready import MAX_ROWS
from knotwork.network.scaling import Scaling


class Standardised(nn.Module):
    """A network whose outputs are given in the coordinates c: c.responses(net(x)). It owns no parameters."""

    centre: Tensor
    scale: Tensor

    def __init__(self, net: nn.Module, c: Coordinates) -> None:
        super().__init__()
        self.net = net
        first = next(net.parameters())
        centre = torch.as_tensor(c.y_centre, dtype=first.dtype, device=first.device)
        self.register_buffer("centre", centre, persistent=False)
        scale = torch.as_tensor(c.y_scale, dtype=first.dtype, device=first.device)
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Run the network: (N, d) → (N, p)."""
        out: Tensor = (self.net(x) - self.centre) / self.scale
        return out


@dataclass(frozen=True)
class Inside:
    """What the loop trains.

    net : the module to train, whose parameters are the network's own
    coordinates : those that it computes in
    outside : from the module, with other weights, to a network of the user's kind that computes the same
    """

    net: nn.Module
    coordinates: Coordinates
    outside: Callable[[nn.Module], nn.Module]


@dataclass(frozen=True)
class _Ends:
    """The layers of a Sequential between its Scalings, and the Linears at its ends that are rewritten for training."""

    layers: list[nn.Module]
    x: Scaling | None
    y: Scaling | None
    first: nn.Linear | None = None
    last: nn.Linear | None = None

    def change(self, c: Coordinates) -> None:
        """Rewrite the Linears for the coordinates c; ``c.inverse`` is the way back."""
        if self.first is not None:
            write_layer_(self.first, read_layer(self.first).of_features(c))
        if self.last is not None:
            write_layer_(self.last, read_layer(self.last).to_responses(c))


@contextmanager
def trained_part(
    net: nn.Module, measured: Coordinates | None, X: Floats, outputs: int, *, logits: bool
) -> Iterator[Inside]:
    """Yield the part of a network to train.

    measured : the coordinates to train in, None to leave the network's own
    X : (N, d) rows that the units are balanced by
    logits : whether what scales the outputs is part of the network
    """
    template = copy.deepcopy(net)  # before anything is hooked onto it
    ends = _ends(net, measured is not None, logits)
    features = X.shape[1]
    c = scaling_coordinates(ends.x, ends.y, features, outputs)
    inner: nn.Module = nn.Sequential(*ends.layers) if ends.layers else net
    inner.training = net.training
    if measured is not None and ends.first is not None:
        # Without a bias there is nothing to move the features by.
        centre = measured.x_centre if ends.first.bias is not None else np.zeros(features)
        c = replace(c, x_centre=centre, x_scale=measured.x_scale)
    behind = measured is not None and ends.y is None and ends.last is None
    if measured is not None and ends.y is None:
        c = replace(c, y_centre=measured.y_centre, y_scale=measured.y_scale)
    ends.change(c)
    if ends.layers:
        seen = X[:: -(-len(X) // MAX_ROWS)]
        balance_(inner, torch.from_numpy(c.features(seen)))
    trained = Standardised(inner, c) if behind and ((c.y_scale != 1).any() or c.y_centre.any()) else inner

    def outside(weights: nn.Module) -> nn.Module:
        twin = copy.deepcopy(template)
        there = _ends(twin, measured is not None, logits)
        source = weights.net if isinstance(weights, Standardised) else weights
        target = nn.Sequential(*there.layers) if there.layers else twin
        target.load_state_dict(source.state_dict())
        there.change(c.inverse)
        _keep_frozen(twin, template)
        return twin.eval()

    try:
        yield Inside(trained, c, outside)
    finally:
        ends.change(c.inverse)
        _keep_frozen(net, template)


def _keep_frozen(net: nn.Module, template: nn.Module) -> None:
    """Give what is frozen its own bits back, which the way there and back may have rounded."""
    with torch.no_grad():
        for parameter, original in zip(net.parameters(), template.parameters(), strict=True):
            if not parameter.requires_grad:
                parameter.copy_(original)


def _ends(net: nn.Module, rewrites: bool, logits: bool) -> _Ends:
    """Take a Sequential apart; other modules have no layers that we know."""
    if not is_plain_sequential(net):
        return _Ends([], None, None)
    layers = [m for _, m in leaves(net)]
    flat = [isinstance(m, nn.Flatten) and (m.start_dim, m.end_dim) == (1, -1) for m in layers]
    kept = [m for m, f in zip(layers, flat, strict=True) if not (f or isinstance(m, nn.Identity))]
    layers, x, y = without_scaling(kept)
    if y is not None and logits:  # what scales logits is part of the network
        layers, y = [*layers, y], None
    working = [m for m in layers if not isinstance(m, TRANSPARENT)]
    if not rewrites or not working:
        return _Ends(layers if x is not None or y is not None else [], x, y)
    first, last = working[0], working[-1]
    return _Ends(
        layers, x, y,
        first if x is None and _is_own(first, working) and not _holds_its_bias(first) else None,
        last if y is None and _is_own(last, working) and last.bias is not None else None,
    )  # fmt: skip


def held_ends(net: nn.Module, outputs: int) -> list[Scaling]:
    """Return the Scalings that hold responses, behind a network or a part of one that is trained, not frozen."""
    return [
        end
        for part in net.modules()
        for end in part.children()
        if isinstance(end, Scaling) and end.back and end.limits is not None and len(end.limits) == outputs
        if any(p.requires_grad for p in part.parameters())
    ]


def _is_own(layer: nn.Module, working: list[nn.Module]) -> TypeGuard[nn.Linear]:
    """Whether a layer is a Linear that stands in one place only and whose weight is its own, not computed."""
    if not isinstance(layer, nn.Linear) or "weight" not in dict(layer.named_parameters(recurse=False)):
        return False
    return sum(isinstance(m, nn.Linear) and m.weight is layer.weight for m in working) == 1


def _holds_its_bias(first: nn.Linear) -> bool:
    """Whether a bias is frozen and its weight is not: where features are moved, they would have to change together."""
    return first.bias is not None and first.weight.requires_grad and not first.bias.requires_grad
