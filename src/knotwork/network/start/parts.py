"""A start from rows in parts, on other ranks say: terms and coefficients from sums over all of them.

As :func:`knotwork.network.start.choose.choose_start` does for additive splines without held-out rows. What is no sum,
such as the coordinates of training, follows from a sample that all who take part have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.blas import one_blas_thread
from knotwork.compute.workers import thread_count
from knotwork.data.batches import Rows, Source
from knotwork.data.columns.number import Number
from knotwork.data.limits import Limits
from knotwork.data.part_reader import Numbers, Part, PartReader
from knotwork.data.table import TableEncoder
from knotwork.errors import NetworkError
from knotwork.network.start.choose import (
    CLASS_KNOTS,
    MORE_CLASS_PENALTY,
    TWO_CLASS_PENALTY,
    class_start_terms,
    narrowed,
    start_terms,
    two_logits,
    with_lines,
)
from knotwork.network.start.ridge import CLASS_RIDGES, RIDGES
from knotwork.network.start.task import StartOptions, StartTask
from knotwork.network.train.losses import LogLoss, SquaredError
from knotwork.pwl.through import spline_with_outputs
from knotwork.spline.fit import FitOptions
from knotwork.spline.layout import Known
from knotwork.spline.likelihood import indicators
from knotwork.spline.model import Spline
from knotwork.spline.part_logits import fit_part_logits
from knotwork.spline.parts import ReadRows, Search, read_sums
from knotwork.spline.result import SplineFit

# Bytes for the sums where they lie in memory beside the rows.
MEMORY = 1 << 30


@dataclass(frozen=True)
class Codes:
    """Codes of classes as they are; totals : (K,) weights of the classes."""

    totals: Floats

    def read(self, y: Any) -> NDArray[Any]:
        """Return the codes."""
        return np.asarray(y, dtype=np.intp)

    def responses(self, y: NDArray[Any]) -> Floats:
        """Return the indicators over the roots of the shares."""
        return indicators(y, self.totals / self.totals.sum())

    def weights(self, y: NDArray[Any]) -> Floats | None:
        """Return none."""
        return None


@dataclass(frozen=True)
class Ends:
    """Number of rows, their weight, the range of X and y, and rows and weight of each class; over some rows."""

    rows: int
    total: float
    low: Floats
    high: Floats
    y_low: Floats
    y_high: Floats
    classes: Floats

    def plus(self, other: Ends) -> Ends:
        """Return the same of these rows and others."""
        return Ends(
            self.rows + other.rows,
            self.total + other.total,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            np.minimum(self.y_low, other.y_low),
            np.maximum(self.y_high, other.y_high),
            self.classes + other.classes,
        )


@dataclass(frozen=True)
class EndsOfPart:
    """Measures a part of encoded rows; classes : their number, 0 for numbers."""

    classes: int

    def __call__(self, rows: Rows) -> Ends:
        """Measure a part."""
        X, y = rows.X, np.asarray(rows.y)
        weight = np.ones(len(X)) if rows.weight is None else rows.weight
        counts = np.zeros((2, self.classes))
        if self.classes:
            counts[0], counts[1] = (np.bincount(y, w, minlength=self.classes) for w in (None, weight))
        return Ends(
            len(X), float(weight.sum()), X.min(axis=0), X.max(axis=0), y.min(axis=0), y.max(axis=0), counts
        )  # fmt: skip


def start_of_parts(
    source: Source, sample: Part, task: StartTask, options: StartOptions, *, memory_limit: int = MEMORY
) -> Spline:
    """Fit the spline that a network begins as to all rows of a source of encoded rows; task : of the sample."""
    if options.max_degree not in (1, "auto") or not isinstance(task.loss, SquaredError | LogLoss):
        raise NetworkError(
            f"a start from rows in parts is additive, for squared errors or classes, got "
            f"max_degree={options.max_degree!r}, {type(task.loss).__name__}; leave these out"
        )
    classes = max(2, task.outputs) if isinstance(task.loss, LogLoss) else 0
    ends = source.add(EndsOfPart(classes), Ends.plus)
    encoder = TableEncoder(tuple(Number(name) for name in task.names))
    fit_options = FitOptions(
        max_terms=options.max_terms, penalty=options.penalty, threshold=options.threshold,
        threads=thread_count(options.n_jobs), spacing="free",
    )  # fmt: skip
    with one_blas_thread():
        if classes:
            return _class_start(source, sample, task, options, ends, encoder, fit_options, memory_limit)
        return _number_start(source, sample, task, options, ends, encoder, fit_options, memory_limit)


def _number_start(
    source: Source, sample: Part, task: StartTask, options: StartOptions, ends: Ends, encoder: TableEncoder,
    fit_options: FitOptions, memory_limit: int,
) -> Spline:  # fmt: skip
    scale = task.coordinates.y_scale if task.outputs > 1 else np.ones(1)
    reader = PartReader(encoder, Numbers(scale))
    own = replace(sample, y=sample.y / scale)
    known = Known(own, ends.total, ends.rows, Limits(ends.low, ends.high), np.stack([ends.y_low, ends.y_high]) / scale)
    rows = read_sums(source, reader, known, fit_options, memory_limit=memory_limit)

    def fit(options: FitOptions) -> SplineFit:
        return Search.of(rows, known, task.names, options, memory_limit).finished(read=False)

    features = len(task.names)
    found = narrowed(fit, fit_options, lambda degree: start_terms(ends.rows, features, degree), task)
    ridge = RIDGES[0] if isinstance(options.ridge, str) else float(options.ridge)
    return spline_with_outputs(_ridge_refit(found, rows, ridge), scale, np.zeros(task.outputs))


def _ridge_refit(found: SplineFit, rows: ReadRows, ridge: float) -> Spline:
    """Fit the coefficients again with a ridge on them, from sums, in standardised coordinates of all rows."""
    spline = found.spline
    if not spline.terms or ridge == 0:
        return spline
    layout, terms = rows.layout, found.standardised.refit.terms
    own = rows.term_products(terms)
    total = own.gram[0, 0]
    mean = own.gram[1:, 0] / total
    # Terms over the stds of their features, in units of the search; responses over theirs.
    unit = found.coordinates.x_scale[terms.feature] * layout.x.scale[terms.feature]
    spread = np.sqrt(np.maximum(own.squares / total - np.square(own.responses[0] / total), 0.0))
    spread = np.where(spread > 0, spread, 1.0)
    gram = (own.gram[1:, 1:] / total - np.outer(mean, mean)) / np.outer(unit, unit)
    y_mean = own.responses[0] / total
    products = (own.responses[1:] / total - np.outer(mean, y_mean)) / unit[:, None] / spread
    coef = np.linalg.solve(gram + ridge * np.eye(len(gram)), products) * spread / unit[:, None]
    intercept = y_mean - mean @ coef - rows.means  # of the responses as the layout centres them
    units = found.path.units if found.path is not None else None
    assert units is not None
    chosen = found.selection.selected
    return units[chosen].spline(list(spline.terms), intercept, coef, spline.feature_names, spline.limits)


def _class_start(
    source: Source, sample: Part, task: StartTask, options: StartOptions, ends: Ends, encoder: TableEncoder,
    fit_options: FitOptions, memory_limit: int,
) -> Spline:  # fmt: skip
    counts, totals = ends.classes
    classes = len(totals)
    if np.count_nonzero(counts) < classes:
        raise NetworkError(f"all {classes} classes must have rows, got {counts.astype(int).tolist()}; add rows")
    fit_options = replace(fit_options, max_knots=CLASS_KNOTS)
    if fit_options.penalty is None:
        fit_options = replace(fit_options, penalty=TWO_CLASS_PENALTY if classes == 2 else MORE_CLASS_PENALTY)
    target = Codes(totals)
    reader = PartReader(encoder, target)
    top = np.ones(1) if classes == 2 else 1 / np.sqrt(totals / totals.sum())
    own = replace(sample, y=target.responses(sample.y))
    known = Known(own, ends.total, ends.rows, Limits(ends.low, ends.high), np.stack([np.zeros_like(top), top]))
    rows = read_sums(source, reader, known, fit_options, memory_limit=memory_limit)

    def fit(options: FitOptions) -> SplineFit:
        return Search.of(rows, known, task.names, options, memory_limit).finished(read=False)

    rows_of: Sequence[int] = counts.astype(int).tolist()
    search = narrowed(
        fit, fit_options, lambda degree: class_start_terms(rows_of, len(task.names), degree), task
    )  # fmt: skip
    search = replace(search, spline=with_lines(search.spline, task))
    ridge = CLASS_RIDGES[1] if isinstance(options.ridge, str) else float(options.ridge)
    spline = fit_part_logits(source, reader, sample, search, totals, ridge, lambda _: None).spline
    return two_logits(spline) if task.outputs == 2 else spline
