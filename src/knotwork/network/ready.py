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
from numpy.typing import NDArray
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.network.activations import activation_rule
from knotwork.network.chain import Chain, Layer
from knotwork.network.scaling import input_scaling

HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU, nn.PReLU)
STRAIGHT = (nn.Softplus, nn.SiLU, nn.GELU)
# Error of U(z) − U(−z), on the scale of z, beyond which two units do not carry a value (Softplus has a threshold).
MAX_LINE_ERROR = 1e-6
# Root mean square of a unit that adds nothing yet, as a share of the response's std. On tables that own_loop.py lacks,
# units of 1/16 to 1 learned about as much in 30 epochs. Larger ones disturb rows outside the training rows: with 1 the
# error there rose by 20 %. Smaller ones die: of 1/8 more were dead after 30 epochs than from a random start, on two of
# that benchmark's tables (other seeds).
NEW_SIZE = 2.0**-2.5
# Rows on which sensitivities are measured, and those made up where there are none.
MAX_ROWS = 1024
# Weights beyond which a network is left as it is: it would take as long as many steps of training.
MAX_WEIGHTS = 4_000_000
# Share of its parts below which a sum is rounding.
ROUNDING = 1e-12
# A scale changes what is best for the neighbours; the sweeps end when nothing moves by a percent.
MAX_SWEEPS = 50


def ready_chain(chain: Chain, rows: Tensor | None = None) -> Chain:
    """Return the same function with scaled units.

    All units of ReLU and its kin may be scaled. Of smooth units only those may that carry a value between them,
    z = U(z) − U(−z): what stands for a hinge has a scale of its own.

    ``rows`` (N, d) are in the coordinates of the chain's layers. If there are none, standard normal ones are made up
    and brought into ``input_scaling``.
    """
    weights = sum(layer.weight.numel() for layer in chain.layers)
    if not chain.hidden or weights > MAX_WEIGHTS:
        return chain
    pairs = None
    if not all(isinstance(m, HOMOGENEOUS) for m in chain.modules):
        pairs = [carrying_pairs(chain, k) for k in range(len(chain.hidden))]
        if not any(len(found) for found in pairs):
            return chain
    if rows is None:
        made_up = np.random.default_rng(0).normal(size=(MAX_ROWS // 2, chain.inputs))
        rows = torch.from_numpy(input_scaling(Coordinates.identity(chain.inputs, chain.outputs)).features(made_up))
    return rescaled(chain, training_scales(chain, rows, pairs))


def rescaled(chain: Chain, scales: Sequence[Floats]) -> Chain:
    """Return the chain with the units of each hidden layer scaled: (width,) each, positive."""
    layers = list(chain.layers)
    for k, scale in enumerate(map(torch.from_numpy, scales)):
        layers[k] = Layer(layers[k].weight * scale[:, None], layers[k].bias * scale)
        layers[k + 1] = Layer(layers[k + 1].weight / scale, layers[k + 1].bias)
    return chain.with_layers(layers)


def carrying_pairs(chain: Chain, k: int) -> NDArray[np.intp]:
    """Return the units of a hidden layer that carry a value, U(z) and U(−z) read as their difference: (pairs, 2).

    Only where that difference is z whatever the scale of the units: for Softplus, SiLU and GELU.
    """
    module, weight, bias = chain.modules[k], chain.layers[k].weight.numpy(), chain.layers[k].bias.numpy()
    read = chain.layers[k + 1].weight.numpy()
    if not isinstance(module, STRAIGHT) or activation_rule(module).line_error > MAX_LINE_ERROR:
        return np.empty((0, 2), dtype=np.intp)
    places: dict[bytes, int] = {}
    found = []
    for unit, values in enumerate(np.column_stack([weight, bias, read.T])):
        values = values + 0.0  # a zero has a sign
        other = places.pop((0.0 - values).tobytes(), None)
        if other is not None and values.any():
            found.append((other, unit))
        else:
            places[values.tobytes()] = unit
    return np.array(found, dtype=np.intp).reshape(-1, 2)


def training_scales(chain: Chain, rows: Tensor, pairs: Sequence[NDArray[np.intp]] | None = None) -> list[Floats]:
    """Return a power of two for every hidden unit of a homogeneous chain, or of these ``pairs``; one for all others.

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
            if pairs is not None:
                inward, outward, seen = _of_pairs(inward, outward, pairs[k])
            fresh = np.divide(inward, outward, out=np.ones_like(inward), where=seen) ** 0.25
            if isinstance(chain.modules[k], nn.Softplus):  # not zero at zero, so that smaller units would be less exact
                fresh = np.maximum(fresh, 1.0)
            moved = max(moved, float(np.abs(fresh / scales[k] - 1).max()))
            scales[k] = fresh
        if moved < 0.01:
            break
    for k, idle in enumerate(_idle_units(chain) if pairs is None else ()):
        size = values[k + 1].square().mean(dim=0).sqrt().numpy()
        new = np.divide(NEW_SIZE, size, out=np.ones_like(size), where=size > 0)
        scales[k] = np.where(idle, new, scales[k])
    return [np.exp2(np.clip(np.round(np.log2(scale)), -500, 500)) for scale in scales]


def _of_pairs(inward: Floats, outward: Floats, pairs: NDArray[np.intp]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Give both units of a pair the same sensitivities, so that they have one scale; no other unit is seen."""
    sums = []
    for values in (inward, outward):
        together = np.zeros_like(values)
        together[pairs] = values[pairs].sum(axis=1, keepdims=True)
        sums.append(together)
    return sums[0], sums[1], (sums[0] > 0) & (sums[1] > 0)


def _forward(chain: Chain, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return what each layer reads, (N, in), the last being what the output layer reads, and the units' slopes."""
    values, slopes = [rows], []
    with torch.no_grad():
        for layer, module in zip(chain.hidden, chain.modules, strict=True):
            activation = module.to("cpu", torch.float64)
            z = layer(values[-1])
            parts = values[-1].abs() @ layer.weight.abs().T + layer.bias.abs()
            # A row on a knot is on either side of it, by rounding; a unit that only rounding turns on is off.
            z = torch.where(z.abs() > ROUNDING * parts, z, 0.0)
            values.append(activation(z))
            slopes.append(_slopes(activation, z))
    return values, slopes


def _slopes(activation: nn.Module, z: Tensor) -> Tensor:
    """Return the slopes of an activation, (N, H); at the bend of ReLU and its kin those below it."""
    if isinstance(activation, HOMOGENEOUS):
        one = torch.ones(1, z.shape[1], dtype=torch.float64)
        return torch.where(z > 0, activation(one), -activation(-one))
    with torch.enable_grad():
        at = z.detach().requires_grad_()
        (slope,) = torch.autograd.grad(activation(at).sum(), at)
    return slope


def _sensitivities(
    chain: Chain, values: list[Tensor], slopes: list[Tensor]
) -> tuple[list[tuple[Floats, Floats]], Floats]:
    """Return the sensitivities of the weights and biases of each hidden layer, and of the output layer's weights."""
    rows = len(values[0])
    # With random factors the squares of a sum over outputs are, in the mean, the sum of their squares. Normal ones:
    # with random signs centred logits, whose weights add up to zero, would cancel on some rows.
    factors = np.random.default_rng(0).normal(size=(rows, chain.outputs)) if chain.outputs > 1 else np.ones((rows, 1))
    slope = torch.from_numpy(factors)  # ∂(sum of the outputs)/∂(what the layer makes)
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
