"""Wider and deeper networks that compute the same function.

New units must be *live*: real inputs, zero outputs. A unit with zero inputs as well never trains, because the gradient
of its inputs is zero times its outputs and that of its outputs is zero times its value; ``fill="zero"``, the published
way, makes such units and is kept for comparison.

A longer network sums the function first and then carries each output f through the new layers by two units, R(f) and
R(−f), so the layers behind the first may be narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from knotwork.errors import NetworkError
from knotwork.network.activations import Kind
from knotwork.network.chain import Chain, Layer, build, placement, read_chain
from knotwork.network.split import row_numbers

FILLS = ("hinge", "random", "zero")
# Rows looked at to place new units.
MOST_ROWS = 4096
# Error per layer, in units of the output, at which a value is still carried (softplus is a line beyond its threshold).
LEAST_CARRIED = 1e-6


def widen(
    net: nn.Module,
    width: int | Sequence[int],
    *,
    fill: str | None = None,
    X: ArrayLike | None = None,
    random_state: int | None = None,
) -> nn.Sequential:
    """Return the network with every hidden layer (or each, given a sequence) of this width, function unchanged."""
    chain = read_chain(net)
    widths = (width,) * len(chain.hidden) if isinstance(width, int) else tuple(width)
    if len(widths) != len(chain.hidden):
        raise NetworkError(
            f"widen takes one width or one per hidden layer, here {len(chain.hidden)}, got {len(widths)}; "
            f"reshape changes the depth"
        )
    return reshape(net, widths, fill=fill, X=X, random_state=random_state)


def deepen(
    net: nn.Module,
    layers: int,
    *,
    fill: str | None = None,
    X: ArrayLike | None = None,
    random_state: int | None = None,
) -> nn.Sequential:
    """Return the network with this many more hidden layers, as wide as the last one (at least), function unchanged."""
    if layers < 1:
        raise NetworkError(f"deepen adds at least one layer, got {layers}")
    chain = read_chain(net)
    width = max(chain.widths[-1], 2 * len(chain.output.bias))
    return reshape(net, (*chain.widths, *(width,) * layers), fill=fill, X=X, random_state=random_state)


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
    X : (N, d) rows like those the network will see; places new units where the data are
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
    return build(grown, *placement(net))


def least_widths(chain: Chain, layers: int) -> tuple[int, ...]:
    """Return the least width of each layer of a network of this depth that holds the chain's function."""
    return (*chain.widths, *(2 * len(chain.output.bias),) * (layers - len(chain.hidden)))


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
    widths = tuple(int(w) for w in widths)
    if len(widths) < len(chain.hidden):
        raise NetworkError(
            f"reshape keeps or adds layers: the network has {len(chain.hidden)} hidden layers, got {len(widths)} widths"
        )
    least = least_widths(chain, len(widths))
    for k, (width, need) in enumerate(zip(widths, least, strict=True)):
        if width < need:
            raise NetworkError(f"hidden layer {k} needs a width of at least {need} to hold the function, got {width}")
    rows = None if X is None else _rows(chain, X)
    longer = _lengthen(chain, len(widths) - len(chain.hidden))
    return _fill(longer, widths, fill, rows, rng)


def _rows(chain: Chain, X: ArrayLike) -> Tensor:
    """Return some of the rows, as the first hidden layer sees them."""
    matrix = np.asarray(X, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != chain.inputs or len(matrix) == 0:
        raise NetworkError(f"X must have shape (N, {chain.inputs}), got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise NetworkError("X must be finite, got NaN or inf; leave those rows out")
    # Distinct rows: what is placed does not depend on the order of the rows or on how often one is repeated.
    if len(matrix) > MOST_ROWS:
        numbers = row_numbers(matrix, seed=0)
        matrix = matrix[numbers <= np.partition(numbers, MOST_ROWS)[MOST_ROWS]]
    matrix = np.unique(matrix, axis=0)
    rows = torch.from_numpy(np.ascontiguousarray(matrix))
    return rows if chain.prefix is None else chain.prefix(rows)


def _lengthen(chain: Chain, layers: int) -> Chain:
    """Carry the outputs through more layers: f = line·(U(f) − U(−f))."""
    if layers == 0:
        return chain
    rule = chain.activation
    if rule.kind is Kind.BOXED or rule.line_error > LEAST_CARRIED:
        raise NetworkError(
            f"{type(rule.module).__name__} cannot carry a value of unknown size through another layer exactly; "
            f"keep the depth, or convert with relu, leaky_relu, prelu, softplus, silu or gelu"
        )
    out = chain.output
    hidden = [*chain.hidden, Layer(torch.cat([out.weight, -out.weight]), torch.cat([out.bias, -out.bias]))]
    eye = torch.eye(len(out.bias), dtype=torch.float64)
    unfold = rule.line * torch.cat([eye, -eye], dim=1)  # from the two units back to the output
    zero = torch.zeros(len(out.bias), dtype=torch.float64)
    hidden += [Layer(torch.cat([unfold, -unfold]), torch.cat([zero, zero]))] * (layers - 1)
    conversion = replace(chain.conversion, bound=chain.conversion.bound + layers * rule.line_error)
    return replace(chain.with_layers(tuple(hidden), Layer(unfold, zero)), conversion=conversion)


def _fill(chain: Chain, widths: tuple[int, ...], fill: str, rows: Tensor | None, rng: np.random.Generator) -> Chain:
    """Widen every layer: rows of new units are filled, columns from new units into old ones are zero."""
    hidden: list[Layer] = []
    before = chain.hidden[0].weight.shape[1]  # units (or features) that the layer reads
    for k, (layer, width) in enumerate(zip(chain.hidden, widths, strict=True)):
        old, old_in = layer.weight.shape
        weight = torch.zeros(width, before, dtype=torch.float64)
        bias = torch.zeros(width, dtype=torch.float64)
        weight[:old, :old_in], bias[:old] = layer.weight, layer.bias
        if fill != "zero" and width > old:
            if k == 0 and fill == "hinge" and rows is not None:
                weight[old:], bias[old:] = _hinges(rows, width - old, rng)
            elif rows is not None:
                weight[old:], bias[old:] = _random_on_rows(rows, width - old, rng)
            else:
                weight[old:], bias[old:] = _random_like(layer, before, width - old, k == 0, rng)
        hidden.append(Layer(weight, bias))
        if rows is not None:
            with torch.no_grad():
                rows = chain.modules[k].to("cpu", torch.float64)(hidden[-1](rows))
        before = width
    out = torch.zeros(len(chain.output.bias), before, dtype=torch.float64)
    out[:, : chain.output.weight.shape[1]] = chain.output.weight
    return chain.with_layers(tuple(hidden), Layer(out, chain.output.bias))


def _hinges(rows: Tensor, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Hinges of single features at quantiles of the rows, both directions, features in turn."""
    x = rows.numpy()
    spread = x.std(axis=0)
    features = np.flatnonzero(spread > 0)
    if features.size == 0:
        return _random_on_rows(rows, count, rng)
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
        weight[units, f] = signs / spread[f]
        bias[units] = -signs * knots / spread[f]
    return torch.from_numpy(weight), torch.from_numpy(bias)


def _random_on_rows(rows: Tensor, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Random directions of the standardised inputs, each bending at a random inner quantile of the rows."""
    x = rows.numpy()
    centre, spread = x.mean(axis=0), x.std(axis=0)
    used = spread > 1e-12 * np.maximum(np.abs(centre), 1e-300)
    direction = np.where(used, rng.normal(size=(count, x.shape[1])), 0.0)
    direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-300)
    weight = direction / np.where(used, spread, 1.0)
    bends = np.array([np.quantile(v, q) for v, q in zip(weight @ x.T, rng.uniform(0.05, 0.8, count), strict=True)])
    return torch.from_numpy(weight), torch.from_numpy(-bends)


def _random_like(layer: Layer, inputs: int, count: int, first: bool, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Without data: random mixtures of the units there are, which bend where the data are; plain random further on."""
    if not first:
        weight = rng.normal(size=(count, inputs)) * np.sqrt(2 / inputs)
        return torch.from_numpy(weight), torch.zeros(count, dtype=torch.float64)
    mixture = torch.from_numpy(rng.normal(size=(count, len(layer.bias))) / np.sqrt(len(layer.bias)))
    size = layer.weight.abs().amax(dim=1).clamp_min(1e-300)  # units may be in very different units
    return mixture @ (layer.weight / size[:, None]), mixture @ (layer.bias / size)
