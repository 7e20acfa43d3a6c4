"""A spline inside a residual block: the stream carries the features to it and the outputs away from it.

For networks stem → h + block(h) → … → head without an activation outside their blocks. The stem writes the
standardised features into the stream, the first block reads them and adds the spline to places of the stream that are
zero so far, and the head reads those.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from knotwork.data.coordinates import Coordinates
from knotwork.errors import NetworkError
from knotwork.network.chain import Chain, Layer
from knotwork.network.start.find import BESIDE
from knotwork.network.start.route import Stream


def require_room(stream: Stream, features: int, outputs: int) -> None:
    """Refuse a stream that has no place for the features and the outputs."""
    width = stream.stem.out_features
    if width < features + outputs:
        raise NetworkError(
            f"a residual stream must be as wide as features and outputs together, here {features} + {outputs}, got "
            f"{width}; make it wider, or {BESIDE}"
        )


def stream_layers(
    stream: Stream, linears: list[nn.Linear], chain: Chain, relative: Coordinates, rng: np.random.Generator
) -> list[tuple[nn.Linear, Layer]]:
    """Return what to write into stem, block and head.

    ``chain`` has one hidden layer and computes in standardised coordinates, those of what the module sees and gives
    being ``relative``.
    """
    width, d, p = stream.stem.out_features, chain.inputs, chain.outputs
    zeros = torch.zeros(width, dtype=torch.float64)
    # The features, then random directions of them for later blocks to read, then the outputs.
    stem = torch.zeros(width, d, dtype=torch.float64)
    stem[:d] = torch.eye(d, dtype=torch.float64)
    spare = torch.from_numpy(rng.normal(size=(width - d - p, d)))
    stem[d : width - p] = spare / spare.norm(dim=1, keepdim=True).clamp_min(1e-300)
    reads = torch.zeros(chain.widths[0], width, dtype=torch.float64)
    reads[:, :d] = chain.hidden[0].weight
    adds = torch.zeros(width, chain.widths[0], dtype=torch.float64)
    adds[width - p :] = chain.output.weight
    constant = zeros.clone()
    constant[width - p :] = chain.output.bias
    head = torch.zeros(p, width, dtype=torch.float64)
    head[:, width - p :] = torch.eye(p, dtype=torch.float64)
    return [
        (stream.stem, Layer(stem, zeros).of_features(relative.inverse)),
        (linears[0], Layer(reads, chain.hidden[0].bias)),
        (linears[1], Layer(adds, constant)),
        (stream.head, Layer(head, zeros[:p]).to_responses(relative.inverse)),
    ]
