"""From a spline to a network that computes it.

Each hinge is one unit: R(x − t) has weight +1 and bias −t, R(t − x) weight −1 and bias +t; a linear term is two units,
x = R(x) − R(−x), so that it holds everywhere. Units are then balanced: input weights and output weights of a unit get
about the same size, by a power of two, which changes no bit of the function and keeps training calm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from knotwork.errors import DataError, NetworkError
from knotwork.network.activations import Activation, Kind, activation_rule
from knotwork.network.chain import Chain, Conversion, Layer, build
from knotwork.network.piecewise import piecewise_chain, rescale_piecewise
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxsum import MaxSum
from knotwork.pwl.sources import as_pwl
from knotwork.spline.model import Floats, Hinge, Linear, Spline

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Of the size of the spline's parts: what smooth activations may be off when no tolerance is given.
DEFAULT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Units:
    """Hidden units of a spline: U(direction·(x[feature] − knot)), and what they add to each output.

    feature, knot, direction : (H,); coef : (H, p)
    """

    feature: NDArray[np.int64]
    knot: Floats
    direction: NDArray[np.int64]
    coef: Floats


def spline_units(spline: Spline, rule: Activation) -> tuple[Units, Floats]:
    """Write the terms as units, shared where terms share them; also return how far off each output may be, times s."""
    places: dict[tuple[int, float, int], int] = {}
    coefs: list[Floats] = []
    error = np.zeros(spline.intercept.size)

    def add(feature: int, knot: float, direction: int, coef: Floats) -> None:
        if (feature, knot, direction) not in places:
            places[feature, knot, direction] = len(coefs)
            coefs.append(np.zeros(spline.intercept.size))
        coefs[places[feature, knot, direction]] += coef

    for term, beta in zip(spline.terms, spline.coef, strict=True):
        if isinstance(term, Linear):
            add(term.feature, 0.0, 1, rule.line * beta)
            add(term.feature, 0.0, -1, -rule.line * beta)
            error += np.abs(beta) * rule.line_error
        elif isinstance(term, Hinge):
            add(term.feature, term.knot, term.sign, rule.towards * beta)
            if rule.away != 0:
                add(term.feature, term.knot, -term.sign, rule.away * beta)
            error += np.abs(beta) * rule.error
        else:
            raise NetworkError(f"a term of kind {type(term).__name__} cannot be written as units of one layer")
    keys = list(places)
    return Units(
        feature=np.array([k[0] for k in keys], dtype=np.int64),
        knot=np.array([k[1] for k in keys]),
        direction=np.array([k[2] for k in keys], dtype=np.int64),
        coef=np.array(coefs).reshape(len(keys), spline.intercept.size),
    ), error


def count_units(spline: Spline, activation: str | nn.Module = "relu") -> int:
    """Width that a spline needs."""
    return len(spline_units(spline, activation_rule(activation))[0].knot)


def spline_chain(
    spline: Spline, rule: Activation, *, tolerance: float | None = None, box: ArrayLike | None = None
) -> Chain:
    """Write a spline as a chain with one hidden layer."""
    units, error = spline_units(spline, rule)
    if len(units.knot) == 0:  # a constant: one unit that adds nothing, so that there is a layer to grow
        units = Units(np.zeros(1, np.int64), np.zeros(1), np.ones(1, np.int64), np.zeros((1, spline.intercept.size)))
    size = np.abs(units.coef).max(axis=1)
    bound, sides = 0.0, None
    if rule.kind is Kind.EXACT:
        # Power of two nearest to √|β|: weight s in, β/s out.
        s = np.exp2(np.clip(np.round(np.log2(np.where(size > 0, size, 1.0)) / 2), -500, 500))
    elif rule.kind is Kind.SMOOTH:
        if tolerance is None:
            tolerance = DEFAULT_TOLERANCE * _spread(spline)
        if not 0 < tolerance < np.inf:
            raise NetworkError(f"tolerance must be positive, got {tolerance}")
        # Each unit may use an equal share of the tolerance.
        s = np.where(size > 0, size, 1.0) * max(rule.error, rule.line_error) * len(size) / tolerance
        bound = float(tolerance) if error.any() else 0.0
    else:
        if box is None:
            raise NetworkError(
                f"{type(rule.module).__name__} holds a spline only on a box; pass box=(least, greatest) of the features"
            )
        sides = _box_sides(box, len(spline.feature_names))
        ends = units.direction * (sides[:, units.feature] - units.knot)
        reach = ends.max(axis=0)
        # A unit that is zero all over the box may have any scale: its distance, so that it adds no rounding of its own.
        reach = np.where(reach > 0, reach, np.abs(ends).max(axis=0))
        reach = np.where(reach > 0, reach, 1.0)
        s = np.exp2(np.floor(np.log2((rule.top - rule.shift) / reach)))
    weight = np.zeros((len(s), len(spline.feature_names)))
    weight[np.arange(len(s)), units.feature] = s * units.direction
    bias = -s * units.direction * units.knot + rule.shift
    out = units.coef / s[:, None]
    return Chain(
        hidden=(Layer(torch.from_numpy(weight), torch.from_numpy(bias)),),
        output=Layer(
            torch.from_numpy(np.ascontiguousarray(out.T)),
            torch.from_numpy(spline.intercept + rule.lift * out.sum(axis=0)),
        ),
        activation=rule,
        modules=(rule.new_module(),),
        conversion=Conversion(bound=bound, box=None if sides is None else torch.from_numpy(sides.copy())),
    )


def _box_sides(box: Any, features: int) -> Floats:
    """Read a box: (least, greatest), each a number or one per feature → (2, features)."""
    try:
        least, greatest = box
        sides = np.stack([np.broadcast_to(np.asarray(side, dtype=np.float64), features) for side in (least, greatest)])
    except (TypeError, ValueError) as error:
        raise NetworkError(
            f"box must be (least, greatest), each a number or one per feature ({features}), got {box!r}"
        ) from error
    if not (np.isfinite(sides).all() and (sides[0] <= sides[1]).all()):
        raise NetworkError("box must be (least, greatest) with finite sides in order")
    return sides


def _spread(spline: Spline) -> float:
    """Size of the spline's parts: Σ|β|·(spread of the feature's knots), at its greatest over the outputs."""
    total = np.zeros(spline.intercept.size)
    for term, beta in zip(spline.terms, spline.coef, strict=True):
        knots = [t.knot for t in spline.terms if isinstance(t, Hinge) and t.feature == term.feature]
        width = max(knots) - min(knots) if len(set(knots)) > 1 else max([abs(k) for k in knots], default=1.0)
        total += np.abs(beta) * (width or 1.0)
    return float(total.max()) or 1.0


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
    sides = None if box is None else _box_sides(box, len(centre))
    chain = _chain(inner, rule, tolerance, None if sides is None else (sides - centre) / scale)
    conversion = chain.conversion
    if sides is not None and conversion.box is not None:
        conversion = replace(conversion, box=torch.from_numpy(sides))
    prefix = Layer(torch.diag(torch.from_numpy(1 / scale)), torch.from_numpy(-centre / scale))
    return build(replace(chain, prefix=prefix, conversion=conversion), dtype)


def as_function(model: Any) -> Spline | LatticePWL | MaxSum:
    """Return the function of a model; what has none becomes a network no more."""
    try:
        return as_pwl(model)
    except DataError as error:
        raise NetworkError(str(error)) from None


def _chain(function: Spline | LatticePWL | MaxSum, rule: Activation, tolerance: float | None, box: Any) -> Chain:
    if isinstance(function, Spline):
        return spline_chain(function, rule, tolerance=tolerance, box=box)
    sides = None if box is None else _box_sides(box, function.inputs)
    return piecewise_chain(function, rule, tolerance=tolerance, sides=sides)


def _rescale(function: Spline | LatticePWL | MaxSum, centre: Floats, scale: Floats) -> Spline | LatticePWL | MaxSum:
    if isinstance(function, Spline):
        return rescale_spline(function, centre, scale)
    return rescale_piecewise(function, centre, scale)


def as_spline(model: Any) -> Spline:
    """Return the spline of a spline or of a fitted estimator."""
    spline = model if isinstance(model, Spline) else getattr(model, "spline_", None)
    if not isinstance(spline, Spline):
        raise NetworkError(
            f"only a Spline or an estimator fitted to one becomes a network, got {type(model).__name__}; "
            f"fit it first if it is an estimator"
        )
    return spline


def _feature_units(model: Any, spline: Spline | LatticePWL | MaxSum) -> tuple[Floats, Floats]:
    """Centre and scale of the features: those of the training rows if the model remembers them, else of the knots."""
    fit = getattr(model, "fit_", None)
    if fit is not None:
        return fit.feature_centre, fit.feature_scale
    if not isinstance(spline, Spline):  # nothing says where its data lie
        return np.zeros(spline.inputs), np.ones(spline.inputs)
    d = len(spline.feature_names)
    centre, scale = np.zeros(d), np.ones(d)
    for f in range(d):
        knots = np.array([t.knot for t in spline.terms if isinstance(t, Hinge) and t.feature == f])
        if knots.size:
            centre[f] = knots.mean()
            scale[f] = knots.std() or abs(centre[f]) or 1.0
    return centre, scale


def rescale_spline(
    spline: Spline, centre: Floats, scale: Floats, y_centre: Floats | float = 0.0, y_scale: Floats | float = 1.0
) -> Spline:
    """Return g with g((x − centre)/scale) = (f(x) − y_centre)/y_scale."""
    terms: list[Hinge | Linear] = []
    intercept = spline.intercept.copy()
    coef = spline.coef.copy()
    for m, term in enumerate(spline.terms):
        f = term.feature
        coef[m] *= scale[f]
        if isinstance(term, Linear):
            intercept += spline.coef[m] * centre[f]
            terms.append(term)
        else:
            terms.append(Hinge(f, float((term.knot - centre[f]) / scale[f]), term.sign))
    return Spline(tuple(terms), (intercept - y_centre) / y_scale, coef / y_scale, spline.feature_names)
