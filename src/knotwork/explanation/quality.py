"""How far predictions are from the truth: one error for each task, and a table of who has which, on which rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.errors import DataError
from knotwork.explanation.basis import Basis
from knotwork.explanation.subject import Rows, Subject

if TYPE_CHECKING:
    import pandas as pd


def error_name(subject: Subject) -> str:
    """Name of the error of a subject's task."""
    if subject.classes is not None:
        return "log loss"
    return "RMSE" if subject.loss is None else subject.loss.error_name


def error(subject: Subject, outputs: Floats, rows: Rows) -> float:
    """Root mean squared error of a regression or the error of its own loss, log loss of classes, for outputs (N, p)."""
    if rows.y is None:
        raise DataError("errors need the true responses, got no y; pass explain(model, X, y)")
    if subject.loss is not None:
        return subject.loss.error(outputs[:, 0], rows.y[:, 0])
    if subject.classes is None:
        scale = _power(outputs - rows.y)
        return scale * float(np.sqrt(np.mean(np.square((outputs - rows.y) / scale))))
    logits = class_logits(outputs, len(subject.classes))
    top = logits.max(axis=1, keepdims=True)
    chances = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return float(-chances[np.arange(len(rows)), rows.y].mean())


def _power(values: Floats) -> float:
    """Return a power of two near the largest of values: over it no square is infinite or zero, and no bit changes."""
    largest = float(np.abs(values).max(initial=0.0))
    return float(np.ldexp(1.0, np.frexp(largest)[1] - 1)) if 0 < largest < np.inf else 1.0


def reported_loss(subject: Subject, loss: float) -> float:
    """Return the error that a loss of the history is: the root of a squared error, others as they are."""
    return loss**0.5 if subject.classes is None and subject.loss is None else loss


def class_logits(outputs: Floats, classes: int) -> Floats:
    """Return one logit per class; where a reference class has none of its own it is 0."""
    missing = classes - outputs.shape[1]
    return np.concatenate([np.zeros((len(outputs), missing)), outputs], axis=1) if missing else outputs


def probabilities(outputs: Floats, classes: int) -> Floats:
    """Return the probability of each class: (N, p) → (N, K)."""
    from scipy.special import softmax

    found: Floats = softmax(class_logits(outputs, classes), axis=1)
    return found


def explained(subject: Subject, outputs: Floats, rows: Rows) -> float:
    """R² of a regression or D² of its own loss, share of right answers of a classification."""
    assert rows.y is not None
    if subject.loss is not None:
        y = rows.y[:, 0]
        of_constant = float(subject.loss.deviance(np.full(len(y), subject.loss.constant(y)), y).sum())
        left = float(subject.loss.deviance(outputs[:, 0], y).sum())
        return 1 - left / of_constant if of_constant > 0 else 0.0
    if subject.classes is None:
        off = rows.y - rows.y.mean(axis=0)
        scale = _power(off)
        residual, total = (float(np.square(part / scale).sum()) for part in (outputs - rows.y, off))
        return 1 - residual / total if total > 0 else 0.0
    return float((class_logits(outputs, len(subject.classes)).argmax(axis=1) == rows.y).mean())


def judged(subject: Subject, rows: Rows, basis: Basis) -> tuple[Floats, Rows]:
    """Return the outputs that a model is judged by, and their rows: out-of-fold ones where the fit made them."""
    if basis.outputs is None:
        return subject(rows.matrix), rows
    return basis.outputs[basis.judged], rows.take(basis.judged)


def predictions(subject: Subject, outputs: Floats) -> Floats:
    """Return outputs on the scale that the rows' responses are on: (N, p) → (N, p)."""
    return outputs if subject.loss is None else subject.response(outputs)


def quality(
    subject: Subject,
    rows: Rows | None,
    basis: Basis | None = None,
    random_start: Subject | None = None,
    random_basis: Basis | None = None,
) -> pd.DataFrame:
    """Return errors of each model, the rows they are on, and the best one on the held-out rows of training."""
    import pandas as pd

    records: dict[str, dict[str, Any]] = {}
    label = error_name(subject)
    share = "accuracy" if subject.classes is not None else "R²" if subject.loss is None else "D²"
    truth = rows if rows is not None and rows.y is not None else None
    place, other_place = (
        "" if found is None else "training rows" if found.kind == "out-of-fold" else found.name
        for found in (basis, random_basis)
    )

    def add(
        name: str, outputs: Floats | None, held_out: float | None, on: Rows | None = truth, at: str = place
    ) -> None:
        record: dict[str, Any] = {}
        if on is not None and outputs is not None:
            record = {label: error(subject, outputs, on), share: explained(subject, outputs, on), "rows": at}
        if held_out is not None:
            record[f"validation {label}"] = reported_loss(subject, held_out)
        if record:
            records[name] = record

    calibrated = getattr(subject.estimator, "calibration_error_", None)
    if truth is not None and basis is not None and basis.outputs is not None:
        found, on = judged(subject, truth, basis)
        add("out-of-fold prediction", found, None, on, basis.name)
    history = subject.history if subject.history is not None and len(subject.history) else None
    if subject.spline is not None:
        first = history.validation_loss[0] if history is not None else None
        add("spline", None if rows is None else subject.evaluate_spline(rows.matrix), first)
        if calibrated is not None and subject.network is None and "spline" in records:
            records["spline"]["calibration error"] = calibrated
    if subject.network is not None:
        best = history.validation_loss[history.best_epoch] if history is not None else None
        name = "network" if subject.spline is None else "trained network"
        add(name, None if rows is None else subject.evaluate_network(rows.matrix), best)
        if calibrated is not None and name in records:
            records[name]["calibration error"] = calibrated
    if random_start is not None:
        other = random_start.history
        best = other.validation_loss[other.best_epoch] if other is not None else None
        add("random start", None if rows is None else random_start(rows.matrix), best, at=other_place)
    if truth is not None and truth.y is not None:
        if subject.loss is not None:
            constant = subject.loss.constant(truth.y[:, 0])
            add(f"best constant for {truth.response}", np.full(truth.y.shape, constant), None)
        elif subject.classes is None:
            add(f"mean of {truth.response}", np.broadcast_to(truth.y.mean(axis=0), truth.y.shape), None)
        else:
            add("class shares alone", _shares(truth.y, len(subject.classes)), None)
    return pd.DataFrame.from_dict(records, orient="index")


def _shares(y: Any, classes: int) -> Floats:
    """Return the logits of the classes' shares for every row: (N, K)."""
    counts = np.bincount(y, minlength=classes)
    return np.broadcast_to(np.log(np.maximum(counts, 1e-300) / len(y)), (len(y), classes))
