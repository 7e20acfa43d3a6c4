"""Hidden weights before and after training, and how far they moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from knotwork.experiments.protocol import Plan, split
from knotwork.experiments.runs import options_of, start_network, train_through
from knotwork.network.compile.units import count_units

RATE = 3e-3


def matrices(plan: Plan, data: str, start: str, seed: int) -> dict[str, Any]:
    """Train one network; return its hidden weight matrices (out, in) and their shift.

    shift : ‖after − before‖ / ‖before‖ for each layer, in the coordinates of training
    own_units : how many of the first layer's units carry the spline
    own_shift, new_shift : shift of those units, and of the added ones
    """
    rows = split(data, seed)
    net, spline = start_network(start, rows, plan, seed)
    trained = train_through(net, rows, options_of(plan, RATE, plan.epochs), seed)
    before, after = _hidden(trained.before), _hidden(trained.after)
    shift = [_shift(b, a) for b, a in zip(before, after, strict=True)]
    own = 0 if spline is None else count_units(spline)[0]
    return {
        "data": data, "start": start, "epochs": plan.epochs, "shift": shift,
        "before": [np.round(w, 4).tolist() for w in before], "after": [np.round(w, 4).tolist() for w in after],
        "names": rows.names, "own_units": own,
        "own_shift": _shift(before[0][:own], after[0][:own]) if own else None,
        "new_shift": _shift(before[0][own:], after[0][own:]) if 0 < own < len(before[0]) else None,
    }  # fmt: skip


def _hidden(net: nn.Sequential) -> list[np.ndarray[Any, Any]]:
    """Weights of all layers but the output's, biases as a last column."""
    layers = [layer for layer in net if isinstance(layer, nn.Linear)][:-1]
    return [torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().numpy() for layer in layers]


def _shift(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(after - before) / np.linalg.norm(before))
