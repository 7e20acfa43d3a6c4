"""How many pieces: fits of growing size on some rows, judged on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.pwl.maxaffine import Rows

# Sizes in a row that are no better than the best before the search stops.
PATIENCE = 3
# A larger fit has to be better by this share: ties go to the smaller one.
BETTER = 1e-3

Fit = TypeVar("Fit")


@dataclass(frozen=True)
class PiecewiseFit:
    """What a fit remembers.

    coordinates : means and stds of features and responses (1 for the std of a constant)
    sizes, errors : per output, the numbers of pieces that were tried and their mean squared errors on held-out rows, in
        units of the response's variance; empty if the number was given
    """

    coordinates: Coordinates
    sizes: tuple[tuple[int, ...], ...]
    errors: tuple[tuple[float, ...], ...]


def choose_size(
    sizes: Iterable[int],
    fit: Callable[[int, Fit | None], Fit],
    predict: Callable[[Fit, Floats], Floats],
    held: Rows,
) -> tuple[list[int], list[float], list[Fit]]:
    """Fit growing sizes, each from the one before, until they stop getting better: return sizes, errors and fits."""
    tried: list[int] = []
    errors: list[float] = []
    fits: list[Fit] = []
    for size in sizes:
        fits.append(fit(size, fits[-1] if fits else None))
        tried.append(size)
        errors.append(float(np.average(np.square(held.y - predict(fits[-1], held.Z)), weights=held.weight)))
        best = best_of(errors)
        if len(errors) - 1 - best >= PATIENCE:
            break
    return tried, errors, fits


def best_of(errors: list[float]) -> int:
    """Return the position of the minimum error; of equal errors, that of the smallest size."""
    best = 0
    for k, error in enumerate(errors):
        if error < errors[best] * (1 - BETTER):
            best = k
    return best
