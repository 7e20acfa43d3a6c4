"""From a spline to a network that computes it, in the units of the data or behind a layer that standardises them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from knotwork.arrays import Floats
from knotwork.errors import DataError, NetworkError
from knotwork.network.activations import Activation, activation_rule
from knotwork.network.chain import Chain, Layer, build
from knotwork.network.compile.assemble import box_sides, spline_chain
from knotwork.network.compile.piecewise import piecewise_chain, rescale_piecewise
from knotwork.network.compile.units import require_piecewise_linear
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxsum import MaxSum
from knotwork.pwl.sources import as_pwl
from knotwork.spline.model import Hinge, Linear, Min, Product, Spline, Term, knots_by_feature

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def to_network(
    model: Any,
    *,
    activation: str | nn.Module = "relu",
    fold: bool = True,
    dtype: torch.dtype | None = None,
    tolerance: float | None = None,
    box: ArrayLike | None = None,
) -> nn.Sequential:
    """Write a piecewise-linear function as a plain ``nn.Sequential`` of Linear and activation.

    Parameters
    ----------
    model : Spline, LatticePWL, MaxSum, a fitted estimator of knotwork, or anything that ``as_pwl`` takes
    activation : "relu", "leaky_relu", "prelu" (exact), "softplus", "silu", "gelu", "elu" (within ``tolerance``),
        "relu6", "hardtanh" (exact on ``box``), or a module of those
    fold : True takes raw features. False puts a frozen affine layer first that standardises them, which suits training
    dtype : of the parameters; the default of torch if None
    tolerance : most by which any output may be off; None is 1e-3 of the size of the function's parts
    box : (least, greatest), each a number or one per feature

    Returns
    -------
    Sequential : (N, d) → (N, outputs). Its ``conversion`` has the ``bound`` on its error and the ``box``.

    Notes
    -----
    There is one hidden layer per degree of the spline; :mod:`knotwork.network.compile.units` counts their units. A
    spline with products is refused: it is not piecewise linear.

    The inputs are the spline's encoded features, in the order of ``spline.feature_names``. For a frame with categories,
    ``estimator.encoder_.encode(frame)`` is the matrix to turn into a tensor.

    A lattice with M sets of at most k pieces takes ⌈log₂ M⌉ + ⌈log₂ k⌉ hidden layers (at least one) and at most three
    units a pair; ``network_size`` counts them.

    Examples
    --------
    >>> from knotwork import Hinge, Spline
    >>> f = Spline((Hinge(0, 1.0, 1), Hinge(0, 1.0, -1)), [2.0], [[3.0], [0.5]], ("x",))
    >>> net = to_network(f, dtype=torch.float64)
    >>> net(torch.tensor([[0.0], [2.0]], dtype=torch.float64)).ravel().tolist(), f([[0.0], [2.0]]).tolist()
    ([2.5, 5.0], [2.5, 5.0])
    """
    function = as_function(model)
    rule = activation_rule(activation)
    if fold:
        return build(_chain(function, rule, tolerance, box), dtype)
    centre, scale = _feature_units(model, function)
    inner = _rescale(function, centre, scale)
    sides = None if box is None else box_sides(box, len(centre))
    chain = _chain(inner, rule, tolerance, None if sides is None else (sides - centre) / scale)
    conversion = chain.conversion
    if sides is not None and conversion.box is not None:
        conversion = replace(conversion, box=torch.from_numpy(sides))
    prefix = Layer(torch.diag(torch.from_numpy(1 / scale)), torch.from_numpy(-centre / scale))
    return build(replace(chain, prefix=prefix, conversion=conversion), dtype)


def as_function(model: Any) -> Spline | LatticePWL | MaxSum:
    """Return the function of a model; what has none becomes a network no more."""
    try:
        function = as_pwl(model)
    except DataError as error:
        raise NetworkError(str(error)) from None
    if isinstance(function, Spline):
        require_piecewise_linear(function)
    return function


def _chain(function: Spline | LatticePWL | MaxSum, rule: Activation, tolerance: float | None, box: Any) -> Chain:
    if isinstance(function, Spline):
        return spline_chain(function, rule, tolerance=tolerance, box=box)
    sides = None if box is None else box_sides(box, function.inputs)
    return piecewise_chain(function, rule, tolerance=tolerance, sides=sides)


def _rescale(function: Spline | LatticePWL | MaxSum, centre: Floats, scale: Floats) -> Spline | LatticePWL | MaxSum:
    if isinstance(function, Spline):
        return rescale_spline(function, centre, scale)
    return rescale_piecewise(function, centre, scale)


def _feature_units(model: Any, spline: Spline | LatticePWL | MaxSum) -> tuple[Floats, Floats]:
    """Centre and scale of the features: those of the training rows if the model remembers them, else of the knots."""
    fit = getattr(model, "fit_", None)
    if fit is not None:
        return fit.features.centre, fit.features.std
    if not isinstance(spline, Spline):  # nothing says where its data lie
        return np.zeros(spline.inputs), np.ones(spline.inputs)
    d = len(spline.feature_names)
    centre, scale = np.zeros(d), np.ones(d)
    for f, knots in knots_by_feature(spline.terms).items():
        centre[f] = np.mean(knots)
        scale[f] = np.std(knots) or abs(centre[f]) or 1.0
    return centre, scale


def rescale_spline(
    spline: Spline, centre: Floats, scale: Floats, y_centre: Floats | float = 0.0, y_scale: Floats | float = 1.0
) -> Spline:
    """Return g with g((x − centre)/scale) = (f(x) − y_centre)/y_scale.

    The first slope of a Min stays; the others take the ratio of the scales, so that powers of two are exact.
    """

    def moved(hinge: Hinge) -> Hinge:
        f = hinge.feature
        return Hinge(f, float((hinge.knot - centre[f]) / scale[f]), hinge.sign)

    terms: list[Term] = []
    intercept = spline.intercept.copy()
    coef = spline.coef.copy()
    for m, term in enumerate(spline.terms):
        first = term.features[0]
        match term:
            case Linear():
                intercept += spline.coef[m] * centre[first]
                terms.append(term)
            case Hinge():
                terms.append(moved(term))
            case Min():
                ratios = [float(scale[f] / scale[first]) for f in term.features]
                slopes = tuple(slope * ratio for slope, ratio in zip(term.slopes, ratios, strict=True))
                terms.append(Min(tuple(map(moved, term.hinges)), slopes))
            case Product():
                coef[m] *= np.prod(scale[list(term.features[1:])])
                terms.append(Product(tuple(map(moved, term.hinges))))
        coef[m] *= scale[first]
    return Spline(tuple(terms), (intercept - y_centre) / y_scale, coef / y_scale, spline.feature_names)
