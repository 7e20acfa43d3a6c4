"""BatchNorm1d around a spline: statistics of the data, and an affine part that undoes them.

In use such a layer changes nothing. In training it takes the statistics of each batch in place of those of the data,
so that the first steps are near the start.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates

# Batches of this many rows are taken for seen where a layer averages over all batches that it has seen.
ROWS_PER_BATCH = 128


def adopt_(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, rows: int) -> None:
    """Set the running statistics, (C,) each, as though batches of these rows had been seen."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    with torch.no_grad():
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)
        norm.num_batches_tracked.fill_(max(1, rows // ROWS_PER_BATCH))


def measure_(norm: nn.BatchNorm1d, rows: Tensor) -> None:
    """Set the running statistics to those of rows (N, C)."""
    values = rows.double()
    adopt_(norm, values.mean(dim=0), values.var(dim=0), len(values))


def pass_on_(norm: nn.BatchNorm1d, shift: Tensor | None = None) -> None:
    """Set the affine part so that, in use, what comes out is what came in, plus ``shift`` (C,)."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        mean = norm.running_mean.double()
        norm.weight.copy_((norm.running_var.double() + norm.eps).sqrt())
        norm.bias.copy_(mean if shift is None else mean + shift.to(mean))


def silence_(layer: nn.Module) -> None:
    """Set the last layer of a branch, a Linear or a BatchNorm1d, to zero; its gradient is not."""
    with torch.no_grad():
        for parameter in layer.parameters(recurse=False):
            parameter.zero_()


def standardise_(norm: nn.BatchNorm1d, rows: Floats, outputs: int) -> Coordinates:
    """Make a BatchNorm1d standardise rows (N, d); return the coordinates that come out, as its dtype rounds them."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    values = torch.from_numpy(rows)
    measure_(norm, values)
    with torch.no_grad():
        if norm.weight is not None:
            norm.weight.fill_(1.0)
            norm.bias.zero_()
        centre = norm.running_mean.double().cpu().numpy()
        scale = (norm.running_var.double() + norm.eps).sqrt().cpu().numpy()
    return Coordinates.of_features(centre, scale, outputs)
