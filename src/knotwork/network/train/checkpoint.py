"""The state of a training in a file, from which it goes on after the process was killed.

One safetensors file, written atomically: tensors, and a JSON document in its header. It names the fit that it belongs
to by the seed and by digests of the data, the options and the network's first weights; a file of any other fit is
refused. What cannot be written this way (no code is ever stored) is refused when training begins.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from knotwork.atomic import atomic_file
from knotwork.errors import DataError

FORMAT = "knotwork training checkpoint 1"
# Share of the time of training that writing may take: where epochs are short, not every one is written.
MAX_SHARE = 0.05


@dataclass(frozen=True)
class Identity:
    """What a file must have in common with a fit to be its own; digests but for the seed and the versions."""

    seed: int
    versions: str
    data: str
    options: str
    network: str

    def others(self, written: Mapping[str, Any]) -> list[str]:
        """Name what differs."""
        # In the coordinates of training, other data may look like other weights of the first and the last layer.
        names = {"versions": "versions", "seed": "seed", "data": "data or weights", "network": "data or weights"}
        different = [names.get(name, name) for name, value in asdict(self).items() if written.get(name) != value]
        return list(dict.fromkeys(different))


@dataclass(frozen=True)
class Saved:
    """The state of a training after an epoch: tensors by name, and a document of plain values."""

    tensors: dict[str, Tensor]
    document: dict[str, Any]


class Checkpoint:
    """A file that a training writes after its epochs, goes on from, and removes at the end."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._ended = self._took = 0.0

    def seed(self) -> int | None:
        """Return the seed of the training that the file belongs to, None if there is no file."""
        header = self._header()
        return None if header is None else int(header["identity"]["seed"])

    def read(self, identity: Identity) -> Saved | None:
        """Return the state to go on from, None if there is no file; refuse the file of another fit."""
        header = self._header()
        if header is None:
            return None
        others = identity.others(header["identity"])
        if others:
            raise DataError(
                f"a checkpoint is resumed by the fit that wrote it, the one at {self.path} has other "
                f"{' and '.join(others)}; call that fit again, or name another file, or remove this one to begin anew"
            )
        with self._opened() as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        saved = Saved(tensors, header["document"])
        if _digest(saved) != header["digest"]:
            raise self._damaged()
        return saved

    def is_due(self) -> bool:
        """Whether it is time to write again."""
        return time.perf_counter() - self._ended >= self._took / MAX_SHARE

    def write(self, identity: Identity, saved: Saved) -> None:
        """Write the state in place of the last one, atomically."""
        start = time.perf_counter()
        tensors = {name: value.detach().to("cpu").contiguous() for name, value in saved.tensors.items()}
        state = Saved(tensors, saved.document)
        header = {"identity": asdict(identity), "document": state.document, "digest": _digest(state)}
        with atomic_file(self.path) as fresh:
            save_file(tensors, fresh, metadata={"format": FORMAT, "training": json.dumps(header)})
        self._ended = time.perf_counter()
        self._took = self._ended - start

    def remove(self) -> None:
        """Remove the file: the training that it belongs to has ended."""
        self.path.unlink(missing_ok=True)

    def _header(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        with self._opened() as file:
            written = file.metadata() or {}
        if written.get("format") != FORMAT:
            raise self._not_ours()
        try:
            header: dict[str, Any] = json.loads(written["training"])
            int(header["identity"]["seed"]), header["document"], header["digest"]
        except (KeyError, TypeError, ValueError):
            raise self._damaged() from None
        return header

    def _opened(self) -> Any:
        try:
            return safe_open(self.path, framework="pt")
        except (SafetensorError, OSError):
            raise self._not_ours() from None

    def _not_ours(self) -> DataError:
        return DataError(
            f"a checkpoint must be a file that a training of ours wrote, or not exist yet, {self.path} is something "
            f"else; name another path"
        )

    def _damaged(self) -> DataError:
        return DataError(f"the checkpoint at {self.path} is damaged; remove it to begin anew")


def versions() -> str:
    """Name the versions that decide about the bits of a training."""
    return f"torch {torch.__version__}, numpy {np.__version__}, {FORMAT}"


def digest_of(tensors: Mapping[str, Tensor], *values: Any) -> str:
    """Return a digest of tensors by name, and of values that have a JSON form."""
    found = hashlib.sha256(json.dumps(values).encode())
    for name in sorted(tensors):
        value = tensors[name].detach().to("cpu").contiguous()
        found.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _digest(saved: Saved) -> str:
    return digest_of(saved.tensors, saved.document)


def described(function: Callable[..., Any] | None) -> str:
    """Describe a function so that another one, or the same with other constants, has another description.

    >>> described(lambda x: 2 * x) == described(lambda x: 3 * x)
    False
    """
    if function is None:
        return "none"
    if isinstance(function, torch.nn.Module):
        return f"{function!r} {digest_of(function.state_dict())}"
    if isinstance(function, functools.partial):
        return f"{described(function.func)} {_plain(function.args)} {_plain(tuple(function.keywords.items()))}"
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    code = getattr(function, "__code__", None)
    if code is None:
        return name
    inner = tuple(cell.cell_contents for cell in getattr(function, "__closure__", None) or ())
    return f"{name} {_code(code)} {_plain(getattr(function, '__defaults__', None))} {_plain(inner)}"


def _code(code: types.CodeType) -> str:
    constants = (_code(c) if isinstance(c, types.CodeType) else _plain(c) for c in code.co_consts)
    return f"{code.co_code.hex()} {code.co_names} {' '.join(constants)}"


def _plain(value: Any) -> str:
    """Write plain values; of others, whose text may hold an address, the kind alone."""
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_plain, value))})"
    if value is None or isinstance(value, (str, int, float, bool)):
        return repr(value)
    return described(value) if isinstance(value, types.FunctionType) else type(value).__qualname__
