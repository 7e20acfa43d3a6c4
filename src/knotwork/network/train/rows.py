"""Rows as the loop sees them: shuffled batches to step on, chunks in order to evaluate on.

A ``Part`` is a table in memory, a ``Stream`` somebody's DataLoader, read anew for every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.network.train.losses import Loss

# Rows to evaluate at once: enough to keep the products large, and few enough for the hidden layers to fit a cache.
CHUNK = 8192


@dataclass(frozen=True)
class Part:
    """Rows to train or to validate on: x (N, d), y (N, p) or codes of classes (N,), weight (N,)."""

    x: Tensor
    y: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, rows: Sample, loss: Loss, coordinates: Coordinates, device: torch.device, dtype: torch.dtype,
        x_dtype: torch.dtype | None = None,
    ) -> Part:  # fmt: skip
        """Put rows, targets and weights into the coordinates of training; rows are ``x_dtype`` if that is another."""
        targets = torch.from_numpy(loss.targets(rows.y, coordinates))
        # The largest weight is near one, by a power of two, which changes no bit of a weighted mean.
        weight = np.ldexp(rows.weight, -int(np.frexp(rows.weight.max())[1])) if len(rows) else rows.weight
        return cls(
            torch.from_numpy(coordinates.features(rows.X)).to(device, x_dtype or dtype),
            targets.to(device, dtype if targets.is_floating_point() else targets.dtype),
            torch.from_numpy(weight).to(device, dtype),
        )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.x.device

    def steps(self, batch_size: int) -> int:
        """Count the batches of an epoch."""
        return len(self._batches(torch.arange(len(self)), batch_size))

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[Part]:
        """Yield the batches of an epoch in a new order."""
        return map(self.at, self.orders(batch_size, generator))

    def orders(self, batch_size: int, generator: torch.Generator) -> list[Tensor]:
        """Return the numbers of the rows in each batch of an epoch, in a new order."""
        order = torch.randperm(len(self), generator=generator).to(self.device)
        return self._batches(order, batch_size)

    def at(self, rows: Tensor) -> Part:
        """Return the rows of these numbers."""
        return Part(self.x[rows], self.y[rows], self.weight[rows])

    @staticmethod
    def _batches(order: Tensor, batch_size: int) -> list[Tensor]:
        """Cut an order into batches; a last one of a single row, which has no variance, joins the one before it."""
        batches = list(torch.split(order, min(batch_size, max(len(order), 1))))  # torch counts in 64 bits
        if batch_size > 1 and len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    def chunks(self) -> Iterator[Part]:
        """Yield the rows in order, some at a time."""
        for start in range(0, len(self), CHUNK):
            rows = slice(start, start + CHUNK)
            # A copy lies where torch wants it in memory: products of the same rows have the same bits.
            yield Part(self.x[rows].clone(), self.y[rows], self.weight[rows])


@dataclass(frozen=True)
class Stream:
    """Batches of a DataLoader, or of anything else that can be iterated over again.

    count : batches of an epoch, in the first one; the loader decides about their sizes and their order
    read : from what it yields to rows in the coordinates of training
    """

    batches: Iterable[Any]
    count: int
    read: Callable[[Any], Part]
    device: torch.device

    def steps(self, batch_size: int) -> int:
        """Count the batches of an epoch."""
        return self.count

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[Part]:
        """Yield the batches of an epoch in the loader's order; one without a row that counts is left out."""
        return filter(len, map(self.read, self.batches))

    def chunks(self) -> Iterator[Part]:
        """Yield the batches."""
        return filter(len, map(self.read, self.batches))


Rows = Part | Stream
