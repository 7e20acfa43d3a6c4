"""Which rows errors are measured on: rows of the fit, other rows, or the fit's own out-of-fold predictions.

Errors on training rows flatter a model, so the tables, plots and the page say which rows they are on. A fit remembers
its rows (:class:`knotwork.data.training_rows.TrainingRows`); the caller may also say it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats, read_array
from knotwork.data.links import LINKS
from knotwork.data.training_rows import TrainingRows
from knotwork.errors import KnotworkError
from knotwork.explanation.subject import Rows, Subject

# Shares of training rows from which, and up to which, rows count as all of one kind: some have copies by chance.
ALL, NONE = 0.95, 0.05


@dataclass(frozen=True)
class Basis:
    """The rows that errors are on.

    kind : "training", "held-out", "mixed", "unknown", or "out-of-fold" for predictions that the fit made for training
        rows without them
    seen : about the share of the rows that were in the fit; None if nobody knows
    outputs : (N, p) out-of-fold outputs on the scale of the model, NaN for rows without one; None for the other kinds
    """

    kind: str
    seen: float | None = None
    outputs: Floats | None = None

    @property
    def name(self) -> str:
        """The rows in a few words."""
        return {
            "training": "training rows",
            "held-out": "test rows",
            "out-of-fold": "out-of-fold" if self.outputs is None or self.judged.all() else "validation rows",
            "mixed": f"{100 * (self.seen or 0):.0f} % training rows",
            "unknown": "maybe training rows",
        }[self.kind]

    @property
    def sentence(self) -> str:
        """What that means for the errors."""
        return {
            "training": "Measured on training rows: the model has seen them, so new rows will have larger errors. "
            "Pass test rows to explain(model, X, y) to see the error on new rows.",
            "held-out": "Measured on test rows: the model was not fitted to them."
            + (f" {100 * self.seen:.1f} % of them have a copy among the training rows." if self.seen else ""),
            "out-of-fold": self._out_of_fold,
            "mixed": f"About {100 * (self.seen or 0):.0f} % of these rows are training rows, on which errors are too "
            "low. Pass test rows alone to see the error on new rows; knotwork fit prints it for its held-out rows.",
            "unknown": "The model does not know whether it was fitted to these rows. If it was, the errors are too "
            "low. If it was not, pass held_out=True to explain.",
        }[self.kind]

    @property
    def _out_of_fold(self) -> str:
        if self.outputs is None or self.judged.all():
            return "Measured out of fold: each row is predicted by a fit that was not trained on it."
        return (
            f"Measured on the {self.judged.sum()} validation rows (of {len(self.outputs)}): the model was not trained "
            "on them, but they chose the epoch that was kept, so the errors are slightly low. Pass test rows to "
            "explain(model, X, y) to see the error on new rows."
        )

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Which rows have an out-of-fold prediction: (N,)."""
        assert self.outputs is not None
        return np.asarray(np.isfinite(self.outputs).all(axis=1))


def find_basis(model: Any, subject: Subject, rows: Rows | None, X: Any, y: Any, held_out: bool | None) -> Basis | None:
    """Find out which rows these are; None without responses, where there are no errors."""
    if rows is None or rows.y is None:
        return None
    if held_out is True:
        return Basis("held-out", 0.0)
    known = getattr(subject.estimator, "training_rows_", None)
    share = None
    if isinstance(known, TrainingRows):
        encoder = subject.estimator.encoder_
        matrix, values = _as_fitted(model, subject, rows, X, y)
        if matrix is not None:
            share = known.share(matrix, values, encoder)
            outputs = _out_of_fold(subject)
            found = outputs is not None and len(outputs) == len(rows) and np.isfinite(outputs).all(axis=1).any()
            if found and known.same(matrix, values, encoder):
                return Basis("out-of-fold", 1.0, outputs)
    if held_out is False:
        return Basis("training", 1.0)
    if share is None:
        return Basis("unknown")
    return Basis("training" if share >= ALL else "held-out" if share <= NONE else "mixed", share)


def _as_fitted(model: Any, subject: Subject, rows: Rows, X: Any, y: Any) -> tuple[Floats | None, Any]:
    """Return rows and responses as the estimator inside was given them; None if that cannot be had."""
    if subject.table is subject.estimator.encoder_ and model is subject.estimator:
        return rows.matrix, rows.y
    try:
        while model is not subject.estimator:
            if hasattr(model, "best_estimator_"):
                model = model.best_estimator_
            elif hasattr(model, "steps"):
                for _, step in model.steps[:-1]:
                    X = X if step is None or step == "passthrough" else step.transform(X)
                model = model.steps[-1][1]
            elif hasattr(model, "transformer_"):
                y = model.transformer_.transform(read_array(y, "y").reshape(len(rows), -1))
                model = model.regressor_
            else:
                return None, None
        return model.encoder_.encode(X), rows.y if subject.classes is not None else read_array(y, "y")
    except (KnotworkError, ValueError, TypeError, AttributeError):
        return None, None


def _out_of_fold(subject: Subject) -> Floats | None:
    """Return what an estimator kept of its out-of-fold predictions, as outputs (N, p) on the scale of the model."""
    found = getattr(subject.estimator, "oof_prediction_", None)
    if found is None or subject.table is not subject.estimator.encoder_:
        return None
    values = np.asarray(found, dtype=np.float64).reshape(len(found), -1)
    if subject.classes is not None:
        if values.shape[1] == 1:  # the probability of the second of two classes
            values = np.hstack([1 - values, values])
        if values.shape[1] != len(subject.classes):
            return None
        with np.errstate(divide="ignore"):
            logits = np.maximum(np.log(values), np.log(np.finfo(float).tiny))
        count = len(subject.output_names)
        return logits[:, -count:] - logits[:, :1] if count < len(subject.classes) else logits
    with np.errstate(all="ignore"):
        outputs: Floats = LINKS[subject.link][0](values)
    return outputs
