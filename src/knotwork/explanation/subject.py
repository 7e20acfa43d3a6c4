"""What is explained, and the rows it is explained on: plain records that every explanation starts from.

Whatever :mod:`knotwork.network.resolve` takes apart becomes a :class:`Subject`. Rows are kept twice: as the matrix that
the model takes, and as one number per column of the user's table (a category by its position), which is what people
move, permute and read: the parts of the table's columns. A date has several, most columns one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats, read_array
from knotwork.data.columns.number import Number
from knotwork.data.columns.part import Part
from knotwork.data.links import LINKS, inverse_link, link_named
from knotwork.data.table import TableEncoder, as_frame, require_finite, unmasked
from knotwork.errors import DataError
from knotwork.network.resolve import Resolved, resolve
from knotwork.spline.model import Spline, Term

Parts = tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Subject(Resolved):
    """A model taken apart, as explanations want it: a network for whatever is no spline, and names.

    table : from the table to the matrix; parts : what people move and read, in the order of the matrix
    output_names : of the p outputs
    """

    table: TableEncoder
    parts: Parts
    output_names: tuple[str, ...]

    def evaluate_spline(self, matrix: Floats) -> Floats:
        """Evaluate the spline: (N, d) → (N, p)."""
        if self.spline is None:
            raise DataError("a network from a random start has no spline to explain; fit it with start='spline'")
        return self.spline(matrix).reshape(len(matrix), -1)

    def __call__(self, matrix: Floats) -> Floats:
        """Evaluate in double precision, on the scale of the link: (N, d) → (N, p)."""
        return self._centre(super().__call__(matrix))

    @property
    def centred(self) -> bool:
        """Whether there is a logit for each class: explanations take their mean off, which changes no probability."""
        return self.classes is not None and len(self.classes) == len(self.output_names) > 1

    def _centre(self, outputs: Floats) -> Floats:
        return outputs - outputs.mean(axis=1, keepdims=True) if self.centred else outputs

    def evaluate_network(self, matrix: Floats) -> Floats:
        """Evaluate the network in double precision: (N, d) → (N, p)."""
        from knotwork.network.chain import evaluate

        if self.network is None:
            raise DataError(f"a {self.kind} has no network; explain a SplineNetRegressor or a network for that")
        return self._centre(evaluate(self.network, matrix))

    def response(self, outputs: Floats) -> Floats:
        """Return predictions of y, given outputs, which are those of the link: (N, p) → (N, p)."""
        return inverse_link(self.link, outputs)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the parts."""
        return tuple(part.name for part in self.parts)


@dataclass(frozen=True)
class Rows:
    """Rows of data.

    matrix : (N, d) as the model takes them; codes : (N, columns) one number per column of the table
    y : (N, p) responses or (N,) positions of the classes, or None; response : its name. Responses are those of the
        link, log(y) say, or y itself where the model has a loss of its own, which may be defined for y = 0
    numbers : (N,) of the rows in the table that they were taken from; None for all of it
    """

    matrix: Floats
    codes: Floats
    y: NDArray[Any] | None = None
    response: str = "y"
    numbers: NDArray[np.intp] | None = None

    def take(self, chosen: NDArray[Any]) -> Rows:
        """Return some of the rows, by a mask (N,) or by numbers."""
        numbers = np.arange(len(self)) if self.numbers is None else self.numbers
        y = None if self.y is None else self.y[chosen]
        return Rows(self.matrix[chosen], self.codes[chosen], y, self.response, numbers[chosen])

    def __len__(self) -> int:
        return len(self.matrix)


def read_model(model: Any) -> Subject:
    """Take apart anything that ``to_network`` takes, or a Sequential."""
    parts = resolve(model)
    network = parts.network
    if network is None and parts.spline is None:
        from knotwork.network.compile.convert import model_chain

        network = model_chain(parts)  # exact, and what a network has can be looked at
    encoder = parts.encoder
    if encoder is None:
        assert network is not None
        encoder = TableEncoder(tuple(Number(f"x{k}") for k in range(network.inputs)))
    known = {field.name: getattr(parts, field.name) for field in fields(parts)}
    known |= {"network": network, "encoder": encoder, "table": encoder, "parts": encoder.parts}
    subject = Subject(**known, output_names=_output_names(parts.outputs, parts.classes, parts.link))
    if subject.centred and subject.spline is not None:
        subject = replace(subject, spline=_centred_spline(subject.spline))
    return subject


def _centred_spline(spline: Spline) -> Spline:
    """Take the mean over the outputs off; those of a MarsClassifier have none."""
    parts = np.vstack([spline.intercept, spline.coef])
    means = parts.mean(axis=1, keepdims=True)
    if np.abs(means).max() <= 1e-12 * np.abs(parts).max():
        return spline
    return replace(spline, intercept=spline.intercept - means[0], coef=spline.coef - means[1:])


def _output_names(count: int, classes: Sequence[Any] | None, link: str) -> tuple[str, ...]:
    if classes is None:
        return tuple(link_named(link, name) for name in (["y"] if count == 1 else [f"y{k}" for k in range(count)]))
    if count == 1:
        return (f"log-odds of {classes[-1]}",)
    shown = classes if len(classes) == count else classes[-count:]
    return tuple(f"{'centred logit' if count == len(classes) else 'log-odds'} of {label}" for label in shown)


def read_rows(subject: Subject, X: Any, y: Any) -> Rows | None:
    """Check and encode rows for a subject; None without X."""
    if X is None:
        if y is not None:
            raise DataError("responses are explained with their rows, got y without X; pass explain(model, X, y)")
        return None
    frame = as_frame(X)
    wanted = tuple(column.name for column in subject.table.columns)
    if frame is not None:
        found = tuple(str(name) for name in frame.columns)
        if subject.named and found != wanted:
            missing, extra = [n for n in wanted if n not in found], [n for n in found if n not in wanted]
            raise DataError(
                f"X must have the columns of the training table in their order, got "
                f"{f'no {missing[0]!r}' if missing else f'{extra[0]!r} as well' if extra else 'another order'}; "
                f"select them with X[list of names]"
            )
        width = len(found)
    else:
        X = read_array(unmasked(X), "X")
        width = X.shape[1] if X.ndim == 2 else -1
    if width != len(wanted):
        raise DataError(f"X must have {len(wanted)} columns, got {width if width >= 0 else f'shape {X.shape}'}")
    matrix = np.asarray(subject.table.encode(X), dtype=np.float64)
    if len(matrix) == 0:
        raise DataError("explanations need at least one row of X, got none")
    values, name = _read_response(subject, y, len(matrix))
    return Rows(matrix, codes_of(subject.parts, matrix), values, name)


def _read_response(subject: Subject, y: Any, rows: int) -> tuple[NDArray[Any] | None, str]:
    if y is None:
        return None, "y"
    name = getattr(y, "name", None)
    name = name if isinstance(name, str) else None
    values = read_array(y, "y")
    if values.shape[:1] != (rows,):
        raise DataError(
            f"X and y must have the same number of rows, got {rows} and "
            f"{len(values) if values.ndim else 'a single value'}"
        )
    if subject.classes is not None:
        values = values.reshape(-1) if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1:
            raise DataError(f"y must hold one label a row, got shape {values.shape}")
        place = {label: k for k, label in enumerate(subject.classes)}
        unknown = [label for label in values.tolist() if label not in place]
        if unknown:
            raise DataError(f"y must hold the classes that the model knows, got {unknown[0]!r}; leave those rows out")
        return np.array([place[label] for label in values.tolist()]), name or "class"
    try:
        values = values.astype(np.float64).reshape(rows, -1)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"y must hold numbers, got {values.dtype}; convert it to numbers first") from None
    if values.shape[1] != len(subject.output_names):
        raise DataError(f"y must have {len(subject.output_names)} output(s) like the model, got {values.shape[1]}")
    if subject.loss is not None:
        require_finite(values, ("y",), what="response")
        subject.loss.check(values)
        return values, name or "y"
    return _linked(values, subject), link_named(subject.link, name or "y")


def _linked(values: Floats, subject: Subject) -> Floats:
    """Return responses (N, p) on the scale of the subject's link."""
    require_finite(values, subject.output_names, what="response")
    with np.errstate(all="ignore"):
        linked: Floats = LINKS[subject.link][0](values)
    lost = np.flatnonzero(~np.isfinite(linked).all(axis=1))
    if lost.size:
        raise DataError(
            f"responses must have a finite {subject.link}, on whose scale this model is explained, got "
            f"{values[lost[0]].min():g} in row {lost[0]}; leave such rows out"
        )
    return linked


def codes_of(parts: Parts, matrix: Floats) -> Floats:
    """One number per part: the value, NaN where it is missing, or the position of the category (−1 for none seen)."""
    codes = np.empty((len(matrix), len(parts)))
    position = 0
    for k, part in enumerate(parts):
        codes[:, k] = part.codes(matrix[:, position : position + part.width])
        position += part.width
    return codes


def matrix_of(parts: Parts, codes: Floats) -> Floats:
    """Undo :func:`codes_of`: (N, parts) → (N, d)."""
    return np.concatenate([part.features(codes[:, k]) for k, part in enumerate(parts)], axis=1)


def sources(parts: Parts) -> tuple[int, ...]:
    """Return the part that each feature belongs to."""
    return tuple(k for k, part in enumerate(parts) for _ in range(part.width))


def parts_of(term: Term, parts: Parts) -> tuple[int, ...]:
    """Return the parts that a term uses, each once."""
    source = sources(parts)
    return tuple(sorted({source[f] for f in term.features}))
