"""Piecewise-linear functions of other inputs and with other outputs: f((x − centre)·factor + offset), gain·f + shift.

Knots move, slopes and coefficients take the factors; nothing is approximated. Sums that cancel are accumulated in
extended precision and rounded once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import moved_limits
from knotwork.data.steps import Affine, Inputs
from knotwork.errors import DataError
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxsum import MaxSum
from knotwork.spline.model import Hinge, Linear, Min, Product, Spline, Term

Function = Spline | LatticePWL | MaxSum
AnyFunction = TypeVar("AnyFunction", Spline, LatticePWL, MaxSum, Function)


def inputs_of(function: Function) -> int:
    """Return the number of features of a function."""
    return len(function.feature_names) if isinstance(function, Spline) else function.inputs


def outputs_of(function: Function) -> int:
    """Return the number of outputs of a function."""
    match function:
        case Spline():
            return function.intercept.size
        case LatticePWL():
            return len(function.outputs)
        case MaxSum():
            return len(function.affine)


def of_inputs(function: Function, inputs: Inputs, names: tuple[str, ...]) -> Function:
    """Return the function of a table's features (N, d') that a function of a model's features (N, d) is.

    Examples
    --------
    >>> from knotwork.data.steps import Affine
    >>> f = Spline((Hinge(0, 1.0, 1),), [0.0], [[3.0]], ("z",))
    >>> inputs = Inputs(np.array([1]), Affine(np.array([10.0]), np.array([0.5]), np.array([0.0])), 2)
    >>> print(of_inputs(f, inputs, ("a", "b")))                  # z = (b − 10)/2
    0 + 1.5·h(b - 12)
    """
    if isinstance(function, Spline):
        return spline_of_inputs(function, inputs, names)
    moved = replace(function, theta=theta_of_inputs(function.theta, inputs))
    return replace(moved, affine=theta_of_inputs(moved.affine, inputs)) if isinstance(moved, MaxSum) else moved


def theta_of_inputs(theta: Floats, inputs: Inputs) -> Floats:
    """Move affine functions [constant, weights]: (n, d + 1) → (n, d' + 1)."""
    weights = theta[:, 1:]
    moved = np.zeros((len(theta), inputs.count + 1))
    np.add.at(moved.T, inputs.place + 1, (weights * inputs.affine.factor).T)
    exact = theta[:, 0] + weights.astype(np.longdouble) @ inputs.affine.constant
    moved[:, 0] = exact.astype(np.float64)
    return moved


def spline_of_inputs(spline: Spline, inputs: Inputs, names: tuple[str, ...]) -> Spline:
    """Return the spline of a table's features that a spline of a model's features is."""
    factor, constants = inputs.affine.factor, inputs.affine.constant
    intercept = spline.intercept.astype(np.longdouble)
    terms: list[Term] = []
    coefs: list[Floats] = []
    for term, beta in zip(spline.terms, spline.coef, strict=True):
        first = term.features[0]
        if isinstance(term, Linear):
            intercept += beta * constants[first]
        elif isinstance(term, Hinge) and factor[first] == 0:  # the feature no longer moves
            intercept += beta * max(0.0, term.sign * (inputs.affine.offset[first] - term.knot))
            continue
        terms.append(term_of_inputs(term, inputs, names))
        gain = factor[first] if isinstance(term, Linear) else abs(factor[first])
        if isinstance(term, Product):
            gain = np.abs(factor[list(term.features)]).prod()
        coefs.append(beta * gain)
    coef = np.array(coefs).reshape(len(terms), spline.intercept.size)
    limits = None if spline.limits is None else inputs.limits(spline.limits)
    return Spline(tuple(terms), intercept.astype(np.float64), coef, names, limits, output_limits=spline.output_limits)


def term_of_inputs(term: Term, inputs: Inputs, names: tuple[str, ...]) -> Term:
    """Return a term with its knots moved; a hinge, Min or Product is then |factor| of its first feature smaller."""

    def moved(hinge: Hinge) -> Hinge:
        sign = hinge.sign if inputs.affine.factor[hinge.feature] > 0 else -hinge.sign
        return Hinge(int(inputs.place[hinge.feature]), inputs.knot(hinge.feature, hinge.knot), sign)

    match term:
        case Linear():
            return Linear(int(inputs.place[term.feature]))
        case Hinge():
            return moved(term)
    hinges = tuple(map(moved, term.hinges))
    used = [h.feature for h in hinges]
    if len(set(used)) < len(used):
        raise DataError(
            f"an interaction must be of different columns, {names[used[0]]!r} meets itself here because the pipeline "
            f"hands it on twice; hand it on once"
        )
    if isinstance(term, Product):
        return Product(hinges)
    # The first slope stays and the others take the ratios of the factors, so that powers of two are exact.
    sizes = np.abs(inputs.affine.factor[list(term.features)])
    slopes = tuple(slope * float(size / sizes[0]) for slope, size in zip(term.slopes, sizes, strict=True))
    return Min(hinges, slopes)


def with_outputs(function: Function, gain: Floats, shift: Floats) -> Function:
    """Return gain·f + shift, output by output; gains (p,) are positive.

    >>> f = LatticePWL([[0.0, 1.0], [2.0, 0.0]], [(0,), (1,)])                  # min(x, 2)
    >>> with_outputs(f, np.array([10.0]), np.array([1.0]))([[1.0], [5.0]])
    array([11., 21.])
    """
    if isinstance(function, Spline):
        return spline_with_outputs(function, gain, shift)
    if isinstance(function, MaxSum):
        affine = function.affine * gain[:, None]
        affine[:, 0] += shift
        return replace(function, coef=function.coef * gain, affine=affine)
    parts = []
    for sets, factor, constant in zip(function.outputs, gain, shift, strict=True):
        theta = function.theta * factor
        theta[:, 0] += constant
        parts.append(LatticePWL(theta, sets))
    single = len(parts) == 1 and function.sets == function.outputs[0]
    # Outputs share pieces; scaled by factors of their own they no longer do.
    return parts[0] if single else LatticePWL.stack(parts).simplify()


def in_coordinates(function: AnyFunction, c: Coordinates) -> AnyFunction:
    """Return g with g(c.features(x)) = c.responses(f(x)); with ``c.inverse`` it is the way back.

    >>> f = Spline((Hinge(0, 1.0, 1),), intercept=[2.0], coef=[[3.0]], feature_names=("x",))
    >>> print(in_coordinates(f, Coordinates(np.array([1.0]), np.array([2.0]), np.array([2.0]), np.array([3.0]))))
    0 + 2·h(x)
    """
    d = inputs_of(function)
    inputs = Inputs(np.arange(d), Affine(np.zeros(d), c.x_scale, c.x_centre), d)
    names = function.feature_names if isinstance(function, Spline) else ()
    moved = of_inputs(function, inputs, names)
    return with_outputs(moved, 1 / c.y_scale, -c.y_centre / c.y_scale)  # type: ignore[return-value]


def spline_with_outputs(spline: Spline, gain: Floats, shift: Floats) -> Spline:
    """Return gain·f + shift of a spline, output by output."""
    held = None if spline.output_limits is None else moved_limits(spline.output_limits, gain, shift)
    return replace(spline, intercept=spline.intercept * gain + shift, coef=spline.coef * gain, output_limits=held)
