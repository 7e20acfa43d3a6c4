"""The spline on fewer rows, and on rows of its own that the network never trains on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from knotwork.experiments.protocol import FILL, Plan, split
from knotwork.experiments.runs import converted_network, fit_start_spline, options_of, train_through

SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
RATE = 3e-3


def errors(plan: Plan, data: str, seed: int, share: float, exclusive: bool) -> dict[str, Any]:
    """Test MSE of a spline fitted to a share of the training rows and of the network trained on from it.

    The network trains on all training rows, or (exclusive) on those that the spline did not see.
    """
    rows = split(data, seed)
    count = round(share * len(rows.train))
    order = np.random.default_rng(seed).permutation(len(rows.train))
    part = rows.train.take(order[:count])
    spline = fit_start_spline(part, rows.names, plan.widths[0])
    for_network = rows.train.take(order[count:]) if exclusive else rows.train
    net = converted_network(spline, part, plan.widths, FILL["converted"], seed)
    options = options_of(plan, RATE, plan.analysis_epochs)
    trained = train_through(net, replace(rows, train=for_network), options, seed)
    best = int(np.argmin(trained.validation))
    return {
        "share": share, "exclusive": exclusive, "rows": count, "terms": len(spline.terms),
        "spline": trained.test[0], "last": trained.test[-1], "best": trained.test[best],
    }  # fmt: skip
