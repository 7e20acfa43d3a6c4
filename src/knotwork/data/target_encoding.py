"""Categories by the mean response of their rows, without showing any training row its own response.

A level of n rows with the mean ȳᵢ becomes ȳ + n/(n + m)·(ȳᵢ − ȳ), which is the rule of scikit-learn's ``TargetEncoder``
with smooth=m. Its m is the variance within levels over the variance between them, estimated by the analysis of variance
(one-way, random effects): where levels differ no more than chance has it, m is infinite and all become ȳ.

A training row gets the number that its level has without the fold that the row is in; only ȳ stays that of all rows,
for the mean of the other folds would say a little about the fold left out. Folds follow from what the rows hold, so
that the order of the rows does not matter and copies of a row are in one fold. Where fewer than half of the rows are
different, equal rows are no copies but observations, and are spread over the folds.

All sums are exact, of values rounded to fixed point: not even their last bits depend on the order of the rows. Time and
memory are linear in the rows, whatever the number of levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.split import mix, mixed_columns, occurrences

FOLDS = 5
# Numbers that a level becomes at most: for more classes or responses, those of the largest classes or the first ones.
MAX_MEASURES = 10
# Share of different rows below which equal rows are observations, not copies.
COPIES = 0.5
# Standard errors by which levels must differ more than chance has it, or the column says nothing.
STANDARD_ERRORS = 2.0
SEED = 18
# Bits of a float's mantissa that a sum may fill.
_BITS = 52


@dataclass(frozen=True)
class Response:
    """What a column of many levels is encoded by: y (N, p), or (N,) codes of classes and the classes' labels."""

    y: NDArray[Any]
    classes: tuple[str, ...] | None = None

    @property
    def chosen(self) -> list[int]:
        """The responses or classes that become measures; of two classes, the second."""
        if self.classes is None:
            return list(range(min(self.y.shape[1], MAX_MEASURES)))
        if len(self.classes) == 2:
            return [1]
        counts = np.bincount(self.y, minlength=len(self.classes))
        return sorted(np.argsort(-counts, kind="stable")[:MAX_MEASURES].tolist())

    @property
    def measures(self) -> tuple[str, ...]:
        """Their names."""
        if self.classes is not None:
            return tuple(f"share of {self.classes[k]}" for k in self.chosen)
        return ("mean",) if self.y.shape[1] == 1 else tuple(f"mean of y{k}" for k in self.chosen)

    def column(self, k: int) -> Floats:
        """Return a response, or the indicator of a class: (N,)."""
        return self.y[:, k] if self.classes is None else (self.y == k).astype(np.float64)


@dataclass(frozen=True)
class Encoding:
    """means : (levels, k); overall : (k,) mean of all rows; rows : (N, k) of the training rows, out of fold."""

    means: Floats
    overall: Floats
    rows: Floats


def encode_levels(
    codes: NDArray[np.intp],
    levels: int,
    response: Response,
    weights: Floats | None,
    folds: NDArray[np.intp],
    chosen: Sequence[int] | None = None,
) -> Encoding:
    """Encode rows given by codes of levels, 0 ≤ code < levels, by their response: those responses or classes chosen.

    >>> y = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])[:, None]
    >>> found = encode_levels(np.repeat([0, 1], 3), 2, Response(y), None, np.tile([0, 1, 2], 2))
    >>> found.overall, found.means.round(1).tolist(), found.rows[0].round(1)
    (array([6.]), [[1.0], [11.0]], array([1.]))
    """
    parts = [_encode(codes, levels, response.column(k), weights, folds) for k in chosen or response.chosen]
    return Encoding(*(np.stack(arrays, axis=-1) for arrays in zip(*parts, strict=True)))


def _encode(
    codes: NDArray[np.intp], levels: int, y: Floats, weights: Floats | None, folds: NDArray[np.intp]
) -> tuple[Floats, Any, Floats]:
    z, centre, scale = _in_unit_range(y, weights)
    w, unit = (np.ones(len(y)), 1.0) if weights is None else _in_unit_weights(weights)
    cell = codes * FOLDS + folds

    def sums(values: Floats) -> Floats:
        found = np.bincount(cell, _fixed(values), levels * FOLDS)
        return found.reshape(levels, FOLDS).astype(np.float64, copy=False)

    count = sums(w)
    mean = sums(z * w).sum() / count.sum()
    z = (z - mean) / 2  # within −1 and 1 again
    moments = np.stack([count, sums(z * w), sums(z**2 * w)]) * unit
    whole = moments.sum(axis=2)
    shifts = np.zeros((levels, FOLDS))
    shift = np.zeros(levels)
    if _differ(*whole):
        shift = _shift(*whole)
        for k in range(FOLDS):
            shifts[:, k] = _shift(*(whole - moments[:, :, k]))
    overall = centre + scale * mean
    return overall + 2 * scale * shift, overall, overall + 2 * scale * shifts[codes, folds]


def _in_unit_range(y: Floats, weights: Floats | None) -> tuple[Floats, float, float]:
    """Return y as centre + scale·z with z from −1 to 1, and 0 where the weight is 0."""
    counted = y if weights is None else y[weights > 0]
    low, high = float(counted.min()), float(counted.max())
    centre, half = low / 2 + high / 2, high / 2 - low / 2
    scale = float(2.0 ** np.ceil(np.log2(half))) if half > 0 else 1.0
    z = np.clip(y / scale - centre / scale, -1, 1)
    return z if weights is None else np.where(weights > 0, z, 0.0), centre, scale


def _in_unit_weights(weights: Floats) -> tuple[Floats, float]:
    """Return weights of at most 1, and what to multiply their sums by."""
    unit = float(2.0 ** np.ceil(np.log2(weights.max())))
    return weights / unit, unit


def _fixed(values: Floats) -> Floats:
    """Round values from −1 to 1 to a step at which any sum of all of them is exact."""
    step = 2.0 ** (np.ceil(np.log2(len(values) + 1)) - _BITS)
    return np.rint(values / step) * step


def _variances(n: Floats, s: Floats, q: Floats) -> tuple[float, float, float, float, float]:
    """Analysis of variance of levels: mean squares between and within, their degrees of freedom, mean rows a level."""
    present = n > 0
    n, s, q = n[present], s[present], q[present]
    total, levels = n.sum(), len(n)
    if levels < 2 or total <= levels:
        return 0.0, 0.0, 0.0, 0.0, 1.0
    means = s / n
    between = (n * (means - s.sum() / total) ** 2).sum() / (levels - 1)
    within = np.maximum(q - s * means, 0.0).sum() / (total - levels)
    return between, within, levels - 1.0, total - levels, (total - (n**2).sum() / total) / (levels - 1)


def _differ(n: Floats, s: Floats, q: Floats) -> bool:
    """Whether levels differ by more than chance: two standard errors of the ratio of variances."""
    between, within, levels, rows, _ = _variances(n, s, q)
    return bool(levels and between > within * (1 + STANDARD_ERRORS * np.sqrt(2 / levels + 2 / rows)))


def _shift(n: Floats, s: Floats, q: Floats) -> Floats:
    """Return what each level is above the mean of the rows, drawn towards it: n/(n + m)·(ȳᵢ − ȳ)."""
    between, within, levels, _, size = _variances(n, s, q)
    if not levels or between <= within:
        return np.zeros(len(n))
    m = within * size / (between - within)
    means = np.divide(s, n, out=np.zeros(len(n)), where=n > 0)
    return np.where(n > 0, n / (n + m) * (means - s.sum() / n.sum()), 0.0)


def folds_of(columns: Floats, levels: Sequence[NDArray[np.uint64]], response: Response) -> NDArray[np.intp]:
    """Give every row a fold by what it holds.

    columns : (N, d) the features that are numbers already; levels : a number for each row's level, (N,) a column
    """
    numbers = mixed_columns(columns.T, SEED, rows=len(columns))
    for level in levels:
        numbers = mix(numbers, level)
    distinct, place = np.unique(numbers, return_inverse=True)
    if distinct.size < COPIES * len(numbers):
        y = response.y if response.y.ndim == 2 else response.y[:, None]
        numbers = mixed_columns([*y.astype(np.float64).T, occurrences(place, y)], SEED, before=numbers)
    return (numbers % np.uint64(FOLDS)).astype(np.intp)
