"""The head of the page: what is explained, and its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from knotwork import __version__
from knotwork.explanation.labels import output_labels, response_label

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

UNCHANGED = (
    "Training changed nothing: no epoch was better than the spline on the validation rows, so the network computes "
    "the spline."
)


def overview(explanation: Explanation) -> dict[str, Any]:
    """Return names, figures, the formula."""
    subject, rows, basis = explanation.subject, explanation.rows, explanation.basis
    response = response_label(subject, rows)
    figures: list[dict[str, Any]] = []

    def add(label: str, value: Any) -> None:
        figures.append({"label": label, "value": value})

    if rows is not None:
        add("rows", len(rows))
    add("inputs", len(subject.columns))
    if subject.spline is not None:
        add("terms of the spline", len(subject.spline.terms))
    if subject.network is not None:
        members = len(getattr(subject.estimator, "members_", ()))
        own = [w // max(members, 1) for w in subject.network.widths]
        add("hidden units" if members < 2 else f"hidden units, each of {members} networks", ", ".join(map(str, own)))
    if rows is not None and rows.y is not None and basis is not None:
        table = explanation.quality
        name = next(n for n in ("out-of-fold prediction", "trained network", table.index[0]) if n in table.index)
        place = list(table.index).index(name)
        for column in table.columns[:2]:
            add(f"{column}, {basis.name}", float(table[column].iloc[place]))
    elif subject.search is not None and subject.classes is None:
        add("R², training rows", subject.search.quality.rsq)
    return {
        "version": __version__,
        "kind": f"{subject.kind} report",
        "response": response,
        "headline": f"What {response} depends on",
        "outputs": output_labels(subject, rows),
        "figures": figures,
        "formula": str(subject.spline) if subject.spline is not None else None,
        "unchanged": UNCHANGED if unchanged(explanation) else None,
    }


def unchanged(explanation: Explanation) -> bool:
    """Whether a network was trained and is still its start."""
    subject = explanation.subject
    if subject.start is None or subject.coordinates is None or subject.spline is None:
        return False
    return not explanation.drift.changed
