"""What people hand to ``train``, read once: rows, targets and weights; arrays, frames or a loader of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from knotwork.arrays import CHUNK, Floats, read_array
from knotwork.data.sample import Sample
from knotwork.data.split import bound_of, held_out, row_numbers
from knotwork.data.table import as_frame
from knotwork.errors import NetworkError, one_line
from knotwork.network.chain import Conversion, flags_kept, placement
from knotwork.network.train.ranks import Ranks
from knotwork.network.train.targets import Target, read_target, to_numpy
from knotwork.parameters import shown

# Rows of a loader that its coordinates are measured on.
MEASURED_ROWS = 65_536
# Labels beyond a network's outputs that ranks show one another: there are too many of them then, whatever they are.
MAX_LABELS = 1000


@dataclass(frozen=True)
class Reader:
    """From arrays, tensors or frames to checked rows for one network.

    target : how the targets of all training rows were read, and so how others are
    """

    net: nn.Module
    features: int
    outputs: int
    target: Target

    def read(self, X: Any, y: Any, weight: Any = None) -> Sample:
        """Read rows, targets and weights."""
        return self.sample(read_rows(self.net, X), self._targets(y), weight)

    def sample(self, rows: Floats, targets: NDArray[Any], weight: Any) -> Sample:
        """Check rows whose targets are read; those of weight zero count as if they were not there."""
        weights = np.ones(len(rows)) if weight is None else to_numpy(weight, "sample_weight").reshape(-1)
        sample = Sample(rows, targets, weights)
        require_rows(sample)
        if rows.shape[1] != self.features:
            raise NetworkError(f"validation rows must have shape (N, {self.features}) like X, got {rows.shape}")
        kept = weights > 0
        return sample if kept.all() else sample.take(kept)

    def _targets(self, y: Any) -> NDArray[Any]:
        if self.target.classes is not None:
            return like(self.target, y)
        values = _columns(read_target(y, self.outputs, "regression"))
        if values.shape[1] != _columns(self.target).shape[1]:
            raise NetworkError(
                f"validation responses must have as many columns as y, got {values.shape} and "
                f"{_columns(self.target).shape}"
            )
        return values


def _columns(target: Target) -> NDArray[Any]:
    """Return numbers as (N, p), codes of classes as (N,)."""
    values = target.values
    return values if target.classes is not None else values.reshape(len(values), -1)


@dataclass(frozen=True)
class Loader:
    """Batches that can be read again: ``count`` of them, ``sample`` the first rows."""

    batches: Iterable[Any]
    count: int
    sample: Sample
    reader: Reader

    def read(self, batch: Any) -> Sample:
        """Read one batch as the training rows are read."""
        return self.reader.read(*_parts(batch))


@dataclass(frozen=True)
class Given:
    """Rows to train on, rows to validate on, and what they are.

    unseen : whether the validation rows are the caller's own, which the network has not seen
    weighted : whether the rows differ in weight
    """

    training: Sample | Loader
    validation: Sample
    target: Target
    outputs: int
    unseen: bool
    weighted: bool

    @property
    def measured(self) -> Sample:
        """Rows that the coordinates of training are measured on."""
        return self.training.sample if isinstance(self.training, Loader) else self.training


def read_given(
    net: nn.Module,
    X: Any,
    y: Any,
    weight: Any,
    validation: Any,
    seed: int,
    task: str,
    *,
    own_loss: bool,
    ranks: Ranks | None = None,
) -> Given:
    """Read what a network is to be trained and validated on; ranks decide together what their targets are."""
    if y is None and not _is_loader(X):
        raise NetworkError("train needs targets, got y=None; pass y, or a DataLoader of (rows, targets) in place of X")
    if y is None:
        return _given_by_loader(net, X, weight, validation, task, own_loss, ranks)
    if isinstance(X, torch.utils.data.DataLoader):
        raise NetworkError("a DataLoader yields its own targets, got y as well; leave y out")
    rows = read_rows(net, X)
    if len(rows) < 2:
        raise NetworkError(f"X must have shape (N, d) with at least 2 rows, got {rows.shape}")
    reader = _reader(net, rows, y, task, own_loss, ranks)
    sample = reader.sample(rows, _columns(reader.target), weight)
    require_weights(sample)
    weighted = bool(np.ptp(sample.weight) > 0)
    if isinstance(validation, float | int):
        if not 0 < validation < 1:
            raise NetworkError(f"validation must be a share between 0 and 1, or a pair (X, y), got {shown(validation)}")
        held, judged = _held(sample.X, validation, seed, ranks)
        judges = sample.take(held) if judged else sample
        return Given(sample.take(~held), judges, reader.target, reader.outputs, False, weighted)
    return Given(sample, _read_validation(validation, reader), reader.target, reader.outputs, True, weighted)


def _held(X: Floats, share: float, seed: int, ranks: Ranks | None) -> tuple[NDArray[np.bool_], bool]:
    """Mark rows to validate on, and say whether there are any; copies of a row are on one side, on whatever rank."""
    if ranks is None:
        held = held_out(X, share, seed)
        return held, bool(held.any())
    numbers = row_numbers(X, seed)
    bounds, counts = zip(*ranks.gather((int(bound_of(numbers, share)), len(X))), strict=True)
    bound = sum(b * n for b, n in zip(bounds, counts, strict=True)) // sum(counts)
    # Every rank has rows to train on.
    held = numbers < min(np.uint64(bound), numbers.max())
    return held, any(ranks.gather(bool(held.any())))


def _reader(net: nn.Module, rows: Floats, y: Any, task: str, own_loss: bool, ranks: Ranks | None) -> Reader:
    """Decide how targets are read, by those of all training rows."""
    outputs = count_outputs(net, rows)
    if task == "auto" and own_loss and outputs == 1 and not _is_text(y):
        task = "regression"
    target = read_target(y, outputs, task) if ranks is None else _target_of_all(y, outputs, task, ranks)
    if not target.values.size:
        raise NetworkError(f"y must have a value for every row, got shape {target.values.shape}")
    if target.classes is None and not own_loss and _columns(target).shape[1] != outputs:
        raise NetworkError(f"y must have one column per output, here {outputs}, got {_columns(target).shape[1]}")
    return Reader(net, rows.shape[1], outputs, target)


def _target_of_all(y: Any, outputs: int, task: str, ranks: Ranks) -> Target:
    """Read targets as those of all ranks' rows ask for: a rank may lack a class, or have whole numbers by chance."""
    labels = read_array(y, "y", NetworkError)
    column = labels.ndim == 1 or labels.shape[1:] == (1,)
    distinct = ranks.gather(_distinct(labels.reshape(-1), outputs, task) if column else None)
    decided = None
    if all(own is not None for own in distinct):
        decided = read_target(np.concatenate([own for own in distinct if own is not None]), outputs, task)
    if decided is None or decided.classes is None:
        return read_target(y, outputs, task if decided is None else "regression")
    return Target("classification", like(decided, labels), decided.classes)


def _distinct(labels: NDArray[Any], outputs: int, task: str) -> NDArray[Any]:
    """Return labels that show what y is as well as all of them do."""
    most = outputs + MAX_LABELS
    if labels.dtype.kind in "USO":
        return np.array(list(dict.fromkeys(labels.tolist())), dtype=labels.dtype)[:most]
    if labels.dtype.kind in "iub" or task == "classification":
        different = np.unique(labels)
        return np.append(different[:most], different[-1:])
    return labels[:1]


def read_rows(net: nn.Module, X: Any) -> Floats:
    """Return rows as numbers; a frame goes through the encoder that the network remembers, if it does."""
    if as_frame(X) is None:
        try:
            rows = to_numpy(X)
        except (TypeError, ValueError):
            raise NetworkError(
                "rows must be numbers, got an array with something else in it; pass a data frame to a network that "
                "remembers its encoder, or encode the rows first"
            ) from None
        if rows.ndim != 2:
            raise NetworkError(f"X must have shape (N, d) with at least 2 rows, got {rows.shape}")
        return rows
    conversion = getattr(net, "conversion", None)
    if isinstance(conversion, Conversion) and conversion.encoder is not None:
        return conversion.encoder.encode(X)
    try:
        return to_numpy(X)
    except (TypeError, ValueError):
        raise NetworkError(
            "this network remembers no encoder for the columns of a frame that are not numbers; encode it first, with "
            "encoder_ of the estimator, or encoder of what init_ returns"
        ) from None


def count_outputs(net: nn.Module, rows: Floats) -> int:
    """Run a network on two rows to see how many outputs it has."""
    if len(rows) < 1:
        raise NetworkError(f"X must have shape (N, d) with at least 2 rows, got {rows.shape}")
    dtype, device = placement(net)
    two = torch.from_numpy(np.resize(rows[:2], (2, rows.shape[1])))
    try:
        with flags_kept(net), torch.no_grad():
            out = net.eval()(two.to(device, dtype))
    except Exception as error:  # somebody's module may raise anything
        raise NetworkError(
            f"the network must take rows like X's, of shape (N, {rows.shape[1]}): {one_line(error)}"
        ) from error
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != 2:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise NetworkError(f"the network must map (N, d) to (N, outputs), got {got} for 2 rows")
    return int(out.shape[1])


def outputs_of(net: nn.Module, rows: Floats) -> Floats:
    """Run a network on rows, a chunk at a time: (N, d) → (N, outputs)."""
    _, device = placement(net)
    takes = row_dtype(net, rows)
    with flags_kept(net), torch.no_grad():
        net.eval()
        found = [
            net(torch.from_numpy(rows[at : at + CHUNK]).to(device, takes)).to("cpu", torch.float64).numpy()
            for at in range(0, len(rows), CHUNK)
        ]
    return np.concatenate(found)


def row_dtype(net: nn.Module, rows: Floats) -> torch.dtype:
    """Return the dtype that a network takes rows in: float64 if it scales them itself, whatever it computes in."""
    dtype, device = placement(net)
    two = torch.from_numpy(np.resize(rows[:2], (2, rows.shape[1]))).to(device)
    try:
        with flags_kept(net), torch.no_grad():
            return torch.float64 if net.eval()(two).dtype == dtype else dtype
    except (RuntimeError, TypeError, ValueError):  # layers refuse rows of another dtype than their weights'
        return dtype


def like(target: Target, y: ArrayLike) -> NDArray[np.intp]:
    """Read labels as those of the training rows were read."""
    assert target.classes is not None
    places = {label: k for k, label in enumerate(target.classes)}
    labels = read_array(y, "y", NetworkError)
    codes = [places.get(label, -1) for label in labels.reshape(-1).tolist()]
    if min(codes, default=0) < 0:
        raise NetworkError("the labels of the validation rows must be those of y, got others; leave those rows out")
    return np.array(codes, dtype=np.intp)


def require_rows(sample: Sample) -> None:
    """Refuse rows that there is nothing to learn from."""
    if len(sample.y) != len(sample) or sample.weight.shape != (len(sample),):
        raise NetworkError(
            f"X, y and weights must have the same number of rows, got {len(sample)}, {len(sample.y)} and "
            f"{len(sample.weight)}"
        )
    if (sample.weight < 0).any():
        raise NetworkError("sample_weight must not be negative; use 0 to leave a row out")
    for name, values in (("X", sample.X), ("y", sample.y), ("sample_weight", sample.weight)):
        if not np.isfinite(values).all():
            raise NetworkError(f"{name} must be finite, got NaN or inf; leave those rows out or fill them in")


def require_weights(sample: Sample) -> None:
    """Refuse rows none of which has a weight."""
    if not len(sample):
        raise NetworkError("sample_weight must be positive for some rows and not all zero; use 0 to leave a row out")


# ------------------------------------------------------------- loaders


def _is_loader(X: Any) -> bool:
    return isinstance(X, Iterable) and not isinstance(X, (Tensor, np.ndarray, str)) and as_frame(X) is None


def _is_text(y: Any) -> bool:
    return read_array(y, "y", NetworkError).dtype.kind in "USO"


def _read_again(batches: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Read the batches from the first on."""
    found = iter(batches)
    if found is batches:
        raise NetworkError("a loader must give its batches again for every epoch, got an iterator; pass a DataLoader")
    yield from map(_parts, found)


def _parts(batch: Any) -> tuple[Any, Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        got = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise NetworkError(f"a loader must yield batches (rows, targets) or (rows, targets, weights), got {got}")
    return batch[0], batch[1], batch[2] if len(batch) == 3 else None


def _given_by_loader(
    net: nn.Module,
    batches: Iterable[Any],
    weight: Any,
    validation: Any,
    task: str,
    own_loss: bool,
    ranks: Ranks | None,
) -> Given:
    """Read a loader once, to know its targets and their scale."""
    if weight is not None:
        raise NetworkError("batches carry their own weights, (rows, targets, weights), got sample_weight as well")
    if isinstance(validation, float | int):
        raise NetworkError(
            f"a loader cannot be split, got validation={shown(validation)}, a share of its rows; pass "
            "validation=(X, y) or another loader"
        )
    count, rows = 0, 0
    first: list[tuple[Any, Any, Any]] = []
    labels: list[NDArray[Any]] = []
    for X, y, weights in _read_again(batches):
        count += 1
        labels.append(read_array(y, "y", NetworkError))
        if rows < MEASURED_ROWS:
            first.append((X, y, weights))
            rows += len(X)
    if rows < 2:
        raise NetworkError(f"a loader must yield at least 2 rows, got {rows}")
    reader = _reader(net, read_rows(net, first[0][0]), np.concatenate(labels), task, own_loss, ranks)
    sample = _joined([reader.read(*parts) for parts in first])
    require_weights(sample)
    judges = _read_validation(validation, reader)
    weighted = bool(np.ptp(sample.weight) > 0)
    return Given(Loader(batches, count, sample, reader), judges, reader.target, reader.outputs, True, weighted)


def _read_validation(validation: Any, reader: Reader) -> Sample:
    """Read validation rows of the caller's own: (X, y), (X, y, weights), or a loader of such batches."""
    if isinstance(validation, (tuple, list)) and len(validation) in (2, 3):
        sample = reader.read(*validation)
    elif not _is_loader(validation):
        raise NetworkError(f"validation must be a share of the rows, (X, y) or a loader, got {shown(validation)}")
    else:
        sample = _joined([reader.read(*parts) for parts in _read_again(validation)])
    require_weights(sample)
    return sample


def _joined(samples: list[Sample]) -> Sample:
    if not samples:
        raise NetworkError("a loader must yield rows, got none")
    return Sample(*(np.concatenate([getattr(s, name) for s in samples]) for name in ("X", "y", "weight")))
