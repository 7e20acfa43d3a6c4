"""Layers as ONNX nodes. Activations that runtimes lack in float64 are written with operators that they have."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.limits import Limits
from knotwork.errors import NetworkError


class Nodes:
    """Nodes and constant tensors of a graph as it grows; every method returns the name of its result."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def affine(self, x: str, weight: Floats, bias: Floats) -> str:
        """x·weightᵀ + bias."""
        return self._node("Gemm", x, self._tensor(weight), self._tensor(bias), transB=1)

    def scaling(self, x: str, centre: Floats, scale: Floats, limits: Limits | None = None) -> str:
        """(x − centre)/scale, in float64 whatever the graph is: a centre far from zero loses nothing.

        With limits, x is held at them first.
        """
        from onnx import TensorProto, helper

        double = np.dtype(np.float64)
        wide = self._node("Cast", x, to=TensorProto.DOUBLE)
        if limits is not None:
            wide = self._node("Max", wide, self._tensor(limits.lower, double))
            wide = self._node("Min", wide, self._tensor(limits.upper, double))
        moved = self._node("Sub", wide, self._tensor(centre, double))
        scaled = self._node("Div", moved, self._tensor(scale, double))
        return self._node("Cast", scaled, to=helper.np_dtype_to_tensor_dtype(self.dtype))

    def activation(self, x: str, module: nn.Module) -> str:
        """Apply the activation of a module."""
        match module:
            case nn.ReLU():
                return self._node("Relu", x)
            case nn.LeakyReLU():  # the slope as a tensor: an attribute of LeakyRelu is float32 whatever the graph is
                return self._node("PRelu", x, self._tensor([module.negative_slope]))
            case nn.PReLU():
                return self._node("PRelu", x, self._tensor(module.weight.detach().cpu().double().numpy()))
            case nn.Hardtanh():  # and ReLU6, which is one
                return self._node("Clip", x, self._tensor(module.min_val), self._tensor(module.max_val))
            case nn.Tanh() | nn.Sigmoid():
                return self._node(type(module).__name__, x)
            case nn.SiLU():
                return self._node("Mul", x, self._node("Sigmoid", x))
            case nn.ELU():
                below = self._node("Exp", self._node("Min", x, self._tensor(0.0)))
                bent = self._node("Mul", self._node("Sub", below, self._tensor(1.0)), self._tensor(module.alpha))
                return self._node("Add", self._node("Relu", x), bent)
            case nn.Softplus():
                return self._softplus(x, float(module.beta), float(module.threshold))
            case nn.GELU():
                return self._gelu(x, module.approximate)
        raise NetworkError(f"{type(module).__name__} has no ONNX form here; use torch.onnx.export")

    def rename_last(self, name: str) -> None:
        """Give the last result the name of the graph's output."""
        self.nodes[-1].output[0] = name

    def _softplus(self, x: str, beta: float, threshold: float) -> str:
        """log(1 + exp(βx))/β = (R(βx) + log(1 + exp(−|βx|)))/β, and x itself beyond the threshold, as torch has it."""
        z = self._node("Mul", x, self._tensor(beta))
        tail = self._node("Exp", self._node("Neg", self._node("Abs", z)))
        log = self._node("Log", self._node("Add", tail, self._tensor(1.0)))
        curve = self._node("Div", self._node("Add", self._node("Relu", z), log), self._tensor(beta))
        return self._node("Where", self._node("Greater", z, self._tensor(threshold)), x, curve)

    def _gelu(self, x: str, approximate: str) -> str:
        half = self._node("Mul", x, self._tensor(0.5))
        if approximate == "tanh":
            cube = self._node("Mul", x, self._node("Mul", x, x))
            inner = self._node("Add", x, self._node("Mul", cube, self._tensor(0.044715)))
            bend = self._node("Tanh", self._node("Mul", inner, self._tensor(np.sqrt(2 / np.pi))))
        elif self.dtype == np.float64:
            raise NetworkError("GELU needs erf, which runtimes have in float32 only; export it with dtype='float32'")
        else:
            bend = self._node("Erf", self._node("Mul", x, self._tensor(np.sqrt(0.5))))
        return self._node("Mul", half, self._node("Add", bend, self._tensor(1.0)))

    def _tensor(self, values: Any, dtype: np.dtype[Any] | None = None) -> str:
        from onnx import numpy_helper

        name = f"constant{len(self.tensors)}"
        with np.errstate(over="ignore"):  # what float32 cannot hold is found by the check of the file
            array = np.array(values, dtype=dtype or self.dtype, order="C")
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def _node(self, kind: str, *inputs: str, **options: Any) -> str:
        from onnx import helper

        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **options))
        return name
