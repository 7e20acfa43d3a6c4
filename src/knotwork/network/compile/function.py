"""Any piecewise-linear function as a chain: its ideal units, then one lowering."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from knotwork.data.coordinates import Coordinates
from knotwork.network.activations import Activation
from knotwork.network.chain import Chain
from knotwork.network.compile.lattice import lattice_units
from knotwork.network.compile.lower import Ideal, lower
from knotwork.network.compile.units import spline_units
from knotwork.pwl.boxes import read_box
from knotwork.pwl.through import Function, inputs_of, outputs_of
from knotwork.spline.model import Spline


def ideal_units(function: Function, rule: Activation) -> Ideal:
    """Return the units of a function, layer by layer."""
    return spline_units(function, rule) if isinstance(function, Spline) else lattice_units(function, rule)


def function_chain(function: Function, rule: Activation, *, tolerance: float | None = None, box: Any = None) -> Chain:
    """Write a function as a chain; ``box`` is (minimum, maximum), each a number or one per feature.

    The limits of a spline and of its outputs become those of the chain's scaling.
    """
    sides = None if box is None else read_box(box, inputs_of(function), flat=True)
    if isinstance(function, Spline) and is_held(function):
        limits, free = function.limits, replace(function, limits=None, output_limits=None)
        ends = Coordinates.identity(inputs_of(function), outputs_of(function))
        ends = replace(ends, limits=limits, y_limits=function.output_limits)
        held = sides if sides is None or limits is None else limits.hold(sides)
        return replace(function_chain(free, rule, tolerance=tolerance, box=held), scaling=ends)
    return lower(ideal_units(function, rule), rule, tolerance=tolerance, sides=sides)


def is_held(spline: Spline) -> bool:
    """Whether the features or the outputs of a spline have limits."""
    return spline.limits is not None or spline.output_limits is not None
