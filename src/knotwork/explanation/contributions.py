"""One prediction taken apart: what each column adds to the mean prediction, and what only columns together do.

A spline is taken apart exactly: the terms of a single column are that column's, less their mean over the background
rows; terms of several columns are interactions, named after them. A network's columns get the network's effect curve at
the row's value, and what is left is interaction. Either way the parts add up to the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from knotwork.arrays import Floats
from knotwork.errors import DataError
from knotwork.explanation.effects import background
from knotwork.explanation.subject import Rows, Subject, codes_of, matrix_of, parts_of
from knotwork.explanation.usage import usage, without_rounding

if TYPE_CHECKING:
    import pandas as pd

# What a spline's parts add up to beyond the limits of its outputs, less the limit.
HELD = "clipped to the limit"


@dataclass(frozen=True)
class Contributions:
    """Parts of N predictions that add up: base + values + interactions = prediction.

    columns, outputs : names; base : (p,) mean prediction over the background
    values : (N, columns, p) of each column alone; interactions : name → (N, p) of columns together. Where predictions
        of a spline are clipped, "clipped to the limit" is what that takes off or adds
    prediction : (N, p), on the scale of the link, as all parts are; response : (N, p) predictions of y itself
    """

    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    base: Floats
    values: Floats
    interactions: dict[str, Floats]
    prediction: Floats
    response: Floats

    def to_frame(self, output: int | str = 0) -> pd.DataFrame:
        """Return the parts of one output as a frame: a row per row, the base first and the prediction last.

        output : its number or its name, "centred logit of virginica" or "virginica" for a class. The name is
            that of the frame's columns. Behind a link one column more, ``response``, has predictions of y itself
        """
        import pandas as pd

        if isinstance(output, str):
            output = self._place(output)
        parts = {"(mean prediction)": np.full(len(self.values), self.base[output])}
        parts |= {name: self.values[:, c, output] for c, name in enumerate(self.columns)}
        parts |= {name: part[:, output] for name, part in self.interactions.items()}
        parts["prediction"] = self.prediction[:, output]
        if self.response is not self.prediction:
            parts["response"] = self.response[:, output]
        return pd.DataFrame(parts).rename_axis(columns=self.outputs[output])

    def _place(self, name: str) -> int:
        for k, own in enumerate(self.outputs):
            if name == own or own.endswith(f"logit of {name}") or own.endswith(f"log-odds of {name}"):
                return k
        raise DataError(f"output must be one of {', '.join(map(repr, self.outputs))}, got {name!r}")


def contributions(subject: Subject, rows: Rows | None, matrix: Floats) -> Contributions:
    """Take apart the predictions of a matrix (N, d); ``rows`` are the data that the mean is over."""
    if subject.network is not None:
        return _network_parts(subject, rows, matrix)
    return _spline_parts(subject, rows, matrix)


def _spline_parts(subject: Subject, rows: Rows | None, matrix: Floats) -> Contributions:
    spline, parts = subject.spline, subject.parts
    assert spline is not None
    if rows is None and subject.search is None:
        around = np.zeros((1, len(spline.terms)))  # nothing is known about the data: around the intercept
    else:
        around = spline.basis(matrix_of(parts, background(subject, rows)))
    means = around.mean(axis=0)
    centred = spline.basis(matrix) - means
    values = np.zeros((len(matrix), len(parts), len(subject.output_names)))
    interactions: dict[str, Floats] = {}
    for m, term in enumerate(spline.terms):
        part = np.outer(centred[:, m], spline.coef[m])
        used = parts_of(term, parts)
        if len(used) == 1:
            values[:, used[0]] += part
        else:
            name = " × ".join(parts[c].name for c in used)
            interactions[name] = interactions.get(name, 0.0) + part
    base = spline.intercept + means @ spline.coef
    prediction = subject.evaluate_spline(matrix)
    if spline.output_limits is not None:
        free = replace(spline, output_limits=None)(matrix).reshape(prediction.shape)
        if (free != prediction).any():
            interactions[HELD] = prediction - free
    return _parts(subject, base, values, interactions, prediction)


def _network_parts(subject: Subject, rows: Rows | None, matrix: Floats) -> Contributions:
    if rows is None:
        raise DataError(
            "a network's prediction is taken apart around the mean over data, got no X; pass explain(model, X)"
        )
    around = background(subject, rows)
    codes = codes_of(subject.parts, matrix)
    base = subject.evaluate_network(matrix_of(subject.parts, around)).mean(axis=0)
    prediction = subject.evaluate_network(matrix)
    size = float(np.abs(prediction).max(initial=np.abs(base).max(initial=0.0)))
    values = np.zeros((len(matrix), codes.shape[1], len(subject.output_names)))
    for c in np.flatnonzero(usage(subject).model):
        # Rows often share a value: each distinct one is evaluated once.
        distinct, place = np.unique(codes[:, c], return_inverse=True)
        for k, value in enumerate(distinct):
            moved = around.copy()
            moved[:, c] = value
            mean = subject.evaluate_network(matrix_of(subject.parts, moved)).mean(axis=0)
            values[place == k, c] = without_rounding(mean - base, size)
    rest = without_rounding(prediction - base - values.sum(axis=1), size)
    return _parts(subject, base, values, {"interaction": rest}, prediction)


def _parts(
    subject: Subject, base: Floats, values: Floats, interactions: dict[str, Floats], prediction: Floats
) -> Contributions:
    response = prediction if subject.link == "identity" else subject.response(prediction)
    return Contributions(subject.columns, subject.output_names, base, values, interactions, prediction, response)
