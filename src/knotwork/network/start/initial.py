"""The network that training begins with: a spline grown to the wanted shape, or random weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.network.activations import Activation
from knotwork.network.chain import Chain
from knotwork.network.compile.function import function_chain
from knotwork.network.reshape import reshape_chain
from knotwork.pwl.through import in_coordinates
from knotwork.spline.model import Spline


def spline_start(
    spline: Spline,
    coordinates: Coordinates,
    X: Floats,
    widths: Sequence[int],
    rule: Activation,
    fill: str,
    rng: np.random.Generator,
) -> Chain:
    """Write a spline as a network of the wanted shape, in standardised coordinates; X (N, d) places the new units."""
    Z = coordinates.features(X)
    chain = function_chain(in_coordinates(spline, coordinates), rule, box=(Z.min(axis=0), Z.max(axis=0)))
    return reshape_chain(chain, widths, fill=fill, X=Z, rng=rng)


def kaiming(inputs: int, widths: tuple[int, ...], outputs: int, rule: Activation, seed: int) -> nn.Sequential:
    """Return the network from Kaiming's initialisation, in standardised coordinates."""
    modules: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):  # the CPU alone: a forked process must not touch the GPU
        torch.manual_seed(seed)
        for width in widths:
            layer = nn.Linear(inputs, width, dtype=torch.float64)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
            modules += [layer, rule.new_module()]
            inputs = width
        modules.append(nn.Linear(inputs, outputs, dtype=torch.float64))
    return nn.Sequential(*modules)
