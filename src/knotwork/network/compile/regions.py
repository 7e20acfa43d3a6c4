"""from_network: a network with piecewise-linear activations back to its pieces on a box.

With one or two inputs every unit of every layer cuts the cells it bends in, so all pieces are found. With more, points
are sampled and the piece around each is written down: every piece is right, but there may be others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError
from knotwork.network.activations import require_one_slope
from knotwork.network.chain import read_chain
from knotwork.network.fold import folded
from knotwork.parameters import checked, seed, whole
from knotwork.pwl.boxes import read_box
from knotwork.pwl.cells import box_cell, cut
from knotwork.pwl.pieces import Piece, Pieces

# Thickness of a cell, relative to the values of the unit that cuts it, below which it is rounding.
THIN = 1e-11


@dataclass(frozen=True)
class Bends:
    """A piecewise-linear activation: knots (n,), and slopes and constants (n + 1,) of the parts between them."""

    knots: Floats
    slopes: Floats
    constants: Floats


def activation_bends(activation: nn.Module) -> Bends:
    """Return where an activation bends; refuse activations that are not piecewise linear."""
    slope = 0.0
    if isinstance(activation, nn.LeakyReLU):
        slope = float(activation.negative_slope)
    elif isinstance(activation, nn.PReLU):
        require_one_slope(activation)
        slope = float(activation.weight.detach())
    elif isinstance(activation, nn.Hardtanh):  # ReLU6 too
        low, high = float(activation.min_val), float(activation.max_val)
        return Bends(np.array([low, high]), np.array([0.0, 1.0, 0.0]), np.array([low, 0.0, high]))
    elif not isinstance(activation, nn.ReLU):
        raise NetworkError(
            f"a network has pieces if its activations are piecewise linear (ReLU, LeakyReLU, PReLU, ReLU6, Hardtanh), "
            f"got {type(activation).__name__}; kw.to_relu(net, box, tolerance) makes such a network of it"
        )
    return Bends(np.array([0.0]), np.array([slope, 1.0]), np.zeros(2))


@checked(samples=whole(1), random_state=seed())
def from_network(net: nn.Module, box: Any, *, samples: int = 4096, random_state: int | None = None) -> Pieces:
    """Return the pieces of a network on a box: polytopes and the affine function on each.

    Parameters
    ----------
    net : Sequential of Linear and ReLU, LeakyReLU, PReLU, ReLU6 or Hardtanh
    box : (minimum, maximum), each a number or one per input
    samples : points to find pieces with when there are more than two inputs

    Returns
    -------
    Pieces. ``exact`` is True for one and two inputs: all pieces are there. Beyond, it is False, and ``coverage``
    estimates the share of the box that the pieces found cover, from as many fresh points.

    Examples
    --------
    >>> import knotwork as kw
    >>> net = kw.to_network(kw.LatticePWL([[0.0, 1.0], [0.0, -1.0], [2.0, 0.0]], [(0, 1), (2,)]))   # min(|x|, 2)
    >>> pieces = from_network(net, (-5, 5))
    >>> np.unique([piece.theta.round(6).tolist()[0] for piece in pieces.pieces], axis=0).tolist()
    [[0.0, -1.0], [0.0, 1.0], [2.0, 0.0]]
    """
    chain = folded(read_chain(net))
    bends = [activation_bends(module) for module in chain.modules]
    maps = [(layer.weight.numpy(), layer.bias.numpy()) for layer in chain.layers]
    sides = read_box(box, maps[0][0].shape[1])
    if sides.shape[1] <= 2:
        return Pieces(tuple(_all_pieces(maps, bends, sides)))
    rng = np.random.default_rng(random_state)
    found = _sampled_pieces(maps, bends, rng.uniform(sides[0], sides[1], size=(samples, sides.shape[1])), sides)
    fresh = _patterns(maps, bends, rng.uniform(sides[0], sides[1], size=(samples, sides.shape[1])))
    coverage = float(np.mean([pattern.tobytes() in found for pattern in fresh]))
    return Pieces(tuple(found.values()), exact=False, coverage=coverage)


Maps = list[tuple[Floats, Floats]]


def _all_pieces(maps: Maps, bends: list[Bends], sides: Floats) -> list[Piece]:
    d = sides.shape[1]
    cells = [(box_cell(sides), np.eye(d + 1)[1:])]  # points, and the layer's inputs as functions of [1, x]
    for (weight, bias), bend in zip(maps, bends, strict=False):
        fresh: list[tuple[Floats, Floats]] = []
        for points, form in cells:
            z = weight @ form
            z[:, 0] += bias
            parts = [points]
            for row in z:
                for knot in bend.knots:
                    parts = [part for full in parts for part in _cut(full, row, knot)]
            for part in parts:
                at = z[:, 0] + z[:, 1:] @ part.mean(axis=0)
                side = np.searchsorted(bend.knots, at)
                after = z * bend.slopes[side][:, None]
                after[:, 0] += bend.constants[side]
                fresh.append((part, after))
        cells = fresh
    weight, bias = maps[-1]
    pieces = []
    for points, form in cells:
        theta = weight @ form
        theta[:, 0] += bias
        pieces.append(_cell_piece(points, theta))
    return pieces


def _cut(points: Floats, row: Floats, knot: float) -> list[Floats]:
    values = points @ row[1:] + (row[0] - knot)
    size = np.abs(points) @ np.abs(row[1:]) + abs(row[0] - knot)
    return [part for part in cut(points, values, THIN * float(size.max())) if part is not None]


def _cell_piece(points: Floats, theta: Floats) -> Piece:
    if points.shape[1] == 1:
        return Piece.hull(points, theta)
    # The sides follow from the order of the corners; no hull has to be found, which thin cells do not have.
    distinct = points[np.linalg.norm(points - np.roll(points, 1, axis=0), axis=1) > 0]
    along = np.roll(distinct, -1, axis=0) - distinct
    outward = np.column_stack([along[:, 1], -along[:, 0]])
    piece = Piece(outward, (outward * distinct).sum(axis=1), theta)
    piece.__dict__["points"] = distinct
    return piece


def _patterns(maps: Maps, bends: list[Bends], X: Floats) -> Floats:
    """Return which part of its activation every unit is in: (N, units)."""
    sides, rows = [], X
    for (weight, bias), bend in zip(maps, bends, strict=False):
        z = rows @ weight.T + bias
        side = np.searchsorted(bend.knots, z)
        sides.append(side.astype(np.int8))
        rows = z * bend.slopes[side] + bend.constants[side]
    return np.concatenate(sides, axis=1) if sides else np.zeros((len(X), 0), np.int8)


def _sampled_pieces(maps: Maps, bends: list[Bends], X: Floats, sides: Floats) -> dict[bytes, Piece]:
    d = X.shape[1]
    out: dict[bytes, Piece] = {}
    for pattern in np.unique(_patterns(maps, bends, X), axis=0):
        form = np.eye(d + 1)[1:]
        rows, limits = [np.eye(d), -np.eye(d)], [sides[1], -sides[0]]
        start = 0
        for (weight, bias), bend in zip(maps, bends, strict=False):
            z = weight @ form
            z[:, 0] += bias
            side = pattern[start : start + len(bias)]
            start += len(bias)
            upper, lower = side < len(bend.knots), side > 0
            rows += [z[upper, 1:], -z[lower, 1:]]
            limits += [bend.knots[side[upper]] - z[upper, 0], z[lower, 0] - bend.knots[side[lower] - 1]]
            form = z * bend.slopes[side][:, None]
            form[:, 0] += bend.constants[side]
        weight, bias = maps[-1]
        theta = weight @ form
        theta[:, 0] += bias
        out[pattern.tobytes()] = Piece(np.concatenate(rows), np.concatenate(limits), theta)
    return out
