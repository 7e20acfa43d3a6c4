"""Trainings with a checkpoint, killed at any moment and started again: the result is that of the uninterrupted one."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

import knotwork as kw
from tests.torture.outcome import Outcome

NAME = "kill_training"
DEFAULT_COUNT = 10
# Kills of a case; loading the libraries takes longer than a training.
KILLS = 5
# Set in the server that trainings are forked off.
SERVER = "KNOTWORK_TORTURE_SERVER"
# A training that takes longer than this hangs.
PATIENCE = 60.0

Training = Callable[[Path | None, int], tuple[nn.Module, Any]]


def rows(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 4)) * [1.0, 100.0, 1e-3, 1.0] + [0.0, 1e4, 0.0, 5.0]
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, 1e3 * (np.sin(2 * z[:, 0]) + z[:, 1] * z[:, 2] + 0.2 * rng.normal(size=400))


def plain(checkpoint: Path | None, seed: int) -> tuple[nn.Module, Any]:
    X, y = rows(seed)
    net = kw.reshape(kw.to_network(kw.MarsRegressor().fit(X[100:], y[100:])), (32, 32), X=X, random_state=seed)
    options = {"validation": (X[:100], y[:100]), "epochs": 30, "batch_size": 32, "dropout": 0.1, "l1": 1e-4}
    return net, kw.train(net, X[100:], y[100:], checkpoint=checkpoint, random_state=seed, **options)


def batch_norm(checkpoint: Path | None, seed: int) -> tuple[nn.Module, Any]:
    X, y = rows(seed)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    options = {"epochs": 30, "batch_size": 50, "optimizer": sgd, "loss": nn.HuberLoss(reduction="none")}
    return net, kw.train(net, X, y / 1e3, checkpoint=checkpoint, random_state=seed, **options)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


class Noisy(nn.Module):
    """Draws from torch's global generator, as modules of other people do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: Any) -> Any:
        return self.layers(x + 0.1 * torch.randn_like(x) if self.training else x)


def noisy(checkpoint: Path | None, seed: int) -> tuple[nn.Module, Any]:
    X, y = rows(seed)
    torch.manual_seed(seed)
    net = Noisy()
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    options = {"epochs": 30, "batch_size": 32, "setback": 0.01, "learning_rate": 0.1}
    return net, kw.train(net, z, y, checkpoint=checkpoint, random_state=seed, **options)


def regressor(checkpoint: Path | None, seed: int) -> tuple[nn.Module, Any]:
    X, y = rows(seed)
    options = {"hidden": (32, 32), "epochs": 30, "batch_size": 32, "dropout": 0.1, "learning_rate": 0.05}
    model = kw.SplineNetRegressor(n_members=1, checkpoint=checkpoint, random_state=seed, **options).fit(X, y)
    return model.network_, model.history_


def classifier(checkpoint: Path | None, seed: int) -> tuple[nn.Module, Any]:
    X, y = rows(seed)
    options = {"hidden": (32,), "epochs": 30, "batch_size": 32, "max_degree": 1}
    model = kw.SplineNetClassifier(n_members=1, checkpoint=checkpoint, random_state=seed, **options)
    model.fit(X, np.digitize(y, [-500.0, 500.0]))
    return model.network_, model.history_


TRAININGS: tuple[Training, ...] = (plain, regressor, batch_norm, classifier, noisy)


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Kill each of ``count`` trainings ``KILLS`` times, and let it go on to its end after every kill."""
    outcome = Outcome()
    for case in range(first, first + count):
        training = TRAININGS[case % len(TRAININGS)]
        report(f"case {case}: {training.__name__}")
        outcome += _case(case, training, seed, folder, report)
    return outcome


def _case(case: int, training: Training, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    rng = np.random.default_rng((seed, case))
    _run(training, None, seed, folder)  # the first one waits for the server
    start = time.perf_counter()
    expected = _run(training, None, seed, folder)
    seconds = time.perf_counter() - start
    counts = {"killed": 0, "resumed": 0, "began anew": 0, "ended first": 0}
    bad = []
    while counts["killed"] < KILLS and counts["ended first"] < 10 * KILLS:
        number = sum(counts.values())
        report(f"case {case}: {training.__name__}, start {number}")
        checkpoint = folder / f"{case}-{number}.checkpoint"
        process = _started(training, checkpoint, seed, folder)
        process.join(rng.uniform(0.05, 0.8) * seconds)
        if not process.is_alive():
            counts["ended first"] += 1
            continue
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        counts["killed"] += 1
        counts["resumed" if checkpoint.exists() else "began anew"] += 1
        found = _run(training, checkpoint, seed, folder)
        if found != expected:
            bad.append(f"case {case}: {training.__name__} ended otherwise than without a kill: {found}, not {expected}")
        if checkpoint.exists():
            bad.append(f"case {case}: {checkpoint.name} was left behind")
    return Outcome(1, counts, bad)


def _run(training: Training, checkpoint: Path | None, seed: int, folder: Path) -> str:
    """Run a training to its end, in a process of its own, and return what it came to."""
    process = _started(training, checkpoint, seed, folder)
    process.join(PATIENCE)
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
        return "hung"
    return (folder / "result").read_text() if process.exitcode == 0 else f"exit code {process.exitcode}"


def _started(training: Training, checkpoint: Path | None, seed: int, folder: Path) -> Any:
    (folder / "result").unlink(missing_ok=True)
    # Forked off a server that has loaded libraries and kernels. It has one thread: others do not survive a fork.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_child, args=(training, checkpoint, seed, folder))
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with mock.patch.dict(os.environ, {SERVER: "1", **one}):
        process.start()
    return process


def _child(training: Training, checkpoint: Path | None, seed: int, folder: Path) -> None:
    try:
        net, history = training(checkpoint, seed)
    except Exception:
        traceback.print_exc(file=sys.stderr)
        raise
    told = {k: v for k, v in vars(history).items() if k != "seconds"}  # the clock is not ours
    weights = b"".join(value.numpy().tobytes() for value in net.state_dict().values())
    draft = folder / f"draft-{os.getpid()}"
    draft.write_text(hashlib.sha256(weights + json.dumps(told).encode()).hexdigest())
    draft.replace(folder / "result")


if os.environ.get(SERVER) and multiprocessing.parent_process() is None:
    for _training in TRAININGS:
        _training(None, 0)
