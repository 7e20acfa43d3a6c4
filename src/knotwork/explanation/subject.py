"""What is explained, and the rows it is explained on: plain records that every explanation starts from.

Estimators, splines and networks all become a :class:`Subject`, known by what they have and not by their class, so that
nothing here depends on the estimators. Rows are kept twice: as the matrix that the model takes, and as one number per
column of the user's table (a category by its position), which is what people move, permute and read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.table import Column, TableEncoder, as_frame, require_finite
from knotwork.errors import DataError
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxsum import MaxSum
from knotwork.spline.model import Spline, Term

if TYPE_CHECKING:
    from knotwork.data.coordinates import Coordinates
    from knotwork.network.chain import Chain
    from knotwork.network.train.loop import History
    from knotwork.spline.result import SplineFit


@dataclass(frozen=True)
class Subject:
    """A model taken apart.

    kind : the class of the model
    spline : the spline, or what a network began as; None for a network from a random start
    fit : the record of the least squares that found a spline's terms, where there is one
    network, start : the trained network and the one before training
    coordinates, history : of the training
    encoder : from the table to the matrix
    named : whether the model was fitted to a table with column names
    outputs : names of the p outputs; classes : the labels of a classifier, whose outputs are log-odds
    """

    kind: str
    encoder: TableEncoder
    outputs: tuple[str, ...]
    spline: Spline | None = None
    fit: SplineFit | None = None
    network: Chain | None = None
    start: Chain | None = None
    coordinates: Coordinates | None = None
    history: History | None = None
    named: bool = False
    classes: tuple[Any, ...] | None = None

    def __call__(self, matrix: Floats) -> Floats:
        """Evaluate the network if there is one, else the spline: (N, d) → (N, p)."""
        return self.evaluate_network(matrix) if self.network is not None else self.evaluate_spline(matrix)

    def evaluate_spline(self, matrix: Floats) -> Floats:
        """Evaluate the spline: (N, d) → (N, p)."""
        if self.spline is None:
            raise DataError("a network from a random start has no spline to explain; fit it with start='spline'")
        return self.spline(matrix).reshape(len(matrix), -1)

    def evaluate_network(self, matrix: Floats) -> Floats:
        """Evaluate the network in double precision: (N, d) → (N, p)."""
        from knotwork.network.chain import evaluate

        if self.network is None:
            raise DataError(f"a {self.kind} has no network; explain a SplineNetRegressor or a network for that")
        return evaluate(self.network, matrix)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        return tuple(column.name for column in self.encoder.columns)


@dataclass(frozen=True)
class Rows:
    """Rows of data.

    matrix : (N, d) as the model takes them; codes : (N, columns) one number per column of the table
    y : (N, p) responses or (N,) positions of the classes, or None; response : its name
    """

    matrix: Floats
    codes: Floats
    y: NDArray[Any] | None = None
    response: str = "y"

    def __len__(self) -> int:
        return len(self.matrix)


def read_model(model: Any) -> Subject:
    """Take apart a Spline, another piecewise-linear function, a fitted estimator or a Sequential."""
    if isinstance(model, Spline):
        encoder = TableEncoder(tuple(Column(name) for name in model.feature_names))
        return Subject("Spline", encoder, _output_names(model.intercept.size, None), spline=model)
    if type(model).__module__.partition(".")[0] == "torch" or hasattr(model, "named_parameters"):
        return _read_network(model)
    if isinstance(model, (LatticePWL, MaxSum)):
        return replace(_read_network(_as_network(model)), kind=type(model).__name__)
    if not hasattr(model, "get_params"):
        raise DataError(
            f"explain takes a Spline, a LatticePWL, a fitted estimator of knotwork or a network, got "
            f"{type(model).__name__}"
        )
    if not hasattr(model, "encoder_"):
        raise DataError(f"explain takes a fitted model, this {type(model).__name__} is not; call fit(X, y) first")
    classes = tuple(model.classes_) if hasattr(model, "classes_") else None
    spline: Spline | None = getattr(model, "spline_", None)
    network = getattr(model, "network_", None)
    if network is None and hasattr(model, "pwl_"):
        network = _as_network(model)  # exact, and what a network has can be looked at
    chain = start = None
    if network is not None:
        from knotwork.network.chain import read_chain

        chain = read_chain(network)
        start = read_chain(model.start_network_) if hasattr(model, "start_network_") else None
    outputs = len(chain.output.bias) if chain is not None else spline.intercept.size if spline is not None else 1
    return Subject(
        kind=type(model).__name__,
        encoder=model.encoder_,
        outputs=_output_names(outputs, classes),
        spline=spline,
        fit=_least_squares(getattr(model, "fit_", None)),
        network=chain,
        start=start,
        coordinates=getattr(model, "coordinates_", None),
        history=getattr(model, "history_", None),
        named=hasattr(model, "feature_names_in_"),
        classes=classes,
    )


def _least_squares(fit: Any) -> SplineFit | None:
    """Return a fit's search for terms: itself, unless it went on to a likelihood or had no terms."""
    found: SplineFit | None = getattr(fit, "search", fit)
    return found if hasattr(found, "selection") else None


def _as_network(model: Any) -> Any:
    import torch

    from knotwork.network.compile.convert import to_network

    return to_network(model, dtype=torch.float64)


def _read_network(net: Any) -> Subject:
    from knotwork.network.chain import read_chain

    chain = read_chain(net)
    encoder = TableEncoder(tuple(Column(f"x{k}") for k in range(chain.inputs)))
    return Subject("network", encoder, _output_names(len(chain.output.bias), None), network=chain)


def _output_names(count: int, classes: Sequence[Any] | None) -> tuple[str, ...]:
    if classes is None:
        return ("y",) if count == 1 else tuple(f"y{k}" for k in range(count))
    if count == 1:
        return (f"log-odds of {classes[-1]}",)
    shown = classes if len(classes) == count else classes[-count:]
    return tuple(f"log-odds of {label}" for label in shown)


def read_rows(subject: Subject, X: Any, y: Any) -> Rows | None:
    """Check and encode rows for a subject; None without X."""
    if X is None:
        if y is not None:
            raise DataError("responses are explained with their rows, got y without X; pass explain(model, X, y)")
        return None
    frame = as_frame(X)
    wanted = subject.columns
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
        X = np.asarray(X)
        width = X.shape[1] if X.ndim == 2 else -1
    if width != len(wanted):
        raise DataError(f"X must have {len(wanted)} columns, got {width if width >= 0 else f'shape {X.shape}'}")
    matrix = np.asarray(subject.encoder.encode(X), dtype=np.float64)
    if len(matrix) == 0:
        raise DataError("explanations need at least one row of X, got none")
    values, name = _read_response(subject, y, len(matrix))
    return Rows(matrix, codes_of(subject.encoder, matrix), values, name)


def _read_response(subject: Subject, y: Any, rows: int) -> tuple[NDArray[Any] | None, str]:
    if y is None:
        return None, "y"
    name = getattr(y, "name", None)
    name = name if isinstance(name, str) else None
    values = np.asarray(y)
    if len(values) != rows:
        raise DataError(f"X and y must have the same number of rows, got {rows} and {len(values)}")
    if subject.classes is not None:
        place = {label: k for k, label in enumerate(subject.classes)}
        unknown = [label for label in values.tolist() if label not in place]
        if unknown:
            raise DataError(f"y must hold the classes that the model knows, got {unknown[0]!r}; leave those rows out")
        return np.array([place[label] for label in values.tolist()]), name or "class"
    try:
        values = values.astype(np.float64).reshape(rows, -1)
    except ValueError:
        raise DataError(f"y must hold numbers, got {values.dtype}; convert it to numbers first") from None
    if values.shape[1] != len(subject.outputs):
        raise DataError(f"y must have {len(subject.outputs)} output(s) like the model, got {values.shape[1]}")
    require_finite(values, subject.outputs, what="response")
    return values, name or "y"


def codes_of(encoder: TableEncoder, matrix: Floats) -> Floats:
    """One number per column of the table: the value, or the position of the category (−1 for one never seen)."""
    codes = np.empty((len(matrix), len(encoder.columns)))
    position = 0
    for k, column in enumerate(encoder.columns):
        if column.categories is None:
            codes[:, k] = matrix[:, position]
            position += 1
            continue
        part = matrix[:, position : position + len(column.categories)]
        codes[:, k] = np.where(part.any(axis=1), part.argmax(axis=1), -1)
        position += len(column.categories)
    return codes


def matrix_of(encoder: TableEncoder, codes: Floats) -> Floats:
    """Undo :func:`codes_of`: (N, columns) → (N, d)."""
    parts = [
        codes[:, [k]] if c.categories is None else (codes[:, [k]] == np.arange(len(c.categories))).astype(np.float64)
        for k, c in enumerate(encoder.columns)
    ]
    return np.concatenate(parts, axis=1)


def columns_of(term: Term, encoder: TableEncoder) -> tuple[int, ...]:
    """Return the columns of the table that a term uses, each once."""
    return tuple(sorted({encoder.source[f] for f in term.features}))
