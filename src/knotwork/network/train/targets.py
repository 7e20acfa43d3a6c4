"""Numbers or classes? What people hand to ``train`` and ``init_`` as y, read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats, read_array, read_numbers
from knotwork.errors import NetworkError

TASKS = ("auto", "regression", "classification")


@dataclass(frozen=True)
class Target:
    """What a network is to learn.

    task : "regression" or "classification"
    values : (N, p) numbers, or (N,) codes of the classes
    classes : the labels in the order of the outputs; None for a regression
    """

    task: str
    values: NDArray[Any]
    classes: tuple[Any, ...] | None = None


def read_target(y: Any, outputs: int, task: str = "auto") -> Target:
    """Decide what y asks of a network with that many outputs, and read it.

    "auto" takes text and booleans for classes, whole numbers (N,) for classes where there are several outputs or only
    0 and 1 occur, everything else for numbers. One output stands for two classes: the log-odds of the second. Whole
    numbers from 0 to outputs − 1 name the outputs; other labels go to them in sorted order.

    >>> read_target(["b", "a", "b"], outputs=1).values
    array([1, 0, 1])
    >>> read_target([3.0, 1.5], outputs=1).task
    'regression'
    """
    if task not in TASKS:
        raise NetworkError(f"task must be one of {', '.join(map(repr, TASKS))}, got {task!r}")
    labels = read_array(y, "y", NetworkError)
    if task == "auto":
        task = "classification" if _looks_like_classes(labels, outputs) else "regression"
    if task == "regression":
        try:
            numbers = labels.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise NetworkError("y of a regression must be numbers, got text; pass task='classification'") from None
        return Target(task, numbers[:, None] if numbers.ndim == 1 else numbers)
    return _read_classes(labels, outputs)


def _looks_like_classes(labels: NDArray[Any], outputs: int) -> bool:
    if labels.dtype.kind in "USOb":
        return labels.dtype.kind != "O" or any(isinstance(label, (str, bool)) for label in labels.flat)
    flat = labels.ndim == 1 or (labels.ndim == 2 and labels.shape[1] == 1)
    if labels.dtype.kind not in "iu" or not flat:
        return False
    return outputs > 1 or bool(np.isin(labels, (0, 1)).all())


def _read_classes(labels: NDArray[Any], outputs: int) -> Target:
    labels = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise NetworkError(f"class labels must have shape (N,), got {labels.shape}; pass the column numbers")
    if any(label is None or label != label for label in labels.tolist()):
        raise NetworkError("class labels must not be missing, got NaN or None; leave those rows out")
    if labels.dtype.kind == "f" and not np.array_equal(labels, np.round(labels)):
        raise NetworkError("class labels must be text or whole numbers, got fractions; pass task='regression'")
    room = max(outputs, 2)
    present = np.unique(labels)
    if labels.dtype.kind in "iufb" and present.min() >= 0 and present.max() < room:
        return Target("classification", labels.astype(np.intp), tuple(range(room)))
    if len(present) != room:
        raise NetworkError(
            f"a network with {outputs} output{'s' * (outputs > 1)} distinguishes {room} classes, y has {len(present)}; "
            f"give its last layer {len(present) if len(present) != 2 else '1 or 2'} outputs"
        )
    return Target("classification", np.searchsorted(present, labels).astype(np.intp), tuple(present.tolist()))


def read_values(y: Any, task: str, classes: tuple[Any, ...] | None) -> NDArray[Any]:
    """Read more of a y that :func:`read_target` has read: (N, p) numbers, or (N,) codes of known classes.

    >>> read_values(["b", "b"], "classification", ("a", "b"))
    array([1, 1])
    """
    labels = read_array(y, "y", NetworkError)
    if classes is None:
        numbers = labels.astype(np.float64)
        return numbers[:, None] if numbers.ndim == 1 else numbers
    labels = labels.reshape(-1)
    known = np.array(classes, dtype=object if labels.dtype.kind == "O" else None)
    codes = np.minimum(np.searchsorted(known, labels), len(known) - 1).astype(np.intp)
    if not (known[codes] == labels).all():
        odd = labels[known[codes] != labels][0]
        raise NetworkError(f"labels must be among {', '.join(map(repr, classes))}, got {odd!r}; add rows of it")
    return codes


def to_numpy(values: Any, what: str = "X") -> Floats:
    """Return rows, a tensor or an array, as float64."""
    return read_numbers(values, what, NetworkError)
