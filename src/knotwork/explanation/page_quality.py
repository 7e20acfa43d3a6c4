"""How good the model is, on which rows, and where it errs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.explanation.diagnostics import INTERVAL, class_curves, confusion, residuals
from knotwork.explanation.labels import response_labels
from knotwork.explanation.page_numbers import short
from knotwork.explanation.quality import judged, predictions

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

# Classes that a confusion matrix shows; those of most rows.
MAX_CLASSES = 20


def quality(explanation: Explanation) -> dict[str, Any] | None:
    """Return the table of errors, the sentence about their rows, and what the pictures show."""
    table = explanation.quality
    if table.empty:
        return None
    basis = explanation.basis
    lead = "" if basis is None else basis.sentence
    if any(str(c).startswith("validation") for c in table.columns):
        lead += " The validation error is that of the held-out rows; training kept the epoch with its minimum."
    rows = [{"name": str(name), "values": [v if isinstance(v, str) else float(v) for v in line]} for name, line in
            zip(table.index, table.to_numpy(), strict=True)]  # fmt: skip
    return {
        "columns": [str(c) for c in table.columns],
        "rows": rows,
        "responses": response_labels(explanation.subject, explanation.rows),
        "lead": lead.strip(),
        "basis": None if basis is None else {"kind": basis.kind, "name": basis.name},
        "numbers": _numbers(explanation),
        "classes": _classes(explanation),
        "interval": _interval(explanation),
    }


def _numbers(explanation: Explanation) -> list[dict[str, Any]] | None:
    subject, rows, basis = explanation.subject, explanation.rows, explanation.basis
    if rows is None or rows.y is None or basis is None or subject.classes is not None:
        return None
    outputs, on = judged(subject, rows, basis)
    return [
        {"rows": r.rows.tolist(), "actual": short(r.actual, 6), "predicted": short(r.predicted, 6),
         "edges": short(r.edges), "counts": r.counts.tolist(), "quantiles": short(r.quantiles), "count": len(on)}
        for r in residuals(predictions(subject, outputs), on)
    ]  # fmt: skip


def _classes(explanation: Explanation) -> dict[str, Any] | None:
    subject, rows, basis = explanation.subject, explanation.rows, explanation.basis
    if rows is None or rows.y is None or basis is None or subject.classes is None:
        return None
    outputs, on = judged(subject, rows, basis)
    counts = confusion(subject, outputs, on)
    shown = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:MAX_CLASSES])
    names = [str(label) for label in subject.classes]
    drawn = names[-1:] if len(names) == 2 else names
    return {
        "names": [names[k] for k in shown],
        "confusion": counts[np.ix_(shown, shown)].tolist(),
        "hidden": len(names) - len(shown),
        "curves": [
            {"name": name, "roc": [short(c.false_positive, 4), short(c.true_positive, 4)], "auc": short(c.auc),
             "pr": [short(c.recall, 4), short(c.precision, 4)], "ap": short(c.ap), "share": short(c.share),
             "calibration": [short(c.chance, 4), short(c.found, 4), c.counts.tolist()]}
            for name, c in zip(drawn, class_curves(subject, outputs, on), strict=True)
        ],
    }  # fmt: skip


def _interval(explanation: Explanation) -> dict[str, Any] | None:
    """Return how many responses of test rows lie within the model's own intervals; training rows made those."""
    if explanation.basis is None or explanation.basis.kind != "held-out":
        return None
    rows, intervals = explanation.rows, explanation.intervals
    if rows is None or rows.y is None or intervals is None or rows.y.shape[1] != 1:
        return None
    y = rows.y[:, 0]
    if explanation.subject.loss is None:
        y = explanation.subject.response(y)
    inside = (y >= intervals[:, 0]) & (y <= intervals[:, 1])
    return {
        "nominal": INTERVAL,
        "covered": float(inside.mean()),
        "width": float(np.median(np.ptp(intervals, axis=1))),
    }
