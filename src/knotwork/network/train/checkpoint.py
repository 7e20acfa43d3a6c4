"""The state of a training in a file, from which it goes on after the process was killed.

One safetensors file, written atomically: tensors, and a JSON document in its header. It names the fit that it belongs
to by the seed and by digests of the data, the options and the network's first weights; a file of any other fit is
refused. What cannot be written this way (no code is ever stored) is refused when training begins.
"""

from __future__ import annotations

import contextlib
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
        self._identity: Identity | None = None  # of the fit that goes on from the file
        self._ended = self._took = 0.0

    def seed(self) -> int | None:
        """Return the seed of the training that the file belongs to, None if there is no file."""
        header = self._header()
        return None if header is None else header["identity"]["seed"]

    def read(self, identity: Identity) -> Saved | None:
        """Return the state to go on from, None if there is no file; refuse the file of another fit."""
        self._identity = identity
        header = self._header()
        if header is None:
            return None
        others = identity.others(header["identity"])
        if others:
            raise DataError(
                f"a checkpoint is resumed by the fit that wrote it, the one at {self.path} has other "
                f"{' and '.join(others)}; call that fit again, or name another file, or remove this one to start over"
            )
        with self._opened() as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        saved = Saved(tensors, header["document"])
        if _digest(saved) != header["digest"]:
            raise self.damaged()
        return saved

    def is_due(self) -> bool:
        """Whether it is time to write again."""
        return time.perf_counter() - self._ended >= self._took / MAX_SHARE

    def write(self, identity: Identity, saved: Saved) -> None:
        """Write the state in place of the last one, atomically; never in place of what somebody else put there."""
        start = time.perf_counter()
        self._identity = identity
        written = self._header()
        if written is not None and identity.others(written["identity"]):
            raise DataError(
                f"a checkpoint belongs to one fit, another one has written {self.path} meanwhile; give each fit a file "
                f"of its own"
            )
        tensors = {name: value.detach().to("cpu").contiguous() for name, value in saved.tensors.items()}
        state = Saved(tensors, saved.document)
        header = {"identity": asdict(identity), "document": state.document, "digest": _digest(state)}
        with atomic_file(self.path, overwrite=written is not None) as fresh:
            save_file(tensors, fresh, metadata={"format": FORMAT, "training": json.dumps(header)})
        self._ended = time.perf_counter()
        self._took = self._ended - start

    def remove(self) -> None:
        """Remove the file if it belongs to this training, which has ended; a link to it stays."""
        # What is somebody else's stays. A file that cannot be removed is no reason to lose a training: it is resumed by
        # the same fit alone, and then gives the same result.
        with contextlib.suppress(DataError, OSError):
            header = self._header()
            if self._identity is not None and header is not None and not self._identity.others(header["identity"]):
                Path(os.path.realpath(self.path)).unlink(missing_ok=True)

    def _header(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        with self._opened() as file:
            written = file.metadata() or {}
        if written.get("format") != FORMAT:
            raise self._not_ours()
        try:
            header: dict[str, Any] = json.loads(written["training"])
            seed, _, _ = header["identity"]["seed"], header["document"], header["digest"]
        except (KeyError, RecursionError, TypeError, ValueError):
            raise self.damaged() from None
        if type(seed) is not int or not 0 <= seed < 2**31:
            raise self.damaged()
        return header

    def _opened(self) -> Any:
        try:
            return safe_open(self.path, framework="pt")
        except (SafetensorError, OSError):
            raise self._not_ours() from None

    def _not_ours(self) -> DataError:
        return DataError(
            f"a checkpoint must be a file that knotwork wrote in training, or not exist yet, {self.path} is something "
            f"else; name another path"
        )

    def damaged(self) -> DataError:
        """Return the error that says so."""
        return DataError(f"the checkpoint at {self.path} is damaged; remove it to start over")


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
    >>> described(torch.nn.HuberLoss(delta=1.0)) == described(torch.nn.HuberLoss(delta=2.0))
    False
    """
    return _described(function, ())


def _described(value: Any, within: tuple[int, ...]) -> str:
    """Describe plain values, arrays and what can be called; of others, whose text may hold an address, the kind alone.

    ``within`` are those that this one is a part of: a function may refer to itself.
    """
    if value is None or isinstance(value, (str, bytes, int, float, complex, np.generic)):
        return repr(value)
    if isinstance(value, (Tensor, np.ndarray)) and getattr(value, "dtype", None) != np.dtype(object):
        return digest_of({"": value}) if isinstance(value, Tensor) else _array(value)
    if id(value) in within:
        return "itself"
    inside = (*within, id(value))

    def parts(*values: Any) -> str:
        return f"({', '.join(_described(v, inside) for v in values)})"

    if isinstance(value, (tuple, list)):
        return parts(*value)
    if isinstance(value, Mapping):
        return f"{{{parts(*value.keys())}: {parts(*value.values())}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(_described(v, inside) for v in value))}}}"
    if isinstance(value, types.CodeType):
        return f"{value.co_code.hex()} {value.co_names} {parts(*value.co_consts)}"
    if isinstance(value, functools.partial):
        return f"partial {parts(value.func, value.args, value.keywords)}"
    if isinstance(value, types.MethodType):
        return f"method {parts(value.__func__, value.__self__)}"
    name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        return f"{name} {parts(value.__code__, value.__defaults__, value.__kwdefaults__, cells)}"
    if isinstance(value, torch.nn.Module):
        own = {key: v for key, v in vars(value).items() if key not in _OF_MODULES}
        tensors = {**dict(value.named_parameters(recurse=False)), **dict(value.named_buffers(recurse=False))}
        return f"{name} {parts(type(value).forward, own, tensors, dict(value.named_children()))}"
    if callable(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        return f"{name} {parts(type(value).__call__, vars(value))}"
    return name if callable(value) else type(value).__qualname__


# What torch keeps in every module; its settings are the rest.
_OF_MODULES = frozenset(vars(torch.nn.Module()))


def settings(net: torch.nn.Module) -> list[str]:
    """Describe the layers of a network but for their weights: their kinds, and the numbers and texts they were made of.

    >>> settings(torch.nn.Dropout(0.1)) == settings(torch.nn.Dropout(0.5))
    False
    """
    found = []
    for module in net.modules():
        own = {k: v for k, v in vars(module).items() if k not in _OF_MODULES and _is_setting(v)}
        found.append(f"{type(module).__qualname__} {own}")
    return found


def _is_setting(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_setting, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _array(value: np.ndarray[Any, Any]) -> str:
    return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
