"""The way that rows take through a module, read off its forward by ``torch.fx``.

A residual sum adds a branch to the skip. The way of the rows is the skip, and the branch is remembered beside it, so
that it can be silenced: networks of residual blocks are chains to whoever sets their weights.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from knotwork.network.chain import ACTIVATIONS, TRANSPARENT, flags_kept, is_known
from knotwork.network.scaling import Scaling


class Kind(Enum):
    """What a step does to rows."""

    LINEAR = "linear"
    NORM = "norm"
    ACTIVATION = "activation"
    SCALING = "scaling"
    SUM = "sum"
    JOIN = "join"
    OTHER = "other"


@dataclass(frozen=True, eq=False)
class Step:
    """One step on the way of the rows; two steps are the same only if they are one object.

    name : of the module as its parent knows it, or of the function
    module : the layer, or the activation that a function stands for; None for sums and other functions
    branch : of a sum: the steps of what is added to the way
    called : whether a module is called here, rather than a function
    """

    kind: Kind
    name: str
    module: nn.Module | None = None
    branch: tuple[Step, ...] = ()
    called: bool = True


@dataclass(frozen=True)
class Traced:
    """A module's forward as a graph, and the steps of its one way from input to output."""

    graph: fx.GraphModule
    steps: tuple[Step, ...]
    calls: dict[int, int]  # how often each module is called, by id


# Functions that do to rows what a module of this kind does; their arguments behind the first are the module's.
FUNCTIONS: dict[Any, Callable[..., nn.Module]] = {
    functional.relu: lambda inplace=False: nn.ReLU(),
    torch.relu: nn.ReLU,
    "relu": nn.ReLU,
    functional.leaky_relu: lambda negative_slope=0.01, inplace=False: nn.LeakyReLU(negative_slope),
    functional.silu: lambda inplace=False: nn.SiLU(),
    functional.gelu: lambda approximate="none": nn.GELU(approximate),
    functional.softplus: nn.Softplus,
    functional.elu: lambda alpha=1.0, inplace=False: nn.ELU(alpha),
    functional.relu6: lambda inplace=False: nn.ReLU6(),
}
# Whatever leaves the numbers of a row as they are, in use. That the rows stay rows, running the module will tell.
NOTHING = {
    functional.dropout, functional.alpha_dropout, functional.feature_alpha_dropout, torch.flatten, torch.squeeze,
    torch.unsqueeze, torch.reshape, operator.getitem, "flatten", "squeeze", "unsqueeze", "reshape", "view",
    "contiguous", "float", "double",
}  # fmt: skip
SUMS = {operator.add, operator.iadd, torch.add, "add", "add_"}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, (nn.Linear, Scaling)) or super().is_leaf_module(m, module_qualified_name)


def trace(module: nn.Module) -> Traced | None:
    """Follow the rows through a module; None where its forward cannot be read or rows take no single way through it.

    >>> class Residual(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.stem, self.block, self.head = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 1)
    ...     def forward(self, x):
    ...         h = self.stem(x)
    ...         return self.head(torch.relu(h + self.block(h)))
    >>> [(step.name, [inner.name for inner in step.branch]) for step in trace(Residual()).steps]
    [('stem', []), ('add', ['block']), ('relu', []), ('head', [])]
    """
    if not module._modules:  # a layer alone has no way through it
        return None
    try:
        # What depends on training, a dropout say, is read as it is in use; random numbers drawn meanwhile do not count.
        with flags_kept(module), torch.random.fork_rng(devices=[]):
            graph = _Tracer().trace(module.eval())
        runs = fx.GraphModule(module, graph)
    except Exception:  # forward is anybody's code: conditions on values, other inputs, anything
        return None
    ways: dict[fx.Node, tuple[Step, ...] | None] = {}
    calls: dict[int, int] = {}
    rows = next((node for node in graph.nodes if node.op == "placeholder"), None)
    for node in graph.nodes:
        if node.op == "placeholder":
            ways[node] = () if node is rows else None
        elif node.op == "output":
            out = node.args[0]
            steps = ways.get(out) if isinstance(out, fx.Node) else None
            return None if steps is None else Traced(runs, steps, calls)
        else:
            if node.op == "call_module":
                layer = module.get_submodule(str(node.target))
                calls[id(layer)] = calls.get(id(layer), 0) + 1
            ways[node] = _way(node, module, ways)
    return None


def _way(node: fx.Node, module: nn.Module, ways: dict[fx.Node, tuple[Step, ...] | None]) -> tuple[Step, ...] | None:
    """Return the steps from the rows to what a node computes; None for what is no function of the rows' numbers."""
    inputs = [ways[n] for n in node.all_input_nodes]
    arms = [way for way in inputs if way is not None]
    if not arms or node.target == "size" or (node.target is getattr and node.args[1] in ("shape", "ndim", "dtype")):
        return None
    name = str(node.target) if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    two = len(node.args) == 2 and all(isinstance(a, fx.Node) for a in node.args) and not node.kwargs
    if node.target in SUMS and two and len(arms) == 2:
        summed = _sum(arms[0], arms[1], name)
        if summed is not None:
            return summed
    if len(arms) > 1:
        return (*_common(arms), Step(Kind.JOIN, name, called=False))
    if node.op == "call_module":
        layer = module.get_submodule(str(node.target))
        return arms[0] if _does_nothing(layer) else (*arms[0], Step(_kind(layer), str(node.target), layer))
    if node.target in NOTHING:
        return arms[0]
    if node.target in FUNCTIONS:
        with suppress(TypeError):  # an argument that is itself computed, or one that the module does not take
            same = FUNCTIONS[node.target](*node.args[1:], **node.kwargs)
            return (*arms[0], Step(Kind.ACTIVATION, name, same, called=False))
    return (*arms[0], Step(Kind.OTHER, name, called=False))


def _sum(first: tuple[Step, ...], second: tuple[Step, ...], name: str) -> tuple[Step, ...] | None:
    """Return the way through a residual sum: along the arm without activations, the other one beside it."""
    shared = len(_common([first, second]))
    arms = sorted((first[shared:], second[shared:]), key=len)
    bends = [any(step.kind in (Kind.ACTIVATION, Kind.OTHER, Kind.SUM, Kind.JOIN) for step in arm) for arm in arms]
    if arms[0] and bends[0] == bends[1]:  # either could be the skip
        return None
    skip, branch = (arms[0], arms[1]) if not arms[0] or not bends[0] else (arms[1], arms[0])
    return (*first[:shared], *skip, Step(Kind.SUM, name, branch=branch, called=False))


def _common(ways: list[tuple[Step, ...]]) -> tuple[Step, ...]:
    """Return the steps that all ways begin with."""
    length = 0
    for steps in zip(*ways, strict=False):
        if any(step is not steps[0] for step in steps):
            break
        length += 1
    return ways[0][:length]


def _does_nothing(layer: nn.Module) -> bool:
    mixes_rows = isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1)
    return isinstance(layer, (*TRANSPARENT, nn.Unflatten)) and not mixes_rows


def _kind(layer: nn.Module) -> Kind:
    if type(layer) is nn.BatchNorm1d:
        return Kind.NORM
    if not is_known(layer):
        return Kind.OTHER
    if isinstance(layer, Scaling):
        return Kind.SCALING
    return Kind.ACTIVATION if isinstance(layer, ACTIVATIONS) else Kind.LINEAR


def every_step(steps: Iterable[Step]) -> list[Step]:
    """Return the steps and those of their branches."""
    return [inner for step in steps for inner in (step, *every_step(step.branch))]
