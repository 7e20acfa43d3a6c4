"""Smaller networks: weights near zero set to zero, and units that then do nothing taken out without changing anything.

Weights are judged in standardised coordinates, those of training, so that units of measurement do not matter. A weight
of the first layer that is set to zero leaves its feature at its mean. A unit that nobody reads is left out; a unit that
reads nothing is a constant and moves into the biases behind it.
"""

from __future__ import annotations

import torch

from knotwork.data.coordinates import Coordinates
from knotwork.network.activations import require_one_slope
from knotwork.network.chain import Chain, Layer


def threshold_chain(chain: Chain, coordinates: Coordinates, threshold: float) -> Chain:
    """Set weights of at most ``threshold`` (in standardised coordinates) to zero; the others keep every bit."""
    judged = chain.in_coordinates(coordinates).layers
    # Where the means are, in the coordinates of the layers.
    centre = torch.from_numpy(chain.coordinates.features(coordinates.x_centre[None])[0])
    kept = []
    for k, (layer, standardised) in enumerate(zip(chain.layers, judged, strict=True)):
        small = standardised.weight.abs() <= threshold
        bias = layer.bias + (layer.weight * small) @ centre if k == 0 else layer.bias
        kept.append(Layer(layer.weight * ~small, bias))
    return chain.with_layers(kept)


def shrink_chain(chain: Chain) -> Chain:
    """Take out the units that nobody reads and those that read nothing: a smaller chain with the same function."""
    for module in chain.modules:
        require_one_slope(module)
    layers = list(chain.layers)
    changed = True
    while changed:
        changed = False
        for k in range(len(layers) - 1):
            here, following = layers[k], layers[k + 1]
            unread = (following.weight == 0).all(dim=0)
            constant = (here.weight == 0).all(dim=1) & ~unread
            gone = unread | constant
            if gone.all():  # a layer keeps a unit, which adds nothing
                gone[0] = False
            if not gone.any():
                continue
            with torch.no_grad():
                values = chain.modules[k].to("cpu", torch.float64)(here.bias)
            bias = following.bias + following.weight[:, constant] @ values[constant]
            rest = following.weight.clone()
            rest[:, constant] = 0.0
            layers[k] = Layer(here.weight[~gone], here.bias[~gone])
            layers[k + 1] = Layer(rest[:, ~gone], bias)
            changed = True
    return chain.with_layers(layers)


def count_weights(chain: Chain) -> int:
    """Weights that are not zero."""
    return sum(int((layer.weight != 0).sum()) for layer in chain.layers)


def count_parameters(chain: Chain) -> int:
    """Numbers that the dense layers store."""
    return sum(layer.weight.numel() + layer.bias.numel() for layer in chain.layers)
