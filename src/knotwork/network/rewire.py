"""A chain between other ends: of a table's features in place of a model's, and with scaled outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from knotwork.arrays import Floats
from knotwork.data.feature_moments import FeatureMoments
from knotwork.data.steps import Affine, Inputs
from knotwork.network.chain import Chain, Layer
from knotwork.pwl.through import theta_of_inputs

# In stds: data that lie further from zero are centred by a layer of their own. Weights that scale and centre at once
# would round each product to so many stds times 1e-16.
FAR = 1e3


def chain_of_inputs(chain: Chain, inputs: Inputs) -> Chain:
    """Return the chain of a table's features that a chain of a model's features is.

    Its first layer takes the map. Where the table lies far from zero, a layer in front takes off the centres, exactly.
    """
    box = chain.conversion.box
    if box is not None:
        chain = replace(chain, conversion=replace(chain.conversion, box=_box_of_inputs(box.numpy(), inputs)))
    if not (np.abs(inputs.affine.constant) > FAR).any():
        return _with_first(chain, _layer_of_inputs(_first(chain), inputs))
    chain, centre = folded_inputs(chain), np.zeros(inputs.count)
    centre[inputs.place[::-1]] = inputs.affine.zero[::-1]  # the first feature of several counts
    near = replace(inputs, affine=inputs.affine.about(centre[inputs.place]))
    return with_centring(_with_first(chain, _layer_of_inputs(_first(chain), near)), centre)


def with_centring(chain: Chain, centre: Floats) -> Chain:
    """Put a layer in front that takes off centres."""
    return replace(chain, prefix=Layer(torch.eye(len(centre), dtype=torch.float64), torch.from_numpy(-centre)))


def _is_centring(layer: Layer) -> bool:
    rows, columns = layer.weight.shape
    return rows == columns and bool((layer.weight == torch.eye(rows, dtype=torch.float64)).all())


def _first(chain: Chain) -> Layer:
    return chain.prefix or chain.layers[0]


def _with_first(chain: Chain, layer: Layer) -> Chain:
    if chain.prefix is not None:
        return replace(chain, prefix=layer)
    return chain.with_layers([layer, *chain.layers[1:]])


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


def centred_inputs(chain: Chain, features: FeatureMoments) -> Chain:
    """Put a layer in front that takes off the centres of the features that lie far from zero; if none does, none."""
    centre, scale = features.centre, features.std
    if chain.prefix is not None and not _is_centring(chain.prefix):
        return chain
    before = np.zeros(len(centre)) if chain.prefix is None else -chain.prefix.bias.numpy()
    after = np.where(np.abs(centre - before) > FAR * scale, centre, before)
    if (after == before).all():
        return chain
    chain = replace(chain, prefix=None)
    return with_centring(_with_first(chain, _layer_of_inputs(_first(chain), shifted(after - before))), after)


def shifted(centre: Floats) -> Inputs:
    """Return the inputs x + centre, made of x."""
    d = len(centre)
    return Inputs(np.arange(d), Affine(np.zeros(d), np.ones(d), centre), d)


def far_centre(features: FeatureMoments) -> Floats | None:
    """Return the centres of the features that lie far from zero, 0 for the others; None if none does."""
    centre = np.where(np.abs(features.centre) > FAR * features.std, features.centre, 0.0)
    return centre if centre.any() else None


def standardised_inputs(chain: Chain, features: FeatureMoments) -> Chain:
    """Put a map (x − centre)/std in front of a chain; its first layer undoes it. One with a map stays as it is."""
    middle, spread = torch.from_numpy(features.centre), torch.from_numpy(features.std)
    if chain.prefix is not None:
        if not _is_centring(chain.prefix):
            return chain
        middle = middle + chain.prefix.bias
        chain = replace(chain, prefix=None)
    first = _first(chain)
    inner = Layer(first.weight * spread, first.bias + first.weight @ middle)
    prefix = Layer(torch.diag(1 / spread), -torch.from_numpy(features.centre) / spread)
    return replace(_with_first(chain, inner), prefix=prefix)


def folded_inputs(chain: Chain) -> Chain:
    """Let the first layer take over the map in front of it, all but the centring of data that lie far from zero."""
    prefix = chain.prefix
    if prefix is None or _is_centring(prefix):
        return chain
    bare = replace(chain, prefix=None)
    first = _first(bare)
    scale, (rows, columns) = prefix.weight.diagonal(), prefix.weight.shape
    single = rows == columns and bool((prefix.weight == torch.diag(scale)).all())
    if single and bool((prefix.bias.abs() > FAR).any()):
        centre = -prefix.bias / torch.where(scale == 0, torch.ones_like(scale), scale)
        rest = prefix.bias + centre * scale
        layer = Layer(first.weight * scale, first.bias + first.weight @ rest)
        return with_centring(_with_first(bare, layer), centre.numpy())
    return chain.without_prefix()
