"""Dask collections as a source: a task for each partition, and a tree that adds neighbours.

Which scheduler runs them is the caller's business: the current client's, or Dask's default. A partition is read in the
same form, and sums are added in the same order, wherever and however often a task runs: a worker that dies costs time
and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from knotwork.data.batches import Report, Rows, no_rows
from knotwork.data.digest import Digest
from knotwork.errors import DataError, KnotworkError, one_line
from knotwork.parameters import shown

T = TypeVar("T")
# What a task makes of some rows, and what is kept of them to know them again.
Marked = tuple[T, Digest]


class DaskSource:
    """A Dask array or data frame, and y and weights as Dask arrays or series with the same partitions."""

    local = False

    def __init__(self, X: Any, y: Any, sample_weight: Any) -> None:
        from dask.base import is_dask_collection

        for name, values in (("y", y), ("sample_weight", sample_weight)):
            if not is_dask_collection(values) and not (name == "sample_weight" and values is None):
                raise DataError(
                    f"X is a Dask collection, so {name} must be a Dask array or series with the same partitions, got "
                    f"{shown(values)}"
                )
        if not is_array(X) and getattr(X, "ndim", 0) != 2:
            raise DataError(f"X must be a Dask array or data frame, got a {type(X).__name__}; convert it to one")
        if is_array(X) and X.ndim != 2:
            raise DataError(f"X must have shape (N, d), got {X.shape}")
        self._X, self._y, self._weight = X, y, sample_weight
        self._first: Digest | None = None  # of the first reading

    def add(
        self,
        task: Callable[[Rows], T],
        plus: Callable[[T, T], T],
        columns: Sequence[str] | None = None,
        report: Report | None = None,
    ) -> T:
        """Run a task for each partition and add neighbours until one sum is left."""
        from dask.delayed import delayed

        X = self._X if columns is None or is_array(self._X) else self._X[_own_names(self._X, columns)]
        parts = partitions(X)
        y = _beside(parts, self._y, X, "y")
        weight = [None] * len(parts) if self._weight is None else _beside(parts, self._weight, X, "sample_weight")
        run, join = delayed(_run, pure=False), delayed(_joined, pure=False)
        # One node of the graph: Dask would look through the task for collections, and send it, once for each partition.
        shared = delayed(task, traverse=False, pure=False)
        found = [run(shared, *each, number) for number, each in enumerate(zip(parts, y, weight, strict=True))]
        while len(found) > 1:
            pairs = [found[k : k + 2] for k in range(0, len(found), 2)]
            found = [join(plus, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        try:
            total: Marked[T] | None = found[0].compute()
        except KnotworkError:
            raise
        except Exception as error:  # of the tasks that make the partitions, or of the scheduler
            raise DataError(
                f"the partitions must be computable, one raised {type(error).__name__}: {one_line(error)}; fix it"
            ) from error
        if total is None:
            raise no_rows()
        self._first = self._first or total[1]
        self._first.require_same(total[1])
        return total[0]


def is_array(X: Any) -> bool:
    """Whether a collection is an array, not a data frame or series."""
    return hasattr(X, "chunks")


def _own_names(X: Any, columns: Sequence[str]) -> list[Any]:
    """Return the names of columns as the frame has them."""
    wanted = set(columns)
    return [name for name in X.columns if str(name) in wanted]


def partitions(X: Any) -> list[Any]:
    """Return the partitions of a collection in order; arrays are cut along rows only.

    Tasks of a collection are not fused: what makes both X and y is a task of its own then, and runs once for both.
    """
    if not is_array(X):
        return list(X.optimize(fuse=False).to_delayed(optimize_graph=False))
    if X.ndim == 2 and len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    return list(np.asarray(X.to_delayed(optimize_graph=False), dtype=object).reshape(-1))


def _beside(parts: list[Any], values: Any, X: Any, name: str) -> list[Any]:
    """Return the partitions of y or weights that lie beside those of X."""
    if is_array(values) and is_array(X) and not np.isnan([*values.chunks[0], *X.chunks[0]]).any():
        if values.shape[0] != X.shape[0]:
            raise DataError(f"X and {name} must have the same number of rows, got {X.shape[0]} and {values.shape[0]}")
        values = values.rechunk({0: X.chunks[0]})
    own = partitions(values)
    if len(own) != len(parts):
        raise DataError(
            f"X and {name} must have the same partitions, got {len(parts)} and {len(own)}; repartition one of them"
        )
    return own


def _run(task: Callable[[Rows], T], X: Any, y: Any, weight: Any, number: int) -> Marked[T] | None:
    """Run a task on a partition; None if it has no rows."""
    if len(X) != len(y) or (weight is not None and len(weight) != len(X)):
        raise DataError(
            f"partitions of X, y and sample_weight must have the same rows, number {number} has {len(X)} of X and "
            f"{len(y)} of y{'' if weight is None else f' and {len(weight)} weights'}; repartition them alike"
        )
    rows = Rows(X, y, weight, number)
    return (task(rows), rows.digest()) if len(X) else None


def _joined(plus: Callable[[T, T], T], a: Marked[T] | None, b: Marked[T] | None) -> Marked[T] | None:
    return b if a is None else a if b is None else (plus(a[0], b[0]), a[1].plus(b[1]))
