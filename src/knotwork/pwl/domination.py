"""Pieces that are nowhere on a box the maximum of their set, found by linear programs."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from knotwork.arrays import Floats

# Error of a linear program, relative to its coefficients.
SOLVER = 1e-7


def without_dominated(theta: Floats, members: frozenset[int], sides: Floats) -> frozenset[int]:
    """Leave out the pieces of a set whose removal changes its maximum nowhere on the box."""
    kept = sorted(members)
    for j in sorted(members, key=lambda j: theta[j, 0]):
        others = [k for k in kept if k != j]
        if others and _excess(theta[j], theta[others], sides) <= 0:
            kept = others
    return frozenset(kept)


def _excess(piece: Floats, others: Floats, sides: Floats) -> float:
    """Maximum by which a piece rises above all others on the box; a difference of rounding size counts as rising."""
    difference = piece - others
    size = np.abs(difference[:, 1:]) @ np.abs(sides).max(axis=0) + np.abs(difference[:, 0])
    scale = float(size.max())
    if scale == 0:  # the same piece
        return 0.0
    # Variables x and t: the maximum t with t ≤ (piece − other)(x) for every other.
    rows = np.column_stack([-difference[:, 1:], np.full(len(others), scale)]) / scale
    result = linprog(
        np.r_[np.zeros(piece.size - 1), -1.0],
        A_ub=rows,
        b_ub=difference[:, 0] / scale,
        bounds=[*zip(*sides.tolist(), strict=True), (-2, 2)],
        method="highs",
    )
    return float(-result.fun) + SOLVER if result.status == 0 else np.inf
