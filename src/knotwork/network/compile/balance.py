"""Units of a network that weigh the same on both sides: the scales of units whose rows nobody knows.

ReLU and its leaky kin are positively homogeneous: a unit with s times the input weights and 1/s times the output
weights is the same unit. Powers of two for s change no bit of the function. Where there are rows, or standardised
coordinates to make some up in, :mod:`knotwork.network.ready` has better scales.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError
from knotwork.network.chain import Chain, read_layer, without_scaling, working_layers
from knotwork.network.ready import HOMOGENEOUS, training_scales

# Rescaling a layer changes what its neighbours weigh; the sweeps end when nothing moves, or here.
MAX_SWEEPS = 50


def balancing_scales(weights: Sequence[Any]) -> list[Floats]:
    """Return a power of two for every hidden unit that brings its maximum weights in and out together.

    ``weights`` are those of the layers, (out, in) dense or sparse, the output layer last. A unit that adds nothing yet
    only has its inputs brought to size one. Euclidean norms, with the biases or without, train no better.

    >>> balancing_scales([np.array([[4.0]]), np.array([[0.25]])])
    [array([0.25])]
    """
    entries = [_entries(weight) for weight in weights]
    scales = [np.ones(weight.shape[0]) for weight in weights]  # those of the outputs stay one
    for _ in range(MAX_SWEEPS):
        changed = False
        for k in reversed(range(len(weights) - 1)):
            (unit, before, size), (after, unit_read, size_read) = entries[k], entries[k + 1]
            inward = _maxima(unit, size / scales[k - 1][before] if k > 0 else size, len(scales[k]))
            outward = _maxima(unit_read, size_read * scales[k + 1][after], len(scales[k]))
            target = np.divide(1.0, inward, out=np.zeros_like(inward), where=inward > 0)
            target = np.where(outward > 0, outward, target)
            ratio = np.divide(target, inward, out=np.ones_like(inward), where=inward > 0)
            fresh = np.exp2(np.clip(np.round(np.log2(ratio) / 2), -500, 500))
            changed = changed or not np.array_equal(fresh, scales[k])
            scales[k] = fresh
        if not changed:
            break
    return scales[:-1]


def _entries(weight: Any) -> tuple[Any, Any, Floats]:
    """Return row, column and size of what is not zero."""
    found = sparse.coo_array(weight)
    return found.row, found.col, np.abs(found.data)


def _maxima(place: Any, size: Floats, count: int) -> Floats:
    """Return the maximum size at each place, zero where there is none: (count,)."""
    maxima = np.zeros(count)
    np.maximum.at(maxima, place, size)
    return maxima


def balance_(net: nn.Module, rows: Tensor | None = None) -> None:
    """Balance the hidden units of a network in place: by their sensitivity on rows (N, d), or without by their weights.

    A converted network may carry values of the data's own size inside, far from those that an optimiser's step is made
    for. Networks that are not a chain of Linear layers and homogeneous activations, or that use a layer twice,
    are left alone.
    """
    try:
        working = [layer for _, layer in working_layers(net)]
    except NetworkError:
        return
    working, *_ = without_scaling(working)
    linears = [m for m in working[::2] if isinstance(m, nn.Linear)]
    homogeneous = all(isinstance(m, HOMOGENEOUS) for m in working[1::2])
    if not all("weight" in dict(m.named_parameters(recurse=False)) for m in linears):
        return  # weights that are computed
    if not all(p.requires_grad for m in linears for p in m.parameters()):
        return  # frozen ones
    if not (isinstance(net, nn.Sequential) and homogeneous and 2 * len(linears) == len(working) + 1):
        return
    if len({id(linear.weight) for linear in linears}) < len(linears):  # a scale would count in every place
        return
    layers = [read_layer(linear) for linear in linears]
    if rows is None:
        scales = balancing_scales([layer.weight.numpy() for layer in layers])
    else:
        chain = Chain(tuple(layers[:-1]), layers[-1], tuple(copy.deepcopy(m) for m in working[1::2]))
        scales = training_scales(chain, rows)
    with torch.no_grad():
        for first, second, scale in zip(linears, linears[1:], scales, strict=False):
            factor = torch.from_numpy(scale).to(first.weight)
            first.weight.mul_(factor[:, None])
            if first.bias is not None:
                first.bias.mul_(factor)
            second.weight.div_(factor)
