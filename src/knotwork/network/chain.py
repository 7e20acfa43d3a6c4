"""A network as a chain: Linear and activation in turn, a Linear at the end.

The record between the stages. Weights are float64 on the CPU while networks are taken apart and put together; the
dtype and device of the network come back when it is built.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, activation_rule

if TYPE_CHECKING:
    from knotwork.data.table import TableEncoder


@dataclass(frozen=True)
class Layer:
    """An affine map: weight (out, in), bias (out,)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the map to rows: (N, in) → (N, out)."""
        return x @ self.weight.T + self.bias


@dataclass(frozen=True)
class Conversion:
    """What is known about how a network stands for its spline.

    bound : most by which any output may differ from the spline (0: exact up to rounding)
    box : (2, d) least and greatest inputs for which that holds, None for all of them
    link : the network gives link(y), see :mod:`knotwork.data.links`
    encoder : ``encoder.encode(table)`` is the matrix that the network takes; None if it came from no table
    """

    bound: float = 0.0
    box: Tensor | None = None
    link: str = "identity"
    encoder: TableEncoder | None = None


@dataclass(frozen=True)
class Chain:
    """Hidden layers with one activation, the output layer, and an affine map of the inputs (or None).

    hidden[k] and modules[k] are the k-th hidden layer and its activation; ``activation`` is the rule for new layers.
    The map of the inputs is frozen unless ``prefix_trains``.
    """

    hidden: tuple[Layer, ...]
    output: Layer
    activation: Activation
    modules: tuple[nn.Module, ...]
    prefix: Layer | None = None
    conversion: Conversion = Conversion()
    prefix_trains: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        return tuple(len(layer.bias) for layer in self.hidden)

    @property
    def inputs(self) -> int:
        """Number of features."""
        first = self.prefix or (self.hidden[0] if self.hidden else self.output)
        return first.weight.shape[1]

    def with_layers(self, hidden: tuple[Layer, ...], output: Layer) -> Chain:
        """Return the chain with other layers; new ones get an activation of their own."""
        new = tuple(self.activation.new_module() for _ in range(len(hidden) - len(self.modules)))
        return replace(self, hidden=hidden, output=output, modules=(*self.modules, *new))


def build(chain: Chain, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> nn.Sequential:
    """Put a chain together as a plain ``nn.Sequential``; the record of its conversion is ``.conversion``."""
    dtype = dtype or torch.get_default_dtype()
    modules: list[nn.Module] = []
    if chain.prefix is not None:
        modules.append(_linear(chain.prefix, dtype, device).requires_grad_(chain.prefix_trains))
    for layer, activation in zip(chain.hidden, chain.modules, strict=True):
        modules += [_linear(layer, dtype, device), activation.to(device, dtype)]
    modules.append(_linear(chain.output, dtype, device))
    net = nn.Sequential(*modules)
    net.conversion = chain.conversion  # type: ignore[assignment]
    return net


def _linear(layer: Layer, dtype: torch.dtype, device: torch.device | str) -> nn.Linear:
    outputs, inputs = layer.weight.shape
    # On the meta device nothing is initialised, which would only use up the caller's random numbers.
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = nn.Parameter(layer.weight.to(device, dtype, copy=True, memory_format=torch.contiguous_format))
    linear.bias = nn.Parameter(layer.bias.to(device, dtype, copy=True))
    return linear


def read_layer(linear: nn.Linear) -> Layer:
    """Copy a Linear's map."""
    weight = linear.weight.detach().to("cpu", torch.float64).clone()
    bias = torch.zeros(len(weight), dtype=torch.float64)
    if linear.bias is not None:
        bias = linear.bias.detach().to("cpu", torch.float64).clone()
    return Layer(weight, bias)


def read_chain(net: nn.Module) -> Chain:
    """Take a chain apart: a ``Sequential`` of Linear and activation, Dropout and Identity in between left out.

    Two Linear layers in a row at the start are a map of the inputs (what ``to_network(fold=False)`` makes) and the
    first hidden layer.
    """
    if not isinstance(net, nn.Sequential):
        raise NetworkError(f"the network must be an nn.Sequential of Linear and activation, got {type(net).__name__}")
    modules = [m for m in net if not isinstance(m, (nn.Dropout, nn.Identity))]
    prefix, prefix_trains = None, False
    if len(modules) >= 2 and isinstance(modules[0], nn.Linear) and isinstance(modules[1], nn.Linear):
        prefix, prefix_trains = read_layer(modules[0]), modules[0].weight.requires_grad
        modules = modules[1:]
    if len(modules) < 3 or len(modules) % 2 == 0 or not all(isinstance(m, nn.Linear) for m in modules[::2]):
        raise NetworkError(
            f"the network must alternate Linear and activation and end with a Linear, got "
            f"{' → '.join(type(m).__name__ for m in net)}"
        )
    activations = modules[1::2]
    rules = [activation_rule(m) for m in activations]
    if not all(type(m) is type(activations[0]) for m in activations):
        raise NetworkError(
            f"all activations must be of one kind, got {', '.join(type(m).__name__ for m in activations)}"
        )
    layers = [read_layer(m) for m in modules[::2] if isinstance(m, nn.Linear)]
    copies = tuple(rule.new_module() for rule in rules)
    conversion = getattr(net, "conversion", None)
    return Chain(
        hidden=tuple(layers[:-1]),
        output=layers[-1],
        activation=rules[-1],
        modules=copies,
        prefix=prefix,
        conversion=conversion if isinstance(conversion, Conversion) else Conversion(),
        prefix_trains=prefix_trains,
    )


def placement(net: nn.Module) -> tuple[torch.dtype, torch.device]:
    """Return dtype and device of a network's parameters."""
    first = next(net.parameters())
    return first.dtype, first.device


def evaluate(chain: Chain, X: Floats) -> Floats:
    """Run a chain on rows in double precision: (N, d) → (N, p)."""
    with torch.no_grad():
        rows = torch.from_numpy(np.array(X, dtype=np.float64, order="C"))  # a copy: X may be read-only
        rows = rows if chain.prefix is None else chain.prefix(rows)
        for layer, activation in zip(chain.hidden, chain.modules, strict=True):
            rows = activation.to("cpu", torch.float64)(layer(rows))
        out: Floats = chain.output(rows).numpy()
    return out
