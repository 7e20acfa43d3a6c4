"""The mean loss of a network over rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from knotwork.network.train.buffer import Buffered
from knotwork.network.train.losses import Loss
from knotwork.network.train.ranks import Ranks
from knotwork.network.train.rows import Rows


def mean_losses(run: Callable[[Tensor], Tensor], rows: Rows | Buffered, loss: Loss, ranks: Ranks | None) -> list[float]:
    """Return the mean loss of a network, or of each of several, over the rows of all ranks."""
    # Summed where the rows are, and looked at once.
    kind = torch.float32 if rows.device.type == "mps" else torch.float64  # some devices have no float64
    cost = weight = torch.zeros((), dtype=kind, device=rows.device)
    with torch.no_grad():
        for part in rows.chunks():
            cost = cost + (part.costs(run, loss.rows) * part.weight).sum(-1)
            weight = weight + part.weight.sum(-1)
    if ranks is not None:
        cost, weight = ranks.sum(torch.stack([cost, weight]))
    found: list[float] = (cost / weight).reshape(-1).tolist()
    return found
