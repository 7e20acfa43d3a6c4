"""Training a network of the user's own: read what y asks for, hold rows out, standardise, run the loop, fold back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.data.split import held_out
from knotwork.errors import NetworkError
from knotwork.network.chain import (
    TRANSPARENT,
    flags_kept,
    leaves,
    placement,
    read_layer,
    scaling_coordinates,
    without_scaling,
    write_layer_,
)
from knotwork.network.compile.balance import balance_
from knotwork.network.scaling import Scaling
from knotwork.network.train.loop import History, Part, TrainOptions, fit_network
from knotwork.network.train.losses import LogLoss, Loss, SquaredError
from knotwork.network.train.targets import Target, read_target, to_numpy
from knotwork.progress import epoch_progress


def train(
    net: nn.Module,
    X: ArrayLike,
    y: ArrayLike,
    *,
    task: str = "auto",
    validation: float | tuple[ArrayLike, ArrayLike] = 0.15,
    sample_weight: ArrayLike | None = None,
    epochs: int = 100,
    batch_size: int = 128,
    learning_rate: float = 1e-2,
    weight_decay: float = 1e-2,
    warmup: float = 0.2,
    l1: float = 0.0,
    dropout: float = 0.0,
    patience: int | None = 30,
    setback: float | None = None,
    average: float = 10.0,
    label_smoothing: float = 0.0,
    standardise: bool = True,
    random_state: int | None = None,
    verbose: int = 0,
) -> History:
    """Train a network of your own in place; the loop that ``SplineNetRegressor`` and ``SplineNetClassifier`` use.

    Parameters that are not listed are those of ``SplineNetRegressor`` and ``SplineNetClassifier``.

    Parameters
    ----------
    net : module that maps (N, d) to (N, p): responses, or logits of p classes; one logit distinguishes two classes
    X, y : (N, d) and (N,) or (N, p); for classes (N,) labels
    task : "regression", "classification" or "auto". "auto" takes text and booleans for classes, whole numbers too if
        there are several outputs or only 0 and 1 occur. Numbers from 0 to p − 1 name the outputs, other labels go to
        them in sorted order
    validation : share of the rows to validate on, or (X, y) of its own; the weights of the best epoch are kept, those
        that the network came with among them
    setback : as there, but None by default: only rows that the start has not seen can show a setback
    standardise : train in standardised coordinates. A ``Sequential`` is trained between the Scalings at its ends; at an
        end without one, its first or last Linear is rewritten for the training rows' means and stds, and back
        afterwards. Other networks are trained as they are

    Returns
    -------
    History : losses per epoch, beginning with epoch 0

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_wine_quality("red")
    >>> net = kw.reshape(kw.to_network(kw.MarsRegressor().fit(X, y)), (64, 64), X=X, random_state=0)
    >>> history = kw.train(net, X, y, epochs=3, random_state=0)
    >>> min(history.validation_loss) <= history.validation_loss[0]
    True
    """
    if not isinstance(net, nn.Module):
        raise NetworkError(f"train takes a torch network, got {type(net).__name__}; kw.to_network(model) makes one")
    for name, number, minimum in (("epochs", epochs, 0), ("batch_size", batch_size, 1)):
        if number < minimum:
            raise NetworkError(f"{name} must be at least {minimum}, got {number}")
    rows = to_numpy(X)
    weight = np.ones(len(rows)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    _require_table(rows)
    outputs = _count_outputs(net, rows)
    target = read_target(y, outputs, task)
    targets = target.values if target.classes is not None else target.values.reshape(len(target.values), -1)
    loss = SquaredError() if target.classes is None else LogLoss(outputs, label_smoothing)
    seed = int(np.random.default_rng(random_state).integers(2**31))
    sample = Sample(rows, targets, weight)
    _require_rows(sample)
    if target.classes is None and targets.shape[1] != outputs:
        raise NetworkError(f"y must have one column per output, here {outputs}, got {targets.shape[1]}")
    if isinstance(validation, (tuple, list)):
        training = sample
        held_rows = to_numpy(validation[0])
        if held_rows.ndim != 2 or held_rows.shape[1] != rows.shape[1]:
            raise NetworkError(f"validation rows must have shape (N, {rows.shape[1]}) like X, got {held_rows.shape}")
        judges = Sample(held_rows, _like(target, validation[1], outputs), np.ones(len(held_rows)))
        _require_rows(judges)
        if judges.y.shape[1:] != targets.shape[1:]:
            raise NetworkError(
                f"validation responses must have as many columns as y, got {judges.y.shape} and {targets.shape}"
            )
    else:
        held = held_out(rows, validation, seed)
        training, judges = sample.take(~held), sample.take(held) if held.any() else sample
    options = TrainOptions(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, weight_decay=weight_decay,
        warmup=warmup, l1=l1, dropout=dropout, patience=patience, setback=setback, average=average,
    )  # fmt: skip
    dtype, device = placement(net)
    before = copy.deepcopy(net.state_dict())
    measured = loss.coordinates(training.X, training.y, training.weight)
    try:
        with (
            flags_kept(net),
            _trainable(net, loss, measured if standardise else None, rows.shape[1], outputs) as (inner, coordinates),
            epoch_progress(bool(verbose), epochs) as report,
        ):
            return fit_network(
                inner,
                Part.of(training, loss, coordinates, device, dtype),
                Part.of(judges, loss, coordinates, device, dtype),
                options,
                seed=seed,
                loss=loss,
                unit=loss.unit(coordinates),
                report=report,
            )
    except BaseException:
        net.load_state_dict(before)
        raise
    finally:
        net.zero_grad(set_to_none=True)


def _count_outputs(net: nn.Module, rows: Floats) -> int:
    """Run a network on two rows to see how many outputs it has."""
    dtype, device = placement(net)
    with flags_kept(net), torch.no_grad():
        shape = net.eval()(torch.from_numpy(rows[:2]).to(device, dtype)).shape
    if len(shape) != 2:
        raise NetworkError(f"the network must map (N, d) to (N, outputs), got {tuple(shape)} for 2 rows")
    return int(shape[1])


def _like(target: Target, y: ArrayLike, outputs: int) -> NDArray[Any]:
    """Read the validation rows' targets as those of the training rows were read."""
    if target.classes is None:
        return read_target(y, outputs, target.task).values
    places = {label: k for k, label in enumerate(target.classes)}
    labels = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    codes = [places.get(label, -1) for label in labels.reshape(-1).tolist()]
    if min(codes, default=0) < 0:
        raise NetworkError("the labels of the validation rows must be those of y, got others; leave those rows out")
    return np.array(codes, dtype=np.intp)


def _require_table(rows: Floats) -> None:
    if rows.ndim != 2 or len(rows) < 2:
        raise NetworkError(f"X must have shape (N, d) with at least 2 rows, got {rows.shape}")


def _require_rows(sample: Sample) -> None:
    _require_table(sample.X)
    if len(sample.y) != len(sample) or sample.weight.shape != (len(sample),):
        raise NetworkError(
            f"X, y and weights must have the same number of rows, got {len(sample)}, {len(sample.y)} and "
            f"{len(sample.weight)}"
        )
    if (sample.weight < 0).any() or not sample.weight.any():
        raise NetworkError("sample_weight must not be negative and not all zero; use 0 to leave a row out")
    for name, values in (("X", sample.X), ("y", sample.y), ("sample_weight", sample.weight)):
        if not np.isfinite(values).all():
            raise NetworkError(f"{name} must be finite, got NaN or inf; leave those rows out or fill them in")


@contextmanager
def _trainable(
    net: nn.Module, loss: Loss, measured: Coordinates | None, features: int, outputs: int
) -> Iterator[tuple[nn.Module, Coordinates]]:
    """Yield the part of a network to train, and the coordinates that it computes in.

    A Sequential is trained between the Scalings at its ends. At an end without one, its first or last Linear is
    rewritten for the measured coordinates, and back afterwards. Everything else is trained as it is.
    """
    layers, x, y = _opened(net)
    if y is not None and isinstance(loss, LogLoss):  # what scales logits is part of the network
        layers, y = [*layers, y], None
    if x is None and y is None and (measured is None or not layers):
        yield net, Coordinates.identity(features, outputs)
        return
    inner = nn.Sequential(*layers)
    inner.training = net.training
    c = scaling_coordinates(x, y, features, outputs)
    working = [m for m in layers if not isinstance(m, TRANSPARENT)]
    first = working[0] if measured is not None and x is None and _is_own(working[0], working) else None
    last = working[-1] if measured is not None and y is None and _is_own(working[-1], working) else None
    if measured is not None and first is not None:
        # Without a bias there is nothing to move the features by.
        centre = measured.x_centre if first.bias is not None else np.zeros(features)
        c = replace(c, x_centre=centre, x_scale=measured.x_scale)
    if measured is not None and last is not None and last.bias is not None:
        c = replace(c, y_centre=measured.y_centre, y_scale=measured.y_scale)

    def change(c: Coordinates) -> None:
        if first is not None:
            write_layer_(first, read_layer(first).of_features(c))
        if last is not None and last.bias is not None:
            write_layer_(last, read_layer(last).to_responses(c))

    change(c)
    balance_(inner)
    try:
        yield inner, c
    finally:
        change(c.inverse)


def _opened(net: nn.Module) -> tuple[list[nn.Module], Scaling | None, Scaling | None]:
    """Return the layers of a Sequential between its Scalings, and these; no layers for other modules."""
    if not isinstance(net, nn.Sequential):
        return [], None, None
    layers = [m for _, m in leaves(net)]
    flat = [isinstance(m, nn.Flatten) and (m.start_dim, m.end_dim) == (1, -1) for m in layers]
    return without_scaling([m for m, f in zip(layers, flat, strict=True) if not (f or isinstance(m, nn.Identity))])


def _is_own(layer: nn.Module, working: list[nn.Module]) -> TypeGuard[nn.Linear]:
    """Whether a layer is a Linear that stands in one place only and whose weight is its own, not computed."""
    if not isinstance(layer, nn.Linear) or "weight" not in dict(layer.named_parameters(recurse=False)):
        return False
    return sum(isinstance(m, nn.Linear) and m.weight is layer.weight for m in working) == 1
