"""Layers, and what is around them, as ONNX nodes.

Activations that runtimes lack in float64 are written with operators that they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.limits import Limits
from knotwork.data.links import exp_range
from knotwork.errors import NetworkError

DOUBLE = np.dtype(np.float64)


class Nodes:
    """Nodes and constant tensors of a graph as it grows; every method returns the name of its result.

    dtype : of the layers; taken : names that others have given, which no result may have
    """

    def __init__(self, dtype: np.dtype[Any], taken: Iterable[str] = ()) -> None:
        self.dtype = dtype
        self._prefix = ""
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "_"
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def affine(self, x: str, weight: Floats, bias: Floats) -> str:
        """x·weightᵀ + bias."""
        return self.node("Gemm", x, self.tensor(weight), self.tensor(bias), transB=1)

    def scaling(self, x: str, centre: Floats, scale: Floats, limits: Limits | None = None) -> str:
        """(x − centre)/scale, in float64 whatever the graph is: a centre far from zero loses nothing.

        With limits, x is held at them first.
        """
        wide = self.cast(x, DOUBLE)
        if limits is not None:
            wide = self.held(wide, limits, DOUBLE)
        moved = self.node("Sub", wide, self.tensor(centre, DOUBLE))
        return self.cast(self.node("Div", moved, self.tensor(scale, DOUBLE)), self.dtype)

    def held(self, x: str, limits: Limits, dtype: np.dtype[Any]) -> str:
        """Return x held at limits; dtype is that of x."""
        return self.node("Min", self.node("Max", x, self.tensor(limits.lower, dtype)), self.tensor(limits.upper, dtype))

    def cast(self, x: str, dtype: np.dtype[Any]) -> str:
        """Return x with values of another type."""
        from onnx import helper

        return self.node("Cast", x, to=helper.np_dtype_to_tensor_dtype(dtype))

    def look_up(self, x: str, codes: Mapping[str, int], default: int) -> str:
        """Return the code of each text, ``default`` for others: strings → integers."""
        keys, values = list(codes), list(codes.values())
        options = {"keys_strings": keys, "values_int64s": values, "default_int64": default}
        return self.node("LabelEncoder", x, domain="ai.onnx.ml", **options)

    def softmax(self, logits: str) -> str:
        """Return probabilities: (rows, classes)."""
        return self.node("Softmax", logits, axis=1)

    def inverse_of_link(self, x: str, link: str) -> str:
        """Return y, given link(y)."""
        match link:
            case "log":  # positive and finite for any number
                lowest, highest = (self.tensor(end) for end in exp_range(self.dtype))
                held = self.node("Min", self.node("Max", x, lowest), highest)
                return self.node("Exp", held)
            case "exp":
                return self.node("Log", x)
            case "log1p":
                return self.node("Sub", self.node("Exp", x), self.tensor(1.0))
            case "expm1":
                return self.node("Log", self.node("Add", x, self.tensor(1.0)))
            case "sqrt":
                return self.node("Mul", x, x)
            case "square":
                return self.node("Sqrt", x)
        raise NetworkError(f"the link {link!r} has no inverse in ONNX here")

    def activation(self, x: str, module: nn.Module) -> str:
        """Apply the activation of a module."""
        match module:
            case nn.ReLU():
                return self.node("Relu", x)
            case nn.LeakyReLU():  # the slope as a tensor: an attribute of LeakyRelu is float32 whatever the graph is
                return self.node("PRelu", x, self.tensor([module.negative_slope]))
            case nn.PReLU():
                return self.node("PRelu", x, self.tensor(module.weight.detach().cpu().double().numpy()))
            case nn.Hardtanh():  # and ReLU6, which is one
                return self.node("Clip", x, self.tensor(module.min_val), self.tensor(module.max_val))
            case nn.Tanh() | nn.Sigmoid():
                return self.node(type(module).__name__, x)
            case nn.SiLU():
                return self.node("Mul", x, self.node("Sigmoid", x))
            case nn.ELU():
                below = self.node("Exp", self.node("Min", x, self.tensor(0.0)))
                bent = self.node("Mul", self.node("Sub", below, self.tensor(1.0)), self.tensor(module.alpha))
                return self.node("Add", self.node("Relu", x), bent)
            case nn.Softplus():
                return self._softplus(x, float(module.beta), float(module.threshold))
            case nn.GELU():
                return self._gelu(x, module.approximate)
        raise NetworkError(f"{type(module).__name__} has no ONNX form here; use torch.onnx.export")

    def output(self, x: str, name: str) -> None:
        """Make a result an output of the graph, under a name of its own."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [x], [name], name=f"{self._prefix}output {name}"))

    def _softplus(self, x: str, beta: float, threshold: float) -> str:
        """log(1 + exp(βx))/β = (R(βx) + log(1 + exp(−|βx|)))/β, and x itself beyond the threshold, as torch has it."""
        z = self.node("Mul", x, self.tensor(beta))
        tail = self.node("Exp", self.node("Neg", self.node("Abs", z)))
        log = self.node("Log", self.node("Add", tail, self.tensor(1.0)))
        curve = self.node("Div", self.node("Add", self.node("Relu", z), log), self.tensor(beta))
        return self.node("Where", self.node("Greater", z, self.tensor(threshold)), x, curve)

    def _gelu(self, x: str, approximate: str) -> str:
        half = self.node("Mul", x, self.tensor(0.5))
        if approximate == "tanh":
            cube = self.node("Mul", x, self.node("Mul", x, x))
            inner = self.node("Add", x, self.node("Mul", cube, self.tensor(0.044715)))
            bend = self.node("Tanh", self.node("Mul", inner, self.tensor(np.sqrt(2 / np.pi))))
        elif self.dtype == np.float64:
            raise NetworkError("GELU needs erf, which runtimes have in float32 only; export it with dtype='float32'")
        else:
            bend = self.node("Erf", self.node("Mul", x, self.tensor(np.sqrt(0.5))))
        return self.node("Mul", half, self.node("Add", bend, self.tensor(1.0)))

    def tensor(self, values: Any, dtype: np.dtype[Any] | None = None) -> str:
        """Add a constant, of the layers' dtype or of another one."""
        from onnx import numpy_helper

        name = f"{self._prefix}constant{len(self.tensors)}"
        with np.errstate(over="ignore"):  # what float32 cannot hold is found by the check of the file
            array = np.array(values, dtype=self.dtype if dtype is None else dtype, order="C")
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: str, **options: Any) -> str:
        """Add a node with one result."""
        from onnx import helper

        name = f"{self._prefix}{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **options))
        return name
