"""Standardised coordinates, and the way back: a network is trained in one and used in the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from knotwork.arrays import Floats
from knotwork.network.chain import Chain, Layer


@dataclass(frozen=True)
class Coordinates:
    """Means and standard deviations of features (d,) and responses (p,)."""

    x_centre: Floats
    x_scale: Floats
    y_centre: Floats
    y_scale: float

    @classmethod
    def of(cls, X: Floats, y: Floats, weight: Floats | None = None) -> Coordinates:
        """Measure rows X (N, d), y (N, p); responses share one scale, so that their errors add as they are."""
        x_centre, x_scale = _moments(X, weight)
        y_centre, y_scale = _moments(y, weight)
        return cls(x_centre, x_scale, y_centre, float(np.sqrt(np.mean(np.square(y_scale)))))

    def features(self, X: Floats) -> Floats:
        """Standardise rows."""
        return (X - self.x_centre) / self.x_scale

    def responses(self, y: Floats) -> Floats:
        """Standardise responses."""
        return (y - self.y_centre) / self.y_scale


def _moments(values: Floats, weight: Floats | None) -> tuple[Floats, Floats]:
    # Scaled by the largest value first: squares of 1e200 do not exist.
    largest = np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)
    scaled = values / largest
    mean = np.average(scaled, axis=0, weights=weight)
    deviation = np.sqrt(np.average(np.square(scaled - mean), axis=0, weights=weight))
    # What varies less than rounding is constant.
    deviation = np.where(deviation > 1e-13 * np.abs(mean), deviation, 1 / largest)
    return mean * largest, deviation * largest


def fold(chain: Chain, coordinates: Coordinates) -> Chain:
    """Let a chain that computes in standardised coordinates compute in those of the data."""
    scale, centre = torch.from_numpy(coordinates.x_scale), torch.from_numpy(coordinates.x_centre)
    first, *rest = chain.hidden
    weight = first.weight / scale
    first = Layer(weight, first.bias - weight @ centre)
    output = Layer(
        chain.output.weight * coordinates.y_scale,
        chain.output.bias * coordinates.y_scale + torch.from_numpy(coordinates.y_centre),
    )
    conversion = replace(chain.conversion, bound=chain.conversion.bound * coordinates.y_scale)
    return replace(chain, hidden=(first, *rest), output=output, conversion=conversion)
