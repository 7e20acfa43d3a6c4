"""Predictions of Dask collections: arrays of Dask that are computed when asked for, a task for each partition."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from knotwork.estimators.sources import is_dask

Method = TypeVar("Method", bound=Callable[..., Any])


def lazy_on_dask(method: Method) -> Method:
    """Let a method of one table, (N, d) → (N,) or (N, k), return an array of Dask for a collection of Dask."""

    @functools.wraps(method)
    def call(self: Any, X: Any) -> Any:
        return _predicted(self, method, X) if is_dask(X) else method(self, X)

    return cast(Method, call)


def _predicted(model: Any, method: Callable[..., Any], X: Any) -> Any:
    import dask.array
    from dask.delayed import delayed
    from sklearn.utils.validation import check_is_fitted

    from knotwork.data.dask_source import is_array, partitions

    check_is_fitted(model)
    da: Any = dask.array  # which has no types
    parts = partitions(X)
    sizes = X.chunks[0] if is_array(X) else [np.nan] * len(parts)
    width, dtype = _shape(model, method.__name__)
    run = delayed(functools.partial(_run, method.__name__), pure=False)
    shared = delayed(model, pure=False)  # one copy for each worker, not one for each partition
    blocks = [
        da.from_delayed(run(shared, part), shape=(size, *width), dtype=dtype)
        for part, size in zip(parts, sizes, strict=True)
    ]
    return da.concatenate(blocks)


def _run(name: str, model: Any, part: Any) -> Any:
    if len(part) == 0:
        width, dtype = _shape(model, name)
        return np.empty((0, *width), dtype)
    return getattr(model, name)(part)


def _shape(model: Any, name: str) -> tuple[tuple[int, ...], Any]:
    """Return the shape of a prediction behind the rows, and its dtype."""
    if hasattr(model, "classes_"):
        count = len(model.classes_)
        if name == "predict":
            return (), model.classes_.dtype
        return () if name == "decision_function" and count == 2 else (count,), np.dtype(np.float64)
    outputs = len(model.coordinates_.y_centre) if hasattr(model, "coordinates_") else model.spline_.intercept.size
    return () if model._flat_output else (outputs,), np.dtype(np.float64)
