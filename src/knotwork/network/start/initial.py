"""The network that training begins with: a spline grown to the wanted shape, or random weights.

Smooth units act(s·z)/s are nearer to hinges the larger s is, and harder to train: a step of an optimiser behind such a
unit counts s times. So a start has units as smooth as can be, and fits its output weights again to make up for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.network.activations import Activation, Kind
from knotwork.network.chain import Chain, Layer
from knotwork.network.compile.function import ideal_units
from knotwork.network.compile.lower import lower
from knotwork.network.ready import carrying_pairs
from knotwork.network.reshape import reshape_chain
from knotwork.pwl.through import in_coordinates
from knotwork.spline.model import Spline

# What the scales s of a layer's smooth units add up to. A step of an optimiser in all weights behind them moves the
# response by about as many times its rate, in stds. On six tables with two seeds, Adam at 1e-3: with 160 no start gets
# worse by more than 4 % (14 % with interactions), with 640 some do by 19 % (53 %). With 160 starts are up to 2 % less
# accurate than their spline (ELU: 5 %), with 80 up to 4 %.
TOTAL_SCALE = 160.0
# Ridge of the change of the output weights, on standardised units, and the std below which a unit counts as one of
# that std, as a share of the largest: rows to come may find a unit large that is nearly zero on these.
RIDGE, MIN_STD = 1e-3, 0.03
# Rows by which output weights are fitted again.
MAX_ROWS = 16384


def spline_start(
    spline: Spline,
    coordinates: Coordinates,
    X: Floats,
    widths: Sequence[int],
    rule: Activation,
    fill: str,
    rng: np.random.Generator,
) -> Chain:
    """Write a spline as a network of the wanted shape, in standardised coordinates; X (N, d) places the new units.

    With a smooth activation the network is near the spline on these rows, and its ``conversion.bound`` is inf.
    """
    Z = coordinates.features(X)
    function = in_coordinates(spline, coordinates)
    ideal = ideal_units(function, rule)
    if rule.kind is Kind.SMOOTH and (ideal.bends or rule.line_error > 0):
        chain = lower(ideal, rule, total_scale=TOTAL_SCALE)
        chain = _fitted_again(chain, function, Z[:: -(-len(Z) // MAX_ROWS)])
    else:
        chain = lower(ideal, rule, sides=np.stack([Z.min(axis=0), Z.max(axis=0)]))
    return reshape_chain(chain, widths, fill=fill, X=Z, rng=rng)


def _fitted_again(chain: Chain, function: Spline, Z: Floats) -> Chain:
    """Change the output weights of a chain so that it is near a function on rows (N, d), by least squares."""
    rows = torch.from_numpy(np.ascontiguousarray(Z))
    with torch.no_grad():
        for layer, module in zip(chain.hidden, chain.modules, strict=True):
            rows = module.to("cpu", torch.float64)(layer(rows))
        missing = function(Z).reshape(len(Z), -1) - chain.output(rows).numpy()
    # Two units that carry a value keep doing so.
    pairs = carrying_pairs(chain, len(chain.hidden) - 1)
    ties = np.eye(rows.shape[1])
    ties[pairs[:, 1], pairs[:, 0]] = -1.0
    ties = np.delete(ties, pairs[:, 1], axis=1)
    units = rows.numpy() @ ties
    means, stds = units.mean(axis=0), units.std(axis=0)
    scale = np.maximum(stds, MIN_STD * stds.max()) if stds.any() else np.ones_like(stds)
    Q = (units - means) / scale
    gram = Q.T @ Q / len(Q) + RIDGE * np.eye(Q.shape[1])
    change = np.linalg.solve(gram, Q.T @ (missing - missing.mean(axis=0)) / len(Q)) / scale[:, None]
    weight = chain.output.weight + torch.from_numpy((ties @ change).T)
    bias = chain.output.bias + torch.from_numpy(missing.mean(axis=0) - means @ change)
    return chain.with_layers([*chain.hidden, Layer(weight, bias)])


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
