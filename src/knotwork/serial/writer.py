"""Values as JSON and arrays: the language of saved models.

Plain values stay as they are; arrays, records, layers, networks and estimators become objects whose first key says what
they are. What the tables do not name is refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.errors import DataError
from knotwork.serial.tables import FITTED, KINDS, LAYERS, OPTIONAL, OWN_LAYERS, RECORDS, SPLITTERS, layer_class, name_in

if TYPE_CHECKING:
    from torch import Tensor, nn

SPLITTERS_HOME = "sklearn.model_selection._split"


class Writer:
    """Turn values into JSON; their arrays collect in ``arrays``, each under the path that leads to it."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._owners: dict[int, str] = {}

    def value(self, value: Any, path: str) -> Any:
        """Return a value as JSON: plain ones as they are, the others as an object whose first key says what it is."""
        match value:
            case None:
                return None
            case bool() | np.bool_():
                return bool(value)
            case int() | np.integer():
                return int(value)
            case float() | np.floating():
                number = float(value)
                return number if math.isfinite(number) else {"float": str(number)}
            case str():
                return str(value)
            case list():
                return self._items(value, path)
            case tuple():
                return {"tuple": self._items(value, path)}
            case os.PathLike():
                return os.fspath(value)
            case dict() if all(isinstance(key, str) for key in value):
                return {"dict": self._entries(value, path)}
            case dict() if all(isinstance(key, (str, int, float, np.number)) for key in value):
                return {"pairs": [self._items(pair, _join(path, str(k))) for k, pair in enumerate(value.items())]}
            case np.ndarray():
                return self._array(value, path)
        return self._object(value, path)

    def _items(self, values: list[Any] | tuple[Any, ...], path: str) -> list[Any]:
        return [self.value(item, _join(path, str(k))) for k, item in enumerate(values)]

    def _entries(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        return {key: self.value(item, _join(path, key)) for key, item in values.items()}

    def _array(self, array: NDArray[Any], path: str) -> dict[str, Any]:
        if array.dtype == object and array.ndim == 1 and all(isinstance(item, str) for item in array):
            return {"text": [str(item) for item in array]}
        if array.dtype.kind == "U" and array.ndim == 1:
            return {"text": array.tolist(), "width": array.dtype.itemsize // 4}
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise _cannot_save(path, f"an array of {array.dtype}")
        # Products of equal matrices in another layout differ in their last bits.
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        while path in self.arrays:  # keys with dots in them may lead to one path
            path += "_"
        self.arrays[path] = np.asarray(array, order="C")
        return {"array": path, "dtype": array.dtype.name, "shape": list(array.shape), "order": order}

    def _object(self, value: Any, path: str) -> dict[str, Any]:
        if (name := name_in(RECORDS, value)) is not None:
            return {"record": name, "fields": self._entries(_field_values(value), path)}
        if type(value).__name__ in FITTED and name_in(KINDS, value) is not None:
            return self._estimator(value)
        if type(value).__module__.partition(".")[0] == "torch":
            return self._torch(value, path)
        if (splitter := type(value).__name__) in SPLITTERS and type(value).__module__ == SPLITTERS_HOME:
            options = {key: getattr(value, key) for key in SPLITTERS[splitter]}
            return {"splitter": splitter, "options": self._entries(options, path)}
        raise _cannot_save(path, type(value).__name__)

    def _estimator(self, model: Any) -> dict[str, Any]:
        name, state = type(model).__name__, vars(model)
        missing = [key for key in FITTED[name] if key not in state]
        if missing:
            raise DataError(f"save takes a fitted estimator, this {name} has no {missing[0]}; call fit(X, y) first")
        kept = {key: state[key] for key in (*FITTED[name], *OPTIONAL) if key in state}
        return {
            "estimator": name,
            "parameters": self._entries(model.get_params(deep=False), ""),
            "state": self._entries(kept, ""),
        }

    def _torch(self, value: Any, path: str) -> dict[str, Any]:
        import torch

        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value, path)}
        if isinstance(value, torch.nn.Sequential):
            from knotwork.network.chain import working_layers

            working_layers(value)  # refuses what none of our functions takes
        if isinstance(value, torch.nn.Module):
            return self._module(value, path)
        raise _cannot_save(path, type(value).__name__)

    def _tensor(self, tensor: Tensor, path: str) -> dict[str, Any]:
        import torch

        if tensor.dtype not in (torch.float16, torch.float32, torch.float64) or tensor.layout != torch.strided:
            raise DataError(
                f"tensors must be dense, of float16, float32 or float64, {path!r} is {tensor.layout} of "
                f"{tensor.dtype}; convert the network first, for instance with net.float()"
            )
        if tensor.is_meta:
            raise DataError(f"tensors must have values, {path!r} is on the meta device; give it some first")
        return self._array(tensor.detach().cpu().numpy(), path)

    def _module(self, module: nn.Module, path: str) -> dict[str, Any]:
        from torch import nn

        if module._forward_hooks or module._forward_pre_hooks:
            raise DataError(
                f"layers must have no hooks (these are code), {path or 'network'!r} has some; remove them and add them "
                f"again after loading"
            )
        if type(module) is nn.Sequential:
            return self._sequential(module, path)
        name = type(module).__name__
        if name in OWN_LAYERS and type(module).__module__ == OWN_LAYERS[name][0]:
            _, required, optional = OWN_LAYERS[name]
            keys = [*required, *(key for key in optional if getattr(module, key) is not None)]
            buffers = {key: self._tensor(getattr(module, key), _join(path, key)) for key in keys}
            like = next(b for key, b in module.named_buffers() if key not in buffers)
            return {"own": name, "buffers": buffers, "dtype": str(like.dtype), "training": module.training}
        if name not in LAYERS or type(module) is not layer_class(name):
            raise DataError(
                f"layers must be of torch.nn itself (other classes are code), {path or 'network'!r} is a {name}; "
                f"save the state_dict of such a network with safetensors.torch"
            )
        return {
            "layer": name,
            "options": self._entries({key: getattr(module, key) for key in LAYERS[name]}, path),
            "training": module.training,
            "parameters": {key: self._parameter(p, _join(path, key)) for key, p in module.named_parameters()},
        }

    def _sequential(self, net: nn.Sequential, path: str) -> dict[str, Any]:
        conversion = getattr(net, "conversion", None)
        known = name_in(RECORDS, conversion) == "Conversion"
        return {
            "network": [[name, self._module(child, _join(path, name))] for name, child in net._modules.items()],
            "training": net.training,
            "conversion": self.value(conversion, _join(path, "conversion")) if known else None,
        }

    def _parameter(self, parameter: nn.Parameter, path: str) -> dict[str, Any]:
        owner = self._owners.setdefault(id(parameter), path)
        if owner != path:
            raise DataError(
                f"each parameter must belong to one layer, {path!r} is {owner!r} as well; give the layer a copy of it"
            )
        return {"tensor": self._tensor(parameter, path), "requires_grad": parameter.requires_grad}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _field_values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _cannot_save(path: str, what: str) -> DataError:
    return DataError(
        f"a saved model holds numbers, text, arrays of numbers and layers, {path!r} is {what}; "
        f"replace it by one of these (a random_state by an integer, say)"
    )
