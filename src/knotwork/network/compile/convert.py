"""From a model to a network that computes it, with fixed scaling at its ends or folded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from knotwork.data.coordinates import Coordinates
from knotwork.errors import DataError, NetworkError
from knotwork.network.activations import Activation, activation_rule
from knotwork.network.chain import Chain, Conversion, build, enough_for, placement, read_chain
from knotwork.network.compile.function import function_chain
from knotwork.network.compile.units import require_piecewise_linear, spline_sizes
from knotwork.network.fold import folded
from knotwork.network.ready import ready_chain
from knotwork.network.resolve import Resolved, resolve
from knotwork.network.scaling import input_scaling
from knotwork.parameters import Rule, checked, is_number, switch
from knotwork.pwl.boxes import read_box
from knotwork.pwl.through import Function, in_coordinates, inputs_of, outputs_of
from knotwork.spline.model import Spline, knots_by_feature

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@checked(
    activation=Rule("text, a module or None", lambda value: value is None or isinstance(value, (str, nn.Module))),
    fold=switch(),
    dtype=Rule("a floating dtype of torch or None", lambda value: any(value is dtype for dtype in (None, *FLOATS))),
    tolerance=Rule("a number or None", lambda value: value is None or isinstance(value, float) or is_number(value)),
)
def to_network(
    model: Any,
    *,
    activation: str | nn.Module | None = None,
    fold: bool = False,
    dtype: torch.dtype | None = None,
    tolerance: float | None = None,
    box: ArrayLike | None = None,
) -> nn.Sequential:
    """Write what a model computes as an ``nn.Sequential`` of Linear and activation, with fixed scaling at both ends.

    Parameters
    ----------
    model : Spline, LatticePWL, MaxSum, a fitted estimator of knotwork, anything that ``as_pwl`` takes, a ``Pipeline``
        that scales, one-hot encodes or chooses columns in front of an estimator of knotwork, or a
        ``TransformedTargetRegressor`` around one of these
    activation : "relu", "leaky_relu", "prelu" (exact), "softplus", "silu", "gelu", "elu" (within ``tolerance``),
        "relu6", "hardtanh" (exact on ``box``), or a module of those. None is that of the model's trained network, and
        "relu" for models without one. A trained network keeps its own
    fold : False puts fixed scaling at both ends, a ``Scaling`` of the features and one of the responses: the network
        takes raw rows, gives raw responses, and what lies between is trained in standardised coordinates. True gives
        the bare Linear, activation, …, Linear of the same function, for use rather than for training; so does
        ``kw.fold(net)`` later. The scaling is by the training rows where the model remembers them; a bare Spline is
        scaled by its knots, which is a guess: to train further, convert the estimator
    dtype : of the parameters; the default of torch if None, or float64 where responses further than 1e4 stds from zero,
        or beyond 1e±30, would not survive single precision
    tolerance : maximum error of any output; None is 1e-3 of the size of the function's parts. A single hidden layer of
        smooth units so exact is for use: an optimiser loses it, and not one reshaped to two layers (docs/networks.md)
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
    chain = model_chain(parts, activation, fold=fold, tolerance=tolerance, box=box)
    if dtype is None:  # a folded chain does not know how large its responses are
        dtype = enough_for(_coordinates(parts), torch.get_default_dtype())
    return build(chain, dtype)


def _coordinates(parts: Resolved) -> Coordinates | None:
    """Return what scales the responses of a model."""
    if parts.function is not None:
        return scaling_of(parts.function, parts.coordinates)
    return parts.coordinates if parts.network is None else parts.network.scaling or parts.coordinates


def model_chain(
    parts: Resolved,
    activation: str | nn.Module | None = None,
    *,
    fold: bool = False,
    tolerance: float | None = None,
    box: ArrayLike | None = None,
) -> Chain:
    """Return the chain of a model taken apart; the parameters are those of :func:`to_network`."""
    if parts.network is not None:
        chain = _trained(parts, activation, tolerance, box)
    else:
        assert parts.function is not None
        rule = activation_rule("relu" if activation is None else activation)
        if fold:  # knots are taken off exactly
            chain = function_chain(parts.function, rule, tolerance=tolerance, box=box)
        else:
            chain = _scaled(parts.function, parts.coordinates, rule, tolerance, box)
    conversion = replace(chain.conversion, link=parts.link, encoder=parts.encoder)
    chain = replace(chain, conversion=conversion)
    return folded(chain) if fold else chain


def fold(net: nn.Module) -> nn.Sequential:
    """Return the bare Linear, activation, …, Linear that computes what a network with fixed scaling at its ends does.

    Do it once training is over: behind raw features and in front of raw responses, an optimiser's steps are of the
    wrong size. In float32 a column whose mean lies far from zero, in units of its std, loses as many digits.

    Examples
    --------
    >>> from knotwork import Hinge, Spline, to_network
    >>> net = to_network(Spline((Hinge(0, 100.0, 1),), [2.0], [[3.0]], ("x",)))
    >>> [type(layer).__name__ for layer in net], [type(layer).__name__ for layer in fold(net)]
    (['Scaling', 'Linear', 'ReLU', 'Linear', 'Scaling'], ['Linear', 'ReLU', 'Linear'])
    """
    return build(folded(read_chain(net)), *placement(net)).train(net.training)


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


def _trained(parts: Resolved, activation: str | nn.Module | None, tolerance: float | None, box: Any) -> Chain:
    """Return the chain of a trained network, in float64, with fixed scaling at its ends."""
    assert parts.network is not None
    own_activation(parts, activation)
    for name, value in (("tolerance", tolerance), ("box", box)):
        if value is not None:
            raise NetworkError(
                f"{name} is for functions that are converted, a trained network is given as it is, got "
                f"{name}={value!r}; leave it out"
            )
    chain, c = parts.network, parts.coordinates
    if parts.estimator is not None:  # it is what it is, whatever it was converted from
        chain = replace(chain, conversion=Conversion())
    if chain.scaling is None and c is not None:
        return chain.in_coordinates(c).with_scaling(c)
    return chain


def _scaled(
    function: Function, coordinates: Coordinates | None, rule: Activation, tolerance: float | None, box: Any
) -> Chain:
    """Return the chain of a function, with fixed scaling at its ends."""
    c = scaling_of(function, coordinates)
    if isinstance(function, Spline):  # the limits keep their bits
        c = replace(c, limits=function.limits, y_limits=function.output_limits)
        function = replace(function, limits=None, output_limits=None)
    inner = None if tolerance is None else tolerance / float(c.y_scale.max())
    sides = None if box is None else read_box(box, inputs_of(function), flat=True)
    inner_box = None if sides is None else c.features(sides)
    chain = function_chain(in_coordinates(function, c), rule, tolerance=inner, box=inner_box).with_scaling(c)
    conversion, scaling = chain.conversion, input_scaling(c)
    chain = ready_chain(chain.in_coordinates(scaling)).with_scaling(scaling)
    # What was asked for, not what is left of it after the way there and back.
    if tolerance is not None:
        conversion = replace(conversion, bound=min(conversion.bound, tolerance))
    if conversion.box is not None and sides is not None:
        conversion = replace(conversion, box=torch.from_numpy(sides.copy()))
    return replace(chain, conversion=conversion)


def scaling_of(function: Function, coordinates: Coordinates | None) -> Coordinates:
    """Return the coordinates of a network's scaling: by the knots of a function whose data nobody remembers."""
    if coordinates is not None:
        return coordinates
    d, outputs = inputs_of(function), outputs_of(function)
    centre, scale = np.zeros(d), np.ones(d)
    if not isinstance(function, Spline):  # nothing says where its data lie
        return Coordinates.of_features(centre, scale, outputs)
    for f, knots in knots_by_feature(function.terms).items():
        # By a power of two, which changes no bit: squares of 1e200 do not exist.
        exponent = int(np.frexp(np.abs(knots).max())[1])
        near = np.ldexp(knots, -exponent)
        centre[f] = np.ldexp(near.mean(), exponent)
        scale[f] = _first_usable(float(np.ldexp(near.std(), exponent)), abs(centre[f]))
    with np.errstate(over="ignore"):
        sizes = [_first_usable(size) for size in spline_sizes(function).tolist()]
    return Coordinates(centre, scale, function(centre[None]).reshape(-1), np.array(sizes))


def _first_usable(*scales: float) -> float:
    """Return the first scale that one can divide by and multiply with, or 1."""
    tiny = np.finfo(float).tiny
    return float(next((scale for scale in scales if tiny <= scale <= 1 / tiny), 1.0))
