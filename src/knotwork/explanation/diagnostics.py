"""Predictions against the truth, row by row or class by class: what the pictures of quality show.

Numbers: predicted against actual, and residuals. Classes: the confusion matrix, ROC and precision-recall curves, and
calibration. All are plain records of arrays; scikit-learn computes the curves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.explanation.quality import probabilities
from knotwork.explanation.subject import Rows, Subject

# Points of a scatter, points of a curve, bins of a calibration curve and of a histogram: what a picture can show.
MAX_POINTS = 800
MAX_CURVE = 160
CALIBRATION_BINS = 10
HISTOGRAM_BINS = 40
# Coverage of the intervals that pages show.
INTERVAL = 0.9


@dataclass(frozen=True)
class Residuals:
    """One output: actual and predicted of some rows (≤ 800), and of all rows the residuals' histogram and quantiles.

    edges, counts : of actual − predicted, (B + 1,) and (B,)
    quantiles : of the residuals, at 5, 50 and 95 %
    """

    rows: NDArray[np.intp]
    actual: Floats
    predicted: Floats
    edges: Floats
    counts: NDArray[np.int64]
    quantiles: Floats


@dataclass(frozen=True)
class ClassCurves:
    """One class against the others; curves are empty where the rows have none, or nothing but this class.

    false_positive, true_positive : ROC, with its area ``auc``
    recall, precision : with the average precision ``ap``; share : of the class among the rows
    chance, found, counts : calibration, the mean probability and the share of the class in bins of equal counts
    """

    false_positive: Floats
    true_positive: Floats
    auc: float
    recall: Floats
    precision: Floats
    ap: float
    share: float
    chance: Floats
    found: Floats
    counts: NDArray[np.int64]


def residuals(outputs: Floats, rows: Rows) -> list[Residuals]:
    """Compare numbers with the truth, for each output."""
    assert rows.y is not None
    chosen = np.arange(len(rows))
    if len(rows) > MAX_POINTS:
        chosen = np.sort(np.random.default_rng(0).choice(len(rows), MAX_POINTS, replace=False))
    numbers = chosen if rows.numbers is None else rows.numbers[chosen]
    found = []
    for k in range(outputs.shape[1]):
        difference = rows.y[:, k] - outputs[:, k]
        spread = float(np.ptp(difference)) > 0
        counts, edges = np.histogram(difference, bins=HISTOGRAM_BINS if spread else 1)
        quantiles = np.quantile(difference, [0.05, 0.5, 0.95])
        found.append(Residuals(numbers, rows.y[chosen, k], outputs[chosen, k], edges, counts, quantiles))
    return found


def confusion(subject: Subject, outputs: Floats, rows: Rows) -> NDArray[np.int64]:
    """Count rows by their class and the most probable one: (K, K), a row per class."""
    assert subject.classes is not None
    assert rows.y is not None
    count = len(subject.classes)
    answers = probabilities(outputs, count).argmax(axis=1)
    table: NDArray[np.int64] = np.bincount(rows.y * count + answers, minlength=count**2).reshape(count, count)
    return table


def class_curves(subject: Subject, outputs: Floats, rows: Rows) -> list[ClassCurves]:
    """Return the curves of each class; for two classes those of the second alone."""
    assert subject.classes is not None
    assert rows.y is not None
    count = len(subject.classes)
    chances = probabilities(outputs, count)
    return [_class_curves(chances[:, k], rows.y == k) for k in (range(count) if count > 2 else (1,))]


def _class_curves(chance: Floats, is_it: NDArray[np.bool_]) -> ClassCurves:
    from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

    mean, found, counts = calibration(chance, is_it)
    none = np.empty(0)
    if not is_it.any() or is_it.all():
        return ClassCurves(none, none, np.nan, none, none, np.nan, float(is_it.mean()), mean, found, counts)
    false, true, _ = roc_curve(is_it, chance)
    precision, recall, _ = precision_recall_curve(is_it, chance)
    a, b = _thinned(len(false)), _thinned(len(recall))
    return ClassCurves(
        false[a], true[a], float(roc_auc_score(is_it, chance)), recall[b], precision[b],
        float(average_precision_score(is_it, chance)), float(is_it.mean()), mean, found, counts,
    )  # fmt: skip


def calibration(chance: Floats, is_it: NDArray[np.bool_]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return mean probability, share of the class and number of rows in bins of about equal counts.

    Rows of the same probability are in the same bin.

    >>> mean, found, counts = calibration(np.array([0.1, 0.1, 0.9, 0.9]), np.array([False, False, True, False]))
    >>> mean.round(2).tolist(), found.tolist(), counts.tolist()
    ([0.1, 0.9], [0.0, 0.5], [2, 2])
    """
    edges = np.unique(np.quantile(chance, np.linspace(0, 1, CALIBRATION_BINS + 1)))
    bins = np.searchsorted(edges[1:-1], chance, side="right")
    counts = np.bincount(bins)
    full = counts > 0
    means, shares = (np.bincount(bins, weights=v)[full] / counts[full] for v in (chance, is_it))
    return means, shares, counts[full]


def _thinned(count: int) -> NDArray[np.intp]:
    """Return the places of no more points than a picture shows, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, MAX_CURVE)).round().astype(np.intp))
