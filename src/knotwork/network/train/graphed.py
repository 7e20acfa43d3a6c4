"""Steps of training on a GPU, launched as one CUDA graph each.

A step of a small network is a hundred kernels of a few microseconds, and launching them one by one takes longer than
running them. They are recorded once and then launched together; what changes from step to step (the rows of the batch,
the rate, the weight of the average) is in tensors on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# Runs of a step before it is recorded: libraries choose their kernels and make room in the first ones.
REHEARSALS = 3


class GraphedStep:
    """A step on a batch of rows, given by their numbers, that never looks at a value on the device.

    step : the step, of numbers of rows, in this shape
    changes : every tensor that it changes; they are afterwards as they were before
    """

    def __init__(
        self, step: Callable[[Tensor], None], changes: Sequence[Tensor], shape: torch.Size, device: torch.device
    ) -> None:
        before = [t.detach().clone() for t in changes]
        self.shape = shape
        self._rows = torch.zeros(shape, dtype=torch.int64, device=device)
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(REHEARSALS):
                step(self._rows)
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            step(self._rows)
        with torch.no_grad():
            for t, value in zip(changes, before, strict=True):
                t.copy_(value)

    def __call__(self, rows: Tensor) -> None:
        """Take the step on these rows."""
        self._rows.copy_(rows)
        self._graph.replay()
