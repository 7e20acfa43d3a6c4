"""Rows that are larger than memory, read anew for every epoch and shuffled within a buffer.

The buffer is filled, half of it is drawn at random and trained on, and it is filled again: a row may wait for a long
time, so that rows mix beyond the length of the buffer. The order follows from the training's generator: equal seeds
give equal batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from knotwork.errors import DataError
from knotwork.network.train.rows import Part

# Batches that a buffer has room for at least.
MIN_BATCHES = 4


@dataclass(frozen=True)
class Buffered:
    """Rows of a source, through a buffer.

    read : from a seed to the rows of an epoch, some at a time, in the coordinates of training; the seed is of the order
        in which it may read its parts
    count : of the rows of an epoch; capacity : of the buffer, in rows
    looked_at : training rows in memory whose loss is measured after an epoch
    """

    read: Callable[[int], Iterator[Part]]
    count: int
    capacity: int
    looked_at: Part

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.looked_at.device

    def tensors(self) -> dict[str, Tensor]:
        """Return what tells this source from another: some of its rows, their number, and the buffer's."""
        return {**self.looked_at.tensors(), "sizes": torch.tensor([self.count, self.capacity])}

    def steps(self, batch_size: int) -> int:
        """Count the batches of an epoch."""
        return -(-self.count // batch_size)

    def chunks(self) -> Iterator[Part]:
        """Yield the rows that are looked at."""
        return self.looked_at.chunks()

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[Part]:
        """Yield the batches of an epoch in a new order."""
        room = min(max(self.capacity, MIN_BATCHES * batch_size), self.count)
        # Whole batches leave the buffer, about half of it at a time.
        drawn = max(1, room // (2 * batch_size)) * batch_size
        first = self.looked_at
        pool = Part(*(torch.empty((room, *v.shape[1:]), dtype=v.dtype, device=v.device)
                      for v in (first.x, first.y, first.weight)))  # fmt: skip
        filled = seen = 0
        for part in self.read(int(torch.randint(2**62, (), generator=generator))):
            seen += len(part)
            place = 0
            while place < len(part):
                taken = min(room - filled, len(part) - place)
                for own, more in zip(_values(pool), _values(part), strict=True):
                    own[filled : filled + taken] = more[place : place + taken]
                filled, place = filled + taken, place + taken
                if filled < room or (seen == self.count and place == len(part)):
                    continue
                order = torch.randperm(filled, generator=generator).to(self.device)
                yield from map(pool.at, torch.split(order[:drawn], batch_size))
                kept = pool.at(order[drawn:])
                filled = len(kept)
                for own, more in zip(_values(pool), _values(kept), strict=True):
                    own[:filled] = more
        if seen != self.count:
            raise DataError(
                f"a source must give the same rows each time it is read, got {self.count} rows to train on and then "
                f"{seen}; keep it as it is while a fit runs"
            )
        yield from Part(*(v[:filled] for v in _values(pool))).shuffled(batch_size, generator)


def _values(part: Part) -> tuple[Tensor, Tensor, Tensor]:
    return part.x, part.y, part.weight
