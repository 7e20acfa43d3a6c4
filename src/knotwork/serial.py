"""Values as JSON and arrays, and back: the language of saved models.

Plain values stay as they are; arrays, records, layers, networks and estimators become objects whose first key says what
they are. The tables below are all that can be named: nothing found in a file is ever looked up anywhere else.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor, nn

DOCUMENT = "model.json"
ARRAYS = "model.safetensors"

# What can be saved, and the modules that define it.
KINDS = {
    "DCMaxAffineRegressor": "knotwork.estimators.maxaffine",
    "HingingHyperplanesRegressor": "knotwork.estimators.hinging",
    "LatticePWL": "knotwork.pwl.lattice",
    "MarsClassifier": "knotwork.estimators.mars_classifier",
    "MarsRegressor": "knotwork.estimators.mars",
    "MaxAffineRegressor": "knotwork.estimators.maxaffine",
    "MaxSum": "knotwork.pwl.maxsum",
    "Sequential": "torch.nn.modules.container",
    "Spline": "knotwork.spline.model",
    "SplineNetClassifier": "knotwork.estimators.splinenet_classifier",
    "SplineNetRegressor": "knotwork.estimators.splinenet",
}
RECORDS = {
    "ClassFit": "knotwork.spline.likelihood",
    "Column": "knotwork.data.table",
    "Conversion": "knotwork.network.chain",
    "Coordinates": "knotwork.data.coordinates",
    "Hinge": "knotwork.spline.model",
    "History": "knotwork.network.train.loop",
    "Knot": "knotwork.spline.result",
    "LatticePWL": "knotwork.pwl.lattice",
    "Linear": "knotwork.spline.model",
    "Min": "knotwork.spline.model",
    "Product": "knotwork.spline.model",
    "MaxSum": "knotwork.pwl.maxsum",
    "PiecewiseFit": "knotwork.pwl.selection",
    "PruningPath": "knotwork.spline.prune",
    "Quality": "knotwork.spline.result",
    "Refit": "knotwork.spline.refit",
    "Selection": "knotwork.spline.result",
    "Spans": "knotwork.spline.knots",
    "Spline": "knotwork.spline.model",
    "SplineFit": "knotwork.spline.result",
    "StandardisedSearch": "knotwork.spline.result",
    "Step": "knotwork.spline.forward",
    "TableEncoder": "knotwork.data.table",
    "TermTable": "knotwork.spline.moments.moments",
}
# What the constructor of each module of torch.nn takes; a Linear's bias is known by its tensor.
LAYERS = {
    "AlphaDropout": ("p", "inplace"),
    "Dropout": ("p", "inplace"),
    "Dropout1d": ("p", "inplace"),
    "Dropout2d": ("p", "inplace"),
    "Dropout3d": ("p", "inplace"),
    "ELU": ("alpha", "inplace"),
    "FeatureAlphaDropout": ("p", "inplace"),
    "Flatten": ("start_dim", "end_dim"),
    "GELU": ("approximate",),
    "Hardtanh": ("min_val", "max_val", "inplace"),
    "Identity": (),
    "LeakyReLU": ("negative_slope", "inplace"),
    "Linear": ("in_features", "out_features"),
    "PReLU": ("num_parameters",),
    "ReLU": ("inplace",),
    "ReLU6": ("inplace",),
    "SiLU": ("inplace",),
    "Sigmoid": (),
    "Softplus": ("beta", "threshold"),
    "Tanh": (),
}
# Layers of our own: the module that defines them, and their buffers, which the constructor takes by name.
OWN_LAYERS = {"Scaling": ("knotwork.network.scaling", ("centre", "scale"))}
_SHARED = ("encoder_", "n_features_in_")
_PIECEWISE = ("pwl_", "fit_", "_flat_output", *_SHARED)
FITTED = {
    "DCMaxAffineRegressor": _PIECEWISE,
    "HingingHyperplanesRegressor": _PIECEWISE,
    "MaxAffineRegressor": _PIECEWISE,
    "MarsClassifier": ("fit_", "classes_", *_SHARED),
    "MarsRegressor": ("fit_", "_flat_output", *_SHARED),
    "SplineNetClassifier": ("network_", "spline_", "history_", "classes_", *_SHARED),
    "SplineNetRegressor": ("network_", "spline_", "history_", "_flat_output", *_SHARED),
}
# Names of the columns, for models fitted to a table; what set_output was told; what a network began with.
OPTIONAL = ("feature_names_in_", "_sklearn_output_config", "start_network_", "coordinates_")


def name_in(table: Mapping[str, str], value: object) -> str | None:
    """Name of a value's class if it is one of the table's; a subclass is not, it would come back as something else."""
    name, home = type(value).__name__, type(value).__module__
    return name if table.get(name) == home else None


def _class_in(table: Mapping[str, str], name: str) -> Any:
    require_known(table, name)
    return getattr(importlib.import_module(table[name]), name)


def require_known(table: Mapping[str, object], name: object) -> None:
    """Refuse a name that is not in a table."""
    if not isinstance(name, str) or name not in table:
        raise DataError(
            f"{DOCUMENT} may name one of {', '.join(table)} here, got {name!r}; load it with the version of knotwork "
            f"that wrote it, or save the model again"
        )


def not_as_written(found: str) -> DataError:
    """Return the error for a document that has been changed."""
    return DataError(f"{DOCUMENT} must be as save wrote it, got {found}; save the model again")


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
            case dict() if all(isinstance(key, str) for key in value):
                return {"dict": self._entries(value, path)}
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
        self.arrays[path] = np.asarray(array, order="C")
        return {"array": path, "dtype": array.dtype.name, "shape": list(array.shape), "order": order}

    def _object(self, value: Any, path: str) -> dict[str, Any]:
        if (name := name_in(RECORDS, value)) is not None:
            return {"record": name, "fields": self._entries(_field_values(value), path)}
        if type(value).__name__ in FITTED and name_in(KINDS, value) is not None:
            return self._estimator(value)
        if type(value).__module__.partition(".")[0] == "torch":
            return self._torch(value, path)
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

            working_layers(value)  # refuses what no function of ours takes
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
            buffers = {key: self._tensor(getattr(module, key), _join(path, key)) for key in OWN_LAYERS[name][1]}
            like = next(b for key, b in module.named_buffers() if key not in buffers)
            return {"own": name, "buffers": buffers, "dtype": str(like.dtype), "training": module.training}
        if name not in LAYERS or type(module) is not getattr(nn, name):
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


class Reader:
    """Turn what :class:`Writer` made back into values."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays = arrays

    def value(self, record: Any) -> Any:
        """Return the value that a JSON value stands for."""
        match record:
            case list():
                return [self.value(item) for item in record]
            case {"tuple": list(items)}:
                return tuple(self.value(item) for item in items)
            case {"dict": dict(entries)}:
                return self._entries(entries)
            case {"float": str(text)}:
                return float(text)
            case {"text": list(items), "width": int(width)}:
                return np.array([str(item) for item in items], dtype=f"U{width}")
            case {"text": list(items)}:
                return np.array([str(item) for item in items], dtype=object)
            case {"array": _}:
                return self._array(record)
            case {"record": str(name), "fields": dict(entries)}:
                return self._record(name, entries)
            case {"estimator": str(name), "parameters": dict(parameters), "state": dict(state)}:
                return self._estimator(name, parameters, state)
            case {"device": str(name)}:
                return _device(name)
            case {"tensor": dict(array)}:
                return self._tensor(array)
            case {"network": list(children)}:
                return self._sequential(children, record)
            case {"own": str(name), "buffers": dict(buffers), "dtype": str(dtype), "training": bool(training)}:
                return self._own_layer(name, buffers, dtype, training)
            case {"layer": str(name), "options": dict(options), "parameters": dict(parameters)}:
                return self._layer(name, options, parameters, record["training"])
            case dict():
                raise not_as_written(f"an object with the keys {', '.join(record)}")
        return record

    def _entries(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.value(item) for key, item in entries.items()}

    def _array(self, record: Mapping[str, Any]) -> NDArray[Any]:
        name = record["array"]
        if name not in self.arrays:
            raise DataError(f"{ARRAYS} must have all arrays that {DOCUMENT} names, {name!r} is missing; save again")
        array = self.arrays[name]
        found, expected = (array.dtype.name, list(array.shape)), (record["dtype"], record["shape"])
        if found != expected:
            raise DataError(
                f"array {name!r} must be {expected[0]} of shape {expected[1]}, got {found[0]} of shape {found[1]}; "
                f"save the model again"
            )
        return np.array(array, order=record["order"])

    def _record(self, name: str, entries: Mapping[str, Any]) -> Any:
        cls = _class_in(RECORDS, name)
        require_keys(entries, {field.name for field in fields(cls)}, name)
        values = self._entries(entries)
        try:
            return cls(**values)
        except DataError as error:
            raise not_as_written(f"a part of {name} that does not fit ({error})") from None

    def _estimator(self, name: str, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
        require_known(FITTED, name)
        require_keys({key: None for key in state if key not in OPTIONAL}, set(FITTED[name]), name)
        model = _class_in(KINDS, name)(**self._entries(parameters))
        vars(model).update(self._entries(state))
        return model

    def _tensor(self, record: Mapping[str, Any]) -> Tensor:
        import torch

        return torch.from_numpy(self._array(record))

    def _sequential(self, children: list[Any], record: Mapping[str, Any]) -> nn.Sequential:
        from torch import nn

        net = nn.Sequential()
        for name, child in children:
            net.add_module(name, self.value(child))
        net.training = bool(record["training"])
        if record["conversion"] is not None:
            net.conversion = self.value(record["conversion"])
        return net

    def _own_layer(self, name: str, buffers: Mapping[str, Any], dtype: str, training: bool) -> nn.Module:
        import torch

        require_known(OWN_LAYERS, name)
        home, keys = OWN_LAYERS[name]
        require_keys(buffers, set(keys), name)
        dtypes = {str(d): d for d in (torch.float16, torch.float32, torch.float64)}
        require_known(dtypes, dtype)
        make = getattr(importlib.import_module(home), name)
        layer: nn.Module = make(**{key: self._tensor(value) for key, value in buffers.items()}).to(dtypes[dtype])
        return layer.train(training)

    def _layer(self, name: str, options: Mapping[str, Any], parameters: Mapping[str, Any], training: bool) -> nn.Module:
        import torch
        from torch import nn

        require_known(LAYERS, name)
        require_keys(options, set(LAYERS[name]), name)
        values = self._entries(options)
        if name == "Linear":
            values["bias"] = "bias" in parameters
        # Nothing is allocated there, and no random numbers are drawn that the user's own would have been.
        with torch.device("meta"):
            layer: nn.Module = getattr(nn, name)(**values)
        blanks = dict(layer.named_parameters())
        require_keys(parameters, set(blanks), name)
        for key, blank in blanks.items():
            tensor = self._tensor(parameters[key]["tensor"])
            if tensor.shape != blank.shape:
                raise DataError(
                    f"the {key} of this {name} must have shape {tuple(blank.shape)}, got {tuple(tensor.shape)}; "
                    f"save the model again"
                )
            setattr(layer, key, nn.Parameter(tensor, requires_grad=parameters[key]["requires_grad"]))
        layer.training = bool(training)
        return layer


def require_keys(entries: Mapping[str, Any], expected: set[str], name: str) -> None:
    """Refuse entries that are not exactly the expected ones of the thing called ``name``."""
    wrong = sorted(set(entries) ^ expected)
    if wrong:
        raise not_as_written(f"{name} with {', '.join(wrong)} missing or unknown")


def _device(name: str) -> Any:
    import torch

    return torch.device(name)
