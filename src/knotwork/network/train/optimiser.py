"""The optimiser of a training, AdamW or one that a factory makes: its rates over the steps and its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError

Factory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

# Running means of gradients, by the names that torch's optimisers give them.
DIRECTIONS = ("exp_avg", "momentum_buffer")
# Steps whose rates are computed at once, and a number of steps that no training takes and a float can hold.
_BLOCK, _MAX_STEPS = 4096, 10**300


def make_optimiser(
    parameters: list[nn.Parameter], rate: float, decay: float, epsilon: float, factory: Factory | None
) -> torch.optim.Optimizer:
    """Return AdamW, whose decay leaves vectors (biases) alone, or what the factory makes of the parameters."""
    if factory is None:
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        fused = all(p.device.type in ("cpu", "cuda") for p in parameters) or None
        if all(p.is_cuda for p in parameters):  # everything that a step reads is on the device: it can be recorded
            on_device = torch.tensor(rate, device=parameters[0].device)
            return torch.optim.AdamW(groups, lr=on_device, eps=epsilon, fused=fused, capturable=True)
        return torch.optim.AdamW(groups, lr=rate, eps=epsilon, fused=fused)
    made = factory(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise NetworkError(
            f"optimizer must be a function from parameters to a torch optimiser, like lambda params: "
            f"torch.optim.SGD(params, lr=0.01), got {type(made).__name__} from it"
        )
    if isinstance(made, torch.optim.LBFGS):
        raise NetworkError("optimizer must make its steps from one gradient each, got LBFGS; use another one")
    known = {id(p) for p in parameters}
    if not all(id(p) in known for group in made.param_groups for p in group["params"]):
        raise NetworkError("optimizer must train parameters that it was given, got others from it")
    return made


def clip_gradients_(net: nn.Module, parameters: list[nn.Parameter], largest: float) -> None:
    """Shorten gradients to a maximum norm; of networks trained together, each one's own."""
    members = getattr(net, "members", 1)
    if members == 1:
        nn.utils.clip_grad_norm_(parameters, largest)
        return
    with torch.no_grad():
        gradients = [p.grad.view(members, -1) for p in parameters if p.grad is not None]
        norms = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g, dim=1) for g in gradients]), dim=0)
        share = (largest / (norms + 1e-6)).clamp(max=1.0)[:, None]
        torch._foreach_mul_(gradients, [share] * len(gradients))


@dataclass
class Schedule:
    """Learning rates of all steps: up in a line to the peak, down in a half cosine to a fiftieth.

    They are computed a block at a time: somebody may ask for any number of epochs, and stop by patience.

    >>> rates = Schedule(peak=1.0, warmup=0.5, steps=4)
    >>> [round(rates[step], 2) for step in range(4)]
    [0.5, 1.0, 0.51, 0.02]
    """

    peak: float
    warmup: float
    steps: int
    _first: int = -1
    _block: Floats = field(default_factory=lambda: np.empty(0))

    def __getitem__(self, step: int) -> float:
        """Return the rate of a step; a loader may yield more batches than it did at first."""
        step = min(step, max(self.steps, 1) - 1)
        first = step - step % _BLOCK
        if first != self._first:
            self._first, self._block = first, self._rates(first)
        return float(self._block[step - first])

    def _rates(self, first: int) -> Floats:
        t = (np.arange(first, first + _BLOCK) + 1) / float(min(max(self.steps, 1), _MAX_STEPS))
        up = np.minimum(t / max(self.warmup, 1e-9), 1.0)
        past = np.clip((t - self.warmup) / max(1 - self.warmup, 1e-9), 0, 1)
        down = 0.02 + 0.98 * (1 + np.cos(np.pi * past)) / 2
        rates: Floats = self.peak * up * down
        return rates


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the learning rate of a group; one that is a tensor stays the same tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def make_state(optimiser: torch.optim.Optimizer) -> None:
    """Make the state of a fresh optimiser, as it is before the first step."""
    if optimiser.state:
        return
    for group in optimiser.param_groups:
        set_rate(group, 0.0)
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    optimiser.step()
    for state in optimiser.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


def forget_direction(optimiser: torch.optim.Optimizer) -> None:
    """Drop the running mean of the gradients, which points back to where an undone epoch ended."""
    for state in optimiser.state.values():
        for name in DIRECTIONS:
            if isinstance(state.get(name), Tensor):
                state[name].zero_()


def optimiser_state(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state as tensors and plain values, by the place of the parameter or group and the entry's name."""
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for place, parameter in places(optimiser):
        for name, value in optimiser.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{place}.{name}"] = value
            elif _is_plain(value):
                plain[f"{place}.{name}"] = value
            else:
                raise NetworkError(
                    f"a checkpoint keeps tensors and numbers of an optimiser, {type(optimiser).__name__} has a "
                    f"{type(value).__name__} ({name}); use another optimiser, or no checkpoint"
                )
    for number, group in enumerate(optimiser.param_groups):
        plain.update({f"group{number}.{name}": value for name, value in group.items() if _is_plain(value)})
    return tensors, plain


def set_optimiser_state(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
    """Set the state of an optimiser that was made like the one it comes from."""
    parameters = dict(places(optimiser))
    groups = {f"group{place}": group for place, group in enumerate(optimiser.param_groups)}
    of_parameter = {id(p): group for group in optimiser.param_groups for p in group["params"]}
    for key, value in (tensors | plain).items():
        place, name = key.split(".", 1)
        if place in groups:
            groups[place][name] = value
            continue
        parameter = parameters[place]
        if isinstance(value, Tensor):
            group = of_parameter[id(parameter)]
            # The count of the steps is on the CPU unless the whole step runs on the device.
            stays = value.ndim == 0 and not (group.get("fused") or group.get("capturable"))
            value = value if stays else value.to(parameter.device)
        optimiser.state[parameter][name] = value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def places(optimiser: torch.optim.Optimizer) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters and the names that a state gives them."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    return [(str(place), parameter) for place, parameter in enumerate(parameters)]
