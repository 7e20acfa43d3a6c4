"""One fit: prepare, fit, predict, score, with CPU times on one thread."""

from __future__ import annotations

import time
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from .catalogue import TABLES
from .load import MAX_TRAIN, load_split
from .models import OURS, class_probabilities, make, version_of
from .results import Result

# One sure mistake would decide a table otherwise.
MIN_PROBABILITY = 1e-6


def measure(table: str, split: int, name: str, max_rows: int = MAX_TRAIN, device: str = "cpu") -> Result:
    """Fit a model to a split of a table and score it on the test rows; warnings of the peers are not ours to show."""
    task = TABLES[table].task
    train, test = load_split(table, split, max_rows)
    _warm_up(name, task, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(name, train.X, task, split, device)
        start = time.process_time()
        model.fit(train.X, train.y)
        fitted = time.process_time()
        if task == "regression":
            error, error_rate, metric = rmse(test.y, model.predict(test.X)), None, "rmse"
        else:
            classes = np.unique(train.y)
            probabilities = class_probabilities(model, test.X, classes)
            error, error_rate, metric = *class_errors(test.y, probabilities, classes), "log_loss"
        done = time.process_time()
    fit_seconds, predict_seconds = _inside(model, fitted - start, done - fitted)
    version = version_of(name)
    return Result(table, split, name, max_rows, metric, error, error_rate, fit_seconds, predict_seconds, version)


def rmse(y: np.ndarray, predictions: np.ndarray) -> float:
    predictions = np.asarray(predictions, dtype=float).reshape(len(y))
    if not np.isfinite(predictions).all():
        raise ValueError(f"{int((~np.isfinite(predictions)).sum())} predictions are not finite")
    return float(np.sqrt(np.mean((y - predictions) ** 2)))


def class_errors(y: np.ndarray, probabilities: np.ndarray, classes: np.ndarray) -> tuple[float, float]:
    """Return the log-loss, with probabilities of at least ``MIN_PROBABILITY``, and the share of wrong classes."""
    if not np.isfinite(probabilities).all():
        raise ValueError(f"{int((~np.isfinite(probabilities)).sum())} probabilities are not finite")
    wrong = float(np.mean(classes[probabilities.argmax(axis=1)] != y))
    clipped = np.clip(probabilities, MIN_PROBABILITY, 1)
    return float(log_loss(y, clipped / clipped.sum(axis=1, keepdims=True), labels=classes)), wrong


def _inside(model: Any, fit: float, predict: float) -> tuple[float, float]:
    """Add the seconds that a model's other process took; this process only waited for it."""
    seconds = getattr(model[-1], "seconds_", None) if hasattr(model, "steps") else None
    return (fit, predict) if seconds is None else (fit + seconds["fit"], predict + seconds["predict"])


@lru_cache
def _warm_up(name: str, task: str, device: str) -> None:
    """Load and compile before the clock starts."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(size=300), "c": rng.choice(["u", "v"], 300)})
    y = X["a"].to_numpy() + rng.normal(size=300)
    model = make(name, X, task, 0, device)
    if name in OURS and name.startswith("net"):
        model.set_params(epochs=2)
    elif name not in (*OURS, "lightgbm", "hgb", "catboost", "linear"):
        return
    model.fit(X, y if task == "regression" else np.where(y > 0, "yes", "no"))
