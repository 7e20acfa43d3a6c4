"""What a network is trained to make small, as records: errors and deviances, log-loss, or a function of one's own.

A loss says how targets look to the network, in which coordinates it is trained, and what a row costs. Everything else
about training is the same for all. Where predictions are held, ``rows`` counts what the held ones cost, which is what
the history says; ``learning``, which steps are taken by, looks at the outputs as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits
from knotwork.data.losses import ResponseLoss, robust_std
from knotwork.errors import NetworkError, one_line


@dataclass(frozen=True)
class SquaredError:
    """Mean squared error of responses (N, p), which are standardised for training, each by its own std.

    adam_epsilon : gradient at which a step of Adam is half of its full size; smaller ones make smaller steps
    held : what predictions are held at, in the coordinates of the outputs
    """

    adam_epsilon: ClassVar[float] = 1e-8

    held: Limits | None = None

    def rows(self, output: Tensor, y: Tensor) -> Tensor:
        """Return what each row costs: (N, p), (N, p) → (N,)."""
        return self.learning(_held(output, self.held), y)

    def learning(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the same for outputs that are not held."""
        return (output - y).square().mean(dim=1)

    def coordinates(self, X: Floats, y: Floats, weight: Floats) -> Coordinates:
        """Return the coordinates to train in."""
        return Coordinates.of(X, y, weight)

    def within(self, coordinates: Coordinates) -> SquaredError:
        """Return the loss of a network whose outputs are in some coordinates."""
        return replace(self, held=coordinates.held_inside)

    def targets(self, y: Floats, coordinates: Coordinates) -> Floats:
        """Return the responses in those coordinates."""
        return coordinates.responses(y)

    def unit(self, coordinates: Coordinates) -> float:
        """What one unit of the loss is worth in the history."""
        with np.errstate(over="ignore"):  # then losses are infinite, which the loop refuses
            return float(np.square(coordinates.y_scale).mean())

    def gain(self, first: float) -> float:
        """Factor of the costs that gradients are taken of, given the loss before training."""
        return 1.0


@dataclass(frozen=True)
class Deviance:
    """Any other loss of one response, (N, 1), than squared errors; with a log link outputs are those of log(y).

    scale : what one unit of the network's output is, in units of y or of log(y). Responses behind a log link are
        measured in units of exp(y_centre), others are standardised
    held : as in ``SquaredError``
    """

    adam_epsilon: ClassVar[float] = 1e-8

    loss: ResponseLoss
    scale: float = 1.0
    held: Limits | None = None

    def rows(self, output: Tensor, y: Tensor) -> Tensor:
        """Return what each row costs, its deviance: (N, 1), (N, 1) → (N,).

        >>> poisson = Deviance(ResponseLoss("poisson", power=1.0))
        >>> poisson.rows(torch.zeros(2, 1), torch.tensor([[1.0], [0.0]]))
        tensor([0., 2.])
        """
        return self.learning(_held(output, self.held), y)

    def learning(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the same for outputs that are not held."""
        if self.loss.power > 0:
            return 2 * _half_deviance(output[:, 0] * self.scale, y[:, 0], self.loss.power)
        residual = y[:, 0] - output[:, 0]
        if self.loss.is_quantile:
            q = self.loss.quantile
            return self.loss.per_cost * torch.maximum(q * residual, (q - 1) * residual)
        zero, width = torch.zeros_like(residual), self.loss.width / self.scale
        return functional.huber_loss(residual, zero, reduction="none", delta=width)

    def coordinates(self, X: Floats, y: Floats, weight: Floats) -> Coordinates:
        """Return the coordinates to train in: around the best constant, in robust stds of y, or in units of log(y)."""
        centre = self.loss.constant(y[:, 0], weight)
        scale = 1.0 if self.loss.link == "log" else robust_std(y[:, 0] - centre, weight) or 1.0
        features = Coordinates.of(X, np.zeros((len(X), 1)), weight)
        return replace(features, y_centre=np.full(1, centre), y_scale=np.full(1, scale))

    def within(self, coordinates: Coordinates) -> Deviance:
        """Return the loss of a network whose outputs are in some coordinates."""
        return replace(self, scale=float(coordinates.y_scale[0]), held=coordinates.held_inside)

    def targets(self, y: Floats, coordinates: Coordinates) -> Floats:
        """Return the responses in those coordinates."""
        if self.loss.link == "log":
            return y * np.exp(-coordinates.y_centre)
        return coordinates.responses(y)

    def unit(self, coordinates: Coordinates) -> float:
        """What one unit of the loss is worth in the history, which holds mean deviances in units of y."""
        if self.loss.link == "log":
            return float(np.exp((2 - self.loss.power) * coordinates.y_centre[0]))
        scale = float(coordinates.y_scale[0])
        return scale if self.loss.is_quantile else scale**2

    def gain(self, first: float) -> float:
        """Factor of the costs that gradients are taken of, given the loss before training."""
        return 1.0


def _held(output: Tensor, limits: Limits | None) -> Tensor:
    """Return outputs held at limits, if there are any: (N, p) → (N, p)."""
    if limits is None:
        return output
    lower, upper = (torch.as_tensor(side, dtype=output.dtype, device=output.device) for side in limits.sides())
    return output.clamp(lower, upper)


def _half_deviance(eta: Tensor, y: Tensor, p: float) -> Tensor:
    """Return half the unit deviance of a Tweedie model of power p with mean exp(eta)."""
    if p == 1:
        return _exp(eta) - y * eta + torch.xlogy(y, y) - y
    if p == 2:
        return eta + y * _exp(-eta) - torch.log(y) - 1
    least = y ** (2 - p) / ((1 - p) * (2 - p))
    return _exp((2 - p) * eta) / (2 - p) - y * _exp((1 - p) * eta) / (1 - p) + least


def _exp(values: Tensor) -> Tensor:
    """Return exponentials that go on linearly from e²⁰: a step too far has a finite gradient that leads back."""
    near = values.clamp(max=20.0)
    return near.exp() * (1 + values - near)


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

    def within(self, coordinates: Coordinates) -> LogLoss:
        """Return the loss of a network whose outputs are in some coordinates."""
        return self

    def targets(self, y: NDArray[np.intp], coordinates: Coordinates) -> NDArray[np.int64]:
        """Return the codes."""
        return y.astype(np.int64)

    def unit(self, coordinates: Coordinates) -> float:
        """What one unit of the loss is worth in the history."""
        return 1.0

    def gain(self, first: float) -> float:
        """Factor of the costs that gradients are taken of, given the loss before training."""
        return 1.0


@dataclass(frozen=True)
class OwnLoss:
    """A function of one's own, function(prediction, target): it sees raw responses (logits), never standardised ones.

    function : gives a cost per row, (N,) or (N, p), whose columns are averaged; or the mean over the rows as one number
    outputs : of the network; weighted : whether the rows have weights, which one number could not be weighted by
    inside : the coordinates of the network's outputs in training, which are taken back before the function sees them
    """

    adam_epsilon: ClassVar[float] = 1e-8

    function: Callable[[Tensor, Tensor], Tensor]
    outputs: int
    weighted: bool = False
    inside: Coordinates | None = None

    def rows(self, output: Tensor, y: Tensor) -> Tensor:
        """Return what each row costs: (N, outputs), (N, …) → (N,).

        >>> loss = OwnLoss(torch.nn.L1Loss(reduction="none"), outputs=1)
        >>> loss.rows(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [2.5]]))
        tensor([2.0000, 0.5000])
        """
        if self.inside is not None:
            centre = torch.as_tensor(self.inside.y_centre, dtype=output.dtype, device=output.device)
            output = output * torch.as_tensor(self.inside.y_scale, dtype=output.dtype, device=output.device) + centre
        try:
            cost = self.function(output, y)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:  # what torch says of shapes and kinds
            raise NetworkError(
                f"loss(prediction, target) must take predictions {_described(output)} and targets {_described(y)}, it "
                f"raised {type(error).__name__}: {one_line(error)}"
            ) from error
        if not isinstance(cost, Tensor) or not cost.is_floating_point():
            kind = str(cost.dtype) if isinstance(cost, Tensor) else type(cost).__name__
            raise NetworkError(f"loss(prediction, target) must return a tensor of costs, got {kind}")
        if torch.is_grad_enabled() and output.requires_grad and not cost.requires_grad:
            raise NetworkError("loss(prediction, target) must be computed from the prediction in torch, got a constant")
        if cost.ndim == 0 and self.weighted:
            raise NetworkError(
                "loss(prediction, target) must return one cost per row, (N,), where rows have weights, got one number; "
                "losses of torch.nn take reduction='none'"
            )
        if cost.ndim == 0:
            return cost.expand(len(y))
        if cost.ndim > 2 or len(cost) != len(y):
            raise NetworkError(
                f"loss(prediction, target) must return one cost per row, here ({len(y)},), or their mean, got shape "
                f"{tuple(cost.shape)}"
            )
        return cost.mean(dim=1) if cost.ndim == 2 else cost

    learning = rows

    def coordinates(self, X: Floats, y: NDArray[Any], weight: Floats) -> Coordinates:
        """Return the coordinates to train in: outputs stay as they are, for nobody knows what they stand for."""
        return Coordinates.of(X, np.zeros((len(X), self.outputs)), weight)

    def within(self, coordinates: Coordinates) -> OwnLoss:
        """Return the loss of a network whose outputs are in some coordinates."""
        return replace(self, inside=coordinates)

    def targets(self, y: NDArray[Any], coordinates: Coordinates) -> NDArray[Any]:
        """Return the targets as they are."""
        return np.ascontiguousarray(y if y.dtype.kind == "f" else y.astype(np.int64))

    def unit(self, coordinates: Coordinates) -> float:
        """What one unit of the loss is worth in the history."""
        return 1.0

    def gain(self, first: float) -> float:
        """Factor of the costs that gradients are taken of: the first loss becomes one, whatever it is measured in."""
        return 1 / abs(first) if np.finfo(np.float32).tiny < abs(first) < np.inf else 1.0


def _described(values: Tensor) -> str:
    return f"of shape {tuple(values.shape)} and {values.dtype}"


Loss = SquaredError | Deviance | LogLoss | OwnLoss
