"""A chain between other ends: of a table's features in place of a model's, and with scaled outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from knotwork.arrays import Floats
from knotwork.data.steps import Affine, Inputs
from knotwork.network.chain import Chain, Layer
from knotwork.pwl.through import theta_of_inputs


def chain_of_inputs(chain: Chain, inputs: Inputs) -> Chain:
    """Return the chain of a table's features that a chain of a model's features is.

    The scaling moves to the table's features, so that data far from zero lose nothing; what is left of the map between
    the standardised features joins the first layer.
    """
    c, a, place = chain.coordinates, inputs.affine, inputs.place
    scaling = c.of_inputs(inputs)
    # The model's standardised features when the table's are at their centres, and by how much they follow.
    at_centre = ((scaling.x_centre[place] - a.centre) * a.factor + (a.offset - c.x_centre)) / c.x_scale
    follow = a.factor * scaling.x_scale[place] / c.x_scale
    between = replace(inputs, affine=Affine(np.zeros_like(follow), follow, at_centre))
    first, *rest = chain.layers
    theta = theta_of_inputs(np.column_stack([first.bias.numpy(), first.weight.numpy()]), between)
    layer = Layer(torch.from_numpy(theta[:, 1:].copy()), torch.from_numpy(theta[:, 0].copy()))
    conversion = chain.conversion
    if conversion.box is not None:
        conversion = replace(conversion, box=_box_of_inputs(conversion.box.numpy(), inputs))
    return replace(chain.with_layers([layer, *rest]), scaling=scaling, conversion=conversion)


def _box_of_inputs(box: Floats, inputs: Inputs) -> torch.Tensor:
    """Return the box of the table's features that holds the model's features in theirs."""
    sides = np.array([[-np.inf], [np.inf]]).repeat(inputs.count, axis=1)
    for j, place in enumerate(inputs.place):
        low, high = sorted(inputs.knot(j, float(side)) for side in box[:, j])
        sides[:, place] = max(sides[0, place], low), min(sides[1, place], high)
    return torch.from_numpy(sides)


def chain_with_outputs(chain: Chain, gain: Floats, shift: Floats) -> Chain:
    """Return the chain that computes gain·f + shift, output by output: (p,) each, gains positive."""
    conversion = replace(chain.conversion, bound=chain.conversion.bound * float(gain.max()))
    return replace(chain, scaling=chain.coordinates.with_outputs(gain, shift), conversion=conversion)
