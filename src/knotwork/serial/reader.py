"""From JSON and arrays back to values: what :mod:`knotwork.serial.writer` wrote, and nothing else.

Sizes are compared before anything is allocated, and every record, layer and estimator is checked as it is built
(:mod:`knotwork.serial.checks`): what comes out of here can predict.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.errors import DataError, KnotworkError
from knotwork.serial.checks import check_record, check_text, is_finite
from knotwork.serial.model_checks import check_estimator, check_layer, check_network
from knotwork.serial.tables import (
    DOCUMENT,
    FITTED,
    KINDS,
    LAYERS,
    OPTIONAL,
    OWN_LAYERS,
    RECORDS,
    SPLITTERS,
    class_in,
    layer_class,
    not_as_written,
    require_keys,
    require_known,
    shown,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

# Bytes that an array of text may take: as many as a document.
MAX_TEXT = 64 * 2**20


class Reader:
    """Turn what :class:`knotwork.serial.writer.Writer` made back into values.

    max_uses : values that an array may belong to, so that a few bytes cannot ask for one of them a million times
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], max_uses: int = 1) -> None:
        self._arrays = arrays
        self._uses: Counter[str] = Counter()
        self._max_uses = max_uses

    def model(self, record: Any) -> Any:
        """Return the model that a JSON value stands for; it must need all arrays."""
        model = self.value(record)
        unused = set(self._arrays) - set(self._uses)
        if unused:
            raise not_as_written(f"no use for the array {min(unused)!r}")
        return model

    def value(self, record: Any) -> Any:
        """Return the value that a JSON value stands for."""
        match record:
            case str():
                return check_text(record)
            case list():
                return [self.value(item) for item in record]
            case dict():
                return self._object(record)
        return record

    def _object(self, record: dict[str, Any]) -> Any:
        match record:
            case {"tuple": list(items), **rest} if not rest:
                return tuple(self.value(item) for item in items)
            case {"dict": dict(entries), **rest} if not rest:
                return self._entries(entries)
            case {"pairs": list(pairs), **rest} if not rest:
                return {self.value(key): self.value(item) for key, item in pairs}
            case {"float": "nan" | "inf" | "-inf" as text, **rest} if not rest:
                return float(text)
            case {"text": list(items), "width": int(width), **rest} if not rest:
                return _text_array(items, width)
            case {"text": list(items), **rest} if not rest:
                return np.array([check_text(item) for item in items], dtype=object)
            case {"array": _}:
                return self._array(record)
            case {"record": str(name), "fields": dict(entries), **rest} if not rest:
                return self._record(name, entries)
            case {"estimator": str(name), "parameters": dict(parameters), "state": dict(state), **rest} if not rest:
                return self._estimator(name, parameters, state)
            case {"splitter": str(name), "options": dict(options), **rest} if not rest:
                return self._splitter(name, options)
            case {"device": str(name), **rest} if not rest:
                return _device(name)
            case {"tensor": dict(array), **rest} if not rest:
                return self._tensor(array)
            case {"network": list(children), "training": bool(training), "conversion": conversion, **rest} if not rest:
                return self._sequential(children, training, conversion)
            case {"own": str(name), "buffers": dict(buffers), "dtype": str(dtype), "training": bool(training), **rest} \
                    if not rest:  # fmt: skip
                return self._own_layer(name, buffers, dtype, training)
            case {"layer": str(name), "options": dict(options), "parameters": dict(parameters),
                  "training": bool(training), **rest} if not rest:  # fmt: skip
                return self._layer(name, options, parameters, training)
        raise not_as_written(f"an object with the keys {', '.join(record)}")

    def _entries(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.value(item) for key, item in entries.items()}

    def _array(self, record: Mapping[str, Any]) -> NDArray[Any]:
        require_keys(record, {"array", "dtype", "shape", "order"}, "an array")
        name, order = record["array"], record["order"]
        if name not in self._arrays or self._uses[name] == self._max_uses:
            raise DataError(
                f"the arrays of a saved model are those that {DOCUMENT} names, each once, {shown(repr(name))} is "
                f"missing; save the model again"
            )
        self._uses[name] += 1
        array = self._arrays[name]
        found, expected = (array.dtype.name, list(array.shape)), (record["dtype"], record["shape"])
        if found != expected:
            raise DataError(
                f"array {shown(repr(name))} must be {shown(str(expected[0]))} of shape {shown(str(expected[1]))}, got "
                f"{found[0]} of shape {list(found[1])}; save the model again"
            )
        if order not in ("C", "F"):
            raise not_as_written(f"the order {order!r}")
        return np.array(array, order=order)

    def _record(self, name: str, entries: Mapping[str, Any]) -> Any:
        cls = class_in(RECORDS, name)
        require_keys(entries, {field.name for field in fields(cls)}, name)
        values = self._entries(entries)
        try:
            record = cls(**values)
        except DataError as error:
            raise not_as_written(f"a part of {name} that does not fit ({error})") from None
        check_record(name, record)
        return record

    def _estimator(self, name: str, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
        require_known(FITTED, name)
        require_keys({key: None for key in state if key not in OPTIONAL}, set(FITTED[name]), name)
        model = class_in(KINDS, name)(**self._entries(parameters))
        vars(model).update(self._entries(state))
        check_estimator(name, model)
        return model

    def _splitter(self, name: str, options: Mapping[str, Any]) -> Any:
        from sklearn import model_selection

        require_known(SPLITTERS, name)
        require_keys(options, set(SPLITTERS[name]), name)
        try:
            return getattr(model_selection, name)(**self._entries(options))
        except (TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise not_as_written(f"a {name} that does not fit ({error})") from None

    def _tensor(self, record: Mapping[str, Any], *, finite: bool = True) -> Tensor:
        import torch

        array = self._array(record)
        if array.dtype.kind != "f" or (finite and not is_finite(array)):
            raise not_as_written(f"weights of {array.dtype} that are not finite numbers")
        return torch.from_numpy(array)

    def _sequential(self, children: list[Any], training: bool, conversion: Any) -> nn.Sequential:
        from torch import nn

        from knotwork.network.scaling import Scaling

        net = nn.Sequential()
        for name, child in children:
            layer = self.value(child)
            if not isinstance(layer, nn.Module):
                raise not_as_written(f"{type(layer).__name__} among the layers of a network")
            net.add_module(name, layer)
        if len(net) > 1 and isinstance(net[-1], Scaling):
            net[-1].turned_back()
        net.training = training
        if conversion is not None:
            net.conversion = self.value(conversion)
        check_network(net)
        return net

    def _own_layer(self, name: str, buffers: Mapping[str, Any], dtype: str, training: bool) -> nn.Module:
        import torch

        require_known(OWN_LAYERS, name)
        home, required, optional = OWN_LAYERS[name]
        require_keys(buffers, {*required, *(key for key in buffers if key in optional)}, name)
        dtypes = {str(d): d for d in (torch.float16, torch.float32, torch.float64)}
        require_known(dtypes, dtype)
        make = getattr(importlib.import_module(home), name)
        values = {key: self._tensor(value, finite=key in required) for key, value in buffers.items()}
        try:
            layer: nn.Module = make(**values).to(dtypes[dtype])
        except KnotworkError as error:
            raise not_as_written(f"a {name} that does not fit ({error})") from None
        return layer.train(training)

    def _layer(self, name: str, options: Mapping[str, Any], parameters: Mapping[str, Any], training: bool) -> nn.Module:
        import torch
        from torch import nn

        require_known(LAYERS, name)
        require_keys(options, set(LAYERS[name]), name)
        values = self._entries(options)
        check_layer(name, values)
        if name == "Linear":
            values["bias"] = "bias" in parameters
        # Nothing is allocated there, and no random numbers are drawn that the user's own would have been.
        with torch.device("meta"):
            layer: nn.Module = layer_class(name)(**values)
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
        layer.training = training
        return layer


def _text_array(items: list[Any], width: int) -> NDArray[Any]:
    texts = [check_text(item) for item in items]
    if width < max((len(text) for text in texts), default=0) or 4 * width * len(texts) > MAX_TEXT:
        raise not_as_written(f"{len(texts)} texts of width {width}")
    return np.array(texts, dtype=f"U{width}")


def _device(name: str) -> Any:
    import torch

    return torch.device(name)
