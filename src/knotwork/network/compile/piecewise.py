"""Lattices and sums of maxima as chains, in the coordinates they are given or in others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from knotwork.arrays import Floats
from knotwork.network.activations import Activation
from knotwork.network.chain import Chain
from knotwork.network.compile.lattice import lattice_chain
from knotwork.pwl.lattice import LatticePWL, Sets
from knotwork.pwl.maxsum import MaxSum


def piecewise_chain(
    function: LatticePWL | MaxSum, rule: Activation, *, tolerance: float | None = None, sides: Floats | None = None
) -> Chain:
    """Write a lattice or a sum of maxima as a chain; ``sides`` (2, d) is the box that saturating activations need."""
    theta, groups, combine = groups_of(function)
    return lattice_chain(theta, groups, combine, rule, tolerance=tolerance, sides=sides)


def groups_of(function: LatticePWL | MaxSum) -> tuple[Floats, tuple[Sets, ...], Floats]:
    """Return pieces, groups of sets, and what each group adds to each output (outputs, groups)."""
    if isinstance(function, LatticePWL):
        return function.theta, function.outputs, np.eye(len(function.outputs))
    groups: tuple[Sets, ...] = tuple((g,) for g in function.groups)
    combine = function.coef.T
    sloped = np.flatnonzero(function.affine.any(axis=1))
    # The affine part of an output is one more piece, in a group of its own.
    first = len(function.theta)
    groups += tuple((((first + k),),) for k in range(len(sloped)))
    extra = np.eye(len(function.affine))[:, sloped]
    return np.concatenate([function.theta, function.affine[sloped]]), groups, np.hstack([combine, extra])


def rescale_piecewise(function: LatticePWL | MaxSum, centre: Floats, scale: Floats) -> LatticePWL | MaxSum:
    """Return g with g((x − centre)/scale) = f(x)."""

    def moved(theta: Floats) -> Floats:
        return np.column_stack([theta[:, 0] + theta[:, 1:] @ centre, theta[:, 1:] * scale])

    if isinstance(function, MaxSum):
        return replace(function, theta=moved(function.theta), affine=moved(function.affine))
    return replace(function, theta=moved(function.theta))
