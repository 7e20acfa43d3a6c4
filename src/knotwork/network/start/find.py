"""Which layers of a user's module can hold a spline, and which module of a larger network is meant."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import nn

from knotwork.data.coordinates import Coordinates
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, activation_rule
from knotwork.network.chain import (
    TRANSPARENT,
    require_changeable,
    scaling_coordinates,
    without_scaling,
    working_layers,
)
from knotwork.network.scaling import Scaling

# Where a spline cannot go, it goes beside.
BESIDE = "kw.with_spline(module, model) adds a spline to any module"


@dataclass(frozen=True)
class Found:
    """The Linear layers of a module, the activation between them, and the Scalings at its ends (or None)."""

    linears: list[nn.Linear]
    rule: Activation
    x_scaling: Scaling | None = None
    y_scaling: Scaling | None = None

    @property
    def scaling(self) -> Coordinates | None:
        """The coordinates that the Linear layers compute in; None without Scalings."""
        if self.x_scaling is None and self.y_scaling is None:
            return None
        inputs, outputs = self.linears[0].in_features, self.linears[-1].out_features
        return scaling_coordinates(self.x_scaling, self.y_scaling, inputs, outputs)


def find_chain(module: nn.Module, min_layers: int = 2) -> Found:
    """Return the Linear layers, in the order of their definition, and the activation between them; refuse all else."""
    named = working_layers(module, opened=(nn.Module,))  # whether they run in that order, running them will tell
    inner, x, y = without_scaling([m for _, m in named])
    chain = named[x is not None :][: len(inner)]
    require_no_scaling(chain)
    linears = [(name, m) for name, m in chain if isinstance(m, nn.Linear)]
    if len(linears) < min_layers:
        rule = "two Linear layers (hinges need a hidden layer)" if min_layers == 2 else "one Linear layer"
        raise NetworkError(
            f"the module must hold a chain of at least {rule}, got {len(linears)} in {type(module).__name__}"
        )
    for name, m in linears:
        require_linear(name, m)
    require_follow(linears)
    return Found([m for _, m in linears], _activation_between(chain), x, y)


def require_no_scaling(inner: list[tuple[str, nn.Module]]) -> None:
    """Refuse a Scaling between the layers."""
    for name, m in inner:
        if isinstance(m, Scaling):
            raise NetworkError(f"a Scaling must stand at the ends, got one at '{name}'; leave it out")


def require_linear(name: str, linear: nn.Linear, *, bias: bool = True) -> None:
    """Refuse a Linear whose weights cannot be set, or that has no bias where it needs one."""
    if bias and linear.bias is None:
        raise NetworkError(f"'{name}' must have a bias to place its knots; make it with bias=True")
    own = dict(linear.named_parameters(recurse=False))
    if "weight" not in own or (linear.bias is not None and "bias" not in own):
        raise NetworkError(f"'{name}' is parametrised; initialise first, then register the parametrisation")
    if not all(parameter.requires_grad for parameter in own.values()):
        raise NetworkError(f"'{name}' is frozen (requires_grad=False); initialise first, then freeze")


def is_settable(linear: nn.Linear) -> bool:
    """Whether the weights of a Linear are its own and train."""
    try:
        require_linear("", linear, bias=False)
    except NetworkError:
        return False
    return True


def require_follow(linears: list[tuple[str, nn.Linear]]) -> None:
    """Refuse Linear layers whose widths do not fit one another."""
    for (_, first), (name, second) in itertools.pairwise(linears):
        if first.out_features != second.in_features:
            raise NetworkError(
                f"the Linear layers must follow one another, '{name}' takes {second.in_features} features and the one "
                f"before it makes {first.out_features}"
            )


def _activation_between(chain: list[tuple[str, nn.Module]]) -> Activation:
    activations = [m for _, m in chain if not isinstance(m, nn.Linear)]
    if not activations:
        return activation_rule("relu")  # called in forward, then; running the module will tell
    if len(activations) > 1:  # one may be called several times; running the module will tell
        kinds = [isinstance(m, nn.Linear) for _, m in chain]
        if kinds != [k % 2 == 0 for k in range(len(chain))] or len(chain) % 2 == 0:
            raise NetworkError(
                f"Linear layers and activations must take turns and end with a Linear, got "
                f"{' → '.join(type(m).__name__ for _, m in chain)}"
            )
    return common_rule(activations)


def common_rule(activations: list[nn.Module]) -> Activation:
    """Return the rule of activations that are all alike."""
    try:
        rules = [activation_rule(m) for m in activations]
    except NetworkError as error:
        raise NetworkError(f"{error}; {BESIDE}") from None
    if any(replace(rule, module=rules[0].module) != rules[0] for rule in rules):
        raise NetworkError(f"all activations must be alike, got {', '.join(map(_describe, activations))}")
    return rules[0]


def _describe(activation: nn.Module) -> str:
    slope = f" of slope {float(activation.weight.detach()):g}" if isinstance(activation, nn.PReLU) else ""
    return f"{activation}{slope}"


def find_head(model: nn.Module, head: str) -> nn.Module:
    """Return the submodule of that name, if there is one and it holds numbers."""
    if not isinstance(model, nn.Module):
        raise NetworkError(
            f"init_head_ takes a torch network, got {type(model).__name__}; kw.to_network(model) makes one"
        )
    try:
        module = model.get_submodule(head) if head else None
    except AttributeError:
        module = None
    if module is None:
        raise NetworkError(f"the model has no submodule '{head}'; its heads may be {_candidates(model)}")
    require_weights(model)
    return module


def require_weights(model: nn.Module) -> None:
    """Refuse a module whose parameters hold no numbers yet, or cannot be changed."""
    for name, parameter in model.named_parameters():
        if parameter.is_meta or torch.nn.parameter.is_lazy(parameter):
            raise NetworkError(
                f"the model must hold its weights to be run, got '{name}' without data; load them or run it once first"
            )
    require_changeable(model)


def _candidates(model: nn.Module) -> str:
    """List the submodules that end in a Linear, the last first, since heads come last."""
    found = []
    for name, module in model.named_modules():
        leaves = [m for m in module.modules() if not list(m.children()) and not isinstance(m, TRANSPARENT)]
        if name and isinstance(module, (nn.Linear, nn.Sequential)) and leaves and isinstance(leaves[-1], nn.Linear):
            found.append(f"'{name}'")
    return ", ".join(found[::-1][:8]) or "none: no submodule ends in a Linear (hidden=(…) replaces any other)"


def require_own(model: nn.Module, module: nn.Module, head: str) -> None:
    """Refuse a head that shares its weights with the rest of the model, which is not to change."""
    inside = set(module.modules())
    outside = {id(p) for m in model.modules() if m not in inside for p in m.parameters(recurse=False)}
    for name, parameter in module.named_parameters():
        if id(parameter) in outside:
            raise NetworkError(f"'{head}.{name}' must belong to the head alone, got one that the model uses elsewhere")
