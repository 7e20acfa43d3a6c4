"""What a network is trained to make small, as records: squared error for numbers, log-loss for classes.

A loss says how targets look to the network, in which coordinates it is trained, and what a row costs. Everything else
about training is the same for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates


@dataclass(frozen=True)
class SquaredError:
    """Mean squared error of responses (N, p), which are standardised for training.

    adam_epsilon : gradient at which a step of Adam is half of its full size; smaller ones make smaller steps
    """

    adam_epsilon: ClassVar[float] = 1e-8

    def rows(self, output: Tensor, y: Tensor) -> Tensor:
        """Return what each row costs: (N, p), (N, p) → (N,)."""
        return (output - y).square().mean(dim=1)

    learning = rows

    def coordinates(self, X: Floats, y: Floats, weight: Floats) -> Coordinates:
        """Return the coordinates to train in."""
        return Coordinates.of(X, y, weight)

    def targets(self, y: Floats, coordinates: Coordinates) -> Floats:
        """Return the responses in those coordinates."""
        return coordinates.responses(y)

    def unit(self, coordinates: Coordinates) -> float:
        """What one unit of the loss is worth in the history."""
        return coordinates.y_scale**2


@dataclass(frozen=True)
class LogLoss:
    """Cross-entropy of classes, codes (N,) from 0, in nats; outputs are logits and stay as they are.

    outputs : 1 for two classes (the log-odds of the second), else one per class
    smoothing : share of a label that training spreads over all classes; the reported loss has none
    """

    # Rows that are already classified correctly have almost no gradient; Adam would make full steps of them.
    adam_epsilon: ClassVar[float] = 1e-3

    outputs: int
    smoothing: float = 0.0

    def rows(self, output: Tensor, y: Tensor) -> Tensor:
        """Return what each row costs: (N, outputs), (N,) → (N,).

        >>> import torch
        >>> LogLoss(outputs=1).rows(torch.zeros(1, 1), torch.tensor([1])).exp()
        tensor([2.])
        """
        return self._cost(output, y, 0.0)

    def learning(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the same with smoothed labels, for the steps of training."""
        return self._cost(output, y, self.smoothing)

    def _cost(self, output: Tensor, y: Tensor, smoothing: float) -> Tensor:
        if self.outputs > 1:
            return functional.cross_entropy(output, y, reduction="none", label_smoothing=smoothing)
        share = y.to(output.dtype) * (1 - smoothing) + smoothing / 2
        return functional.binary_cross_entropy_with_logits(output[:, 0], share, reduction="none")

    def coordinates(self, X: Floats, y: NDArray[np.intp], weight: Floats) -> Coordinates:
        """Return the coordinates to train in: those of a response of mean 0 and std 1."""
        return Coordinates.of(X, np.zeros((len(X), self.outputs)), weight)

    def targets(self, y: NDArray[np.intp], coordinates: Coordinates) -> NDArray[np.int64]:
        """Return the codes."""
        return y.astype(np.int64)

    def unit(self, coordinates: Coordinates) -> float:
        """What one unit of the loss is worth in the history."""
        return 1.0


Loss = SquaredError | LogLoss
