"""The degree, chosen by held-out rows: it rises while interactions lower the loss of rows that did not find them.

GCV charges a knot the same wherever it was chosen from. Interactions are chosen from so many candidates that they pass
by chance. So each degree is fitted to parts of the rows, and judged by the others with the loss of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.split import folds_of

# The rows are split in so many folds by what they hold, and so many of them are held out, one after the other: five
# did no better than three on real tables, see docs/suite.md.
FOLDS, HELD_OUT_FOLDS = 5, 3
SEED = 23
MAX_AUTO_DEGREE = 3
# What the loss of a higher degree must be below, over the best one.
MAX_RATIO = 0.99

# From a degree, rows to fit to and held-out rows to the loss of each of the latter.
Losses = Callable[[int, NDArray[np.intp], NDArray[np.intp]], Floats]


def auto_degrees(features: int, interacting: Sequence[int] | None) -> range:
    """Return the degrees that an automatic choice may try, 1 among them."""
    count = features if interacting is None else len(interacting)
    return range(1, max(min(MAX_AUTO_DEGREE, count), 1) + 1)


def held_out_losses(
    X: NDArray[np.floating],
    losses: Losses,
    degrees: Sequence[int],
    weights: Floats | None = None,
    codes: NDArray[np.intp] | None = None,
) -> tuple[float, ...]:
    """Return the mean held-out losses of degrees, up to the first that does not lower them.

    Empty where there is nothing to choose: one degree, or no rows of every class on both sides.

    codes : (N,) classes, which all folds then have in about the same shares
    """
    label = folds_of(np.asarray(X, np.float64), FOLDS, SEED, codes)
    parts = [(np.flatnonzero(label != k), np.flatnonzero(label == k)) for k in range(min(HELD_OUT_FOLDS, label.max()))]
    if len(degrees) < 2 or not parts or any(len(training) < 2 for training, _ in parts):
        return ()
    out = np.concatenate([held for _, held in parts])
    weight = np.ones(len(out)) if weights is None else weights[out]
    found: list[float] = []
    for degree in degrees:
        rows = np.concatenate([losses(degree, *part) for part in parts])
        found.append(float(weight @ rows / weight.sum()))
        if chosen_degree(found) < degree:
            break
    return tuple(found)


def chosen_degree(losses: Sequence[float]) -> int:
    """Return the degree that the losses of degrees 1, 2, … speak for: a higher one must gain 1 % on the best before it.

    >>> chosen_degree([1.0, 0.995]), chosen_degree([1.0, 0.9, 0.895]), chosen_degree([])
    (1, 2, 1)
    """
    best = 0
    for k, loss in enumerate(losses):
        if loss < MAX_RATIO * losses[best]:
            best = k
    return best + 1
