"""The loop of training, which keeps what the start knows.

Networks are trained in standardised coordinates, so that units of measurement do not matter. The learning rate warms
up slowly, because a few full-size steps destroy a converted start. An epoch after which the validation rows are
predicted clearly worse than before may be undone, and the rate halved: whatever a start knows, it then loses no more
than a few percent of it. Epoch 0 is a checkpoint like any other: on the validation rows the result is never worse than
what training began with.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.errors import NetworkError
from knotwork.network.chain import ACTIVATIONS
from knotwork.network.train.losses import Loss, SquaredError


@dataclass(frozen=True)
class TrainOptions:
    """How to train.

    learning_rate : peak of the schedule: a linear warm-up over the first ``warmup`` of the steps, then a half cosine
    l1 : weight of Σ|weights|, on the scale of the standardised loss; dropout : share of hidden units left out
    patience : epochs without a better validation loss after which training ends; None is never
    setback : an epoch that leaves the validation loss this share above the best is undone, and the rate halved from
        there on; None is never. Use validation rows that the start has not seen: it predicts the others too well
    clip : maximum norm of a gradient
    average : epochs over which the weights are averaged (exponentially, less at first); the average is the result
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    warmup: float = 0.2
    l1: float = 0.0
    dropout: float = 0.0
    patience: int | None = 30
    setback: float | None = None
    clip: float = 1.0
    average: float = 10.0


@dataclass
class History:
    """Losses after each epoch, beginning with epoch 0, the network as it came.

    They are mean squared errors in units of y², or for classes mean log-losses in nats. After an epoch that was undone
    they are those of the weights it went back to.

    train_loss, validation_loss, learning_rate, seconds (of training, all told) : lists of one entry per epoch
    undone : numbers of the epochs that were undone
    best_epoch : the epoch whose weights were kept
    """

    train_loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    best_epoch: int = 0

    def __len__(self) -> int:
        return len(self.train_loss)

    def to_frame(self) -> Any:
        """Return the history as a pandas frame, one row per epoch."""
        import pandas as pd

        return pd.DataFrame({
            "train_loss": self.train_loss,
            "validation_loss": self.validation_loss,
            "learning_rate": self.learning_rate,
            "seconds": self.seconds,
        }).rename_axis("epoch")  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Rows to train or to validate on: x (N, d), y (N, p) or codes of classes (N,), weight (N,)."""

    x: Tensor
    y: Tensor
    weight: Tensor

    @classmethod
    def of(cls, rows: Sample, loss: Loss, coordinates: Coordinates, device: torch.device, dtype: torch.dtype) -> Part:
        """Put rows, targets and weights into the coordinates of training."""
        targets = torch.from_numpy(loss.targets(rows.y, coordinates))
        return cls(
            torch.from_numpy(coordinates.features(rows.X)).to(device, dtype),
            targets.to(device, dtype if targets.is_floating_point() else targets.dtype),
            torch.from_numpy(rows.weight).to(device, dtype),
        )


def fit_network(
    net: nn.Module,
    training: Part,
    validation: Part,
    options: TrainOptions,
    *,
    seed: int,
    loss: Loss | None = None,
    unit: float = 1.0,
    report: Callable[[int, History, nn.Module], None] | None = None,
) -> History:
    """Train a network in place, in the coordinates it is given, and leave it with the weights of its best epoch.

    ``unit`` is what one unit of the loss is worth in the history.
    """
    device = training.x.device
    loss = loss or SquaredError()
    history = History()
    generator = torch.Generator().manual_seed(seed)
    steps_per_epoch = -(-len(training.x) // options.batch_size)
    schedule = _schedule(options, options.epochs * steps_per_epoch)
    parameters = [p for p in net.parameters() if p.requires_grad]
    penalised: list[Tensor] = [p for p in parameters if p.ndim > 1]
    optimiser = torch.optim.AdamW(
        [{"params": penalised, "weight_decay": options.weight_decay},
         {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}],
        lr=options.learning_rate, eps=loss.adam_epsilon, fused=device.type in ("cpu", "cuda") or None,
    )  # fmt: skip
    elapsed = 0.0
    averaged = copy.deepcopy(net)
    best = _state(averaged)
    step, share = 0, 1.0
    with _dropout(net, options.dropout), _seeded(seed, device):
        for epoch in range(options.epochs + 1):
            start = time.perf_counter()
            if epoch > 0:
                net.train()
                order = torch.randperm(len(training.x), generator=generator).to(device)
                for batch in torch.split(order, options.batch_size):
                    for group in optimiser.param_groups:
                        group["lr"] = share * schedule[step]
                    step += 1
                    optimiser.zero_grad(set_to_none=True)
                    cost = _mean(loss.learning(net(training.x[batch]), training.y[batch]), training.weight[batch])
                    if options.l1 > 0:
                        cost = cost + options.l1 * sum(p.abs().sum() for p in penalised)
                    cost.backward()  # type: ignore[no-untyped-call]
                    nn.utils.clip_grad_norm_(parameters, options.clip)
                    optimiser.step()
                    _average(averaged, net, step, options.average * steps_per_epoch)
            reached = _evaluate(averaged, validation, loss) * unit
            history.learning_rate.append(share * schedule[step - 1] if step else 0.0)
            if epoch > 0 and _is_setback(reached, history, options):
                for part in (net, averaged):
                    _restore(part, best)
                _forget_direction(optimiser)
                share /= 2
                history.undone.append(epoch)
                history.train_loss.append(history.train_loss[history.best_epoch])
                reached = history.validation_loss[history.best_epoch]
            else:
                history.train_loss.append(_evaluate(averaged, training, loss) * unit)
            history.validation_loss.append(reached)
            elapsed += time.perf_counter() - start
            history.seconds.append(elapsed)
            if not np.isfinite(history.validation_loss[0]):
                raise NetworkError("the network's loss is not finite before training; check its weights and the data")
            if history.validation_loss[-1] < history.validation_loss[history.best_epoch]:
                history.best_epoch = epoch
                best = _state(averaged)
            if report is not None:
                report(epoch, history, averaged)
            if options.patience is not None and epoch - history.best_epoch >= options.patience:
                break
    _restore(net, best)
    return history


def _is_setback(reached: float, history: History, options: TrainOptions) -> bool:
    """Whether a validation loss is too far above the best one, or not a number at all."""
    if options.setback is None:
        return False
    return not reached <= (1 + options.setback) * history.validation_loss[history.best_epoch]


def _forget_direction(optimiser: torch.optim.Optimizer) -> None:
    """Drop Adam's running mean of the gradients, which points back to where an undone epoch ended."""
    for state in optimiser.state.values():
        state["exp_avg"].zero_()


def _average(averaged: nn.Module, net: nn.Module, step: int, horizon: float) -> None:
    """Move the averaged weights towards the current ones: over the last half of the steps, ``horizon`` at most."""
    weight = 1 / max(1.0, min(horizon, step / 2))
    with torch.no_grad():
        torch._foreach_lerp_(list(averaged.parameters()), list(net.parameters()), weight)


def _schedule(options: TrainOptions, steps: int) -> Floats:
    """Learning rate of every step: up in a line, down in a half cosine to a fiftieth."""
    t = (np.arange(max(steps, 1)) + 1) / max(steps, 1)
    up = np.minimum(t / max(options.warmup, 1e-9), 1.0)
    past = np.clip((t - options.warmup) / max(1 - options.warmup, 1e-9), 0, 1)
    down = 0.02 + 0.98 * (1 + np.cos(np.pi * past)) / 2
    rates: Floats = options.learning_rate * up * down
    return rates


def _mean(costs: Tensor, weight: Tensor) -> Tensor:
    return (costs * weight).sum() / weight.sum()


def _evaluate(net: nn.Module, part: Part, loss: Loss) -> float:
    net.eval()
    with torch.no_grad():
        return float(_mean(loss.rows(net(part.x), part.y), part.weight))


def _state(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def _restore(net: nn.Module, state: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in net.state_dict().items():
            value.copy_(state[name])


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators (dropout draws from them) and leave them as they were.

    Those of a GPU are left alone unless it is used: a forked process must not touch it.
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _dropout(net: nn.Module, share: float) -> Iterator[None]:
    """Drop hidden units out behind every activation while training, without changing the network's modules."""
    if share == 0:
        yield
        return

    def drop(module: nn.Module, _: Any, output: Tensor) -> Tensor:
        return nn.functional.dropout(output, share, training=module.training)

    hooks = [m.register_forward_hook(drop) for m in net.modules() if isinstance(m, ACTIVATIONS)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
