"""Least-squares fits of maxima of affine functions, and of differences of two such maxima.

Both alternate: rows go to the piece with the maximum there, then the pieces are fitted to their rows. That finds a
local minimum, so there are several starts, and larger fits also begin where smaller ones ended. Rows are expected in
standardised coordinates; a small ridge holds pieces with few rows near the affine fit of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats

Labels = NDArray[np.intp]
# Differences that count as ties, in stds or as a share of an RSS: which rounding decides would depend on the units of
# measurement. Of ties, the first is taken.
TIE = 1e-9
# Rounds without a better fit after which the alternation stops.
PATIENCE = 4


@dataclass(frozen=True)
class Rows:
    """Standardised rows with a column of ones in front, Z (N, d + 1), targets y (N,), weights (N,), and starts.

    orders : for every start, distinct rows in an order of its own; the first few become the centres of its first cells
    """

    Z: Floats
    y: Floats
    weight: Floats
    orders: Sequence[Labels]


@dataclass(frozen=True)
class FitRules:
    """ridge (a share of the total weight) and the maximum number of rounds of an alternation."""

    ridge: float = 1e-6
    max_rounds: int = 50


def fit_max_affine(rows: Rows, pieces: int, rules: FitRules, warm: Floats | None = None) -> tuple[Floats, float]:
    """Fit max_j theta[j]·[1, x] with this many pieces: return theta (pieces, d + 1) and the weighted RSS.

    >>> x = np.linspace(-1, 1, 41)
    >>> rows = Rows(np.column_stack([np.ones(41), x]), np.abs(x), np.ones(41), [np.array([0, 40]), np.array([20, 3])])
    >>> theta, rss = fit_max_affine(rows, 2, FitRules(ridge=0.0))
    >>> theta[np.argsort(theta[:, 1])].round(6) + 0.0
    array([[ 0., -1.],
           [ 0.,  1.]])
    """
    base = affine_fit(rows)
    if pieces == 1:
        return base[None], _rss(rows, rows.Z @ base)
    starts = [_nearest(rows, order[:pieces]) for order in rows.orders]
    if warm is not None:
        starts.insert(0, _split_worst(rows, warm, pieces))
    best: tuple[Floats, float] = (base[None], _rss(rows, rows.Z @ base))
    for labels in starts:
        found = _alternate(rows, labels, pieces, base, rules)
        if found[1] < best[1] * (1 - TIE):
            best = found
    return best


def _alternate(rows: Rows, labels: Labels, pieces: int, base: Floats, rules: FitRules) -> tuple[Floats, float]:
    theta = np.tile(base, (pieces, 1))
    best, since = (theta, np.inf), 0
    for _ in range(rules.max_rounds):
        theta = theta.copy()
        for k in np.unique(labels):
            theta[k] = _cell_fit(rows, labels == k, base, rules.ridge)
        values = rows.Z @ theta.T
        fresh = first_maximum(values)
        rss = _rss(rows, values[np.arange(len(values)), fresh])
        since = 0 if rss < best[1] * (1 - 1e-6) else since + 1
        if rss < best[1] * (1 - TIE):
            best = (theta, rss)
        if since >= PATIENCE or np.array_equal(fresh, labels):
            break
        labels = fresh
    return best


def _cell_fit(rows: Rows, cell: NDArray[np.bool_], base: Floats, ridge: float) -> Floats:
    Z, w = rows.Z[cell], rows.weight[cell]
    gram = (Z * w[:, None]).T @ Z
    moment = Z.T @ (w * (rows.y[cell] - Z @ base))
    return base + _solve(gram, moment, ridge * rows.weight.sum())


def _solve(gram: Floats, moment: Floats, ridge: float) -> Floats:
    """Solve with a ridge, and the shortest solution where that is not enough."""
    lifted = gram + max(ridge, 1e-12 * float(np.trace(gram))) * np.eye(len(gram))
    try:
        return np.asarray(np.linalg.solve(lifted, moment), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(lifted, moment, rcond=None)[0], dtype=np.float64)


def affine_fit(rows: Rows) -> Floats:
    """Fit one affine function; by singular values, because there may be more columns than rows."""
    root = np.sqrt(rows.weight)
    found = np.linalg.lstsq(rows.Z * root[:, None], rows.y * root, rcond=1e-9)[0]
    return np.asarray(found, dtype=np.float64)


def _rss(rows: Rows, fitted: Floats) -> float:
    return float(rows.weight @ np.square(rows.y - fitted))


def _nearest(rows: Rows, centres: Labels) -> Labels:
    """Put every row with the nearest of some rows."""
    Z, C = rows.Z[:, 1:], rows.Z[centres, 1:]
    return first_maximum(2 * Z @ C.T - np.square(C).sum(axis=1))


def first_maximum(values: Floats) -> Labels:
    """Return the first place in each row whose value is the maximum, but for ties: (N, P) → (N,).

    >>> first_maximum(np.array([[1.0, 3.0, 2.0], [0.1 + 0.2, 0.3, 0.0], [0.3, 0.1 + 0.2, 0.0]]))
    array([1, 0, 0])
    """
    return np.argmax(values >= values.max(axis=1, keepdims=True) - TIE, axis=1)


def _split_worst(rows: Rows, theta: Floats, pieces: int) -> Labels:
    """Start from a smaller fit: cut the cells with the largest errors in two, across their longest direction."""
    values = rows.Z @ theta.T
    labels = first_maximum(values)
    error = rows.weight * np.square(rows.y - values.max(axis=1))
    for new in range(len(theta), pieces):
        worst = int(np.argmax(np.bincount(labels, weights=error, minlength=new)))
        cell = np.flatnonzero(labels == worst)
        X = rows.Z[cell, 1:]
        X = X - np.average(X, axis=0, weights=rows.weight[cell])
        direction = np.linalg.eigh((X * rows.weight[cell][:, None]).T @ X)[1][:, -1]
        # An eigenvector has no sign of its own.
        direction = direction * np.sign(direction[np.argmax(np.abs(direction) > 0.5 * np.abs(direction).max())])
        labels[cell[X @ direction > TIE]] = new
    return labels


def fit_difference(
    rows: Rows, pieces: int, rules: FitRules, warm: tuple[Floats, Floats] | None = None
) -> tuple[tuple[Floats, Floats], float]:
    """Fit max_i a[i]·[1, x] − max_j b[j]·[1, x] with this many pieces each: return (a, b) and the weighted RSS."""
    base = affine_fit(rows)
    flat = (base[None], np.zeros((1, len(base))))
    best = (flat, _rss(rows, rows.Z @ base))
    if pieces == 1:
        return best
    starts = [(_nearest(rows, order[:pieces]), _nearest(rows, order[::-1][:pieces])) for order in rows.orders]
    # A convex or concave function is better fitted from a convex or concave start.
    nothing = np.zeros(len(rows.y), dtype=np.intp)
    for sign in (1.0, -1.0):
        theta, _ = fit_max_affine(replace(rows, y=sign * rows.y, orders=rows.orders[:2]), pieces, rules)
        labels = first_maximum(rows.Z @ theta.T)
        starts.append((labels, nothing) if sign > 0 else (nothing, labels))
    if warm is not None:
        up = replace(rows, y=rows.y + (rows.Z @ warm[1].T).max(axis=1))
        down = replace(rows, y=(rows.Z @ warm[0].T).max(axis=1) - rows.y)
        starts.insert(0, (_split_worst(up, warm[0], pieces), _split_worst(down, warm[1], pieces)))
    for both in starts:
        found = _alternate_difference(rows, both, pieces, base, rules)
        if found[1] < best[1] * (1 - TIE):
            best = found
    return best


def _alternate_difference(
    rows: Rows, labels: tuple[Labels, Labels], pieces: int, base: Floats, rules: FitRules
) -> tuple[tuple[Floats, Floats], float]:
    D = len(base)
    origin = np.concatenate([np.tile(base, (pieces, 1)), np.zeros((pieces, D))])
    theta, rss = origin, np.inf
    since = 0
    for _ in range(rules.max_rounds):
        target = _joint_fit(rows, labels, pieces, origin, rules.ridge)
        # A full step may lead away once rows change pieces; the first fit has nothing to fall back on.
        for step in (1.0,) if not np.isfinite(rss) else (1.0, 0.5, 0.25, 0.1):
            trial = theta + step * (target - theta)
            a, b = rows.Z @ trial[:pieces].T, rows.Z @ trial[pieces:].T
            error = _rss(rows, a.max(axis=1) - b.max(axis=1))
            if error < rss * (1 - TIE):
                break
        else:
            break
        fresh = (first_maximum(a), first_maximum(b))
        same = all(np.array_equal(x, y) for x, y in zip(fresh, labels, strict=True))
        since = 0 if error < rss * (1 - 1e-4) else since + 1
        theta, rss, labels = trial, error, fresh
        if same or since >= PATIENCE:
            break
    return (theta[:pieces], theta[pieces:]), rss


def _joint_fit(rows: Rows, labels: tuple[Labels, Labels], pieces: int, origin: Floats, ridge: float) -> Floats:
    """Fit all pieces of both maxima at once, rows belonging to one piece of each."""
    D = rows.Z.shape[1]
    gram, moment = np.zeros((2 * pieces, D, 2 * pieces, D)), np.zeros((2 * pieces, D))
    residual = rows.y - rows.Z @ origin[0]  # both maxima at the origin: the affine fit, and zero
    weighted = rows.Z * rows.weight[:, None]
    pair = labels[0] * pieces + labels[1]
    order = np.argsort(pair, kind="stable")
    codes, starts = np.unique(pair[order], return_index=True)
    for code, cell in zip(codes, np.split(order, starts[1:]), strict=True):
        i, j = code // pieces, pieces + code % pieces
        block = weighted[cell].T @ rows.Z[cell]
        side = weighted[cell].T @ residual[cell]
        gram[i, :, i] += block
        gram[j, :, j] += block
        gram[i, :, j] -= block
        gram[j, :, i] -= block
        moment[i] += side
        moment[j] -= side
    size = 2 * pieces * D
    change = _solve(gram.reshape(size, size), moment.ravel(), max(ridge, 1e-9) * rows.weight.sum())
    return origin + change.reshape(2 * pieces, D)
