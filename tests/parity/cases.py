"""The data sets on which knotwork is compared with R's earth.

Made here, so that the tests need neither R nor stored tables: ``RandomState`` gives the same stream in every numpy,
and values are rounded so that the last bit of a sine does not matter.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from knotwork.data.datasets import load_abalone, load_wine_quality
from knotwork.data.learn import learn_encoder


@dataclass(frozen=True)
class Case:
    name: str
    X: np.ndarray
    y: np.ndarray  # (N, p)
    options: dict[str, Any] = field(default_factory=dict)  # in knotwork's names
    noise_free: bool = False

    @property
    def digest(self) -> str:
        data = np.asfortranarray(self.X).tobytes("F") + np.asfortranarray(self.y).tobytes("F")
        return hashlib.sha256(data).hexdigest()[:16]


def _truth(X: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Return an additive truth with bends, curves and lines in up to five features."""
    pieces = [
        lambda x: 3 * np.sin(3 * x),
        lambda x: 4 * np.maximum(x - 0.3, 0) - 2 * np.maximum(-0.2 - x, 0),
        lambda x: 2 * x,
        lambda x: np.exp(x),
        lambda x: 3 * np.abs(x),
    ]
    total = np.zeros(len(X))
    for k, f in enumerate(rng.permutation(X.shape[1])[:5]):
        total += pieces[k % len(pieces)](X[:, f])
    return total


def _case(name, seed, n, d, *, kind="uniform", noise=0.5, outputs=1, **options) -> Case:  # type: ignore[no-untyped-def]
    rng = np.random.RandomState(seed)
    X = rng.randn(n, d) if kind == "normal" else rng.uniform(-1, 1, (n, d))
    if kind == "ties":
        X = np.round(X, 1)
    elif kind == "mixed ties":
        X[:, ::2] = np.round(X[:, ::2], 2)
    elif kind == "skewed":
        X = np.exp(2 * X)
    elif kind == "binary":
        X[:, : max(1, d // 2)] = X[:, : max(1, d // 2)] > 0.2
    elif kind == "collinear":
        X[:, -1] = X[:, 0]
        X[:, -2] = 2 * X[:, 0] - X[:, 1] + 3
    elif kind == "nearly collinear":
        X[:, -1] = X[:, 0] + 0.01 * X[:, -1]
    elif kind == "scales":
        X = X * 10.0 ** np.linspace(-3, 6, d)
    X = np.round(X, 6)
    scaled = X / np.abs(X).max(axis=0)
    columns = []
    for _ in range(outputs):
        if kind == "linear":
            columns.append(scaled @ rng.uniform(-2, 2, d))
        elif kind == "pure noise":
            columns.append(np.zeros(n))
        else:
            columns.append(_truth(scaled, rng))
    y = np.round(np.stack(columns, axis=1) + noise * rng.randn(n, outputs), 6)
    return Case(name, X, y, options, noise_free=noise == 0)


def all_cases() -> list[Case]:
    """Return every case, in a fixed order."""
    cases = []
    sizes = [(30, 1), (30, 3), (40, 25), (50, 2), (60, 8), (100, 1), (100, 5), (100, 20), (150, 10), (200, 3),
             (300, 6), (400, 12), (500, 2), (500, 25), (800, 10), (1000, 5), (1500, 20), (2000, 8), (3000, 4),
             (5000, 10), (5000, 25)]  # fmt: skip
    for s, (n, d) in enumerate(sizes):
        cases.append(_case(f"uniform {n}x{d}", s, n, d))
        cases.append(_case(f"normal {n}x{d}", 100 + s, n, d, kind="normal", noise=1.0))
    for s, (n, d) in enumerate([(60, 2), (120, 4), (250, 6), (600, 8), (1200, 10), (4000, 5)]):
        for k, kind in enumerate(["ties", "mixed ties", "skewed", "linear", "pure noise", "scales"]):
            cases.append(_case(f"{kind} {n}x{d}", 200 + 10 * s + k, n, d, kind=kind))
        d = max(d, 4)
        for k, kind in enumerate(["binary", "collinear", "nearly collinear"]):
            cases.append(_case(f"{kind} {n}x{d}", 300 + 10 * s + k, n, d, kind=kind))
    for s, (n, d) in enumerate([(80, 2), (300, 5), (1000, 8)]):
        cases.append(_case(f"noise-free {n}x{d}", 400 + s, n, d, noise=0.0))
        cases.append(_case(f"noise-free linear {n}x{d}", 420 + s, n, d, kind="linear", noise=0.0))
    for s, (n, d, outputs) in enumerate([(60, 3, 2), (200, 5, 2), (400, 8, 3), (1000, 10, 5), (3000, 6, 2)]):
        cases.append(_case(f"responses {n}x{d}x{outputs}", 440 + s, n, d, outputs=outputs))
        cases.append(_case(f"responses tied {n}x{d}x{outputs}", 460 + s, n, d, kind="mixed ties", outputs=outputs))
    for s, options in enumerate([
        {"max_terms": 7}, {"max_terms": 61, "threshold": 0.0}, {"threshold": 0.01}, {"penalty": 4.0}, {"penalty": 0.0},
        {"penalty": -1.0}, {"minspan": 1}, {"minspan": 20}, {"endspan": 1}, {"endspan": 40},
        {"minspan": 3, "endspan": 5, "max_terms": 41},
    ]):  # fmt: skip
        label = " ".join(f"{k}={v:g}" for k, v in options.items())
        cases.append(_case(f"options {label}", 500 + s, 400, 6, **options))
    X, y = load_abalone()
    abalone = learn_encoder(X).encode(X)
    cases.append(Case("abalone", abalone, y.to_numpy(float)[:, None]))
    cases.append(Case("abalone without sex", abalone[:, 3:], y.to_numpy(float)[:, None], {"max_terms": 41}))
    for colour in ("white", "red"):
        X, y = load_wine_quality(colour)
        cases.append(Case(f"wine {colour}", X.to_numpy(float), y.to_numpy(float)[:, None]))
        two = np.stack([y.to_numpy(float), X["alcohol"].to_numpy(float)], axis=1)
        cases.append(Case(f"wine {colour} two responses", X.drop(columns="alcohol").to_numpy(float), two))
    return cases


def interaction_cases() -> list[Case]:
    """Ten tables with interactions: products, thresholds and ratios made here, and the three real ones."""
    cases = []
    truths = {
        "sine of a product": lambda X: (
            10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
        ),
        "product": lambda X: 8 * X[:, 0] * X[:, 1] + 3 * X[:, 2],
        "corner": lambda X: 20 * np.maximum(X[:, 0] - 0.4, 0) * np.maximum(0.7 - X[:, 1], 0) + X[:, 4],
        "two pairs": lambda X: 6 * X[:, 0] * X[:, 1] - 9 * np.maximum(X[:, 2] - 0.5, 0) * X[:, 3],
        "ratio": lambda X: 4 * X[:, 0] / (0.3 + X[:, 1]) + 2 * X[:, 2],
        "distance": lambda X: 12 * np.sqrt((X[:, 0] - 0.5) ** 2 + (X[:, 1] - 0.3) ** 2),
        "additive": lambda X: 5 * X[:, 0] + 4 * np.abs(X[:, 1] - 0.5),
    }
    for seed, (name, truth) in enumerate(truths.items()):
        rng = np.random.RandomState(900 + seed)
        X = np.round(rng.uniform(size=(600, 6)), 6)
        cases.append(Case(name, X, np.round(truth(X) + 0.5 * rng.randn(600), 6)[:, None], {"degree": 2}))
    real = [("abalone", *load_abalone()), *((f"wine {c}", *load_wine_quality(c)) for c in ("white", "red"))]
    for name, frame, y in real:
        cases.append(Case(name, learn_encoder(frame).encode(frame), y.to_numpy(float)[:, None], {"degree": 2}))
    return cases
