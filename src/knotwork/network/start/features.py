"""What enters the head of a network, caught once for every row while the network runs as it does in use.

Everything about the network is afterwards as it was: training flags, buffers, hooks and the states of the random number
generators, which loaders and augmentations draw from.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from knotwork.errors import NetworkError
from knotwork.network.chain import flags_kept
from knotwork.progress import batch_progress


@dataclass(frozen=True)
class Codes:
    """Features (N, d) that enter a head, float32 (float64 where the network computes in it), and targets (N, …)."""

    features: NDArray[np.floating]
    targets: NDArray[Any]


def capture(model: nn.Module, entry: nn.Module, name: str, data: Any, *, batch_size: int, show: bool) -> Codes:
    """Run the model on all rows in evaluation mode and keep what enters ``entry``, a part of the head ``name``.

    >>> model = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(4, 1))
    >>> capture(model, model[2], "2", (-torch.ones(3, 2, 2), torch.arange(3)), batch_size=2, show=False).features.shape
    (3, 4)
    """
    caught: list[Any] = []
    features: list[NDArray[np.floating]] = []
    targets: list[NDArray[Any]] = []

    def catch(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        caught.append(args[0] if args else next(iter(kwargs.values()), None))

    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with ExitStack() as stack:
        stack.enter_context(_untouched(model, device))
        stack.callback(entry.register_forward_pre_hook(catch, with_kwargs=True).remove)
        batches, count = _batches(data, batch_size)
        advance = stack.enter_context(batch_progress(show, count))
        for x, y in batches:
            caught.clear()
            with torch.no_grad():
                model(x.to(device) if isinstance(x, Tensor) else x)
            features.append(_one_input(caught, name, len(y)))
            targets.append(y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y))
            advance()
    if not features:
        raise NetworkError("data must hold rows, got none: the loader yields nothing (a loader that was used up?)")
    return Codes(_joined(features), np.concatenate(targets))


def _joined(parts: list[NDArray[np.floating]]) -> NDArray[np.floating]:
    """Put batches into one table; each is let go of once it is there, so that there are never two tables."""
    full = np.empty((sum(map(len, parts)), parts[0].shape[1]), dtype=np.result_type(*parts))
    end = len(full)
    while parts:
        part = parts.pop()
        full[end - len(part) : end] = part
        end -= len(part)
    return full


def _one_input(caught: list[Any], name: str, rows: int) -> NDArray[np.floating]:
    """Return what entered the head in one run of the model, if it is what a head can be fitted on."""
    if len(caught) != 1:
        raise NetworkError(
            f"the head '{name}' must run once each time the model runs in evaluation mode, got {len(caught)} times; "
            f"name the submodule that makes the output"
        )
    value = caught[0]
    if not isinstance(value, Tensor):
        raise NetworkError(
            f"the head '{name}' must be fed a tensor, got a {type(value).__name__} from the module before it; "
            f"name the submodule that takes the features alone"
        )
    if value.ndim != 2 or len(value) != rows:
        raise NetworkError(
            f"the head '{name}' must be fed one row of features for each of {rows} targets, got shape "
            f"{tuple(value.shape)}; pool or flatten before it, to ({rows}, features)"
        )
    if not torch.isfinite(value).all():
        raise NetworkError(f"the features that enter '{name}' must be finite, got NaN or inf; check the rows of data")
    return value.to("cpu", torch.float64 if value.dtype == torch.float64 else torch.float32).numpy()


def _batches(data: Any, batch_size: int) -> tuple[Iterator[tuple[Any, Any]], int | None]:
    """Return pairs of inputs and targets, and how many there will be if that is known."""
    if isinstance(data, (tuple, list)) and len(data) == 2 and not isinstance(data[0], (tuple, list)):
        x, y = torch.as_tensor(data[0]), data[1] if isinstance(data[1], Tensor) else np.asarray(data[1])
        if len(x) != len(y):
            raise NetworkError(f"data must hold as many inputs as targets, got {len(x)} and {len(y)}")
        starts = range(0, len(x), batch_size)
        return ((x[k : k + batch_size], y[k : k + batch_size]) for k in starts), len(starts)
    if not isinstance(data, Iterable):
        raise NetworkError(f"data must be (X, y) tensors or a DataLoader of such pairs, got {type(data).__name__}")
    try:
        count = len(data)  # type: ignore[arg-type]
    except TypeError:  # a stream
        count = None
    return map(_pair, data), count


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not hasattr(batch[1], "__len__"):
        got = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise NetworkError(f"a loader must yield pairs (inputs, targets) of batches, got {got}")
    return batch[0], batch[1]


@contextmanager
def _untouched(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Evaluation mode; afterwards flags, buffers and generators are as they were."""
    buffers = [(m, name, b, b.clone()) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    devices = [device] if device.type == "cuda" else []
    try:
        with flags_kept(model), torch.random.fork_rng(devices):
            model.eval()
            yield
    finally:
        for m, name, buffer, before in buffers:
            m._buffers[name] = buffer.copy_(before)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
