"""Which layers of a user's module hold a spline, which pass it on, and which are to be silent at first.

The module's forward is read by :mod:`knotwork.network.start.trace`. Where that fails, its Linear layers are taken in
the order of their definition, and running the module tells whether that was right.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import fx, nn

from knotwork.data.coordinates import Coordinates
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation
from knotwork.network.chain import require_rows_kept, scaling_coordinates, without_scaling
from knotwork.network.scaling import Scaling
from knotwork.network.start.find import (
    BESIDE,
    common_rule,
    find_chain,
    require_follow,
    require_linear,
    require_no_scaling,
    require_weights,
)
from knotwork.network.start.trace import Kind, Step, Traced, every_step, trace


@dataclass(frozen=True)
class Stream:
    """The ends of a residual stream: ``stem`` writes it, blocks add to it, ``head`` reads it."""

    stem: nn.Linear
    head: nn.Linear


@dataclass(frozen=True)
class Route:
    """The way of a spline through a module.

    linears : hold the layers of the chain, one each
    rule : of the activation between them
    norms : the BatchNorms on the way, each with the Linear whose missing bias it makes up for (or None); they change
        nothing in use
    input_norm : a BatchNorm that scales the rows
    silenced : the last layers of branches, which are to be zero
    inner : the other layers of branches
    stream : set where the activation is inside a residual block, whose Linear layers ``linears`` are then
    graph : the module's forward; None where it cannot be read
    """

    linears: list[nn.Linear]
    rule: Activation
    x_scaling: Scaling | None = None
    y_scaling: Scaling | None = None
    norms: tuple[tuple[nn.BatchNorm1d, nn.Linear | None], ...] = ()
    input_norm: nn.BatchNorm1d | None = None
    silenced: tuple[nn.Module, ...] = ()
    inner: tuple[nn.Module, ...] = ()
    stream: Stream | None = None
    graph: fx.GraphModule | None = None

    @property
    def first(self) -> nn.Linear:
        """The Linear that the rows come to first."""
        return self.linears[0] if self.stream is None else self.stream.stem

    @property
    def last(self) -> nn.Linear:
        """The Linear that gives the outputs."""
        return self.linears[-1] if self.stream is None else self.stream.head

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of the hidden layers that hold the spline."""
        return tuple(linear.out_features for linear in self.linears[:-1])

    @property
    def scaling(self) -> Coordinates | None:
        """The coordinates between the Scalings at the module's ends; None without Scalings."""
        if self.x_scaling is None and self.y_scaling is None:
            return None
        return scaling_coordinates(self.x_scaling, self.y_scaling, self.first.in_features, self.last.out_features)


def find_route(module: nn.Module) -> Route:
    """Find the way of a spline through a module; refuse where there is none, with the reason."""
    require_weights(module)
    traced = trace(module)
    if traced is None:  # whether its layers run in the order of their definition, running the module will tell
        found = find_chain(module)
        route, calls = Route(found.linears, found.rule, found.x_scaling, found.y_scaling), {}
    else:
        route, calls = _route(module, traced), traced.calls
    _require_own(module, route, calls)
    for parameter in (p for linear in route.linears for p in linear.parameters()):
        if parameter.dtype not in (torch.float32, torch.float64):
            raise NetworkError(
                f"the weights must be float32 or float64, got {parameter.dtype}; initialise first, then convert"
            )
    scalings = [scaling for scaling in (route.x_scaling, route.y_scaling) if scaling is not None]
    dtypes = {p.dtype for linear in route.linears for p in linear.parameters()} | {s.dtype for s in scalings}
    if len(dtypes) > 1:
        raise NetworkError(
            f"all layers must be of one dtype, got {' and '.join(sorted(map(str, dtypes)))}; call module.double() or "
            f"module.float() first"
        )
    return route


def _route(module: nn.Module, traced: Traced) -> Route:
    _require_passable(traced.steps)
    # Functions that are not known may change nothing: running the module will tell.
    unknown = [step.name for step in traced.steps if step.kind is Kind.OTHER]
    steps, x, y = _without_scaling([step for step in traced.steps if step.kind is not Kind.OTHER])
    linears = [step for step in steps if step.kind is Kind.LINEAR]
    if len(linears) < 2:
        raise NetworkError(
            f"the module must hold a chain of at least two Linear layers (hinges need a hidden layer), got "
            f"{len(linears)} in {type(module).__name__}{_summed(steps)}; {BESIDE}"
        )
    block = _block(steps, linears)
    # The way leads through the block that bends, and along the skip of every other.
    way = [inner for step in steps for inner in ((*step.branch, step) if step is block else (step,))]
    hidden = [step for step in way if step.kind in (Kind.LINEAR, Kind.ACTIVATION)]
    if block is None and all(step.kind is Kind.LINEAR for step in hidden):
        _require_passable([inner for step in steps for inner in step.branch])
    if block is None and not _take_turns(hidden):
        functions = f" and {', '.join(unknown)} in its forward" if unknown else ""
        raise NetworkError(
            f"Linear layers and activations must take turns and end with a Linear, got "
            f"{' → '.join(type(step.module).__name__ for step in hidden)}{functions}; {BESIDE}"
        )
    require_follow([(step.name, _linear(step)) for step in linears])
    beside = [step for step in way if step.kind is Kind.SUM and step is not block]
    silenced = [_end(step) for step in beside]
    holding = linears if block is None else [step for step in block.branch if step.kind is Kind.LINEAR]
    inner = [step.module for sum_ in beside for step in every_step(sum_.branch)]
    norms, input_norm = _norms(way)
    return Route(
        linears=[_linear(step) for step in holding],
        rule=common_rule([step.module for step in hidden if step.kind is Kind.ACTIVATION and step.module is not None]),
        x_scaling=x,
        y_scaling=y,
        norms=norms,
        input_norm=input_norm,
        silenced=tuple(silenced),
        inner=tuple(m for m in inner if isinstance(m, (nn.Linear, nn.BatchNorm1d)) and m not in silenced),
        stream=None if block is None else Stream(_linear(linears[0]), _linear(linears[1])),
        graph=traced.graph,
    )


def _summed(steps: list[Step]) -> str:
    """Name what is added to the way, which the spline does not take."""
    return " along the skip of its sum" if any(step.kind is Kind.SUM for step in steps) else ""


def _require_passable(steps: Iterable[Step]) -> None:
    for step in steps:
        if step.kind is Kind.JOIN:
            raise NetworkError(
                f"the rows must take one way through the module, apart from residual sums, got {step.name}() of "
                f"several in its forward; {BESIDE}"
            )
        if step.kind is Kind.OTHER and step.called and step.module is not None:
            require_rows_kept(step.name, step.module)
            raise NetworkError(
                f"a spline passes through Linear layers, activations, BatchNorm1d and residual sums, got "
                f"{type(step.module).__name__} at '{step.name}'; {BESIDE}"
            )


def _without_scaling(steps: list[Step]) -> tuple[list[Step], Scaling | None, Scaling | None]:
    """Split a Scaling at either end off; refuse one elsewhere."""
    _, x, y = without_scaling([step.module or nn.Identity() for step in steps])
    inner = steps[x is not None : len(steps) - (y is not None)]
    require_no_scaling([(step.name, step.module) for step in inner if step.module is not None])
    return inner, x, y


def _block(steps: list[Step], linears: list[Step]) -> Step | None:
    """Return the first residual sum of Linear, activation, Linear, if the way itself has no activation."""
    if len(linears) != 2 or any(step.kind is Kind.ACTIVATION for step in steps) or steps[0].kind is Kind.SUM:
        return None
    for step in steps:
        kinds = [inner.kind for inner in step.branch if inner.kind is not Kind.NORM]
        if kinds == [Kind.LINEAR, Kind.ACTIVATION, Kind.LINEAR]:
            return step
    return None


def _take_turns(hidden: list[Step]) -> bool:
    """Whether every two Linear layers have an activation in between; ReLU may come twice, which is as good as once."""
    kinds = [step.kind for step in hidden]
    again = [a.kind is b.kind is Kind.ACTIVATION for a, b in itertools.pairwise(hidden)]
    if any(twice and type(hidden[k].module) is not nn.ReLU for k, twice in enumerate(again)):
        return False
    once = [kind for k, kind in enumerate(kinds) if not (k > 0 and again[k - 1])]
    return once == [Kind.LINEAR if k % 2 == 0 else Kind.ACTIVATION for k in range(len(once))] and len(once) % 2 == 1


def _linear(step: Step) -> nn.Linear:
    assert isinstance(step.module, nn.Linear)
    return step.module


def _end(step: Step) -> nn.Module:
    """Return the last layer of the branch that a sum adds; without it the branch adds nothing."""
    last = step.branch[-1] if step.branch else None
    if last is None or last.kind not in (Kind.LINEAR, Kind.NORM):
        got = "the way itself" if last is None else f"{type(last.module).__name__ if last.called else last.name}"
        raise NetworkError(
            f"what a residual sum adds must end with a Linear or a BatchNorm1d, which is zero at first, got {got}; "
            f"{BESIDE}"
        )
    if isinstance(last.module, nn.Linear):
        require_linear(last.name, last.module, bias=False)
        return last.module
    return _require_norm(last, affine=True)


def _norms(
    way: list[Step],
) -> tuple[tuple[tuple[nn.BatchNorm1d, nn.Linear | None], ...], nn.BatchNorm1d | None]:
    """Return the BatchNorms on the way, with the Linear whose bias each makes up for, and the one in front of all."""
    norms: list[tuple[nn.BatchNorm1d, nn.Linear | None]] = []
    input_norm = None
    for k, step in enumerate(way):
        if step.kind is Kind.LINEAR:
            behind = next((s for s in way[k + 1 :] if s.kind is not Kind.SUM), None)
            has_norm = behind is not None and behind.kind is Kind.NORM
            require_linear(step.name, _linear(step), bias=not has_norm)
        elif step.kind is Kind.NORM:
            ahead = next((s for s in reversed(way[:k]) if s.kind is not Kind.SUM), None)
            if ahead is None and input_norm is None:
                input_norm = _require_norm(step, affine=False)
            else:
                linear = ahead.module if ahead is not None and isinstance(ahead.module, nn.Linear) else None
                norms.append((_require_norm(step, affine=True), linear if linear and linear.bias is None else None))
    return tuple(norms), input_norm


def _require_norm(step: Step, *, affine: bool) -> nn.BatchNorm1d:
    norm = step.module
    assert isinstance(norm, nn.BatchNorm1d)
    if norm.running_mean is None:
        raise NetworkError(
            f"a BatchNorm1d must keep running statistics, '{step.name}' does not; make it with track_running_stats=True"
        )
    if affine and norm.weight is None:
        raise NetworkError(f"'{step.name}' must have a weight and a bias; make it with affine=True")
    if norm.weight is not None and not (norm.weight.requires_grad and norm.bias.requires_grad):
        raise NetworkError(f"'{step.name}' is frozen (requires_grad=False); initialise first, then freeze")
    return norm


def _require_own(module: nn.Module, route: Route, calls: dict[int, int]) -> None:
    """Refuse layers that are called twice, and parameters that two layers share: one setting would undo the other."""
    owners: dict[int, set[int]] = {}
    for m in module.modules():
        for p in m.parameters(recurse=False):
            owners.setdefault(id(p), set()).add(id(m))
    ends = [] if route.stream is None else [route.stream.stem, route.stream.head]
    set_ = [*route.linears, *ends, *(norm for norm, _ in route.norms), *route.silenced]
    if route.input_norm is not None:
        set_.append(route.input_norm)
    names = {id(m): name for name, m in module.named_modules()}
    for layer in set_:
        shared = any(len(owners[id(p)]) > 1 for p in layer.parameters(recurse=False))
        if shared or calls.get(id(layer), 1) > 1 or sum(layer is other for other in set_) > 1:
            raise NetworkError(
                f"a layer that holds the spline must stand in one place with weights of its own, "
                f"'{names[id(layer)]}' is used twice or shares them; {BESIDE}"
            )
