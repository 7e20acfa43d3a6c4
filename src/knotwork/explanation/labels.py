"""What axes are called: the response, or log-odds and logits of classes; and on which rows errors are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from knotwork.data.links import link_named
from knotwork.explanation.quality import error_name
from knotwork.explanation.subject import Rows, Subject

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation


def output_labels(subject: Subject, rows: Rows | None) -> tuple[str, ...]:
    """Name the p outputs, a single response by its own name where it is known."""
    if subject.classes is not None or rows is None or rows.response == "y" or len(subject.output_names) > 1:
        return subject.output_names
    # Rows of a model with a loss of its own have y itself; the outputs are those of the link.
    return (rows.response if subject.loss is None else link_named(subject.link, rows.response),)


def response_labels(subject: Subject, rows: Rows | None) -> tuple[str, ...]:
    """Name what the rows' responses are, which errors are measured on."""
    if subject.loss is not None and rows is not None:
        return (rows.response,)
    return output_labels(subject, rows)


def response_label(subject: Subject, rows: Rows | None) -> str:
    """Name what the model predicts."""
    return rows.response if rows is not None and rows.response != "y" else ", ".join(subject.output_names)


def measure_unit(explanation: Explanation, measure: str) -> str:
    """Say what the numbers of an importance are."""
    subject = explanation.subject
    if measure == "permutation":
        basis = explanation.basis
        # Shuffled rows are predicted by the model itself, whatever it is judged by.
        name = "" if basis is None else "training rows" if basis.kind == "out-of-fold" else basis.name
        return f"rise in {error_name(subject)}" + (f", {name}" if name else "")
    if measure == "coefficient":
        what = "logits" if subject.classes is not None else ", ".join(output_labels(subject, explanation.rows))
        return f"sum of |coefficient| × std of the term, in {what}"
    return {"subsets": "number of subsets", "gcv": "√ decrease in GCV, the largest is 100",
            "rss": "√ decrease in RSS, the largest is 100"}[measure]  # fmt: skip
