"""Smooth activations as piecewise-linear interpolants, with as few pieces as a tolerance needs on an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError

# Points at which a chord is compared with its curve; what lies between them is bounded by the curvature.
POINTS = 257
# A chord is long enough when its error is this share of what it may be.
ENOUGH = 0.98


@dataclass(frozen=True)
class Curve:
    """A smooth activation.

    slope, curvature : maximum |slope| and |curvature| anywhere
    tail : a bound on the curvature at distance |z| from zero and beyond, None if there is no better one
    slack : maximum difference of the module from its curve
    """

    module: nn.Module
    slope: float
    curvature: float
    tail: Callable[[Floats], Floats] | None = None
    slack: float = 0.0

    def __call__(self, z: Floats) -> Floats:
        """Evaluate in double precision."""
        with torch.no_grad():
            out: Floats = self.module(torch.from_numpy(np.ascontiguousarray(z))).numpy()
        return out


@dataclass(frozen=True)
class Interpolant:
    """knots (n + 1,), the values there, and the bound on the error between the first and the last."""

    knots: Floats
    values: Floats
    error: float


def smooth_curve(module: nn.Module) -> Curve | None:
    """Return the curve of an activation, None for ReLU, which has none to replace; refuse the others."""
    if isinstance(module, nn.ReLU):
        return None
    if isinstance(module, nn.Sigmoid):
        return Curve(module, 0.25, 0.0963, lambda r: np.exp(-r))  # 1/4 and 1/(6√3)
    if isinstance(module, nn.Tanh):
        return Curve(module, 1.0, 0.7699, lambda r: 8 * np.exp(-2 * r))  # 4/(3√3)
    if isinstance(module, nn.Softplus):
        beta = float(module.beta)
        if not beta > 0:
            raise NetworkError(f"Softplus must have beta > 0, got {beta:g}")
        # torch's Softplus is a line beyond its threshold, with a small step there.
        slack = float(np.exp(-float(module.threshold))) / beta
        return Curve(module, 1.0, beta / 4, lambda r: beta * np.exp(-beta * r), slack)
    if isinstance(module, nn.GELU):
        # 2φ(0) = 0.7979; the tanh form has nearly the same, but other tails.
        exact = module.approximate == "none"
        return Curve(module, 1.13, 0.81, (lambda r: (2 + r**2) * np.exp(-(r**2) / 2) * 0.4) if exact else None)
    if isinstance(module, nn.SiLU):
        return Curve(module, 1.1, 0.5, lambda r: (2 + r) * np.exp(-r))
    raise NetworkError(
        f"to_relu replaces Sigmoid, Tanh, Softplus, GELU and SiLU and keeps ReLU, got {type(module).__name__}"
    )


def interpolate(curve: Curve, low: float, high: float, tolerance: float) -> Interpolant:
    """Interpolate a curve on an interval with chords as long as the tolerance allows, from left to right.

    >>> tanh = smooth_curve(nn.Tanh())
    >>> len(interpolate(tanh, -3.0, 3.0, 1e-2).knots) - 1, len(interpolate(tanh, -3.0, 3.0, 1e-4).knots) - 1
    (11, 111)
    """
    if not low < high:
        value = curve(np.array([low]))
        return Interpolant(np.array([low]), value, 0.0)
    knots, values, worst = [low], [float(curve(np.array([low]))[0])], 0.0
    width = high - low
    while knots[-1] < high:
        end, error = _longest_chord(curve, knots[-1], high, min(width, high - knots[-1]), tolerance)
        width = end - knots[-1]
        knots.append(end)
        values.append(float(curve(np.array([end]))[0]))
        worst = max(worst, error)
    return Interpolant(np.array(knots), np.array(values), worst)


def _longest_chord(curve: Curve, start: float, high: float, width: float, tolerance: float) -> tuple[float, float]:
    """Find the end of a chord from ``start`` whose error is just within the tolerance."""
    fits, fails = 0.0, np.inf
    best = (start, 0.0)
    for _ in range(60):
        error = _chord_error(curve, start, width)
        if error <= tolerance:
            fits, best = width, (start + width, error)
            if width >= high - start:
                return high, error
            if error >= ENOUGH * tolerance:
                break
        else:
            fails = width
        # The error of a chord grows with the square of its length, about.
        guess = width * np.sqrt(0.99 * tolerance / error) if error > 0 else 2 * width
        if fits > 0 and np.isfinite(fails) and not fits < guess < fails:
            guess = (fits + fails) / 2
        width = min(guess if np.isfinite(fails) else max(guess, 1.5 * fits), high - start)
        if fits > 0 and fails - fits <= 1e-3 * fits:
            break
    if not best[0] > start:
        raise NetworkError(f"a tolerance of {tolerance:.3g} is below what double precision can interpolate; raise it")
    return best


def _chord_error(curve: Curve, start: float, width: float) -> float:
    t = np.linspace(0.0, 1.0, POINTS)
    z = start + width * t
    values = curve(z)
    distance = np.abs(values - (values[0] + (values[-1] - values[0]) * t))
    # Between two points a curve is at most h²/8 times its curvature away from its own chord.
    curvature = np.full(POINTS - 1, curve.curvature)
    if curve.tail is not None:
        nearest = np.where(z[:-1] * z[1:] > 0, np.minimum(np.abs(z[:-1]), np.abs(z[1:])), 0.0)
        curvature = np.minimum(curvature, curve.tail(nearest))
    between = (width / (POINTS - 1)) ** 2 / 8 * curvature
    rounding = 4 * float(np.finfo(float).eps) * float(np.abs(values).max() + np.abs(z).max())
    return float((np.maximum(distance[:-1], distance[1:]) + between).max()) + 2 * curve.slack + rounding
