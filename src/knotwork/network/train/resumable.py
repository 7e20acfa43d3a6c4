"""Whether a state can belong to a training: names, kinds, shapes and ranges of all that it holds.

A digest finds accidents, but anybody can compute a new one. A file must not make torch fail from inside, or worse, read
beyond the end of a tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from knotwork.network.train.checkpoint import Saved

_OPTIMISER = "optimiser/"


class StateError(Exception):
    """A state that cannot belong to a training."""


def fits(saved: Saved, fresh: Saved, steps_per_epoch: int, epochs: int) -> bool:
    """Whether a state can be a later one of the training that begins with the state ``fresh``.

    The optimiser's part is looked at by :func:`optimiser_fits`: that of somebody's own may be anything.
    """
    ours, theirs = ({k: _kind(v) for k, v in s.tensors.items() if not k.startswith(_OPTIMISER)} for s in (fresh, saved))
    document, now = saved.document, fresh.document
    if ours != theirs or not _same_types(document, now) or not _same_types(document["history"], now["history"]):
        return False
    history = document["history"]
    undone, best = history["undone"], history["best_epoch"]
    by_epoch = [value for name, value in history.items() if type(value) is list and name != "undone"]
    count = len(by_epoch[0])
    return (
        1 <= count <= epochs + 1
        and all(len(values) == count and all(type(v) is float for v in values) for values in by_epoch)
        and all(type(epoch) is int and 0 < epoch < count for epoch in undone)
        and 0 <= best < count
        and document["step"] == (count - 1) * steps_per_epoch
        and 0 < document["share"] <= 1
        and document["elapsed"] >= 0
        and _are_losses(document["losses"], count)
    )


def _are_losses(losses: list[Any], epochs: int) -> bool:
    """Whether these are training and validation losses of the same networks in each of so many epochs."""
    if len(losses) != epochs or not all(type(pair) is list and len(pair) == 2 for pair in losses):
        return False
    both = [side for pair in losses for side in pair]
    if not all(type(side) is list and all(type(loss) is float for loss in side) for side in both):
        return False
    return len({len(side) for side in both}) == 1 and len(both[0]) > 0


def optimiser_fits(saved: Saved, parameters: dict[str, Tensor], fresh: Saved) -> bool:
    """Whether a state of AdamW can belong to parameters, by the names that the state gives them."""
    for key, value in saved.document["optimiser"].items():
        now = fresh.document["optimiser"].get(key, ...)
        # 0 equals False, but not for torch.
        if now is ... or type(value) is not type(now) or (value != now and not key.endswith(".lr")):
            return False
    entries: dict[str, dict[str, Any]] = {}
    for key, value in saved.tensors.items():
        if key.startswith(_OPTIMISER):
            place, _, name = key.removeprefix(_OPTIMISER).partition(".")
            entries.setdefault(place, {})[name] = _kind(value)
    for place, found in entries.items():
        if place not in parameters:
            return False
        dtype, shape = _kind(parameters[place])
        moments = {name: found.pop(name, None) for name in ("exp_avg", "exp_avg_sq")}
        if set(moments.values()) != {(dtype, shape)} or found != {"step": (torch.float32, ())}:
            return False
    return True


def _kind(tensor: Tensor) -> tuple[Any, tuple[int, ...]]:
    return tensor.dtype, tuple(tensor.shape)


def _same_types(found: Any, expected: dict[str, Any]) -> bool:
    return type(found) is dict and {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in expected.items()}
