"""From a spline to a network that computes it, in the units of the data or behind a layer that standardises them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from knotwork.data.coordinates import Coordinates
from knotwork.errors import DataError, NetworkError
from knotwork.network.activations import activation_rule
from knotwork.network.chain import Layer, build
from knotwork.network.compile.function import Function, function_chain
from knotwork.network.compile.units import require_piecewise_linear
from knotwork.pwl.boxes import read_box
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.sources import as_pwl
from knotwork.spline.model import Spline, knots_by_feature

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
        return build(function_chain(function, rule, tolerance=tolerance, box=box), dtype)
    c = _feature_coordinates(model, function)
    inner_box = None if box is None else c.features(read_box(box, len(c.x_centre), flat=True))
    chain = function_chain(function.in_coordinates(c), rule, tolerance=tolerance, box=inner_box)
    if chain.conversion.box is not None:
        raw = torch.from_numpy(read_box(box, len(c.x_centre), flat=True))
        chain = replace(chain, conversion=replace(chain.conversion, box=raw))
    prefix = Layer(torch.diag(torch.from_numpy(1 / c.x_scale)), torch.from_numpy(-c.x_centre / c.x_scale))
    return build(replace(chain, prefix=prefix), dtype)


def as_function(model: Any) -> Function:
    """Return the function of a model; what has none becomes a network no more."""
    try:
        function = as_pwl(model)
    except DataError as error:
        raise NetworkError(str(error)) from None
    if isinstance(function, Spline):
        require_piecewise_linear(function)
    return function


def _feature_coordinates(model: Any, function: Function) -> Coordinates:
    """Coordinates of the features: those of the training rows if the model remembers them, else of the knots."""
    fit = getattr(model, "fit_", None)
    if not isinstance(function, Spline):
        d, outputs = function.inputs, len(function.outputs if isinstance(function, LatticePWL) else function.affine)
    else:
        d, outputs = len(function.feature_names), function.intercept.size
    if fit is not None:
        return Coordinates.of_features(fit.features.centre, fit.features.std, outputs)
    centre, scale = np.zeros(d), np.ones(d)
    if isinstance(function, Spline):  # nothing says where the data of the others lie
        for f, knots in knots_by_feature(function.terms).items():
            centre[f] = np.mean(knots)
            scale[f] = np.std(knots) or abs(centre[f]) or 1.0
    return Coordinates.of_features(centre, scale, outputs)
