"""How a hinge is written with each activation.

A unit sees u = s·z + shift, where z = ±(x − t) and s > 0, and stands for U(z) = (act(u) + lift)/s. Every rule says how
R(z) = max(0, z) and the line z are sums of U(z) and U(−z), and how far off they are:

- ReLU: R(z) = U(z), and z = U(z) − U(−z).
- leaky slope a: R(z) = (U(z) + a·U(−z))/(1 − a²) and z = (U(z) − U(−z))/(1 + a); exact unless |a| = 1.
- Softplus, SiLU, GELU, ELU: U(z) is within C/s of R(z), so s is chosen from a tolerance. For the first three,
  U(z) − U(−z) is z itself.
- ReLU6, Hardtanh: exact while u stays below the upper end, so s is chosen from a box around the data.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from enum import Enum

import numpy as np
from torch import nn

from knotwork.errors import NetworkError


class Kind(Enum):
    """What decides a unit's scale: nothing (any scale is exact), a tolerance, or a box."""

    EXACT = "exact"
    SMOOTH = "smooth"
    BOXED = "boxed"


@dataclass(frozen=True)
class Activation:
    """The rule of one activation.

    towards, away : coefficients of U(z) and U(−z) in R(z)
    line : coefficient of U(z) and, negated, of U(−z) in z
    error : C of the bound C/s (smooth); line_error : the same for z
    shift, lift : see the module's text; top : maximum u for which the unit is exact (boxed)
    """

    module: nn.Module
    kind: Kind
    towards: float = 1.0
    away: float = 0.0
    line: float = 1.0
    error: float = 0.0
    line_error: float = 0.0
    shift: float = 0.0
    lift: float = 0.0
    top: float = float("inf")

    @property
    def unit_error(self) -> float:
        """C of the bound C/s on the error of any unit, bent or straight."""
        return max(self.error, self.line_error)

    def new_module(self) -> nn.Module:
        """Return a fresh activation of this kind, with its own parameters where it has any."""
        return copy.deepcopy(self.module)


NAMES = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "softplus": nn.Softplus,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "relu6": nn.ReLU6,
    "hardtanh": nn.Hardtanh,
}


def activation_rule(activation: str | nn.Module) -> Activation:
    """Return the rule of an activation given by name or as a module; refuse those that cannot hold a hinge.

    >>> activation_rule("leaky_relu").away == 0.01 / (1 - 0.01**2)
    True
    """
    if isinstance(activation, str):
        if activation not in NAMES:
            raise NetworkError(f"activation must be one of {', '.join(NAMES)} or a module of those, got {activation!r}")
        activation = NAMES[activation]()
    if type(activation) is nn.ReLU:
        return Activation(nn.ReLU(), Kind.EXACT)
    if isinstance(activation, nn.LeakyReLU):
        return _leaky(activation, float(activation.negative_slope))
    if isinstance(activation, nn.PReLU):
        require_one_slope(activation)
        return _leaky(activation, float(activation.weight.detach()))
    if isinstance(activation, nn.Softplus):
        beta, threshold = float(activation.beta), float(activation.threshold)
        if not (beta > 0 and threshold >= 0):
            raise NetworkError(f"Softplus must have beta > 0 and threshold >= 0, got {beta:g} and {threshold:g}")
        # It is a line beyond its threshold.
        return Activation(activation, Kind.SMOOTH, error=0.6932 / beta, line_error=float(np.exp(-threshold)) / beta)
    if isinstance(activation, nn.SiLU):
        return Activation(activation, Kind.SMOOTH, error=0.2785)
    if isinstance(activation, nn.GELU):
        return Activation(activation, Kind.SMOOTH, error=0.1701)
    if isinstance(activation, nn.ELU):
        alpha = abs(float(activation.alpha))
        kind = Kind.SMOOTH if alpha > 0 else Kind.EXACT  # without its curve it is a ReLU
        return Activation(activation, kind, error=alpha, line_error=alpha)
    if isinstance(activation, nn.ReLU6):  # a Hardtanh too, so it comes first
        return Activation(activation, Kind.BOXED, top=6.0)
    if isinstance(activation, nn.Hardtanh):
        low, high = float(activation.min_val), float(activation.max_val)
        return Activation(activation, Kind.BOXED, shift=low, lift=-low, top=high)
    raise NetworkError(
        f"a spline cannot be held by {type(activation).__name__}; activations that can: {', '.join(NAMES)}"
    )


def require_one_slope(activation: nn.Module) -> None:
    """Refuse a PReLU with a slope for each unit: units then are not alike, and new ones would have none."""
    if isinstance(activation, nn.PReLU) and activation.weight.numel() != 1:
        raise NetworkError(
            f"PReLU must have one slope for all units, got {activation.weight.numel()}; use nn.PReLU(), or another "
            f"of {', '.join(NAMES)}"
        )


def _leaky(module: nn.Module, slope: float) -> Activation:
    if not np.isfinite(slope):
        raise NetworkError(f"a leaky slope must be finite, got {slope:g}")
    if abs(abs(slope) - 1) < 1e-6:
        raise NetworkError(
            f"a leaky slope must not be ±1, got {slope:g}: every unit is linear or even, and none can bend once; "
            f"activations that can: {', '.join(NAMES)}"
        )
    return Activation(module, Kind.EXACT, towards=1 / (1 - slope**2), away=slope / (1 - slope**2), line=1 / (1 + slope))
