"""Intervals and sets that cover what they say: conformal rules on rows that the model had not seen.

A regressor's score of a row is |y − prediction| over a fitted spread; a classifier's is 1 − the probability of the
row's class, and 0 where that is the most probable one. The interval of a new row holds all values whose score is no
larger than a quantile of those scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.errors import DataError, one_line
from knotwork.spline.model import Spline

# Rows of a block times scores: what is sorted at a time.
MAX_VALUES = 1 << 22


@dataclass(frozen=True)
class Calibration:
    """Scores of rows that a model had not seen.

    rule : "split", of rows held out from one model, or "cross", of out-of-fold rows
    scores, weights : (n,) in rising order of the scores
    folds : (n,) the fold that held each row out, where the folds' own models are known; else empty
    spread : spline of log(spread) of the encoded features; None for a classifier
    """

    rule: str
    scores: Floats
    weights: Floats
    folds: NDArray[np.intp]
    spread: Spline | None = None

    @classmethod
    def of(
        cls, rule: str, scores: Floats, weights: Floats, spread: Spline | None = None,
        folds: NDArray[np.intp] | None = None,
    ) -> Calibration:  # fmt: skip
        """Sort scores."""
        order = np.argsort(scores, kind="stable")
        own = np.zeros(0, dtype=np.intp) if folds is None else folds[order]
        return cls(rule, scores[order], weights[order], own, spread)

    def quantile(self, coverage: float) -> float:
        """Return the score that a new row exceeds with a probability of at most 1 − coverage.

        The new row counts as one more, of the mean weight: that is where the guarantee of split-conformal rules for any
        number of rows comes from.
        """
        place = self._place(coverage)
        total = np.cumsum(self.weights) / self.weights.mean()
        return float(self.scores[min(int(np.searchsorted(total, place * (1 - 1e-12))), len(total) - 1)])

    def _place(self, coverage: float) -> float:
        require_coverage(coverage)
        n = len(self.scores)
        place = coverage * (n + 1)
        if place > n * (1 + 1e-12):
            needed = int(np.ceil(coverage / (1 - coverage) * (1 - 1e-9)))
            raise DataError(
                f"a coverage of {float(coverage)!r} needs at least {needed} rows that the model has not seen, there "
                f"are {n}; choose a lower coverage, or hold out more rows"
            )
        return place

    def widths(self, matrix: Floats, coverage: float) -> Floats:
        """Return half the width of each row's interval: (N,)."""
        return self.quantile(coverage) * self.spreads(matrix)

    def spreads(self, matrix: Floats) -> Floats:
        """Return the fitted spread of rows: (N, d) → (N,)."""
        assert self.spread is not None
        return np.exp(self.spread(matrix).reshape(-1))

    def cross_interval(self, matrix: Floats, fold_predictions: Floats, coverage: float) -> Floats:
        """Return the intervals of cross-validation+: fold_predictions (N, folds) → (N, 2).

        Every row of the scores makes an interval around the prediction of the fold that held it out; lower and upper
        end are quantiles of their ends.
        """
        place = self._place(coverage)
        spreads, ends = self.spreads(matrix), np.empty((len(matrix), 2))
        step = max(1, MAX_VALUES // len(self.scores))
        for start in range(0, len(matrix), step):
            rows = slice(start, start + step)
            middle = fold_predictions[rows][:, self.folds]
            reach = spreads[rows, None] * self.scores
            ends[rows, 0] = -self._upper(reach - middle, place)
            ends[rows, 1] = self._upper(middle + reach, place)
        return ends

    def _upper(self, values: Floats, place: float) -> Floats:
        """Return the value of each row, (N, n), that stands at a place of n in rising order, by weight: (N,)."""
        n = len(self.weights)
        if (self.weights == self.weights[0]).all():
            at = min(max(int(np.ceil(place - 1e-9)), 1), n) - 1
            found: Floats = np.partition(values, at, axis=1)[:, at]
            return found
        order = np.argsort(values, axis=1)
        total = np.cumsum(self.weights[order], axis=1) / self.weights.mean()
        below = (total < place * (1 - 1e-12)).sum(axis=1).clip(max=n - 1)
        chosen: Floats = np.take_along_axis(values, np.take_along_axis(order, below[:, None], axis=1), axis=1)[:, 0]
        return chosen


def require_coverage(coverage: float) -> None:
    """Refuse what is no share."""
    if isinstance(coverage, bool) or not isinstance(coverage, (int, float, np.number)) or not 0 < coverage < 1:
        got = one_line(repr(coverage), 60)
        raise DataError(f"coverage must be greater than 0 and less than 1, got {got}; pass 0.9 for 90 %")


def class_scores(probabilities: Floats, codes: NDArray[np.intp]) -> Floats:
    """Return 1 − the probability of each row's class, 0 where it is the most probable one: (N, K), (N,) → (N,).

    A set holds the most probable class always: its score has to be the lowest for the sets to cover what they say.
    """
    scores: Floats = 1 - probabilities[np.arange(len(codes)), codes]
    scores[probabilities.argmax(axis=1) == codes] = 0.0
    return scores


def prediction_sets(probabilities: Floats, quantile: float) -> NDArray[np.bool_]:
    """Return the classes whose score is no larger than a quantile, the most probable one always: (N, K)."""
    found = probabilities >= 1 - quantile - 1e-12
    found[np.arange(len(found)), probabilities.argmax(axis=1)] = True
    return found
