"""Tables on a GPU: checked and fitted where they are, never copied into memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from knotwork.arrays import Floats
from knotwork.data.columns.number import Number
from knotwork.data.table import TableEncoder
from knotwork.errors import DataError
from knotwork.estimators.inputs import read_response, read_weights

if TYPE_CHECKING:  # a fit in memory does without torch
    from torch import Tensor

# Rows that are predicted at a time.
PREDICT_ROWS = 1 << 20


def on_gpu(X: Any) -> bool:
    """Whether X is a tensor of a device other than the CPU."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor) and X.device.type != "cpu"


def read_tensors(
    estimator: BaseEstimator, X: Tensor, y: Any, sample_weight: Any
) -> tuple[Tensor, Tensor, Tensor | None, np.ndarray[Any, np.dtype[np.intp]] | None, TableEncoder]:
    """Check a table on a device; return matrix, response as it came, weights, the rows of positive weight, encoder.

    Rows of weight zero are left out. Sets n_features_in_.
    """
    matrix = _read_table(X)
    if len(matrix) < 2:
        raise DataError(f"a fit needs at least 2 rows, got a table with {len(matrix)} sample(s); add rows")
    response = _read_vector(y, matrix, "y")
    if response.ndim not in (1, 2) or 0 in response.shape or len(response) != len(matrix):
        raise DataError(
            f"y must have shape (N,) or (N, outputs) with a row for each of X, got {tuple(response.shape)} for "
            f"{len(matrix)} rows"
        )
    if not bool(response.isfinite().all()):
        raise DataError("responses must be finite, y contains NaN or inf; leave those rows out")
    weights, kept = None, None
    if sample_weight is not None:
        checked, kept = read_weights(in_memory(sample_weight), len(matrix))
        weights = _read_vector(checked[kept], matrix, "sample_weight")
        if len(kept) < len(matrix):
            matrix, response = matrix[kept], response[kept]
    estimator.n_features_in_ = matrix.shape[1]
    vars(estimator).pop("feature_names_in_", None)
    encoder = TableEncoder(tuple(Number(f"x{k}") for k in range(matrix.shape[1])), missing="error")
    return matrix, response, weights, kept, encoder


def on_best_device(matrix: Any, targets: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Move arrays to a GPU if there is one; else they become tensors of the CPU."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return tuple(  # type: ignore[return-value]
        None if v is None else torch.from_numpy(np.ascontiguousarray(v)).to(device) for v in (matrix, targets, weights)
    )


def predict_tensor(estimator: Any, X: Tensor) -> Tensor:
    """Evaluate a model's network where the rows are, in float64: (N, d) → (N, p)."""
    import torch

    from knotwork.network.compile.convert import to_network

    check_is_fitted(estimator)
    matrix = _read_table(X)
    if matrix.shape[1] != estimator.n_features_in_:
        raise DataError(
            f"X has {matrix.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    if len(estimator.encoder_.feature_names) != estimator.n_features_in_:
        raise DataError(
            "a model with text, dates or gaps takes a table with the columns it was fitted to, got a tensor"
        )
    net = to_network(estimator, dtype=torch.float64).to(matrix.device)
    with torch.no_grad():
        return torch.cat([net(part) for part in torch.split(matrix, PREDICT_ROWS)])


def _read_table(X: Tensor) -> Tensor:
    if X.device.type in ("mps", "meta"):
        raise DataError(
            f"tensors must be of a device with float64, got one on {X.device.type}; "
            f"{'pass X.cpu()' if X.device.type == 'mps' else 'it holds no numbers'}"
        )
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"X must have shape (N, features) with at least one feature, got {tuple(X.shape)}")
    if X.is_complex():
        raise DataError("X must hold numbers, got complex ones; pass their parts as columns")
    X = X.detach()
    X = X if str(X.dtype) in ("torch.float32", "torch.float64") else X.double()
    # Minimum and maximum take one pass and no memory, and are NaN where any value is.
    if X.numel() and not all(bool(end.isfinite()) for end in X.aminmax()):
        raise DataError(
            "tensors on a device must be finite, X contains NaN or inf; fill the gaps in, or pass X.cpu(), whose gaps "
            "get an indicator"
        )
    return X


def _read_vector(values: Any, like: Tensor, name: str) -> Tensor:
    """Return numbers as float64, on the device of a table."""
    import torch

    if not isinstance(values, torch.Tensor):
        values = torch.from_numpy(np.ascontiguousarray(read_response(values, len(like)) if name == "y" else values))
    if values.is_meta:
        raise DataError(f"{name} must hold numbers, got a tensor on the meta device, which holds none")
    if values.is_complex():
        raise DataError(f"{name} must hold real numbers, got complex ones")
    return values.detach().to(like.device, torch.float64)


def in_memory(values: Any) -> Any:
    """Return a tensor of a GPU as an array; everything else as it is."""
    if on_gpu(values) and values.is_meta:
        raise DataError("a tensor must hold numbers, got one on the meta device, which holds none")
    return values.detach().cpu().numpy() if on_gpu(values) else values


def like(array: Floats, values: Any) -> Any:
    """Return an array as a tensor of a GPU where ``values`` is one."""
    if not on_gpu(values):
        return array
    import torch

    return torch.from_numpy(array).to(values)
