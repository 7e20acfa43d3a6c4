"""What a SplineNet estimator has read: the record between reading and training, and how many rows a batch has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.data.limits import Limits
from knotwork.data.sample import Sample
from knotwork.data.table import TableEncoder
from knotwork.network.train.losses import Deviance, Loss

# Batches of batch_size="auto": sizes, and how many of them an epoch has at least where that allows it. On 22 tables of
# 1000 to 6000 rows, batches of 256 were as accurate as those of 128 and half as slow where an epoch had twenty.
BATCHES, BATCH_SIZES = 20, (128, 1024)


@dataclass(frozen=True)
class Problem:
    """What a network is to learn.

    rows : of positive weight; kept : their numbers in the table, None if these are all
    weighted : whether the weights are anything but ones
    encoder : from the table to the rows
    attributes : fitted ones that follow from y alone
    """

    rows: Sample
    kept: NDArray[np.intp] | None
    weighted: bool
    encoder: TableEncoder
    loss: Loss
    attributes: dict[str, Any]

    @property
    def link(self) -> str:
        """The network predicts link(y)."""
        return self.loss.loss.link if isinstance(self.loss, Deviance) else "identity"

    def held_at(self, limits: Limits) -> Problem:
        """Return the same with features held at limits."""
        if not limits.outside(self.rows.X).any():
            return self
        return replace(self, rows=replace(self.rows, X=limits.hold(self.rows.X)))


def batch_size_for(rows: int) -> int:
    """Return the batch size for so many training rows, a power of two.

    >>> [batch_size_for(rows) for rows in (100, 5000, 6000, 100_000)]
    [128, 128, 256, 1024]
    """
    least, most = BATCH_SIZES
    size = least
    while size < most and 2 * size * BATCHES <= rows:
        size *= 2
    return size
