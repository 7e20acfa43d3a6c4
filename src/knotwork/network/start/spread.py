"""The units of a spline in several copies each, for networks with Dropout.

Dropout takes whole units away. Where two units carry the function, as behind the first layer, it takes all or nothing,
and training learns to rely on them less. With k copies of weight 1/k each, what is dropped is a k-th part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx, nn
from torch.nn import functional

from knotwork.network.chain import Chain, Layer

# Share of the units that the function does not need which become copies; the others are new.
COPIED = 0.5


def drops_units(module: nn.Module, graph: fx.GraphModule | None) -> bool:
    """Whether a module has a Dropout that does something in training."""
    dropped = (functional.dropout, functional.alpha_dropout, functional.feature_alpha_dropout)
    if graph is not None and any(node.target in dropped for node in graph.graph.nodes):
        return True
    return any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in module.modules())


def copies_of(needed: Sequence[int], widths: Sequence[int]) -> tuple[int, ...]:
    """Return how often each layer can hold the units that the function needs, with room for new ones.

    >>> copies_of((20, 2), (64, 64))
    (2, 16)
    """
    return tuple(1 + int(COPIED * (w - n)) // n if n else 1 for n, w in zip(needed, widths, strict=True))


def spread(chain: Chain, needed: Sequence[int], copies: Sequence[int]) -> Chain:
    """Return the same function with so many copies of the first units of each hidden layer, at its end."""
    layers = list(chain.layers)
    for k, (units, times) in enumerate(zip(needed, copies, strict=True)):
        layer, behind = layers[k], layers[k + 1]
        rows = torch.cat([layer.weight, layer.weight[:units].repeat(times - 1, 1)])
        layers[k] = Layer(rows, torch.cat([layer.bias, layer.bias[:units].repeat(times - 1)]))
        part = behind.weight[:, :units] / times
        weight = torch.cat([part, behind.weight[:, units:], part.repeat(1, times - 1)], dim=1)
        layers[k + 1] = Layer(weight, behind.bias)
    return chain.with_layers(layers)
