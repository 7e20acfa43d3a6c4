"""Networks that are ready to train: units scaled so that a step of an optimiser suits all of them.

ReLU and its leaky kin are positively homogeneous: a unit with s times the input weights and 1/s times the output
weights is the same unit, and powers of two for s change no bit of the function. But an optimiser moves every weight by
about the same amount, so s decides how far its steps move the function. The *sensitivity* of a weight is the mean over
rows of (∂output/∂weight)². The scales here make the sum of all sensitivities as small as scales can: it is how far a
random step of size one in every weight moves the outputs, and no curvature of the squared error is larger, which is
what limits SGD's rate. At that minimum the weights into a unit are together as sensitive as those that leave it.

A unit that adds nothing yet has no such minimum: what it reads does not matter before it is read. Its values are made
small, so that the first steps do not make much of it, least of all on rows outside the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.network.chain import Chain, Layer
from knotwork.network.scaling import input_scaling

HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU, nn.PReLU)
# Root mean square of a unit that adds nothing yet, as a share of the response's std. On tables that own_loop.py lacks,
# units of 1/16 to 1 learned about as much in 30 epochs. Larger ones disturb rows outside the training rows: with 1 the
# error there rose by 20 %. Smaller ones die: of 1/8 more were dead after 30 epochs than from a random start, on two of
# that benchmark's tables (other seeds).
NEW_SIZE = 2.0**-2.5
# Rows on which sensitivities are measured, and those made up where there are none.
MAX_ROWS = 1024
# Weights beyond which a network is left as it is: it would take as long as many steps of training.
MAX_WEIGHTS = 4_000_000
# A scale changes what is best for the neighbours; the sweeps end when nothing moves by a percent.
MAX_SWEEPS = 50


def ready_chain(chain: Chain, rows: Tensor | None = None) -> Chain:
    """Return the same function with scaled units; other activations have units of a given size and stay as they are.

    ``rows`` (N, d) are in the coordinates of the chain's layers. If there are none, standard normal ones are made up
    and brought into ``input_scaling``.
    """
    weights = sum(layer.weight.numel() for layer in chain.layers)
    if not chain.hidden or weights > MAX_WEIGHTS or not all(isinstance(m, HOMOGENEOUS) for m in chain.modules):
        return chain
    if rows is None:
        made_up = np.random.default_rng(0).normal(size=(MAX_ROWS // 2, chain.inputs))
        rows = torch.from_numpy(input_scaling(Coordinates.identity(chain.inputs, chain.outputs)).features(made_up))
    return rescaled(chain, training_scales(chain, rows))


def rescaled(chain: Chain, scales: Sequence[Floats]) -> Chain:
    """Return the chain with the units of each hidden layer scaled: (width,) each, positive."""
    layers = list(chain.layers)
    for k, scale in enumerate(map(torch.from_numpy, scales)):
        layers[k] = Layer(layers[k].weight * scale[:, None], layers[k].bias * scale)
        layers[k + 1] = Layer(layers[k + 1].weight / scale, layers[k + 1].bias)
    return chain.with_layers(layers)


def training_scales(chain: Chain, rows: Tensor) -> list[Floats]:
    """Return a power of two for every hidden unit of a homogeneous chain.

    >>> from knotwork.network.activations import activation_rule
    >>> one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    >>> chain = Chain.of([Layer(one, zero), Layer(4 * one, zero)], activation_rule("relu"))
    >>> training_scales(chain, torch.tensor([[1.0], [7.0]], dtype=torch.float64))    # (25 + 1)·(4/s)² = 25·s²
    [array([2.])]
    """
    values, slopes = _forward(chain, rows)
    into, out = _sensitivities(chain, values, slopes)
    scales = [np.ones(width) for width in chain.widths]
    for _ in range(MAX_SWEEPS):
        moved = 0.0
        for k in range(len(scales)):
            weight, bias = into[k]
            inward = (weight if k == 0 else weight * np.square(scales[k - 1])).sum(axis=1) + bias
            read = out if k + 1 == len(scales) else into[k + 1][0] / np.square(scales[k + 1])[:, None]
            outward = read.sum(axis=0)
            seen = (inward > 0) & (outward > 0)
            fresh = np.divide(inward, outward, out=np.ones_like(inward), where=seen) ** 0.25
            moved = max(moved, float(np.abs(fresh / scales[k] - 1).max()))
            scales[k] = fresh
        if moved < 0.01:
            break
    for k, idle in enumerate(_idle_units(chain)):
        size = values[k + 1].square().mean(dim=0).sqrt().numpy()
        new = np.divide(NEW_SIZE, size, out=np.ones_like(size), where=size > 0)
        scales[k] = np.where(idle, new, scales[k])
    return [np.exp2(np.clip(np.round(np.log2(scale)), -500, 500)) for scale in scales]


def _forward(chain: Chain, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return what each layer reads, (N, in), the last being what the output layer reads, and the units' slopes."""
    values, slopes = [rows], []
    with torch.no_grad():
        for layer, module in zip(chain.hidden, chain.modules, strict=True):
            activation = module.to("cpu", torch.float64)
            z, one = layer(values[-1]), torch.ones(1, len(layer.bias), dtype=torch.float64)
            values.append(activation(z))
            slopes.append(torch.where(z > 0, activation(one), -activation(-one)))
    return values, slopes


def _sensitivities(
    chain: Chain, values: list[Tensor], slopes: list[Tensor]
) -> tuple[list[tuple[Floats, Floats]], Floats]:
    """Return the sensitivities of the weights and biases of each hidden layer, and of the output layer's weights."""
    rows = len(values[0])
    # With random signs the squares of a sum over outputs are, in the mean, the sum of their squares.
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(rows, chain.outputs))
    slope = torch.from_numpy(signs)  # ∂(sum of the outputs)/∂(what the layer makes)
    found = []
    for k in reversed(range(len(chain.layers))):
        square = slope.square()
        found.append(((square.T @ values[k].square() / rows).numpy(), square.mean(dim=0).numpy()))
        if k > 0:
            slope = (slope @ chain.layers[k].weight) * slopes[k - 1]
    found.reverse()
    return found[:-1], found[-1][0]


def _idle_units(chain: Chain) -> list[Floats]:
    """Say for each hidden layer which units add nothing to any output: (width,) of booleans each."""
    idle = []
    needed = torch.ones(chain.outputs, dtype=torch.bool)
    for layer in reversed(chain.layers[1:]):
        needed = (layer.weight[needed] != 0).any(dim=0)
        idle.append((~needed).numpy())
    return idle[::-1]
