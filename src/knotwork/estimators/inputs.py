"""Checking what users hand to an estimator: tables, responses, weights; every refusal names the column and a remedy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from knotwork.arrays import Floats
from knotwork.data.table import TableEncoder, as_frame, learn_encoder, require_finite
from knotwork.errors import DataError, WeightWarning


def _is_plain(array: Any, *dimensions: int) -> bool:
    """Whether an array is already what scikit-learn's check would make of it; the check costs more than a small fit."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype in (np.float64, np.float32)
        and array.ndim in dimensions
        and len(array) >= 2
        and array.size > 0
    )


def read_training_table(estimator: BaseEstimator, X: Any) -> tuple[NDArray[np.floating], TableEncoder]:
    """Check and encode a training table; sets n_features_in_ and feature_names_in_."""
    frame = as_frame(X)
    if _is_plain(X, 2):
        validate_data(estimator, X, skip_check_array=True)
    elif frame is None:
        try:
            X = validate_data(
                estimator, X, dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=2
            )
        except ValueError as error:
            if "convert string" not in str(error):
                raise
            raise DataError(
                f"an array must hold numbers: {error}; pass a data frame to have its text columns encoded"
            ) from None
    else:
        validate_data(estimator, X, skip_check_array=True)
        if len(frame) < 2:
            raise DataError(f"a fit needs at least 2 rows, got a table with {len(frame)} sample(s); add rows")
    encoder = learn_encoder(X)
    return encoder.encode(X), encoder


def read_table(estimator: BaseEstimator, X: Any) -> Floats:
    """Check and encode a table to predict, with the columns of the training table."""
    check_is_fitted(estimator)
    if as_frame(X) is None:
        X = validate_data(estimator, X, dtype=np.float64, ensure_all_finite=False, reset=False)
    else:
        validate_data(estimator, X, skip_check_array=True, reset=False)
    return estimator.encoder_.encode(X)


def read_response(y: Any, rows: int) -> Floats:
    """Check a numeric response: (N,) or (N, p), finite."""
    if y is None:
        raise DataError("a regression needs a target; requires y to be passed, but the target y is None")
    try:
        if not _is_plain(y, 1, 2):
            y = check_array(
                y, ensure_2d=False, allow_nd=True, dtype=np.float64, ensure_all_finite=False, input_name="y"
            )
    except ValueError as error:
        if "convert string" not in str(error):
            raise
        raise DataError(f"the target of a regression must be numeric: {error}; convert it to numbers first") from None
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise DataError(f"y must have shape (N,) or (N, outputs), got {y.shape}")
    if len(y) != rows:
        raise DataError(f"X and y must have the same number of rows, got inconsistent {rows} and {len(y)}")
    outputs = y.reshape(len(y), -1)
    require_finite(outputs, [f"y{k}" for k in range(outputs.shape[1])] if y.ndim == 2 else ["y"], what="response")
    return y.astype(np.float64, copy=False)


def read_weights(sample_weight: ArrayLike, matrix: NDArray[np.floating]) -> tuple[Floats, NDArray[np.intp]]:
    """Check the weights; return them and the rows of positive weight: the others count like rows that are not there."""
    weights = np.asarray(_check_sample_weight(sample_weight, matrix, dtype=np.float64))
    if (weights < 0).any():
        raise DataError(
            f"sample weights must not be negative, got {weights.min():g} in row {int(weights.argmin())}; "
            f"use 0 to leave a row out"
        )
    kept = np.flatnonzero(weights)
    if kept.size < 2:
        raise DataError(f"a fit needs at least 2 rows of positive weight, got {kept.size}; add rows or weight")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        raise DataError("sample weights must have a finite sum, got inf; divide them by their mean")
    if total < 0.5 * kept.size:
        warnings.warn(
            f"the sample weights of {kept.size} rows sum to {total:g}: GCV takes that for the number of "
            f"observations and will allow few terms; divide the weights by their mean unless you mean it",
            WeightWarning,
            stacklevel=4,
        )
    return weights, kept


def read_labels(y: Any, rows: int) -> NDArray[Any]:
    """Check class labels of any kind: (N,), none missing, and not a continuous quantity."""
    if y is None:
        raise DataError("a classification needs labels; requires y to be passed, but the target y is None")
    labels = column_or_1d(np.asarray(y) if not hasattr(y, "dtype") else y, warn=True)
    if len(labels) != rows:
        raise DataError(f"X and y must have the same number of rows, got inconsistent {rows} and {len(labels)}")
    missing = np.flatnonzero([label is None or label != label for label in labels.tolist()])
    if missing.size:
        raise DataError(
            f"labels must not be missing, y contains NaN or None in {missing.size} of {rows} rows, first "
            f"{missing[0]}; leave those rows out or give them a class of their own"
        )
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise DataError("labels must be finite, y contains infinity; leave those rows out")
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise DataError(
            f"{str(error).rstrip('.')}: classes must be few and repeated, got {np.unique(labels).size} values in "
            f"{rows} rows; use the regressor for a continuous target"
        ) from None
    return labels


def read_classes(
    labels: NDArray[Any], weights: Floats | None, kept: NDArray[np.intp] | None, class_weight: Any
) -> tuple[NDArray[Any], NDArray[np.intp], Floats | None, NDArray[np.intp] | None]:
    """Return the classes, the code of each row, and weights and rows again with the classes' own weights in them.

    Rows of weight zero count like rows that are not there, so a class that only they have is none.
    """
    if class_weight is not None:
        present = labels if kept is None else labels[kept]
        classes = np.unique(present)
        factors = compute_class_weight(class_weight, classes=classes, y=present)
        if not (np.isfinite(factors).all() and (factors >= 0).all()):
            raise DataError(f"class weights must be finite and not negative, got {factors.tolist()}")
        own = np.zeros(len(labels))
        rows = np.arange(len(labels)) if kept is None else kept
        own[rows] = factors[np.searchsorted(classes, present)]
        weights = own if weights is None else weights * own
        kept = np.flatnonzero(weights)
    present = labels if kept is None else labels[kept]
    classes, codes = np.unique(present, return_inverse=True)
    if len(classes) < 2:
        only = f"only class {classes[0]!r}" if len(classes) else "no class"
        raise DataError(f"a classifier needs rows of at least 2 classes, got {only}; add rows of another class")
    return classes, codes.astype(np.intp), weights, kept


def read_regression(
    estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Floats, Floats, Floats, TableEncoder]:
    """Read what a regressor is fitted to, less rows of weight zero: matrix, response as it came, weights, encoder."""
    table, encoder = read_training_table(estimator, X)
    matrix: Floats = np.asarray(table, dtype=np.float64)
    response = read_response(y, len(matrix))
    if sample_weight is None:
        return matrix, response, np.ones(len(matrix)), encoder
    weight, kept = read_weights(sample_weight, matrix)
    return matrix[kept], response[kept], weight[kept], encoder
