"""From a model to a network that computes it, in the units of the data or behind a layer that standardises them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from knotwork.data.coordinates import Coordinates
from knotwork.data.feature_moments import FeatureMoments
from knotwork.errors import DataError, NetworkError
from knotwork.network.activations import Activation, activation_rule
from knotwork.network.chain import Chain, Conversion, Layer, build
from knotwork.network.compile.function import function_chain
from knotwork.network.compile.units import require_piecewise_linear
from knotwork.network.resolve import Resolved, resolve
from knotwork.network.rewire import (
    centred_inputs,
    far_centre,
    folded_inputs,
    shifted,
    standardised_inputs,
    with_centring,
)
from knotwork.pwl.boxes import read_box
from knotwork.pwl.through import Function, inputs_of, of_inputs, outputs_of
from knotwork.spline.model import Spline, knots_by_feature

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def to_network(
    model: Any,
    *,
    activation: str | nn.Module | None = None,
    fold: bool = True,
    dtype: torch.dtype | None = None,
    tolerance: float | None = None,
    box: ArrayLike | None = None,
) -> nn.Sequential:
    """Write what a model computes as a plain ``nn.Sequential`` of Linear and activation.

    Parameters
    ----------
    model : Spline, LatticePWL, MaxSum, a fitted estimator of knotwork, anything that ``as_pwl`` takes, a ``Pipeline``
        that scales, one-hot encodes or chooses columns in front of one of these, or a ``TransformedTargetRegressor``
        around one
    activation : "relu", "leaky_relu", "prelu" (exact), "softplus", "silu", "gelu", "elu" (within ``tolerance``),
        "relu6", "hardtanh" (exact on ``box``), or a module of those. None is that of the model's trained network, and
        "relu" for models without one. A trained network keeps its own
    fold : True takes raw features; where the table of a trained network, a lattice or a sum of maxima lies more than
        1000 stds from zero, a first layer takes off the centres, because weights that did it would round. False puts a
        frozen affine layer first that standardises the features, which suits training
    dtype : of the parameters; the default of torch if None
    tolerance : maximum by which any output may be off; None is 1e-3 of the size of the function's parts
    box : (minimum, maximum), each a number or one per feature

    Returns
    -------
    Sequential : (N, d) → (N, outputs), with parameters of its own. Its ``conversion`` has the ``bound`` on its error,
        the ``box``, the ``encoder`` that makes a table of the model's columns into the matrix (N, d), and the ``link``:
        the network of a ``TransformedTargetRegressor`` of ``np.log`` gives log(y), and its link is "log"

    Notes
    -----
    The network computes what ``model.predict`` does, for classifiers ``decision_function``. Of a trained estimator it
    is the trained network; the network before training is ``model.start_network_``, the spline alone
    ``to_network(model.spline_)``.

    There is one hidden layer per degree of the spline; :mod:`knotwork.network.compile.units` counts their units. A
    spline with products is refused: it is not piecewise linear.

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
    parts = resolve_network(model)
    if parts.network is not None:
        chain = _trained(parts, activation, fold, tolerance, box)
    else:
        assert parts.function is not None
        rule = activation_rule("relu" if activation is None else activation)
        chain = _converted(parts.function, parts.features, rule, fold, tolerance, box)
    conversion = replace(chain.conversion, link=parts.link, encoder=parts.encoder)
    return build(replace(chain, conversion=conversion), dtype)


def resolve_network(model: Any) -> Resolved:
    """Take apart a model that is to become a network; what has products becomes none."""
    try:
        parts = resolve(model)
    except DataError as error:
        raise NetworkError(str(error)) from None
    if isinstance(parts.function, Spline):
        require_piecewise_linear(parts.function)
    return parts


def own_activation(parts: Resolved, activation: str | nn.Module | None) -> None:
    """Refuse an activation that is not the trained network's own."""
    assert parts.network is not None
    if activation is None:
        return
    asked = activation_rule(activation).module
    for own in parts.network.modules:
        if type(own) is not type(asked) or own.extra_repr() != asked.extra_repr():
            raise NetworkError(
                f"a trained network keeps its activation, {own}, got activation={activation!r}; leave it out, or "
                f"convert the spline that it began as, to_network(model.spline_, activation=…)"
            )


def _trained(
    parts: Resolved, activation: str | nn.Module | None, fold: bool, tolerance: float | None, box: Any
) -> Chain:
    """Return the chain of a trained network, in float64."""
    assert parts.network is not None
    own_activation(parts, activation)
    for name, value in (("tolerance", tolerance), ("box", box)):
        if value is not None:
            raise NetworkError(
                f"{name} is for functions that are converted, a trained network is given as it is, got "
                f"{name}={value!r}; leave it out"
            )
    chain = replace(parts.network, conversion=Conversion())
    features = parts.features
    if fold:
        chain = folded_inputs(chain)
        return chain if features is None else centred_inputs(chain, features)
    return chain if features is None else standardised_inputs(chain, features)


def _converted(
    function: Function, features: FeatureMoments | None, rule: Activation, fold: bool, tolerance: float | None, box: Any
) -> Chain:
    """Return the chain of a function, raw features in or behind a map that standardises them."""
    if fold:
        centre = None if isinstance(function, Spline) or features is None else far_centre(features)
        if centre is None or box is not None:  # knots are taken off exactly
            return function_chain(function, rule, tolerance=tolerance, box=box)
        near = of_inputs(function, shifted(centre), ())
        return with_centring(function_chain(near, rule, tolerance=tolerance), centre)
    d, outputs = inputs_of(function), outputs_of(function)
    moments = _knot_moments(function, d) if features is None else features
    c = Coordinates.of_features(moments.centre, moments.std, outputs)
    inner_box = None if box is None else c.features(read_box(box, d, flat=True))
    chain = function_chain(function.in_coordinates(c), rule, tolerance=tolerance, box=inner_box)
    if chain.conversion.box is not None:
        raw = torch.from_numpy(read_box(box, d, flat=True))
        chain = replace(chain, conversion=replace(chain.conversion, box=raw))
    prefix = Layer(torch.diag(torch.from_numpy(1 / c.x_scale)), torch.from_numpy(-c.x_centre / c.x_scale))
    return replace(chain, prefix=prefix)


def _knot_moments(function: Function, features: int) -> FeatureMoments:
    """Centre and scale of the features by the knots of a function whose data nobody remembers."""
    centre, scale = np.zeros(features), np.ones(features)
    if isinstance(function, Spline):  # nothing says where the data of the others lie
        for f, knots in knots_by_feature(function.terms).items():
            centre[f] = np.mean(knots)
            scale[f] = np.std(knots) or abs(centre[f]) or 1.0
    return FeatureMoments(centre, scale)
