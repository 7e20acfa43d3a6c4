"""One prediction: the model as numbers that the page computes with, and the rows it starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.explanation.contributions import HELD, contributions
from knotwork.explanation.effects import BACKGROUND, background, effects
from knotwork.explanation.exported import exported_model
from knotwork.explanation.page_numbers import scale, short, truth
from knotwork.explanation.subject import matrix_of

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

# Rows to choose from, and their values altogether: tables of many columns show fewer.
MAX_ROWS = 200
MAX_VALUES = 8000
MIN_ROWS = 40


def model(explanation: Explanation) -> dict[str, Any]:
    """Return the weights or terms, the columns to move, and what each column adds."""
    subject, rows = explanation.subject, explanation.rows
    record = exported_model(subject)
    curves = explanation.effects
    if explanation.curves != "partial" and subject.network is not None:
        curves = effects(subject, rows)
    record["columns"] = [
        {
            "name": e.column,
            "categories": e.categories,
            "binary": e.binary,
            "used": e.used,
            "low": float(e.grid[0]),
            "high": float(e.grid[-1]),
            "fill": part.fill,
            **scale(part),
        }
        for e, part in zip(curves.values(), subject.parts, strict=True)
    ]
    record["link"] = None if subject.link == "identity" else subject.link
    record["classes"] = None if subject.classes is None else [str(c) for c in subject.classes]
    around = background(subject, rows)
    if subject.network is None:
        assert subject.spline is not None
        means = subject.spline.basis(matrix_of(subject.parts, around)).mean(axis=0)
        base = subject.spline.intercept + means @ subject.spline.coef
        record["parts"] = {"kind": "spline", "base": base.tolist(), "means": means.tolist(), "held": HELD}
        lead = "Move a column and watch the prediction, computed here from the spline. The bars add up to it exactly."
    else:
        # Each column's curve, moved so that it is what the column adds to the mean prediction.
        corner = np.array([[e.grid[0] for e in curves.values()]])
        found = contributions(subject, rows, matrix_of(subject.parts, corner))
        record["parts"] = {
            "kind": "curves", "base": found.base.tolist(),
            "curves": [
                {"grid": short(e.grid, 12), "heights": short((e.network - e.network[0] + found.values[0, c]).T, 10),
                 "missing": None if e.missing is None or e.missing.network is None
                 else short(e.missing.network - e.network[0] + found.values[0, c], 10)}
                if e.used_by_network else None  # adds exactly nothing
                for c, e in enumerate(curves.values()) if e.network is not None
            ],
        }  # fmt: skip
        lead = (
            "Move a column and watch the prediction, computed here from the network's own weights. A bar is the "
            "effect of one column alone, read off its curve; the remainder is interaction."
        )
    record["lead"] = lead + (f" The mean is over {min(len(rows), BACKGROUND)} rows." if rows is not None else "")
    return record


def rows_to_choose(explanation: Explanation) -> dict[str, Any]:
    """Return some rows: their numbers, values, responses and intervals."""
    subject, rows, intervals = explanation.subject, explanation.rows, explanation.intervals
    if rows is None:
        codes = background(subject, None).tolist()
        return {"numbers": ["mean row"], "codes": codes, "truth": None, "intervals": None}
    chosen = np.arange(len(rows))
    most = max(MIN_ROWS, min(MAX_ROWS, MAX_VALUES // rows.codes.shape[1]))
    if len(rows) > most:
        chosen = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
    return {
        "numbers": [int(r) for r in chosen],
        "codes": rows.codes[chosen].tolist(),
        "truth": [f"{rows.response} {truth(subject, rows, int(r))}" for r in chosen] if rows.y is not None else None,
        "intervals": None if intervals is None else short(intervals[chosen], 5),
    }
