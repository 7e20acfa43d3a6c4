"""``knotwork fit`` for Parquet files that are larger than memory: rows are read in parts, in every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.data.batches import Batches, IterableSource, Rows
from knotwork.data.files import Table, is_parquet, open_parquet, read_file
from knotwork.errors import DataError

# Rows at the beginning of a file by which columns are chosen, and the task.
FIRST_ROWS = 100_000


def is_large(path: Path, memory_limit: int) -> bool:
    """Whether a file is Parquet and takes more memory than this, 8 bytes a value."""
    if not is_parquet(path):
        return False
    file, _ = open_parquet(path, ())
    return bool(8 * file.metadata.num_rows * file.metadata.num_columns > memory_limit)


def require_plain_options(given: Mapping[str, Any]) -> None:
    """Refuse options that need all rows in memory."""
    for option, value in given.items():
        if value:
            raise DataError(
                f"a file that is read in parts has no {option}: that needs all rows in memory; leave it out, or raise "
                f"--memory-limit"
            )


def first_rows(path: Path, skip: list[str]) -> Table:
    """Read the first rows of a Parquet file: what the columns are is told by them."""
    return read_file(path, skip=skip, max_rows=FIRST_ROWS)


@dataclass(frozen=True)
class Side:
    """The rows of a file to train on, or those held out, as batches: drawn at random, the same each time.

    Rows without a target are left out.
    """

    path: Path
    features: tuple[str, ...]
    target: str
    memory_limit: int
    seed: int
    test_size: float
    held_out: bool

    @property
    def batches(self) -> Batches:
        """The rows of this side as a fit takes them."""
        return _Counted(self, memory_limit=self.memory_limit)

    def __iter__(self) -> Iterator[tuple[Any, NDArray[Any]]]:
        import pyarrow.dataset as ds

        dataset = ds.dataset(self.path, format="parquet")
        source: Any = Batches(dataset, memory_limit=self.memory_limit).source(self.target, None)
        rows: Rows
        for rows in source.parts(self.features):
            y = np.asarray(rows.y)
            out = np.random.default_rng([self.seed, rows.number]).random(len(y)) < self.test_size
            wanted = (out if self.held_out else ~out) & _present(y)
            if wanted.all():
                yield rows.X, y
            elif wanted.any():
                yield rows.X.filter(wanted), y[wanted]


class _Counted(Batches):
    """Batches of a side, which know about how many rows they will have: progress can say how long a reading takes."""

    def source(self, y: Any, sample_weight: Any) -> IterableSource:
        """Return the rows as a fit reads them."""
        return _SideSource(self.data, y, sample_weight)


class _SideSource(IterableSource):
    """Batches of a side."""

    def __init__(self, side: Side, y: Any, sample_weight: Any) -> None:
        super().__init__(side, y, sample_weight)
        self._side = side

    def rows(self) -> int:
        """Return how many rows a side has, but for chance and rows without a target."""
        side = self._side
        share = side.test_size if side.held_out else 1 - side.test_size
        return round(share * open_parquet(side.path, ())[0].metadata.num_rows)


def _present(y: NDArray[Any]) -> NDArray[np.bool_]:
    if y.dtype.kind == "f":
        found: NDArray[np.bool_] = ~np.isnan(y)
        return found
    return np.array([v is not None and v == v for v in y.tolist()]) if y.dtype.kind == "O" else np.ones(len(y), bool)


def errors_of(model: Any, side: Side, task: str, train: dict[str, Any] | None) -> dict[str, Any]:
    """Sum the errors of all rows of a side; ``train`` : what this returned for the training rows, None for them."""
    if task == "classification":
        return _class_errors(model, side, train)
    count, pivot = 0, None
    sums = np.zeros(4)  # squared and absolute errors, and y and its squares less a pivot
    for X, y in side:
        error, values = model.predict(X) - y, np.asarray(y, dtype=np.float64)
        pivot = float(values.mean()) if pivot is None else pivot
        values = values - pivot
        sums += error @ error, np.abs(error).sum(), values.sum(), values @ values
        count += len(values)
    if not count:
        return {"rows": 0}
    pivot = pivot or 0.0
    mean = pivot + sums[2] / count if train is None else train["mean"]
    apart = mean - pivot
    constant = float(np.sqrt(max(sums[3] - 2 * apart * sums[2] + count * apart**2, 0.0) / count))
    rmse = float(np.sqrt(sums[0] / count))
    return {
        "rows": count,
        "mean": mean,
        "rmse": rmse,
        "mae": float(sums[1] / count),
        "r2": 1 - (rmse / constant) ** 2 if constant > 0 else 0.0,
        "rmse_of_the_mean": constant,
    }


def _class_errors(model: Any, side: Side, train: dict[str, Any] | None) -> dict[str, Any]:
    labels = model.classes_
    counts, right, likelihood = np.zeros(len(labels)), 0, 0.0
    for X, y in side:
        shares = model.predict_proba(X)
        codes = np.minimum(np.searchsorted(labels, y), len(labels) - 1)
        known = labels[codes] == y
        own = np.where(known, shares[np.arange(len(codes)), codes], 0.0)
        likelihood += float(np.log(np.maximum(own, np.finfo(float).eps)).sum())
        right += int(np.count_nonzero(known & (shares.argmax(axis=1) == codes)))
        counts += np.bincount(codes[known], minlength=len(labels))
    rows = int(counts.sum())
    if not rows:
        return {"rows": 0}
    first = counts if train is None else train["counts"]
    return {
        "rows": rows,
        "counts": first,
        "accuracy": right / rows,
        "accuracy_of_the_majority_class": float(counts[first.argmax()] / rows),
        "log_loss": -likelihood / rows,
        "log_loss_of_the_class_shares": float(-(counts @ np.log(first / first.sum())) / rows),
        "auc": None,
    }
