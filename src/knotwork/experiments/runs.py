"""One seeded run: a converted or a random network of the plan's shape, trained for all of its epochs.

Networks take and give normalised data, as in the paper. They are trained the way ``knotwork.train`` trains every
network: rewritten in standardised coordinates, units balanced, and back. It changes no start and is the same for all.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.experiments.protocol import FILL, LIGHT, Plan, Rows, Split, split
from knotwork.network.activations import activation_rule
from knotwork.network.chain import build, read_chain
from knotwork.network.compile.balance import balance_
from knotwork.network.start.choose import choose_start
from knotwork.network.start.initial import spline_start
from knotwork.network.start.task import StartOptions, StartTask
from knotwork.network.train.history import History
from knotwork.network.train.loop import TrainOptions, fit_network
from knotwork.network.train.losses import SquaredError
from knotwork.network.train.rows import Part
from knotwork.spline.model import Spline

RELU = activation_rule("relu")
# The default of SplineNetRegressor: large coefficients that cancel do not survive training.
RIDGE = 1e-3
# That of MarsRegressor: the published start is a spline as it would be used alone.
THRESHOLD = 1e-3


@dataclass(frozen=True)
class Trained:
    """A training from beginning to end.

    before, after : the network as it came and with its (averaged) weights after the last epoch, as they are trained: in
        standardised coordinates
    train, validation, test : mean squared errors after each epoch, beginning with epoch 0, in normalised coordinates
    errors : (test rows,) squared errors after the last epoch
    """

    before: nn.Sequential
    after: nn.Sequential
    train: list[float]
    validation: list[float]
    test: list[float]
    errors: Floats


def fit_start_spline(rows: Rows, names: tuple[str, ...], width: int) -> Spline:
    """Fit the spline a network starts from: first-order MARS, coefficients with a small ridge."""
    sample = Sample(rows.x, rows.y, np.ones(len(rows)))
    coordinates = Coordinates.of(rows.x, rows.y)
    task = StartTask(sample, None, False, names, (width,), RELU, coordinates, SquaredError())
    return choose_start(task, StartOptions(max_degree=1, threshold=THRESHOLD, ridge=RIDGE, n_jobs=1))


def converted_network(spline: Spline, rows: Rows, widths: tuple[int, ...], fill: str, seed: int) -> nn.Sequential:
    """Write a spline as a network of the given shape."""
    rng = np.random.default_rng(seed)
    chain = spline_start(spline, Coordinates.identity(rows.x.shape[1], 1), rows.x, widths, RELU, fill, rng)
    return build(chain, torch.float32)


def random_network(features: int, widths: tuple[int, ...], seed: int) -> nn.Sequential:
    """Return a network of the same shape from PyTorch's own initialisation, the random start that most people have.

    It begins near zero everywhere, so that its error before training is about that of the published networks. Kaiming's
    normal weights begin anywhere between the best guess and a hundred times its error.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        modules: list[nn.Module] = []
        for width in widths:
            modules += [nn.Linear(features, width), nn.ReLU()]
            features = width
        return nn.Sequential(*modules, nn.Linear(features, 1))


def tensors(rows: Rows) -> Part:
    """Rows as the training takes them, in single precision."""
    return Part(*(torch.from_numpy(np.asarray(v, dtype=np.float32)) for v in (rows.x, rows.y, np.ones(len(rows)))))


def squared_errors(net: nn.Module, part: Part) -> Tensor:
    """Return each row's squared error: (N,)."""
    with torch.no_grad():
        return (net(part.x) - part.y).square().mean(dim=1)


def options_of(plan: Plan, rate: float, epochs: int, **others: Any) -> TrainOptions:
    """Return the settings of a training; both starts have the same, but for the rate that each may choose."""
    settings = {"weight_decay": plan.weight_decay, "setback": plan.setback, **others}
    return TrainOptions(
        epochs=epochs, batch_size=plan.batch_size, learning_rate=rate, warmup=min(0.5, plan.warmup / max(epochs, 1)),
        patience=None, **settings,
    )  # fmt: skip


def inward(net: nn.Sequential, c: Coordinates) -> nn.Sequential:
    """Rewrite a network of normalised data as one of standardised data, its units balanced."""
    inner = build(read_chain(net).in_coordinates(c), torch.float32)
    balance_(inner)
    return inner


def train_through(net: nn.Sequential, data: Split, options: TrainOptions, seed: int) -> Trained:
    """Train for all epochs, no early end, and watch the test error."""
    c = Coordinates.of(data.train.x, data.train.y)
    unit = float(c.y_scale.item() ** 2)

    def standardised(rows: Rows) -> Part:
        return tensors(Rows(c.features(rows.x), c.responses(rows.y)))

    net = inward(net, c)
    testing = standardised(data.test)
    before, after = copy.deepcopy(net), copy.deepcopy(net)
    test: list[float] = []

    def report(epoch: int, history: History, averaged: nn.Module) -> None:
        test.append(float(squared_errors(averaged, testing).mean()) * unit)
        if epoch == options.epochs:
            after.load_state_dict(averaged.state_dict())

    history = fit_network(
        net, standardised(data.train), standardised(data.validation), options, seed=seed, unit=unit, report=report
    ).history
    errors = squared_errors(after, testing).numpy().astype(np.float64) * unit
    return Trained(before, after, history.train_loss, history.validation_loss, test, errors)


def gradient_norm(net: nn.Module, rows: Rows) -> float:
    """Norm of the gradient of the mean squared error over all rows."""
    part = tensors(rows)
    net.zero_grad(set_to_none=True)
    (net(part.x) - part.y).square().mean().backward()
    norm = float(torch.linalg.vector_norm(torch.cat([p.grad.ravel() for p in net.parameters() if p.grad is not None])))
    net.zero_grad(set_to_none=True)
    return norm


def start_network(start: str, data: Split, plan: Plan, seed: int) -> tuple[nn.Sequential, Spline | None]:
    """Return the network that a run begins with, and its spline."""
    start = start.removesuffix(LIGHT)
    if start == "random":
        return random_network(data.train.x.shape[1], plan.widths, seed), None
    spline = fit_start_spline(data.train, data.names, plan.widths[0])
    return converted_network(spline, data.train, plan.widths, FILL[start], seed), spline


def digits(values: list[float] | Floats) -> list[float]:
    """Seven digits: all that single precision has."""
    return [float(f"{v:.7g}") for v in values]


def run(plan: Plan, data: str, scaling: str, start: str, rate: float, seed: int) -> dict[str, Any]:
    """Train one network and record its errors after every epoch, in squared units of the scaled y."""
    rows = split(data, seed, scaling)
    net, spline = start_network(start, rows, plan, seed)
    norm = gradient_norm(net, rows.train)
    decay = plan.light_decay if start.endswith(LIGHT) else plan.weight_decay
    trained = train_through(net, rows, options_of(plan, rate, plan.epochs, weight_decay=decay), seed)
    return {
        "data": data, "scaling": scaling, "start": start, "rate": rate, "seed": seed, "unit": rows.unit,
        "terms": None if spline is None else len(spline.terms),
        "train": digits(trained.train),
        "validation": digits(trained.validation),
        "test": digits(trained.test),
        "gradient_norm": norm,
        "test_fresh": float(trained.errors[rows.fresh].mean()),
        "test_copies": float(trained.errors[~rows.fresh].mean()) if not rows.fresh.all() else None,
        "copies": int((~rows.fresh).sum()),
        "test_variance": float(rows.test.y.var()),
    }  # fmt: skip
