"""A chain between other ends: of a table's features in place of a model's, and with scaled outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from knotwork.arrays import Floats
from knotwork.data.steps import Inputs
from knotwork.network.chain import Chain, Layer
from knotwork.pwl.through import theta_of_inputs


def chain_of_inputs(chain: Chain, inputs: Inputs) -> Chain:
    """Return the chain of a table's features that a chain of a model's features is; its first layer takes the map."""
    box = chain.conversion.box
    if box is not None:
        chain = replace(chain, conversion=replace(chain.conversion, box=_box_of_inputs(box.numpy(), inputs)))
    return _with_first(chain, _layer_of_inputs(_first(chain), inputs))


def _first(chain: Chain) -> Layer:
    return chain.prefix or (chain.hidden[0] if chain.hidden else chain.output)


def _with_first(chain: Chain, layer: Layer) -> Chain:
    if chain.prefix is not None:
        return replace(chain, prefix=layer)
    if chain.hidden:
        return replace(chain, hidden=(layer, *chain.hidden[1:]))
    return replace(chain, output=layer)


def _layer_of_inputs(layer: Layer, inputs: Inputs) -> Layer:
    theta = theta_of_inputs(np.column_stack([layer.bias.numpy(), layer.weight.numpy()]), inputs)
    return Layer(torch.from_numpy(theta[:, 1:].copy()), torch.from_numpy(theta[:, 0].copy()))


def _box_of_inputs(box: Floats, inputs: Inputs) -> torch.Tensor:
    """Return the box of the table's features that holds the model's features in theirs."""
    sides = np.array([[-np.inf], [np.inf]]).repeat(inputs.count, axis=1)
    for j, place in enumerate(inputs.place):
        low, high = sorted(inputs.knot(j, float(side)) for side in box[:, j])
        sides[:, place] = max(sides[0, place], low), min(sides[1, place], high)
    return torch.from_numpy(sides)


def chain_with_outputs(chain: Chain, factor: Floats, offset: Floats) -> Chain:
    """Return the chain that computes factor·f + offset, output by output: (p,) each."""
    gain = torch.from_numpy(factor)
    output = Layer(chain.output.weight * gain[:, None], chain.output.bias * gain + torch.from_numpy(offset))
    conversion = replace(chain.conversion, bound=chain.conversion.bound * float(np.abs(factor).max()))
    return replace(chain, output=output, conversion=conversion)


def standardised_inputs(chain: Chain, centre: Floats, scale: Floats) -> Chain:
    """Put a map (x − centre)/scale in front of a chain; its first layer undoes it. One with a map stays as it is."""
    if chain.prefix is not None:
        return chain
    first, middle, spread = _first(chain), torch.from_numpy(centre), torch.from_numpy(scale)
    inner = Layer(first.weight * spread, first.bias + first.weight @ middle)
    prefix = Layer(torch.diag(1 / spread), -middle / spread)
    return replace(_with_first(chain, inner), prefix=prefix)


def folded_inputs(chain: Chain) -> Chain:
    """Let the first layer take over the map in front of it."""
    if chain.prefix is None:
        return chain
    prefix, bare = chain.prefix, replace(chain, prefix=None)
    first = _first(bare)
    return _with_first(bare, Layer(first.weight @ prefix.weight, first.bias + first.weight @ prefix.bias))
