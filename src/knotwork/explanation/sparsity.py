"""What smaller networks cost: prune one, or follow its error as more and more weights are set to zero."""

from __future__ import annotations

from dataclasses import dataclass
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

# Rows that the errors of a path of smaller networks are measured on.
MAX_ROWS = 5000
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


def prune(subject: Subject, rows: Rows | None, threshold: float, model: Any) -> Pruned:
    """Return the network without its weights of at most ``threshold``, as small as that makes it."""
    import copy

    import torch

    from knotwork.network.chain import build, evaluate, placement
    from knotwork.network.prune import count_parameters, count_weights, shrink_chain, threshold_chain

    if subject.network is None:
        raise DataError(f"prune takes a network, a {subject.kind} has none; lower max_terms to get a smaller spline")
    if not threshold >= 0:
        raise DataError(f"threshold must not be negative, got {threshold!r}")
    coordinates = coordinates_for(subject, rows)
    smaller = shrink_chain(threshold_chain(subject.network, coordinates, threshold))
    module = subject.module
    place = (torch.get_default_dtype(), torch.device("cpu")) if module is None else placement(module)
    built = build(smaller, *place)
    errors = change = None
    if rows is not None:
        from knotwork.network.chain import read_chain

        old, new = subject.evaluate_network(rows.matrix), evaluate(read_chain(built), rows.matrix)
        change = float(np.abs(old - new).max())
        errors = (error(subject, old, rows), error(subject, new, rows)) if rows.y is not None else None
    twin = None
    if module is not None and model is subject.estimator:
        from knotwork.network.train.history import History

        twin = copy.copy(model)
        twin.network_ = built
        # The losses were the whole network's, and the units no longer pair up with those of the start.
        twin.history_ = History()
        vars(twin).pop("start_network_", None)
    return Pruned(
        network=built,
        model=twin,
        threshold=float(threshold),
        weights=(count_weights(subject.network), count_weights(smaller)),
        units=(sum(subject.network.widths), sum(smaller.widths)),
        parameters=(count_parameters(subject.network), count_parameters(smaller)),
        error=errors,
        largest_change=change,
    )


def sparsity(subject: Subject, rows: Rows | None) -> pd.DataFrame:
    """Return what is left of the network, and its error, when the smallest 0, 10, … 90 % of its weights go."""
    import pandas as pd

    from knotwork.network.chain import evaluate
    from knotwork.network.prune import count_weights, shrink_chain, threshold_chain

    if subject.network is None:
        raise DataError(f"sparsity is measured on a network, a {subject.kind} has none; explain a SplineNetRegressor")
    coordinates = coordinates_for(subject, rows)
    sizes = np.abs(np.concatenate([w.ravel() for w, _ in standardised_layers(subject.network, coordinates)]))
    if rows is not None and len(rows) > MAX_ROWS:
        chosen = np.random.default_rng(0).choice(len(rows), MAX_ROWS, replace=False)
        y = None if rows.y is None else rows.y[chosen]
        rows = Rows(rows.matrix[chosen], rows.codes[chosen], y, rows.response)
    records = []
    for share in SHARES:
        threshold = 0.0 if share == 0 else float(np.quantile(sizes, share))
        smaller = shrink_chain(threshold_chain(subject.network, coordinates, threshold))
        record: dict[str, float] = {"share": share, "threshold": threshold, "weights": count_weights(smaller),
                                    "units": sum(smaller.widths)}  # fmt: skip
        if rows is not None and rows.y is not None:
            record["error"] = error(subject, evaluate(smaller, rows.matrix), rows)
        records.append(record)
    return pd.DataFrame.from_records(records, index="share")
