"""Fits to rows that are not in memory: files, memory maps, batches, Dask collections. ``fit`` comes here with them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import compute_class_weight

from knotwork.arrays import Floats
from knotwork.compute.workers import thread_count
from knotwork.data.batches import (
    MEMORY_LIMIT,
    Batches,
    Report,
    Rows,
    Source,
    is_arrow_dataset,
    is_iterable_of_batches,
)
from knotwork.data.columns.part import read_parts
from knotwork.data.limits import response_limits
from knotwork.data.part_reader import Numbers, Part, PartReader
from knotwork.data.survey import Survey, encoded_ends, learn_survey, survey_rows
from knotwork.data.table import TableEncoder
from knotwork.errors import DataError, WeightWarning
from knotwork.estimators.inputs import (
    MAX_WEIGHT,
    check_training_table,
    read_labels,
    read_response,
    read_weights,
    refusing,
)
from knotwork.parameters import is_same, shown
from knotwork.progress import reading_progress
from knotwork.spline.degree import chosen_degree
from knotwork.spline.fit import with_held_out_losses
from knotwork.spline.layout import Known
from knotwork.spline.likelihood import ClassFit, default_terms, held_out_log_losses, indicators
from knotwork.spline.part_logits import fit_part_logits
from knotwork.spline.parts import fit_parts
from knotwork.spline.result import SplineFit


@dataclass(frozen=True)
class Opened:
    """A source, and the bytes that a fit to it may take."""

    source: Source
    memory_limit: int


def open_source(X: Any, y: Any, sample_weight: Any) -> Opened | None:
    """Return the source that X is, or None for a table or an array in memory."""
    if isinstance(X, Batches):
        return Opened(X.source(y, sample_weight), X.memory_limit)
    if is_dask(X):
        from knotwork.data.dask_source import DaskSource

        return Opened(DaskSource(X, y, sample_weight), MEMORY_LIMIT)
    large = isinstance(X, np.memmap) and X.nbytes > MEMORY_LIMIT
    batches = y is None and is_iterable_of_batches(X)
    if large or batches or isinstance(X, str | os.PathLike) or is_arrow_dataset(X):
        return open_source(Batches(X), y, sample_weight)
    return None


def is_dask(X: Any) -> bool:
    """Whether X is a collection of Dask; nothing is imported to find out."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


def require_parts(model: Any) -> None:
    """Refuse what a fit to parts does not have."""
    usual = {"compat": None, "cv": None, "loss": "squared_error"}
    why = {
        "compat": "the knots of a sample",
        "cv": "all rows, none held out",
        "loss": "squared errors from sums of parts",
    }
    for name, value in usual.items():
        if not is_same(getattr(model, name, value), value):
            raise DataError(
                f"rows that are not in memory are fitted with {why[name]}, got {name}={shown(getattr(model, name))}; "
                f"leave it out, or fit a sample in memory"
            )
    if model.backend == "torch":
        raise DataError("rows that are not in memory are summed on the CPU, got backend='torch'; choose backend='cpu'")


@dataclass(frozen=True)
class Moments:
    """What a survey adds up of responses that are numbers: (p,) each; ``flat`` says whether y was (n,)."""

    weight: float
    low: Floats
    high: Floats
    mean: Floats
    squares: Floats
    flat: bool

    @classmethod
    def of(cls, y: Floats, weight: Floats | None) -> Moments:
        """Measure responses (n,) or (n, p) of rows of positive weight."""
        total = float(len(y)) if weight is None else float(weight.sum())
        found = []
        for values in np.ascontiguousarray(y.reshape(len(y), -1).T):
            mean = float(values.mean() if weight is None else weight @ values / total)
            centred = values - mean
            squares = float(centred @ (centred if weight is None else centred * weight))
            found.append((values.min(), values.max(), mean, squares))
        low, high, means, spread = np.array(found).T
        return cls(total, low, high, means, spread, y.ndim == 1)

    def plus(self, other: Moments) -> Moments:
        """Return the same of these rows and others."""
        if self.flat != other.flat:
            raise DataError("all parts must have a y of one shape, got (N,) and (N, outputs)")
        weight = self.weight + other.weight
        apart = other.mean - self.mean
        return Moments(
            weight,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.mean + apart * (other.weight / weight),
            self.squares + other.squares + np.square(apart) * (self.weight * other.weight / weight),
            self.flat,
        )


@dataclass(frozen=True)
class Counts:
    """What a survey adds up of labels: rows and weights of each; kind : of the labels' dtype."""

    counts: dict[Any, tuple[int, float]]
    text: bool

    def plus(self, other: Counts) -> Counts:
        """Return the same of these rows and others."""
        if self.text != other.text:
            raise DataError("labels must be of one kind, y mixes text and numbers; turn all of them into text, say")
        counts = dict(self.counts)
        for label, (rows, weight) in other.counts.items():
            before = counts.get(label, (0, 0.0))
            counts[label] = before[0] + rows, before[1] + weight
        return Counts(counts, self.text)


@dataclass(frozen=True)
class SurveyPart:
    """The first reading of a part: checks what it holds, as a fit in memory does."""

    classes: bool
    threads: int = 1

    def __call__(self, rows: Rows) -> Survey:
        """Survey a part."""
        count = len(rows)
        y = _labels(rows.y, count) if self.classes else read_response(rows.y, count)
        weight = None
        if rows.weight is not None and _is_zero(rows.weight, count):  # other parts may have weight
            weight = np.zeros(count)
        elif rows.weight is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", WeightWarning)
                weight, _ = read_weights(rows.weight, count, min_rows=0)
        kept = y if weight is None else y[weight > 0]
        own = weight if weight is None else weight[weight > 0]
        if self.classes:
            labels, place = np.unique(kept, return_inverse=True)
            sizes = np.bincount(place, minlength=len(labels))
            masses = sizes if own is None else np.bincount(place, own, minlength=len(labels))
            response: Any = Counts(
                {label: (int(r), float(w)) for label, r, w in zip(labels.tolist(), sizes, masses, strict=True)},
                labels.dtype.kind in "OUS",
            )
        else:
            response = Moments.of(kept, own) if len(kept) else None
        return survey_rows(rows.X, y, weight, rows.number, response, self.threads)


def _is_zero(weight: Any, count: int) -> bool:
    values = np.asarray(weight)
    return values.shape == (count,) and values.dtype.kind in "biuf" and not values.any()


def _labels(y: Any, count: int) -> NDArray[Any]:
    with warnings.catch_warnings():  # a small part may have nearly as many labels as rows
        warnings.simplefilter("ignore", UserWarning)
        labels = read_labels(y, count)
    return labels.astype(object) if labels.dtype.kind in "US" else labels


def merged(a: Survey, b: Survey) -> Survey:
    """Return the survey of two parts together."""
    return a.plus(b, _both)


def _both(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a.plus(b)


def survey(model: Any, opened: Opened, classes: bool, reading: Callable[[str], Report | None]) -> Survey:
    """Read a source for the first time."""
    threads = thread_count(model.n_jobs) if opened.source.local else 1
    found = opened.source.add(SurveyPart(classes, threads), merged, None, reading("knots"))
    if found.rows < 2:
        raise DataError(f"a fit needs at least 2 rows of positive weight, got {found.rows}; add rows or weight")
    if not found.total <= MAX_WEIGHT:
        raise DataError(
            f"sample weights must sum to at most 2**53 (9e15), the number of observations that floats can count, got "
            f"{found.total:g}; divide them by their mean"
        )
    check_training_table(model, found.X)
    return found


def fit_regressor(model: Any, opened: Opened) -> None:
    """Fit a MarsRegressor to a source."""
    require_parts(model)
    with reading_progress(bool(model.verbose)) as reading:
        found = survey(model, opened, False, reading)
        moments: Moments = found.response
        outputs = len(moments.mean)
        if model.monotonic_cst is not None and outputs > 1:
            raise ValueError(f"monotonic_cst is for one response, got {outputs}; fit a model for each")
        scale = None
        if model.scale_responses and outputs > 1:
            std = np.sqrt(moments.squares / moments.weight)
            scale = np.where(std > 0, std, 1.0)
        encoder = learn_survey(found, model.missing)
        reader = PartReader(encoder, Numbers(scale))
        ends = np.stack([moments.low, moments.high]) / (1.0 if scale is None else scale)
        options = model._options(encoder)
        fitted = _fit(model, opened, found, reader, ends, options, reading)
        if scale is not None:
            from knotwork.estimators.mars import in_own_units

            fitted = in_own_units(fitted, scale)
    held = response_limits(moments.low, moments.high) if options.extrapolate == "clip" else None
    model.fit_ = replace(fitted, spline=replace(fitted.spline, output_limits=held))
    model._flat_output = moments.flat
    _set(model, encoder, fitted)


def _fit(
    model: Any, opened: Opened, found: Survey, reader: PartReader, ends: Floats, options: Any,
    reading: Callable[[str], Report | None],
) -> SplineFit:  # fmt: skip
    known = _known(found, reader, ends)
    sample = known.sample
    encoder = reader.encoder
    fitted = fit_parts(
        opened.source, reader, known, encoder.feature_names, options, memory_limit=opened.memory_limit, reading=reading
    )
    return replace(fitted, spline=replace(fitted.spline, parts=read_parts(encoder.parts, sample.X)))


def _known(found: Survey, reader: PartReader, ends: Floats) -> Known:
    part = reader(Rows(found.X, found.y, found.weight, 0))
    total = found.total
    own = reader.target.weights(part.y)
    if own is not None and isinstance(reader.target, Classes):
        total = float(reader.target.totals.sum())
    sample = Part(part.X, reader.target.responses(part.y), part.weight)
    return Known(sample, total, found.rows, encoded_ends(found, reader.encoder, part.X), ends)


def _set(model: Any, encoder: TableEncoder, fitted: SplineFit) -> None:
    model.encoder_ = encoder.with_means(fitted.coordinates.x_centre)
    model.training_rows_ = None  # they were never all here


@dataclass(frozen=True)
class Classes:
    """Labels: codes by their place among ``labels``; shares, totals and factors : (K,) of the classes.

    totals : Σw of each class, with its own weight in it; factors : those weights, None for none
    """

    labels: NDArray[Any]
    totals: Floats
    factors: Floats | None

    def read(self, y: Any) -> NDArray[Any]:
        """Return the codes: (n,). Those of classes of weight zero are 0, and their rows are left out."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            labels = _labels(y, len(y))
        return np.minimum(np.searchsorted(self.labels, labels), len(self.labels) - 1).astype(np.intp)

    def responses(self, y: NDArray[Any]) -> Floats:
        """Return the indicators over the roots of the shares."""
        return indicators(y, self.totals / self.totals.sum())

    def weights(self, y: NDArray[Any]) -> Floats | None:
        """Return the weights of the rows' classes."""
        return None if self.factors is None else self.factors[y]


def read_counts(counts: Counts, class_weight: Any) -> tuple[NDArray[Any], Classes]:
    """Return the classes, and how labels are read."""
    labels = np.array(sorted(counts.counts), dtype=object if counts.text else None)
    if len(labels) < 2:
        only = f"only class {labels.tolist()[0]!r}" if len(labels) else "no class"
        raise DataError(f"a classifier needs rows of at least 2 classes, got {only}; add rows of another class")
    rows, weights = (
        np.array(each, dtype=np.float64) for each in zip(*(counts.counts[k] for k in labels.tolist()), strict=True)
    )
    factors = None
    if class_weight is not None:
        if class_weight == "balanced":
            factors = rows.sum() / (len(labels) * rows)
        else:
            with refusing("class_weight"):
                factors = compute_class_weight(class_weight, classes=labels, y=labels)
        if not (np.isfinite(factors).all() and (factors > 0).all()):
            raise DataError(
                f"class weights of rows that are not in memory must be finite and positive, got {factors.tolist()}"
            )
        weights = weights * factors
    return labels, Classes(labels, weights, factors)


def fit_classifier(model: Any, opened: Opened) -> None:
    """Fit a MarsClassifier to a source."""
    require_parts(model)
    if model.monotonic_cst is not None:
        raise DataError(
            "rows that are not in memory are fitted without inequalities on logits, got monotonic_cst; leave it out, "
            "or fit a table in memory"
        )
    with reading_progress(bool(model.verbose)) as reading:
        found = survey(model, opened, True, reading)
        labels, target = read_counts(found.response, model.class_weight)
        own = target.weights(target.read(found.y))
        weighted = (
            found if own is None else replace(found, weight=own * (1.0 if found.weight is None else found.weight))
        )
        encoder = learn_survey(weighted, model.missing)  # as in memory, where classes weigh when gaps are filled
        reader = PartReader(encoder, target)
        options = replace(model._options(encoder), spacing="free")
        part = reader(Rows(found.X, found.y, found.weight, 0))
        held: tuple[float, ...] = ()
        if isinstance(options.max_degree, str):
            held = held_out_log_losses(part.X, part.y, len(labels), part.weight, options, float(model.ridge))
            options = replace(options, max_degree=chosen_degree(held))
        if options.max_terms is None:
            terms = default_terms(found.rows, len(encoder.feature_names), options.max_degree)
            options = replace(options, max_terms=terms)
        shares = target.totals / target.totals.sum()
        top = np.ones(1) if len(labels) == 2 else 1 / np.sqrt(shares)
        ends = np.stack([np.zeros_like(top), top])
        search = with_held_out_losses(_fit(model, opened, found, reader, ends, options, reading), held)
        model.fit_ = fit_part_logits(opened.source, reader, part, search, target.totals, float(model.ridge), reading)
    assert isinstance(model.fit_, ClassFit)
    model.classes_ = labels
    model.temperature_ = 1.0
    _set(model, encoder, search)
