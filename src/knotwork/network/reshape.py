"""Wider and deeper networks that compute the same function.

New units must be *live*: real inputs, zero outputs. A unit with zero inputs as well never trains, because the gradient
of its inputs is zero times its outputs and that of its outputs is zero times its value; ``fill="zero"``, the published
way, makes such units and is kept for comparison.

A longer network sums the function first and then carries each output f through the new layers by two units, R(f) and
R(−f), so the layers behind the first may be narrow. Where they are too narrow for the outputs of many classes, units of
ReLU are carried instead, each by one: R(R(z)) = R(z).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from knotwork.arrays import Floats, read_numbers
from knotwork.data.learn import learn_encoder
from knotwork.data.split import row_numbers
from knotwork.data.table import as_frame
from knotwork.errors import NetworkError
from knotwork.network import ready
from knotwork.network.activations import Kind, require_one_slope
from knotwork.network.chain import Chain, Layer, build, placement, read_chain
from knotwork.network.limits import MAX_LAYERS, read_widths, require_room
from knotwork.parameters import checked, seed, shown, text, whole

FILLS = ("hinge", "random", "zero")
# Rows looked at to place new units: quantiles to a few percent are enough, and all rows would cost more than a spline.
MAX_ROWS = 128
# Stds below which an input counts as constant: weights on it would be too large.
MIN_STD = 1e-100
# Rows made up for that when there are none.
MADE_UP_ROWS = 512
# Error per layer, on the output's scale, at which a value is still carried (softplus is a line beyond its threshold).
MIN_CARRIED = 1e-6
# New units behind the first layer read new units alone, if there are this many. A spline's own units are steep far out,
# where there are few rows: once trained, a layer that reads them may predict any value for an outlier.
MIN_NEW_INPUTS = 8
# Minimum std of a unit that new units read, as a share of the maximum std: the tails of smooth units may be 1e-60.
MIN_READ = 1e-6


@checked(fill=text().optional, random_state=seed())
def widen(
    net: nn.Module,
    width: int | Sequence[int],
    *,
    fill: str | None = None,
    X: ArrayLike | None = None,
    random_state: int | None = None,
) -> nn.Sequential:
    """Return the network with every hidden layer (or each, given a sequence) of this width, function unchanged.

    Examples
    --------
    >>> import knotwork as kw
    >>> net = kw.to_network(kw.Spline((kw.Hinge(0, 1.0, 1),), [0.0], [[2.0]], ("x",)))
    >>> [layer.out_features for layer in kw.widen(net, 8, random_state=0) if isinstance(layer, nn.Linear)]
    [8, 1]
    """
    chain = read_chain(net)
    widths = tuple(width) if isinstance(width, Sequence) else (width,) * len(chain.hidden)
    if len(widths) != len(chain.hidden):
        raise NetworkError(
            f"widen takes one width or one per hidden layer, here {len(chain.hidden)}, got {len(widths)}; "
            f"reshape changes the depth"
        )
    return reshape(net, widths, fill=fill, X=X, random_state=random_state)


@checked(layers=whole(), fill=text().optional, random_state=seed())
def deepen(
    net: nn.Module,
    layers: int,
    *,
    fill: str | None = None,
    X: ArrayLike | None = None,
    random_state: int | None = None,
) -> nn.Sequential:
    """Return the network with this many more hidden layers, as wide as the last one (at least), function unchanged.

    Examples
    --------
    >>> import knotwork as kw
    >>> net = kw.to_network(kw.Spline((kw.Hinge(0, 1.0, 1),), [0.0], [[2.0]], ("x",)))
    >>> [layer.out_features for layer in kw.deepen(net, 2, random_state=0) if isinstance(layer, nn.Linear)]
    [1, 2, 2, 1]
    """
    if layers < 1:
        raise NetworkError(f"deepen adds at least one layer, got {layers}")
    if layers > MAX_LAYERS:
        raise NetworkError(f"deepen adds at most {MAX_LAYERS} layers, got {shown(layers)}")
    chain = read_chain(net)
    width = max((*chain.widths[-1:], 2 * len(chain.output.bias)))
    return reshape(net, (*chain.widths, *(width,) * layers), fill=fill, X=X, random_state=random_state)


@checked(fill=text().optional, random_state=seed())
def reshape(
    net: nn.Module,
    widths: Sequence[int] = (64, 64),
    *,
    fill: str | None = None,
    X: ArrayLike | None = None,
    random_state: int | None = None,
) -> nn.Sequential:
    """Return a network of the given hidden widths that computes the same function.

    Parameters
    ----------
    net : Sequential of Linear and activation
    widths : of the hidden layers; at least as many as there are, each wide enough for what it has to hold
    fill : what new units compute before they are trained: "hinge" (in the first layer, hinges of single features at
        quantiles of ``X``), "random", or "zero" (the published way: units that never train). None is "hinge" if ``X``
        is given, else "random"
    X : (N, d) rows like those the network will see, or a data frame of the model's columns; places new units where the
        data are. Without it they are placed where the first layer bends, which is a guess
    random_state : seed of the fill

    Examples
    --------
    >>> from knotwork import Hinge, Spline, to_network
    >>> net = to_network(Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",)))
    >>> bigger = reshape(net, (16, 8, 4), random_state=0)
    >>> x = torch.linspace(-3, 3, 7)[:, None]
    >>> bool(torch.allclose(bigger(x), net(x)))
    True
    """
    chain = read_chain(net)
    grown = reshape_chain(chain, widths, fill=fill, X=X, rng=np.random.default_rng(random_state))
    return build(grown, *placement(net)).train(net.training)


def _min_widths(chain: Chain, layers: int, by_units: bool) -> tuple[int, ...]:
    """Return the minimum width of each layer of a network of this depth that holds the chain's function."""
    carried = chain.widths[-1] if by_units else 2 * len(chain.output.bias)
    return (*chain.widths, *(carried,) * (layers - len(chain.hidden)))


def _carries_units(chain: Chain, widths: Sequence[int]) -> bool:
    """Whether the last layer's units go through further layers themselves, because two units an output are too many."""
    outputs = 2 * len(chain.output.bias)
    narrow = min(widths[len(chain.hidden) :], default=outputs) < outputs
    return narrow and bool(chain.hidden) and isinstance(chain.modules[-1], nn.ReLU) and chain.widths[-1] < outputs


def reshape_chain(
    chain: Chain, widths: Sequence[int], *, fill: str | None, X: ArrayLike | None, rng: np.random.Generator
) -> Chain:
    """Grow a chain; see :func:`reshape`."""
    if fill is None:
        fill = "hinge" if X is not None else "random"
    if fill not in FILLS:
        raise NetworkError(f"fill must be one of {', '.join(FILLS)}, got {fill!r}")
    if fill == "hinge" and X is None:
        raise NetworkError("fill='hinge' takes its knots from data; pass X, or use fill='random'")
    widths = read_widths(widths, "widths", layers=0)
    for module in chain.modules:
        require_one_slope(module)
    if len(widths) < len(chain.hidden):
        raise NetworkError(
            f"reshape keeps or adds layers: the network has {len(chain.hidden)} hidden layers, got {len(widths)} widths"
        )
    by_units = _carries_units(chain, widths)
    needed = _min_widths(chain, len(widths), by_units)
    for k, (width, need) in enumerate(zip(widths, needed, strict=True)):
        if width < need:
            raise NetworkError(f"hidden layer {k} needs a width of at least {need} to hold the function, got {width}")
    require_room((chain.layers[0].weight.shape[1], *widths, len(chain.output.bias)))
    longer = _lengthen(chain, len(widths) - len(chain.hidden), by_units)
    if X is None:
        rows = seen = _rows_made_up(chain.layers[0], rng)
    else:
        rows, seen = _rows(chain, X)
    # Units placed by guess bend early, so that they are active on some rows even if the guess misses the data.
    grown = _fill(longer, widths, fill, rows, 0.5 if X is None else 0.8, rng)
    return ready.ready_chain(grown, seen)


def _rows(chain: Chain, X: ArrayLike) -> tuple[Tensor, Tensor]:
    """Return a few rows, to place units by, and more of them, to scale units by; as the first layer sees them."""
    if as_frame(X) is None:
        matrix = read_numbers(X, "X", NetworkError)
    else:
        matrix = (chain.conversion.encoder or learn_encoder(X)).encode(X)
    if matrix.ndim != 2 or matrix.shape[1] != chain.inputs or len(matrix) == 0:
        raise NetworkError(f"X must have shape (N, {chain.inputs}), got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise NetworkError("X must be finite, got NaN or inf; leave those rows out")
    # Distinct rows: what is placed does not depend on the order of the rows or on how often one is repeated.
    few = more = matrix
    if len(matrix) > MAX_ROWS:
        numbers = row_numbers(matrix, seed=0)
        distinct = np.unique(numbers)
        if distinct.size > MAX_ROWS:
            few = matrix[numbers < distinct[MAX_ROWS]]
        if distinct.size > ready.MAX_ROWS:
            more = matrix[numbers < distinct[ready.MAX_ROWS]]

    def seen(part: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(chain.coordinates.features(np.unique(part, axis=0))))

    return seen(few), seen(more)


def _rows_made_up(layer: Layer, rng: np.random.Generator) -> Tensor:
    """Return rows spread over the places where units of single features bend; standard normal in other features."""
    weight, bias = layer.weight.numpy(), layer.bias.numpy()
    rows = rng.normal(size=(MADE_UP_ROWS, weight.shape[1]))
    for f in np.flatnonzero(weight.any(axis=0)):
        units = (weight[:, f] != 0) & (np.count_nonzero(weight, axis=1) == 1)
        knots = np.unique(-bias[units] / weight[units, f])
        knots = (
            knots[knots != 0] if (knots != 0).any() else knots
        )  # a knot at zero is often a line's, which may lie anywhere
        if knots.size:
            centre = knots.mean()
            rows[:, f] = centre + rows[:, f] * (knots.std() or abs(centre) or 1.0)
    return torch.from_numpy(rows)


def _lengthen(chain: Chain, layers: int, by_units: bool) -> Chain:
    """Carry the outputs through more layers, f = line·(U(f) − U(−f)), or ReLU's units."""
    if layers == 0:
        return chain
    if by_units:
        width = chain.widths[-1]
        same = Layer(torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64))
        return chain.with_layers([*chain.hidden, *(same,) * layers, chain.output])
    rule = chain.activation
    if rule.kind is Kind.BOXED or rule.line_error > MIN_CARRIED:
        raise NetworkError(
            f"{type(rule.module).__name__} cannot carry a value of unknown size through another layer exactly; "
            f"keep the depth, or use relu, leaky_relu, prelu, softplus, silu or gelu"
        )
    out = chain.output
    hidden = [*chain.hidden, Layer(torch.cat([out.weight, -out.weight]), torch.cat([out.bias, -out.bias]))]
    eye = torch.eye(len(out.bias), dtype=torch.float64)
    unfold = rule.line * torch.cat([eye, -eye], dim=1)  # from the two units back to the output
    zero = torch.zeros(len(out.bias), dtype=torch.float64)
    hidden += [Layer(torch.cat([unfold, -unfold]), torch.cat([zero, zero]))] * (layers - 1)
    # The error is one of the layers' own coordinates.
    added = layers * rule.line_error * float(chain.coordinates.y_scale.max())
    conversion = replace(chain.conversion, bound=chain.conversion.bound + added)
    return replace(chain.with_layers([*hidden, Layer(unfold, zero)]), conversion=conversion)


def _fill(
    chain: Chain, widths: tuple[int, ...], fill: str, rows: Tensor, latest: float, rng: np.random.Generator
) -> Chain:
    """Widen every layer: rows of new units are filled, columns from new units into old ones are zero."""
    hidden: list[Layer] = []
    new_inputs = 0  # how many of the last ones that the layer reads are new
    before = chain.layers[0].weight.shape[1]  # units (or features) that the layer reads
    for k, (layer, width) in enumerate(zip(chain.hidden, widths, strict=True)):
        old, old_in = layer.weight.shape
        weight = torch.zeros(width, before, dtype=torch.float64)
        bias = torch.zeros(width, dtype=torch.float64)
        weight[:old, :old_in], bias[:old] = layer.weight, layer.bias
        if fill != "zero" and width > old:
            if k == 0 and fill == "hinge":
                weight[old:], bias[old:] = _hinges(rows, width - old, rng)
            else:
                read = before - new_inputs if new_inputs >= MIN_NEW_INPUTS else 0
                weight[old:, read:], bias[old:] = _random(
                    rows[:, read:], width - old, latest, rng, min_spread=0.0 if k == 0 else MIN_READ
                )
        new_inputs = width - old
        hidden.append(Layer(weight, bias))
        with torch.no_grad():
            rows = chain.modules[k].to("cpu", torch.float64)(hidden[-1](rows))
        before = width
    out = torch.zeros(len(chain.output.bias), before, dtype=torch.float64)
    out[:, : chain.output.weight.shape[1]] = chain.output.weight
    return chain.with_layers([*hidden, Layer(out, chain.output.bias)])


def _hinges(rows: Tensor, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Hinges of single features at quantiles of the rows, both directions, features in turn."""
    x = rows.numpy()
    spread = _spread(x)
    features = np.flatnonzero(spread)
    if features.size == 0:
        return _random(rows, count, 0.5, rng)
    weight, bias = np.zeros((count, x.shape[1])), np.zeros(count)
    order = np.concatenate([rng.permutation(features) for _ in range(-(-count // features.size))])[:count]
    for f in np.unique(order):
        units = np.flatnonzero(order == f)
        # Inner quantiles: a hinge at an end of the data is a line or nothing.
        knots = np.quantile(x[:, f], (np.arange(units.size) + rng.uniform(0.2, 0.8, units.size)) / units.size)
        knots = np.clip(knots, *np.quantile(x[:, f], [0.02, 0.98]))
        signs = rng.permutation(np.where(np.arange(units.size) % 2 == 0, 1.0, -1.0))
        # On a coarse feature the clipped knot may be an end all the same: face the side that has rows.
        signs = np.where(knots >= x[:, f].max(), -1.0, np.where(knots <= x[:, f].min(), 1.0, signs))
        # A power of two, so that a row at the knot is exactly there.
        slopes = signs * np.exp2(-np.round(np.log2(spread[f])))
        weight[units, f] = slopes
        bias[units] = -slopes * knots
    return torch.from_numpy(weight), torch.from_numpy(bias)


def _random(
    rows: Tensor, count: int, latest: float, rng: np.random.Generator, min_spread: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Random directions of the standardised inputs, each bending at a random inner quantile of the rows.

    Inputs whose std is below the share ``min_spread`` of the maximum std are left out.
    """
    x = rows.numpy()
    spread = _spread(x)
    spread = np.where(spread >= min_spread * spread.max(), spread, 0.0)
    used = spread > 0 if spread.any() else np.ones(len(spread), dtype=bool)
    direction = np.where(used, rng.normal(size=(count, x.shape[1])), 0.0)
    direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-300)
    weight = direction / np.where(spread > 0, spread, 1.0)
    values = weight @ x.T
    bends = _quantiles(values, rng.uniform(0.05, latest, count))
    if not spread.any():  # equal rows have no inside
        return torch.from_numpy(weight), torch.from_numpy(1 - bends)
    # Most rows may share the maximum: face the others.
    maximum, minimum = values.max(axis=1), values.min(axis=1)
    signs = np.where(maximum - bends > 1e-9 * (maximum - minimum), 1.0, -1.0)
    return torch.from_numpy(signs[:, None] * weight), torch.from_numpy(-signs * bends)


def _quantiles(values: Floats, shares: Floats) -> Floats:
    """Quantile of each row, each at a share of its own: (count, N), (count,) → (count,); np.quantile in one sort."""
    ordered = np.sort(values, axis=1)
    place = shares * (values.shape[1] - 1)
    below = np.floor(place).astype(np.intp)
    rows, above = np.arange(len(values)), np.minimum(below + 1, values.shape[1] - 1)
    step = place - below
    quantiles: Floats = (1 - step) * ordered[rows, below] + step * ordered[rows, above]
    return quantiles


def _spread(x: Floats) -> Floats:
    """Std of the columns, zero for those that vary by no more than rounding, or too little to be divided by."""
    largest = np.maximum(np.abs(x).max(axis=0), np.finfo(float).tiny)
    std: Floats = (x / largest).std(axis=0)
    return np.where((std > 1e-12) & (std * largest > MIN_STD), std * largest, 0.0)
