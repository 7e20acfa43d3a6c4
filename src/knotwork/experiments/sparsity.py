"""L1 and dropout against L2: what they do to the error and to the number of weights that matter."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from knotwork.data.coordinates import Coordinates
from knotwork.experiments.protocol import Plan, Rows, split
from knotwork.experiments.runs import options_of, squared_errors, start_network, tensors, train_through

# Name, and what it adds to the (standardised) loss or does to the hidden units.
PENALTIES: dict[str, dict[str, float]] = {
    "none": {"weight_decay": 0.0},
    "L2 0.01": {"weight_decay": 0.01},
    "L2 0.1": {"weight_decay": 0.1},
    "L2 1": {"weight_decay": 1.0},
    "L1 1e-5": {"weight_decay": 0.0, "l1": 1e-5},
    "L1 1e-4": {"weight_decay": 0.0, "l1": 1e-4},
    "L1 1e-3": {"weight_decay": 0.0, "l1": 1e-3},
    "dropout 0.1": {"weight_decay": 0.0, "dropout": 0.1},
    "dropout 0.3": {"weight_decay": 0.0, "dropout": 0.3},
}
RATE = 3e-3
# Of the largest weight of its layer: below it a weight counts as none.
SMALL = 1e-2


def errors(plan: Plan, data: str, seed: int, penalty: str) -> dict[str, Any]:
    """Train a converted start under a penalty; count its small weights and see what leaving them out costs."""
    rows = split(data, seed)
    net, _ = start_network("converted", rows, plan, seed)
    options = options_of(plan, RATE, plan.analysis_epochs, **PENALTIES[penalty])
    trained = train_through(net, rows, options, seed)
    c = Coordinates.of(rows.train.x, rows.train.y)
    thinned = copy.deepcopy(trained.after)
    small = total = 0
    with torch.no_grad():
        for layer in thinned:
            if isinstance(layer, nn.Linear):
                below = layer.weight.abs() < SMALL * layer.weight.abs().max()
                small, total = small + int(below.sum()), total + below.numel()
                layer.weight[below] = 0.0
    test = tensors(Rows(c.features(rows.test.x), c.responses(rows.test.y)))
    return {
        "penalty": penalty, "small_before": _share_small(trained.before), "small": small / total,
        "train": trained.train[-1], "last": trained.test[-1],
        "best": trained.test[int(np.argmin(trained.validation))],
        "thinned": float(squared_errors(thinned, test).mean()) * c.y_scale.item() ** 2,
    }  # fmt: skip


def _share_small(net: nn.Sequential) -> float:
    weights = [layer.weight.detach().abs() for layer in net if isinstance(layer, nn.Linear)]
    small = sum(int((w < SMALL * w.max()).sum()) for w in weights)
    return small / sum(w.numel() for w in weights)
