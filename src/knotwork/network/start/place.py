"""Weights into a user's module, and a run of it to see that it computes what it should; else nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError, one_line
from knotwork.network.chain import Chain, Layer, build, flags_kept, write_layer_
from knotwork.network.start.find import BESIDE, is_settable
from knotwork.network.start.normalised import measure_, pass_on_, silence_
from knotwork.network.start.route import Route


@contextmanager
def unchanged_on_failure(module: nn.Module) -> Iterator[None]:
    """Leave every parameter and buffer of a module as it was if anything goes wrong."""
    before = [(tensor, tensor.detach().clone()) for tensor in (*module.parameters(), *module.buffers())]
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
        raise


def place_(
    module: nn.Module,
    layers: list[tuple[nn.Linear, Layer]],
    chain: Chain,
    shown: Tensor,
    expected: Floats,
    size: Floats,
    route: Route | None = None,
    measured: Tensor | None = None,
) -> Floats:
    """Set the weights and run the module on rows to see that it computes what is expected; else nothing has changed.

    ``chain`` is the same function as layers of its own. ``measured`` are the rows for the statistics of the route's
    BatchNorms. Returns |module − expected|: (rows, outputs). ``size`` (outputs,) is theirs.
    """
    expected = expected.reshape(len(shown), -1)
    dtype = layers[0][0].weight.dtype
    with unchanged_on_failure(module):
        for linear, layer in layers:
            write_layer_(linear, layer)
        if route is not None and route.graph is not None:
            _prepare_(module, layers, route, shown if measured is None else measured)
        difference: Floats = np.abs(_run(module, shown, expected.shape) - expected)
        precision = 1e-9 if dtype == torch.float64 else 1e-3
        # What the dtype does to the spline on inputs of this scale, or a smooth activation, is not the module's fault.
        same = build(chain, dtype, shown.device)
        rounding = np.abs(_run(same, shown.flatten(1), expected.shape) - expected)
        # Each output by its own size: a small one may be wrong altogether beside a large one.
        if not (difference.max(axis=0) <= precision * size + 2 * rounding.max(axis=0)).all():
            activation = type(chain.modules[0]).__name__ if chain.modules else "nothing"
            raise NetworkError(
                f"the module must run its Linear layers one after the other with {activation} in between and change "
                f"nothing else, got values off by {difference.max():.3g} on the data; pass the part of it that does, "
                f"or {BESIDE}"
            )
    return difference


def _prepare_(module: nn.Module, layers: list[tuple[nn.Linear, Layer]], route: Route, rows: Tensor) -> None:
    """Silence the branches, and set what depends on the values that arrive, layer by layer."""
    assert route.graph is not None
    for layer in route.silenced:
        silence_(layer)
    if not (route.norms or route.silenced):
        return
    biases = {id(linear): layer.bias for linear, layer in layers}
    shifts = {id(norm): None if linear is None else biases[id(linear)] for norm, linear in route.norms}
    with flags_kept(module), torch.no_grad():
        module.eval()
        _Preparation(route.graph, route, shifts).run(rows)


class _Preparation(fx.Interpreter):
    """Runs a module and sets each BatchNorm, and each unit of a branch, by what arrives there."""

    def __init__(self, graph: fx.GraphModule, route: Route, shifts: dict[int, Tensor | None]) -> None:
        super().__init__(graph)
        self.shifts = shifts
        self.measured = {*shifts, *map(id, route.inner), *map(id, route.silenced)}
        self.turned = {id(layer) for layer in route.inner if isinstance(layer, nn.Linear) and is_settable(layer)}

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        layer, values = self.fetch_attr(target), args[0] if args else None
        if isinstance(values, Tensor) and values.dim() == 2:
            if isinstance(layer, nn.BatchNorm1d) and id(layer) in self.measured and layer.running_mean is not None:
                measure_(layer, values)
                if id(layer) in self.shifts:
                    pass_on_(layer, self.shifts[id(layer)])
            elif isinstance(layer, nn.Linear) and id(layer) in self.turned:
                _turn_(layer, values)
        return super().call_module(target, args, kwargs)


def _turn_(linear: nn.Linear, rows: Tensor) -> None:
    """Turn units over that are below zero on all rows: behind a ReLU they would never train."""
    below = (linear(rows) <= 0).all(dim=0)
    factor = torch.where(below, -1.0, 1.0).to(linear.weight)
    linear.weight.mul_(factor[:, None])
    if linear.bias is not None:
        linear.bias.mul_(factor)


def _run(module: nn.Module, rows: Tensor, shape: tuple[int, ...]) -> Floats:
    """Run a module as it will be used: (N, …) → (N, p)."""
    with flags_kept(module), torch.no_grad():
        try:
            out = module.eval()(rows)
        except Exception as error:  # forward is anybody's code
            raise NetworkError(
                f"the module must take rows of shape {tuple(rows.shape)} in one tensor; it failed with "
                f"{type(error).__name__}: {one_line(error)}"
            ) from error
    if not isinstance(out, Tensor) or out.numel() != np.prod(shape):
        got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise NetworkError(f"the module must return a tensor of shape {shape} for these rows, got {got}; {BESIDE}")
    values: Floats = out.to("cpu", torch.float64).numpy().reshape(shape)
    return values
