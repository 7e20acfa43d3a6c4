"""Which columns a model uses at all, and what is rounding: so that nothing is drawn where there is nothing.

A spline uses the columns of its terms. A network uses those with a path of weights to an output: a unit that reads a
column and whose output nobody reads does not count. What a model does not use has an effect of exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.explanation.subject import Subject, parts_of, sources

if TYPE_CHECKING:  # a spline is explained without torch
    from knotwork.network.chain import Chain

# Rounding of a sum, as a share of the largest of its values.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Usage:
    """Whether the spline and the network use each column, (columns,) each; None for what the model does not have."""

    spline: NDArray[np.bool_] | None
    network: NDArray[np.bool_] | None

    @property
    def model(self) -> NDArray[np.bool_]:
        """What predicts: the network where there is one."""
        found = self.network if self.network is not None else self.spline
        assert found is not None
        return found


def usage(subject: Subject) -> Usage:
    """Look at terms and weights."""
    spline = network = None
    if subject.spline is not None:
        spline = np.zeros(len(subject.parts), dtype=bool)
        for term, coef in zip(subject.spline.terms, subject.spline.coef, strict=True):
            if np.any(coef != 0):
                spline[list(parts_of(term, subject.parts))] = True
    if subject.network is not None:
        network = np.zeros(len(subject.parts), dtype=bool)
        np.logical_or.at(network, list(sources(subject.parts)), reached(subject.network))
    return Usage(spline, network)


def reached(network: Chain) -> NDArray[np.bool_]:
    """Return which features a network reads, (features,): those with a path of weights to an output."""
    found = np.ones(network.outputs, dtype=bool)
    for layer in reversed(network.layers):
        found = (layer.weight.numpy()[found] != 0).any(axis=0)
    return found


def without_rounding(values: Floats, size: float) -> Floats:
    """Set to zero what is rounding beside numbers of a size."""
    return np.where(np.abs(values) <= ROUNDING * size, 0.0, values)


def flat_where_rounding(curve: Floats, size: float) -> Floats:
    """Set a curve (G, p) to zero for each output that moves by no more than rounding."""
    moves = np.ptp(curve, axis=0) > ROUNDING * size if len(curve) else np.zeros(curve.shape[1], dtype=bool)
    return np.where(moves, curve, 0.0)
