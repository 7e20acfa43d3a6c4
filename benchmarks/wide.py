"""MarsClassifier on the features of a large network: 50 000 rows × 1280 float32 features, 10 classes, 60 terms.

    python benchmarks/wide.py           # MarsClassifier
    python benchmarks/wide.py --head    # init_head_ of a head with 128 hidden units, on the same features

Prints the seconds of a fit and its peak memory above the feature matrix (Linux). Target: 60 s on 2 cores, 2 GiB.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from rich.console import Console

import knotwork as kw
from knotwork import MarsClassifier


def memory(key: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key)) * 1024


def features(n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Features after a ReLU, as backbones make them; a tenth of them know something about the class."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=n)
    centres = rng.normal(size=(classes, d), scale=0.5).astype(np.float32)
    centres[:, d // 10 :] = 0
    X = rng.standard_normal(size=(n, d), dtype=np.float32)
    X += centres[y]
    np.maximum(X, 0, out=X)
    return X, y


def start_head(X: Any, y: np.ndarray, width: int) -> Any:
    """Start a head on features that a network without layers hands on."""
    from torch import nn

    model = nn.Sequential(nn.Identity(), nn.Linear(X.shape[1], int(y.max()) + 1))
    return kw.init_head_(model, "1", (X, y), hidden=(width,), random_state=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--terms", type=int, default=61, help="with the intercept")
    parser.add_argument("--head", action="store_true", help="start a network's head in place of a classifier")
    arguments = parser.parse_args()
    MarsClassifier().fit(*features(300, 3, 3))  # loads the compiled kernels
    if arguments.head:
        import torch  # counted in what was there before

        start_head(torch.from_numpy(features(300, 20, 3)[0]), *features(300, 20, 3)[1:], 128)
    X, y = features(arguments.rows, arguments.features, arguments.classes)
    with open("/proc/self/clear_refs", "w") as file:  # the peak counts from here
        file.write("5")
    before = memory("VmRSS")
    start = time.perf_counter()
    if arguments.head:
        report = start_head(torch.from_numpy(X), y, 128)
        peak = memory("VmHWM") - before - X.nbytes  # the features that were caught are a copy, of a network's output
        Console().print(
            f"{report.rows} × {report.features}: {report.fit_seconds:.1f} s, {len(report.spline.terms)} terms, peak "
            f"{peak / 2**30:.2f} GiB above the matrix",
            highlight=False,
        )
        return
    model = MarsClassifier(max_terms=arguments.terms, threshold=0.0).fit(X, y)
    seconds = time.perf_counter() - start
    peak = memory("VmHWM") - before
    terms = model.fit_.search.selection.steps[-1].terms
    Console().print(
        f"{arguments.rows} × {arguments.features}, {arguments.classes} classes, {terms} "
        f"terms: {seconds:.1f} s (target 60), peak {peak / 2**30:.2f} GiB above the matrix of {X.nbytes / 2**30:.2f} "
        f"GiB (target 2), training error {100 * (1 - model.score(X[:5000], y[:5000])):.1f} %",
        highlight=False,
    )


if __name__ == "__main__":
    main()
