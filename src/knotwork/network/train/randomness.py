"""Random numbers of a training: generators of its own, so that fits in other threads do not disturb them.

torch's global generator is one for the whole process. Dropout therefore draws from a generator of the training's own,
that of ``nn.Dropout`` layers included. Only what a network of unknown layers, or a DataLoader, draws by itself still
comes from the global one: it is seeded for that, and is afterwards as it was.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from knotwork.network.blocks import BlockLinear
from knotwork.network.chain import ACTIVATIONS
from knotwork.network.members import Stacked
from knotwork.network.scaling import Scaling
from knotwork.network.train.inside import Standardised

# Layers that draw no random numbers, or only through us.
QUIET = (
    nn.Sequential, nn.Linear, nn.Identity, nn.Flatten, nn.Dropout, nn.BatchNorm1d, nn.LayerNorm, nn.ModuleList,
    nn.ParameterList, BlockLinear, Scaling, Stacked, Standardised, *ACTIVATIONS,
)  # fmt: skip

_lock = threading.Lock()
_open = 0  # blocks that are open now, in all threads
_outside: dict[str, Tensor] = {}  # states of the global generators before the first of them


def draws(net: nn.Module) -> bool:
    """Whether a network may draw random numbers by itself."""
    return any(type(m) not in QUIET for m in net.modules())


@contextmanager
def own_dropout(net: nn.Module, share: float, generator: torch.Generator) -> Iterator[None]:
    """Drop hidden units out behind every activation while training; ``nn.Dropout`` layers draw from the generator too.

    The network's modules are afterwards as they were.
    """

    def drop(module: nn.Module, _: Any, output: Tensor) -> Tensor:
        return _dropped(output, share, generator) if module.training else output

    def replaced(layer: nn.Dropout) -> Any:
        return lambda x: _dropped(x, layer.p, generator) if layer.training else x

    active = [m for m in net.modules() if isinstance(m, ACTIVATIONS)] if share > 0 else []
    layers = [m for m in net.modules() if type(m) is nn.Dropout and "forward" not in vars(m)]
    hooks = [m.register_forward_hook(drop) for m in active]
    try:
        for layer in layers:
            layer.forward = replaced(layer)  # type: ignore[method-assign]
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in layers:
            vars(layer).pop("forward", None)


def _dropped(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    if share == 0:
        return x
    kept = torch.empty_like(x).bernoulli_(1 - share, generator=generator)
    return x * (kept / (1 - share) if share < 1 else kept)


@contextmanager
def global_generator(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, and leave them as they were before the first block that is open now.

    Those of a GPU are left alone unless it is used: a forked process must not touch it.
    """
    global _open
    with _lock:
        if _open == 0:
            _outside.clear()
        for name, state in global_states(device).items():
            _outside.setdefault(name, state)
        _open += 1
        seed_globally(seed, device)
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if _open == 0:
                set_global_states(_outside, device)


def seed_globally(seed: int, device: torch.device) -> None:
    """Seed the global generators that a network on that device draws from."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def global_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the global generators that a network on that device draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_global_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Set them."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def _reset_in_child() -> None:
    global _lock, _open
    _lock, _open = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
