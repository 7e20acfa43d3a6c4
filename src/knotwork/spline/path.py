"""The models of every size, so that people can choose what GCV or folds chose for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from knotwork.arrays import Floats
from knotwork.spline.model import Spline
from knotwork.spline.result import SplineFit


@dataclass(frozen=True)
class PathModel:
    """A model on the pruning path: the best subset of its size that elimination found.

    terms : their number, the intercept included
    rss, gcv : of the training rows, summed over the responses; for classes and other losses those of the search
    held_out : mean error of the rows that folds held out, None without folds
    spline : the model itself; None for classes and other losses than squared errors, whose coefficients follow from
        rows, unless it is the chosen one
    """

    terms: int
    rss: float
    gcv: float
    held_out: float | None
    spline: Spline | None


def path_models(fit: SplineFit, held_out: Mapping[int, float], logits: Spline | None = None) -> tuple[PathModel, ...]:
    """Return the models of all sizes, the smallest first.

    held_out : errors by size; logits : the chosen spline of a classifier, or of another loss
    """
    chosen, pruning = len(fit.spline.terms) + 1, fit.standardised.pruning
    models = []
    for k, (rss, gcv) in enumerate(zip(pruning.rss, pruning.gcv, strict=True)):
        size = k + 1
        own = fit.spline if logits is None else logits
        spline = own if size == chosen else fit.of_size(size) if logits is None else None
        unit = fit.standardised.rss_unit
        models.append(PathModel(size, float(rss) * unit, float(gcv) * unit, held_out.get(size), spline))
    return tuple(models)


def smallest_penalties(fit: SplineFit) -> Floats:
    """Return, for each size, the smallest penalty at which GCV would choose it: (sizes,), NaN where none does.

    GCV prefers size s to t where √rss_s·(n − t − p·(t − 1)/2) ≤ √rss_t·(n − s − p·(s − 1)/2), a bound on p from below
    or from above.
    """
    rss, n = fit.standardised.pruning.rss, fit.selection.observations
    size, root = np.arange(1, 1 + len(rss)), np.sqrt(np.maximum(rss, 0.0))
    out = np.full(len(rss), np.nan)
    for s in range(len(rss)):
        constant = root[s] * (n - size) - root * (n - size[s])
        slope = (root * (size[s] - 1) - root[s] * (size - 1)) / 2
        others = size != size[s]
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = -constant / slope
        low = max(0.0, float(np.max(bound[others & (slope < 0)], initial=0.0)))
        high = float(np.min(bound[others & (slope > 0)], initial=np.inf))
        impossible = bool((others & (slope == 0) & (constant > 0)).any())
        # Beyond this there are more parameters than observations.
        limit = np.inf if size[s] == 1 else 2 * (n - size[s]) / (size[s] - 1)
        if low <= high and low < limit and not impossible:
            out[s] = low
    return out
