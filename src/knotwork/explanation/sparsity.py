"""Smaller networks: weights near zero set to zero, and units that then do nothing taken out without changing anything.

Weights are judged in standardised coordinates, those of training, so that the units of the data do not matter. A weight
of the first layer that is set to zero leaves its feature at its mean. A unit that nobody reads is left out; a unit that
reads nothing is a constant and moves into the biases behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.errors import DataError
from knotwork.explanation.drift import standardised_layers
from knotwork.explanation.quality import error
from knotwork.explanation.subject import Rows, Subject

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from knotwork.data.coordinates import Coordinates
    from knotwork.network.chain import Chain

# Rows that the errors of a path of smaller networks are measured on.
MOST_ROWS = 5000
# Shares of the weights to try.
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Pruned:
    """A smaller network and its price.

    network : nn.Sequential, raw features in
    model : a copy of the estimator that uses it, without history and start; None for other models
    threshold : in standardised coordinates
    weights, units : (before, after) weights that are not zero, and hidden units
    parameters : (before, after) numbers that the dense layers store
    error : (before, after) on the data of the explanation, None without y
    largest_change : of any prediction on those data, None without X
    """

    network: nn.Sequential
    model: Any
    threshold: float
    weights: tuple[int, int]
    units: tuple[int, int]
    parameters: tuple[int, int]
    error: tuple[float, float] | None
    largest_change: float | None


def coordinates_for(subject: Subject, rows: Rows | None) -> Coordinates:
    """Return the coordinates of the training, or those of the data for a network that came from elsewhere."""
    from knotwork.data.coordinates import Coordinates

    if subject.coordinates is not None:
        return subject.coordinates
    if rows is None:
        raise DataError("weights are judged in standardised coordinates, got no X; pass explain(network, X)")
    return Coordinates.of(rows.matrix, subject(rows.matrix))


def threshold_chain(chain: Chain, coordinates: Coordinates, threshold: float) -> Chain:
    """Set weights of at most ``threshold`` (in standardised coordinates) to zero; the others keep every bit."""
    import torch

    from knotwork.network.chain import Layer

    layers = [*chain.hidden, chain.output]
    if chain.prefix is not None:  # its map joins the first layer
        first = layers[0]
        bias = first.bias + first.weight @ chain.prefix.bias
        layers[0] = Layer(first.weight @ chain.prefix.weight, bias)
        chain = replace(chain, prefix=None)
    judged = standardised_layers(replace(chain, hidden=tuple(layers[:-1])), coordinates)
    kept = []
    for k, (layer, (weight, _)) in enumerate(zip(layers, judged, strict=True)):
        small = torch.from_numpy(np.abs(weight) <= threshold)
        bias = layer.bias
        if k == 0:
            bias = bias + (layer.weight * small) @ torch.from_numpy(coordinates.x_centre)
        kept.append(Layer(layer.weight * ~small, bias))
    return replace(chain, hidden=tuple(kept[:-1]), output=kept[-1])


def shrink_chain(chain: Chain) -> Chain:
    """Take out the units that nobody reads and those that read nothing: a smaller chain with the same function."""
    import torch

    from knotwork.network.chain import Layer

    layers = [*chain.hidden, chain.output]
    changed = True
    while changed:
        changed = False
        for k in range(len(layers) - 1):
            here, following = layers[k], layers[k + 1]
            unread = (following.weight == 0).all(dim=0)
            constant = (here.weight == 0).all(dim=1) & ~unread
            gone = unread | constant
            if gone.all():  # a layer keeps a unit, which adds nothing
                gone[0] = False
            if not gone.any():
                continue
            with torch.no_grad():
                values = chain.modules[k].to("cpu", torch.float64)(here.bias)
            bias = following.bias + following.weight[:, constant] @ values[constant]
            rest = following.weight.clone()
            rest[:, constant] = 0.0
            layers[k] = Layer(here.weight[~gone], here.bias[~gone])
            layers[k + 1] = Layer(rest[:, ~gone], bias)
            changed = True
    return replace(chain, hidden=tuple(layers[:-1]), output=layers[-1])


def _weights(chain: Chain) -> int:
    return sum(int((layer.weight != 0).sum()) for layer in (*chain.hidden, chain.output))


def _parameters(chain: Chain) -> int:
    return sum(layer.weight.numel() + layer.bias.numel() for layer in (*chain.hidden, chain.output))


def prune(subject: Subject, rows: Rows | None, threshold: float, model: Any) -> Pruned:
    """Return the network without its weights of at most ``threshold``, as small as that makes it."""
    import copy

    import torch

    from knotwork.network.chain import build, evaluate, placement

    if subject.network is None:
        raise DataError(f"prune takes a network, a {subject.kind} has none; lower max_terms to get a smaller spline")
    if not threshold >= 0:
        raise DataError(f"threshold must not be negative, got {threshold!r}")
    coordinates = coordinates_for(subject, rows)
    smaller = shrink_chain(threshold_chain(subject.network, coordinates, threshold))
    module = subject.parts.module
    place = (torch.get_default_dtype(), torch.device("cpu")) if module is None else placement(module)
    built = build(smaller, *place)
    errors = change = None
    if rows is not None:
        from knotwork.network.chain import read_chain

        old, new = subject.evaluate_network(rows.matrix), evaluate(read_chain(built), rows.matrix)
        change = float(np.abs(old - new).max())
        errors = (error(subject, old, rows), error(subject, new, rows)) if rows.y is not None else None
    twin = None
    if module is not None and model is subject.parts.estimator:
        from knotwork.network.train.loop import History

        twin = copy.copy(model)
        twin.network_ = built
        # The losses were the whole network's, and the units no longer pair up with those of the start.
        twin.history_ = History()
        vars(twin).pop("start_network_", None)
    return Pruned(
        network=built,
        model=twin,
        threshold=float(threshold),
        weights=(_weights(subject.network), _weights(smaller)),
        units=(sum(subject.network.widths), sum(smaller.widths)),
        parameters=(_parameters(subject.network), _parameters(smaller)),
        error=errors,
        largest_change=change,
    )


def sparsity(subject: Subject, rows: Rows | None) -> pd.DataFrame:
    """Return what is left of the network, and its error, when the smallest 0, 10, … 90 % of its weights go."""
    import pandas as pd

    from knotwork.network.chain import evaluate

    if subject.network is None:
        raise DataError(f"sparsity is a network's, a {subject.kind} has none; explain a SplineNetRegressor")
    coordinates = coordinates_for(subject, rows)
    sizes = np.abs(np.concatenate([w.ravel() for w, _ in standardised_layers(subject.network, coordinates)]))
    if rows is not None and len(rows) > MOST_ROWS:
        chosen = np.random.default_rng(0).choice(len(rows), MOST_ROWS, replace=False)
        y = None if rows.y is None else rows.y[chosen]
        rows = Rows(rows.matrix[chosen], rows.codes[chosen], y, rows.response)
    records = []
    for share in SHARES:
        threshold = 0.0 if share == 0 else float(np.quantile(sizes, share))
        smaller = shrink_chain(threshold_chain(subject.network, coordinates, threshold))
        record: dict[str, float] = {"share": share, "threshold": threshold, "weights": _weights(smaller),
                                    "units": sum(smaller.widths)}  # fmt: skip
        if rows is not None and rows.y is not None:
            record["error"] = error(subject, evaluate(smaller, rows.matrix), rows)
        records.append(record)
    return pd.DataFrame.from_records(records, index="share")
