"""What the report shows, as plain JSON values: a file ``page_*.py`` per section of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from knotwork.explanation.page_effects import effects, surfaces
from knotwork.explanation.page_importance import importance
from knotwork.explanation.page_knots import knots, row_columns
from knotwork.explanation.page_overview import overview
from knotwork.explanation.page_quality import quality
from knotwork.explanation.page_row import model, rows_to_choose
from knotwork.explanation.page_training import drift, history, sparsity

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation


def page_content(explanation: Explanation) -> dict[str, Any]:
    """Return everything that the page needs."""
    measures = importance(explanation)
    order = list(explanation.importances.index) if measures else list(explanation.subject.columns)
    return {
        "meta": overview(explanation),
        "quality": quality(explanation),
        "importances": measures,
        "effects": effects(explanation, order),
        "surfaces": surfaces(explanation),
        "knots": knots(explanation, order),
        "rowColumns": row_columns(explanation.rows, order),
        "history": history(explanation),
        "drift": drift(explanation),
        "sparsity": sparsity(explanation),
        "model": model(explanation),
        "rows": rows_to_choose(explanation),
    }
