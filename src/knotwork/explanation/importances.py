"""How much each column matters, by several measures that need not agree.

coefficient : Σ over the column's terms of |β| times the term's std, in the response's unit of measurement
subsets, gcv, rss : as R's ``evimp`` counts them, over the best subset of each size from two terms up to the spline's:
    in how many subsets the column appears, and the decreases in GCV and RSS from one size to the next, summed over
    the subsets that it appears in; square roots, scaled to 100 at most
permutation : rise in error when the column's values are shuffled among the rows

A term of several columns counts for each of them; indicators of categories count for their column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.errors import DataError
from knotwork.explanation.quality import error
from knotwork.explanation.subject import Rows, Subject, matrix_of, parts_of
from knotwork.explanation.usage import usage, without_rounding

if TYPE_CHECKING:
    import pandas as pd

REPEATS = 5
MAX_ROWS = 2000


def importances(subject: Subject, rows: Rows | None, random_state: int | None = 0) -> pd.DataFrame:
    """Return the measures that the data allow, a row per column of the table, the most important first."""
    import pandas as pd

    measures: dict[str, Floats] = {}
    if rows is not None and rows.y is not None:
        measures["permutation"] = _permutation(subject, rows, random_state)
    if subject.search is not None:
        measures |= _subsets(subject)
    spread = _spread(subject, rows)
    if spread is not None:
        measures["coefficient"] = spread
    if not measures:
        needed = "X and y; pass explain(model, X, y)" if subject.spline is None else "X; pass explain(model, X)"
        raise DataError(f"the importances of a {subject.kind} are measured on data, got no {needed}")
    frame = pd.DataFrame(measures, index=pd.Index(subject.columns, name="column"))
    # What predicts comes first: the other measures see the spline and the rows of its fit alone.
    order = [m for m in ("permutation", "subsets", "gcv", "rss", "coefficient") if m in measures]
    # evimp's order where there is one: ties keep the order of the columns.
    keys = ["subsets", "gcv", "rss"] if order[0] == "subsets" else order
    return frame[order].sort_values(keys, ascending=False, kind="stable")


def _spread(subject: Subject, rows: Rows | None) -> Floats | None:
    spline = subject.spline
    if spline is None:
        return None
    if rows is not None:
        sizes = spline.basis(rows.matrix).std(axis=0) * np.linalg.norm(spline.coef, axis=1)
    elif subject.search is not None and subject.search.spline.terms == spline.terms:
        search = subject.search.standardised
        # The triangular factor of [1, B] holds each centred column's norm below its first row.
        factor = np.linalg.inv(search.refit.inverse)[1:, 1:]
        std = np.linalg.norm(factor, axis=0) / np.sqrt(subject.search.selection.observations)
        sizes = std * np.linalg.norm(search.refit.coef, axis=1) * np.sqrt(search.rss_unit)
        # A classifier has the terms of its search with other coefficients.
        own, searched = (np.linalg.norm(s.coef, axis=1) for s in (spline, subject.search.spline))
        sizes = np.divide(sizes * own, searched, out=np.zeros_like(sizes), where=searched > 0)
    else:
        return None
    totals = np.zeros(len(subject.columns))
    for term, size in zip(spline.terms, sizes, strict=True):
        totals[list(parts_of(term, subject.parts))] += size
    return totals


def _subsets(subject: Subject) -> dict[str, Floats]:
    fit = subject.search
    assert fit is not None
    path, terms = fit.standardised.pruning, fit.selection.forward_terms
    used = np.zeros((len(terms), len(subject.columns)), dtype=bool)
    for m, term in enumerate(terms):
        used[m, list(parts_of(term, subject.parts))] = True
    counts, gcv, rss = (np.zeros(len(subject.columns)) for _ in range(3))
    for size in range(1, len(fit.selection.selected) + 1):
        inside = used[path.members[size, 1:]].any(axis=0)
        counts[inside] += 1
        gcv[inside] += path.gcv[size - 1] - path.gcv[size]
        rss[inside] += path.rss[size - 1] - path.rss[size]
    return {"subsets": counts, "gcv": _scaled(gcv), "rss": _scaled(rss)}


def _scaled(decreases: Floats) -> Floats:
    roots = np.sign(decreases) * np.sqrt(np.abs(decreases))
    return 100 * roots / roots.max() if roots.size and roots.max() > 0 else roots


@dataclass(frozen=True)
class _Codes:
    """A subject as scikit-learn wants it: of the table's columns, so that a category moves as a whole."""

    subject: Subject

    def fit(self, *_: Any) -> _Codes:
        """Return itself: the model is fitted."""
        return self

    def score(self, codes: Floats, y: Any) -> float:
        """Return the negative error on rows given by their codes."""
        rows = Rows(matrix_of(self.subject.parts, codes), codes, y)
        return -error(self.subject, self.subject(rows.matrix), rows)


def _permutation(subject: Subject, rows: Rows, random_state: int | None) -> Floats:
    from sklearn.inspection import permutation_importance

    assert rows.y is not None
    chosen: Any = slice(None)
    if len(rows) > MAX_ROWS:
        chosen = np.random.default_rng(random_state).choice(len(rows), MAX_ROWS, replace=False)
    found = permutation_importance(
        _Codes(subject), rows.codes[chosen], rows.y[chosen], n_repeats=REPEATS, random_state=random_state
    )
    means: Floats = found.importances_mean
    size = max(abs(_Codes(subject).score(rows.codes[chosen], rows.y[chosen])), float(np.abs(means).max(initial=0.0)))
    return np.where(usage(subject).model, without_rounding(means, size), 0.0)
