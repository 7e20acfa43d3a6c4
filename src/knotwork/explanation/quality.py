"""How far predictions are from the truth: one error for each task, and a table of who has which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from knotwork.arrays import Floats
from knotwork.errors import DataError
from knotwork.explanation.subject import Rows, Subject

if TYPE_CHECKING:
    import pandas as pd


def error_name(subject: Subject) -> str:
    """Name of the error of a subject's task."""
    return "RMSE" if subject.classes is None else "log loss"


def error(subject: Subject, outputs: Floats, rows: Rows) -> float:
    """Root mean squared error of a regression, log loss of a classification, for outputs (N, p)."""
    if rows.y is None:
        raise DataError("errors need the true responses, got no y; pass explain(model, X, y)")
    if subject.classes is None:
        return float(np.sqrt(np.mean(np.square(outputs - rows.y))))
    logits = class_logits(outputs, len(subject.classes))
    top = logits.max(axis=1, keepdims=True)
    chances = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return float(-chances[np.arange(len(rows)), rows.y].mean())


def class_logits(outputs: Floats, classes: int) -> Floats:
    """Return one log-odds per class; where a reference class has none of its own it is 0."""
    missing = classes - outputs.shape[1]
    return np.concatenate([np.zeros((len(outputs), missing)), outputs], axis=1) if missing else outputs


def explained(subject: Subject, outputs: Floats, rows: Rows) -> float:
    """R² of a regression, share of right answers of a classification."""
    assert rows.y is not None
    if subject.classes is None:
        residual = float(np.square(outputs - rows.y).sum())
        total = float(np.square(rows.y - rows.y.mean(axis=0)).sum())
        return 1 - residual / total if total > 0 else 0.0
    return float((class_logits(outputs, len(subject.classes)).argmax(axis=1) == rows.y).mean())


def quality(subject: Subject, rows: Rows | None, random_start: Subject | None = None) -> pd.DataFrame:
    """Return errors on the given rows, and the best one on the held-out rows of training."""
    import pandas as pd

    records: dict[str, dict[str, float]] = {}
    label, share = error_name(subject), "R²" if subject.classes is None else "accuracy"

    def add(name: str, outputs: Floats | None, held_out: float | None) -> None:
        record = {}
        if rows is not None and rows.y is not None and outputs is not None:
            record = {label: error(subject, outputs, rows), share: explained(subject, outputs, rows)}
        if held_out is not None:
            record[f"validation {label}"] = held_out**0.5 if subject.classes is None else held_out
        if record:
            records[name] = record

    history = subject.history if subject.history is not None and len(subject.history) else None
    if subject.spline is not None:
        first = history.validation_loss[0] if history is not None else None
        add("spline", None if rows is None else subject.evaluate_spline(rows.matrix), first)
    if subject.network is not None:
        best = history.validation_loss[history.best_epoch] if history is not None else None
        name = "network" if subject.spline is None else "trained network"
        add(name, None if rows is None else subject.evaluate_network(rows.matrix), best)
    if random_start is not None:
        other = random_start.history
        best = other.validation_loss[other.best_epoch] if other is not None else None
        add("random start", None if rows is None else random_start(rows.matrix), best)
    if rows is not None and rows.y is not None and subject.classes is None:
        add(f"mean of {rows.response}", np.broadcast_to(rows.y.mean(axis=0), rows.y.shape), None)
    return pd.DataFrame.from_dict(records, orient="index")
