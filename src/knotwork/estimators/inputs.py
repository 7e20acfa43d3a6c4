"""Checking what users hand to an estimator: tables, responses, weights; every refusal names the column and a remedy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Number, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from knotwork.arrays import Floats, read_numbers, require_number_texts
from knotwork.data.learn import learn_table
from knotwork.data.table import TableEncoder, as_frame, require_finite, unmasked
from knotwork.data.target_encoding import Response
from knotwork.errors import DataError, DataTypeError, KnotworkError, WeightWarning, one_line

# Sum of the weights: the observations that a fit counts, by ones.
MAX_WEIGHT = 2.0**53


def _is_plain(array: Any, *dimensions: int) -> bool:
    """Whether an array is already what scikit-learn's check would make of it; the check costs more than a small fit."""
    return (
        type(array) is np.ndarray  # matrices and masked arrays compute otherwise
        and array.dtype in (np.float64, np.float32)
        and array.ndim in dimensions
        and len(array) >= 2
        and array.size > 0
    )


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Let what numpy or scikit-learn say of a value that is no table of numbers become one sentence."""
    try:
        yield
    except KnotworkError:
        raise
    except OverflowError:
        raise DataError(
            f"{what} must hold numbers within the range of floats (1.8e308), got larger integers; divide them, or take "
            f"their logarithm"
        ) from None
    except Exception as error:  # objects that turn themselves into arrays may raise anything
        kind = DataTypeError if isinstance(error, TypeError) else DataError
        raise kind(f"{what} cannot be used: {one_line(error)}") from None


def _require_unmasked(values: Any, what: str) -> None:
    if np.ma.is_masked(values):
        raise DataError(f"{what} must have no masked values, which would be taken for numbers; leave those rows out")


def check_training_table(estimator: BaseEstimator, X: Any) -> tuple[Any, int]:
    """Check a training table; return it as a frame or an array, and its number of rows.

    Sets n_features_in_ and feature_names_in_.
    """
    X = unmasked(X)
    frame = as_frame(X)
    if _is_plain(X, 2):  # what validate_data sets for an array without names
        estimator.n_features_in_ = X.shape[1]
        vars(estimator).pop("feature_names_in_", None)
    elif frame is None:
        try:
            with refusing("X"):
                require_number_texts(X)
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
        with refusing("X"):
            validate_data(estimator, X, skip_check_array=True)
        if len(frame) < 2:
            raise DataError(f"a fit needs at least 2 rows, got a table with {len(frame)} sample(s); add rows")
        if not len(frame.columns):
            raise DataError("a fit needs at least one column, got a table without any; add the features")
    return X, len(X if frame is None else frame)


def read_table(estimator: BaseEstimator, X: Any) -> Floats:
    """Check and encode a table to predict, with the columns of the training table."""
    check_is_fitted(estimator)
    X = unmasked(X)
    frame = as_frame(X)
    with refusing("X"):
        if frame is None:
            require_number_texts(X)
            X = validate_data(estimator, X, dtype=np.float64, ensure_all_finite=False, reset=False)
        else:
            validate_data(estimator, X, skip_check_array=True, reset=False)
    return estimator.encoder_.encode(X)


def read_response(y: Any, rows: int) -> Floats:
    """Check a numeric response: (N,) or (N, p), finite."""
    if y is None:
        raise DataError("a regression needs a target; requires y to be passed, but the target y is None")
    _require_unmasked(y, "y")
    try:
        if not _is_plain(y, 1, 2):
            with refusing("y"):
                if getattr(getattr(y, "dtype", None), "kind", "f") in "Mm":  # scikit-learn takes them for nanoseconds
                    raise DataError(f"the target of a regression must be numeric, got {y.dtype}; convert it first")
                require_number_texts(y)
                y = check_array(
                    y, ensure_2d=False, allow_nd=True, dtype=np.float64, ensure_all_finite=False, input_name="y"
                )
    except ValueError as error:
        if "convert string" not in str(error):
            raise
        raise DataError(
            f"the target of a regression must be numeric: {error}; convert it to numbers, or fit a classifier"
        ) from None
    if np.ndim(y) not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise DataError(f"y must have shape (N,) or (N, outputs), got {y.shape}")
    if len(y) != rows:
        raise DataError(f"X and y must have the same number of rows, got inconsistent {rows} and {len(y)}")
    outputs = y.reshape(len(y), -1)
    require_finite(outputs, [f"y{k}" for k in range(outputs.shape[1])] if y.ndim == 2 else ["y"], what="response")
    return y.astype(np.float64, copy=False)


def read_weights(sample_weight: ArrayLike, rows: int, min_rows: int = 2) -> tuple[Floats, NDArray[np.intp]]:
    """Check the weights; return them and the rows of positive weight: the others count like rows that are not there."""
    _require_unmasked(sample_weight, "sample_weight")
    with refusing("sample_weight"):
        sample_weight = (
            sample_weight if isinstance(sample_weight, Real) else read_numbers(sample_weight, "sample_weight")
        )
        weights = np.asarray(_check_sample_weight(sample_weight, np.empty((rows, 1)), dtype=np.float64))
    if (weights < 0).any():
        raise DataError(
            f"sample weights must not be negative, got {weights.min():g} in row {int(weights.argmin())}; "
            f"use 0 to leave a row out"
        )
    kept = np.flatnonzero(weights)
    if kept.size < min_rows:
        raise DataError(f"a fit needs at least {min_rows} rows of positive weight, got {kept.size}; add rows or weight")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not total <= MAX_WEIGHT:
        raise DataError(
            f"sample weights must sum to at most 2**53 (9e15), the number of observations that floats can count, "
            f"got {total:g}; divide them by their mean"
        )
    if total < 0.5 * kept.size:
        warnings.warn(
            f"the sample weights of {kept.size} rows sum to {total:g}: GCV takes that for the number of "
            f"observations and will allow few terms; divide the weights by their mean unless you mean it",
            WeightWarning,
            stacklevel=4,
        )
    return weights, kept


def _as_labels(y: Any) -> NDArray[Any]:
    """Return a sequence as an array of what it holds: numpy would turn the numbers among texts into texts."""
    array = np.asarray(y)
    return np.asarray(y, dtype=object) if array.dtype.kind in "US" else array


def _of_one_kind(labels: NDArray[Any]) -> NDArray[Any]:
    """Refuse labels that have no order among them, or none in 64 bits."""
    kinds = {"text" if isinstance(v, str) else "numbers" if isinstance(v, (Number, np.bool_)) else type(v).__name__
             for v in labels}  # fmt: skip
    if len(kinds) > 1:
        raise DataError(
            f"labels must be of one kind, y mixes {' and '.join(sorted(kinds))}; turn all of them into text, say"
        )
    if kinds == {"text"}:
        return labels
    plain = np.asarray(labels.tolist())
    if plain.ndim != 1 or plain.dtype.kind not in "biufSM":
        raise DataError(
            f"labels must be text, booleans, or numbers of at most 64 bits, y holds {' and '.join(sorted(kinds))} that "
            f"are none of these; turn them into text"
        )
    return plain


def read_labels(y: Any, rows: int) -> NDArray[Any]:
    """Check class labels of any kind: (N,), none missing, and not a continuous quantity."""
    if y is None:
        raise DataError("a classification needs labels; requires y to be passed, but the target y is None")
    _require_unmasked(y, "y")
    with refusing("y"):
        labels = column_or_1d(y if hasattr(y, "dtype") else _as_labels(y), warn=True)
    if len(labels) != rows:
        raise DataError(f"X and y must have the same number of rows, got inconsistent {rows} and {len(labels)}")
    missing = np.flatnonzero([label is None or label != label for label in labels.tolist()])
    if missing.size:
        raise DataError(
            f"labels must not be missing, y contains NaN or None in {missing.size} of {rows} rows, first "
            f"{missing[0]}; leave those rows out or give them a class of their own"
        )
    if labels.dtype.kind == "O":
        labels = _of_one_kind(labels)
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
        with refusing("class_weight"):
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


def class_response(
    classes: NDArray[Any], codes: NDArray[np.intp], kept: NDArray[np.intp] | None, rows: int
) -> Response:
    """Return what columns of many categories are encoded by; ``codes`` are those of the rows kept."""
    every = codes
    if kept is not None:
        every = np.zeros(rows, dtype=np.intp)
        every[kept] = codes
    return Response(every, tuple(str(label) for label in classes))


def read_regression(
    estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Floats, Floats, Floats, NDArray[np.intp] | None, TableEncoder]:
    """Read what a regressor is fitted to, less rows of weight zero.

    Returns the matrix, the response as it came, the weights, the rows of positive weight (None: all) and the encoder.
    """
    X, rows = check_training_table(estimator, X)
    response = read_response(y, rows)
    weights, kept = (None, None) if sample_weight is None else read_weights(sample_weight, rows)
    encoder, table = learn_table(
        X, response=Response(response.reshape(rows, -1)), weights=weights, missing=estimator.missing
    )
    matrix: Floats = np.asarray(table, dtype=np.float64)
    if weights is None or kept is None:
        return matrix, response, np.ones(rows), None, encoder
    return matrix[kept], response[kept], weights[kept], kept, encoder
