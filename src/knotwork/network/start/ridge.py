"""The ridge of a start: which ones to try, refits with each, and what they cost on held-out rows.

A small ridge follows steep effects; its coefficients are large, and a few steps of training change the function most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import torch

from knotwork.arrays import CHUNK, Floats
from knotwork.data.sample import Sample
from knotwork.network.start.task import StartTask
from knotwork.network.train.losses import LogLoss
from knotwork.spline.model import Product, Spline

# Ridges of a start's coefficients, in standardised coordinates: the smaller one suits steep functions, the larger one
# noisy data. Held-out rows decide; without them the smaller one is taken.
RIDGES = (1e-3, 1e-2)
# Smaller ones for effects that bend steeply and often, that of a postcode say. Training keeps less of a steep start, so
# a smaller ridge must lower the held-out loss by so many standard errors: on small tables a better start with large
# coefficients often ended as a worse network.
STEEP_RIDGES, STEEP_GAIN = (1e-4, 1e-5, 1e-6), 4.0
# Ridges of logits, as in MarsClassifier, tried until the held-out loss rises; without held-out rows the second. They
# are larger than a spline alone needs: training makes logits steeper where that pays, but takes long to flatten
# overconfident ones.
CLASS_RIDGES = (3.0, 1.0, 0.3, 0.1, 0.03)


def ridges_of(task: StartTask, ridge: float | str) -> Sequence[float]:
    """Return the ridges to choose from, in the order in which they are tried."""
    if not isinstance(ridge, str):
        return (float(ridge),)
    ridges, alone = (CLASS_RIDGES, 1) if isinstance(task.loss, LogLoss) else (RIDGES, 0)
    return ridges if task.held_out is not None else ridges[alone : alone + 1]


def steeper(first: tuple[Spline, float, float], task: StartTask, held_out: Sample) -> tuple[Spline, float, float]:
    """Try smaller ridges on the terms of a spline; return the one of minimum held-out loss if the gain is no chance."""
    if not first[0].terms:
        return first
    best, share = first, held_out.weight / held_out.weight.sum()
    costs = _costs(first[0], task, held_out)
    for spline, own in zip(ridge_refits(first[0], task, STEEP_RIDGES), STEEP_RIDGES, strict=True):
        gains = costs - _costs(spline, task, held_out)
        gain = float(share @ gains)
        if cancels(spline, task.rows):
            break
        if first[1] - gain < best[1] and gain > STEEP_GAIN * np.sqrt(share**2 @ np.square(gains - gain)):
            best = spline, first[1] - gain, own
    return best


def cancels(spline: Spline, rows: Sample) -> bool:
    """Whether some feature alone, or a set of features that interact, moves predictions by more than all of y varies.

    Then such effects cancel on the training rows, and a row that combines the features in another way would get a
    prediction far from any response.
    """
    terms_of: dict[tuple[int, ...], list[int]] = {}
    for m, term in enumerate(spline.terms):
        terms_of.setdefault(tuple(sorted(term.features)), []).append(m)
    low = np.full((len(terms_of), spline.coef.shape[1]), np.inf)
    high = -low
    for start in range(0, len(rows), CHUNK):
        basis = spline.basis(rows.X[start : start + CHUNK])
        effects = np.stack([basis[:, own] @ spline.coef[own] for own in terms_of.values()])
        low, high = np.minimum(low, effects.min(axis=1)), np.maximum(high, effects.max(axis=1))
    return bool((high - low > np.ptp(rows.y, axis=0)).any())


def held_out_cost(spline: Spline, task: StartTask) -> float:
    """Return what a spline costs on the held-out rows, in the coordinates of training."""
    if task.held_out is None:
        return 0.0
    rows = task.held_out
    return float(rows.weight @ _costs(spline, task, rows) / rows.weight.sum())


def _costs(spline: Spline, task: StartTask, rows: Sample) -> Floats:
    """Return what a spline costs on each row: (N,)."""
    # Predictions are not held here, which would hide how wild a spline is.
    c = replace(task.coordinates, y_limits=None)
    outputs = torch.from_numpy(c.responses(spline(rows.X).reshape(len(rows), -1)))
    loss = task.loss.within(c)
    costs: Floats = loss.rows(outputs, torch.from_numpy(loss.targets(rows.y, c))).numpy()
    return costs


def ridge_refits(spline: Spline, task: StartTask, ridges: Sequence[float]) -> list[Spline]:
    """Fit the coefficients again with each ridge on them, in standardised coordinates; knots and terms stay."""
    if not spline.terms or not any(ridges):
        return [spline] * len(ridges)
    c, rows = task.coordinates, task.rows
    # A term in standardised coordinates is itself over the scale of its first feature, or of all of a product's.
    features = [t.features if isinstance(t, Product) else t.features[:1] for t in spline.terms]
    unit = np.array([prod(c.x_scale[f] for f in own) for own in features])
    share = rows.weight / rows.weight.sum()
    target = c.responses(rows.y)
    parts = [slice(start, start + CHUNK) for start in range(0, len(rows), CHUNK)]
    # Twice over the rows, some at a time: all terms of all rows would be several times the table.
    mean = sum(share[part] @ spline.basis(rows.X[part]) for part in parts) / unit
    gram, products = np.zeros((len(unit), len(unit))), np.zeros((len(unit), target.shape[1]))
    for part in parts:
        basis = spline.basis(rows.X[part]) / unit - mean
        weighted = basis * share[part, None]
        gram += weighted.T @ basis
        products += weighted.T @ target[part]

    def refit(ridge: float) -> Spline:
        if ridge == 0:
            return spline
        coef = np.linalg.solve(gram + ridge * np.eye(len(gram)), products)
        intercept = c.y_centre + c.y_scale * (share @ target - mean @ coef)
        return replace(spline, intercept=intercept, coef=coef * c.y_scale / unit[:, None])

    return [refit(ridge) for ridge in ridges]
