"""Rows as the loop sees them: shuffled batches to step on, chunks in order to evaluate on.

A ``Part`` is a table in memory, ``Folds`` are the rows of one that each of several networks is given, and a ``Stream``
is somebody's DataLoader, read anew for every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.network.train.losses import Loss

# Rows to evaluate at once: enough to keep the products large, and few enough for the hidden layers to fit a cache.
CHUNK = 8192


@dataclass(frozen=True)
class Part:
    """Rows to train or to validate on: x (N, d), y (N, p) or codes of classes (N,), weight (N,).

    A batch of several networks has one more axis in front: (M, N, d), (M, N, p) or (M, N), (M, N).
    """

    x: Tensor
    y: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, rows: Sample, loss: Loss, coordinates: Coordinates, device: torch.device, dtype: torch.dtype,
        x_dtype: torch.dtype | None = None, largest: float | None = None,
    ) -> Part:  # fmt: skip
        """Put rows, targets and weights into the coordinates of training; rows are ``x_dtype`` if that is another.

        ``largest`` is the largest weight if there are other rows that are counted together with these.
        """
        targets = torch.from_numpy(loss.targets(rows.y, coordinates))
        # The largest weight is near one, by a power of two, which changes no bit of a weighted mean.
        most = rows.weight.max(initial=0.0) if largest is None else largest
        weight = np.ldexp(rows.weight, -int(np.frexp(most)[1])) if len(rows) else rows.weight
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

    def tensors(self) -> dict[str, Tensor]:
        """Return all there is, by name."""
        return {"x": self.x, "y": self.y, "weight": self.weight}

    def costs(self, net: Callable[[Tensor], Tensor], rule: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return what each row costs a network by a rule of outputs and targets: (N,), or (M, N) for several."""
        output = net(self.x)
        if self.weight.ndim == 1:
            return rule(output, self.y)
        return rule(output.flatten(0, 1), self.y.flatten(0, 1)).view(self.weight.shape)

    def mean(self, costs: Tensor) -> Tensor:
        """Return their weighted mean, or the sum of several networks' means; zero, as its gradient, without weight."""
        tiny = torch.finfo(self.weight.dtype).tiny
        if self.weight.ndim == 1:
            return (costs * self.weight).sum() / self.weight.sum().clamp_min(tiny)
        return ((costs * self.weight).sum(1) / self.weight.sum(1).clamp_min(tiny)).sum()

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

    def shared(self, batch_size: int, generator: torch.Generator, steps: int) -> Iterator[Part | None]:
        """Yield so many batches in a new order: smaller ones where there are fewer rows, then None."""
        batches = self.orders(batch_size, generator)
        if len(batches) < steps:
            # Spread over the epoch, but not alone: a single row has no variance.
            batches = list(torch.tensor_split(torch.cat(batches), min(steps, max(1, len(self) // 2))))
        yield from map(self.at, batches)
        yield from repeat(None, steps - len(batches))

    def at(self, rows: Tensor) -> Part:
        """Return the rows of these numbers, (N,) or (M, N)."""
        # Several times as fast as x[rows], which copies number by number.
        flat = rows.reshape(-1)
        return Part(*(t.index_select(0, flat).view(*rows.shape, *t.shape[1:]) for t in (self.x, self.y, self.weight)))

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
class Folds:
    """Rows of one table for several networks, each with its own.

    table : the rows, and one more at the end that counts nothing
    numbers : (M, longest) of each network's rows; the shorter ones end with the row that counts nothing
    counts : rows of each network
    looked_at : of so many rows of each the loss is measured after an epoch, None for all
    """

    table: Part
    numbers: Tensor
    counts: tuple[int, ...]
    looked_at: int | None = None

    @classmethod
    def of(cls, table: Part, rows: Sequence[NDArray[np.intp]], looked_at: int | None = None) -> Folds:
        """Put the numbers of each network's rows side by side."""
        counts = tuple(len(own) for own in rows)
        numbers = np.full((len(rows), max(counts)), len(table))
        for own, row in zip(rows, numbers, strict=True):
            row[: len(own)] = own
        return cls(_with_nothing(table), torch.from_numpy(numbers).to(table.device), counts, looked_at)

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.table.device

    def tensors(self) -> dict[str, Tensor]:
        """Return all there is, by name."""
        return {**self.table.tensors(), "numbers": self.numbers}

    def steps(self, batch_size: int) -> int:
        """Count the batches of an epoch."""
        return -(-max(self.counts) // batch_size)

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[Part]:
        """Yield the batches of an epoch in a new order."""
        return map(self.at, self.orders(batch_size, generator))

    def orders(self, batch_size: int, generator: torch.Generator) -> list[Tensor]:
        """Return the numbers of the rows in each batch of an epoch, (M, size) each, in a new order for each network."""
        longest = self.numbers.shape[1]
        # Rows that count nothing come last: a network with fewer rows has a smaller last batch.
        places = torch.stack([
            torch.cat([torch.randperm(count, generator=generator), torch.arange(count, longest)])
            for count in self.counts
        ])  # fmt: skip
        return list(torch.split(self.numbers.gather(1, places.to(self.device)), min(batch_size, longest), dim=1))

    def at(self, rows: Tensor) -> Part:
        """Return the rows of these numbers, (M, N)."""
        return self.table.at(rows)

    def chunks(self) -> Iterator[Part]:
        """Yield the rows in order, some at a time."""
        longest = self.numbers.shape[1]
        every = 1 if self.looked_at is None else max(1, longest // self.looked_at)
        for some in torch.split(self.numbers[:, ::every], max(1, CHUNK // len(self.counts)), dim=1):
            yield self.at(some)


def stacked_parts(parts: Sequence[Part]) -> Part:
    """Put tables on top of one another."""
    return Part(*(torch.cat(values) for values in zip(*((p.x, p.y, p.weight) for p in parts), strict=True)))


def _with_nothing(table: Part) -> Part:
    """Add a row of weight zero at the end of a table: a copy of its first, since not every loss is finite at y = 0."""
    x, y = (torch.cat([values, values[:1]]) for values in (table.x, table.y))
    return Part(x, y, torch.cat([table.weight, torch.zeros_like(table.weight[:1])]))


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

    def shared(self, batch_size: int, generator: torch.Generator, steps: int) -> Iterator[Part | None]:
        """Yield the same, then None for ever: other ranks may have more batches."""
        return chain(self.shuffled(batch_size, generator), repeat(None))

    def chunks(self) -> Iterator[Part]:
        """Yield the batches."""
        return filter(len, map(self.read, self.batches))


Rows = Part | Folds | Stream
