"""Raw tables, with gaps, text and dates: knotwork straight on them, behind pipelines, and beside boosting.

    python -m pip install --constraint constraints.txt --requirement benchmarks/requirements-messy.txt
    python benchmarks/messy.py --out messy.jsonl                 # 10 tables, 4 kinds of gaps, 5 splits, 8 contenders
    python benchmarks/messy.py --tables ames credit --splits 0 --contenders hgb mars
    python benchmarks/messy.py --onnx --contenders mars net --splits 0       # and onnxruntime on the raw test rows
    python benchmarks/messy.py --contenders net "net target" "net one-hot" --device cuda --jobs 12 --out net.jsonl
    python benchmarks/messy.py --show --out messy.jsonl --more net.jsonl     # the tables of both files

``messy_data.py`` names the tables, which were chosen before the first run, and makes the gaps; ``messy_models.py`` has
the contenders. A split is a random sample of at most 2000 training rows (at most 70 % of the table) and 2000 test rows.
The error is the test RMSE over the std of all responses, or the test log-loss; the gaps that a table has by nature are
in every run. Runs go over all tables first, then over gaps, then over splits, so that a part of them is
a small version of the whole; the command goes on where it was stopped, and repeats runs that failed. A machine
without the wheels reads the tables that ``stored_tables.py`` wrote.

``--onnx`` also exports our models that are straight on the table, runs the file on the raw test rows and shows the
largest difference from ``predict``, over the std of all responses, or from ``predict_proba``.

Two figures count. "Straight / pipeline" is our error on the raw table over that of the better of our two pipelines
(by the mean over the splits), the median over tables and gaps. "With gaps / without" is the error with added gaps over
that without, the median over tables, for each contender.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

import knotwork as kw
import messy_data
import pieces
from messy_models import CONTENDERS, OURS, PIPELINES, contender

TRAIN, TEST, TRAIN_SHARE, SPLITS = 2000, 2000, 0.7, 5
MIN_PROBABILITY = 1e-6
Key = tuple[str, str, int, str]


def split_rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the training and the test rows of a split."""
    order = np.random.default_rng(seed).permutation(rows)
    count = min(TRAIN, int(TRAIN_SHARE * rows))
    return order[:count], order[count : count + TEST]


def log_loss(model: Any, X: pd.DataFrame, y: pd.Series) -> float:
    """Return the mean log-loss; a class that the model has not seen has the minimum probability."""
    p = pd.DataFrame(model.predict_proba(X), columns=model.classes_)
    p = p.reindex(columns=p.columns.union(y.unique()), fill_value=0.0).clip(lower=MIN_PROBABILITY)
    p = p.div(p.sum(axis=1), axis=0)
    return float(-np.log(p.to_numpy()[np.arange(len(y)), p.columns.get_indexer(y)]).mean())


def samples(table: str, gaps: str, split: int) -> tuple[pd.DataFrame, pd.Series, pd.DataFrame, pd.Series, float]:
    """Return training and test rows with their gaps, and what errors are divided by."""
    X, y = messy_data.load(table)
    train, test = split_rows(len(X), messy_data.seed_of(table, split))
    rows = np.concatenate([train, test])
    std = float(y.std(ddof=0)) if messy_data.TABLES[table].task == "regression" else 1.0
    X = messy_data.with_gaps(X.iloc[rows], gaps, messy_data.seed_of(table, split, gaps))
    return X.iloc[: len(train)], y.iloc[train], X.iloc[len(train) :], y.iloc[test], std


def onnx_difference(model: Any, X: pd.DataFrame, task: str, std: float) -> float:
    """Return the largest difference between our prediction of raw rows and onnxruntime's."""
    import onnxruntime

    from knotwork.export import onnx_feed

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        kw.export_onnx(model, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        output = "prediction" if task == "regression" else "probabilities"
        (found,) = session.run([output], onnx_feed(session, X))
    ours = model.predict(X)[:, None] if task == "regression" else model.predict_proba(X)
    return float(np.abs(found - ours).max()) / std


def run(table: str, gaps: str, split: int, name: str, onnx: bool = False, device: str | None = None) -> dict[str, Any]:
    torch.set_num_threads(1)
    task = messy_data.TABLES[table].task
    X, y, X_test, y_test, std = samples(table, gaps, split)
    result: dict[str, Any] = {"table": table, "gaps": gaps, "split": split, "contender": name}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        start = time.perf_counter()
        try:
            model = contender(name, X, task, split, device).fit(X, y)
            result["seconds"] = time.perf_counter() - start
            if task == "regression":
                result["error"] = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))) / std
            else:
                result["error"] = log_loss(model, X_test, y_test)
            if onnx and name in OURS:
                result["onnx"] = onnx_difference(model, X_test, task, std)
        except Exception as failure:  # tables that break a program are what this is about: say it and go on
            result["failed"] = f"{type(failure).__name__}: {failure}"[:500]
    result["warnings"] = sorted({str(w.message)[:300] for w in said})
    return result


def tasks(tables: list[str], gaps: list[str], splits: list[int], names: list[str]) -> Iterator[Key]:
    for split in splits:
        for kind in gaps:
            for name in names:
                for table in tables:
                    yield table, kind, split, name


def key(r: dict[str, Any]) -> Key:
    return r["table"], r["gaps"], r["split"], r["contender"]


class Errors:
    """Mean test errors, over the splits that all contenders of a comparison have."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        self.runs = {key(r): r["error"] for r in results if "error" in r}
        self.seconds = {key(r): r["seconds"] for r in results if "error" in r}
        self.onnx = {key(r): r["onnx"] for r in results if "onnx" in r}
        self.tables = [t for t in messy_data.TABLES if any(k[0] == t for k in self.runs)]
        self.gaps = [g for g in messy_data.GAPS if any(k[1] == g for k in self.runs)]
        self.names = [n for n in CONTENDERS if any(k[3] == n for k in self.runs)]

    def means(self, table: str, cells: list[tuple[str, str]]) -> list[float] | None:
        """Return the mean error of each (gaps, contender), over the splits that all of them have; None without any."""
        shared = [
            split for split in range(1 + max(k[2] for k in self.runs))
            if all((table, gaps, split, name) in self.runs for gaps, name in cells)
        ]  # fmt: skip
        if not shared:
            return None
        return [float(np.mean([self.runs[table, gaps, split, name] for split in shared])) for gaps, name in cells]

    def over_pipeline(self, table: str, gaps: str, name: str) -> float | None:
        """Return our error straight on the table over that of the better pipeline."""
        means = self.means(table, [(gaps, name), *((gaps, f"{name} {p}") for p in PIPELINES)])
        return means[0] / min(means[1:]) if means else None

    def over_complete(self, table: str, gaps: str, name: str) -> float | None:
        """Return the error with added gaps over that without."""
        means = self.means(table, [(gaps, name), ("none", name)])
        return means[0] / means[1] if means else None


def cell(value: float | None, form: str = ".3f") -> str:
    return "" if value is None else f"{value:{form}}"


def median(values: list[float | None]) -> float | None:
    found = [v for v in values if v is not None]
    return statistics.median(found) if found else None


def sections(errors: Errors) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield title, heads and rows of each table of results."""
    for gaps in errors.gaps:
        rows = [
            [table, *(cell((errors.means(table, [(gaps, name)]) or [None])[0]) for name in errors.names)]
            for table in errors.tables
        ]  # fmt: skip
        times = [median([v for k, v in errors.seconds.items() if k[1] == gaps and k[3] == n]) for n in errors.names]
        rows.append(["median seconds of a fit", *(cell(t, ".2g") for t in times)])
        yield f"Test error, added gaps: {gaps}", ["data", *errors.names], rows
    for name in OURS:
        found = {(t, g): errors.over_pipeline(t, g, name) for t in errors.tables for g in errors.gaps}
        if median(list(found.values())) is not None:
            rows = [[t, *(cell(found[t, g]) for g in errors.gaps)] for t in errors.tables]
            rows.append(["median", *(cell(median([found[t, g] for t in errors.tables])) for g in errors.gaps)])
            overall = cell(median(list(found.values())))
            yield f"{name}: straight / pipeline (median of all {overall})", ["data", *errors.gaps], rows
    added = [g for g in errors.gaps if g != "none"]
    if added and "none" in errors.gaps:
        rows = []
        for gaps in added:
            found = {(t, n): errors.over_complete(t, gaps, n) for t in errors.tables for n in errors.names}
            rows.append([gaps, *(cell(median([found[t, n] for t in errors.tables])) for n in errors.names)])
        yield "With gaps / without, median over the tables", ["gaps", *errors.names], rows
    files = [n for n in OURS if any(k[3] == n for k in errors.onnx)]
    if files:
        rows = [
            [t, *(f"{max(v for k, v in errors.onnx.items() if k[::3] == (t, n)):.1e}" for n in files)]
            for t in dict.fromkeys(k[0] for k in errors.onnx)
        ]  # fmt: skip
        yield "onnxruntime and predict, largest difference over all runs", ["data", *files], rows


def show(errors: Errors, console: Console) -> None:
    for title, heads, rows in sections(errors):
        shown = Table(title=title)
        for head in heads:
            shown.add_column(head, justify="left" if head == heads[0] else "right")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)


def markdown(errors: Errors) -> str:
    """Return the table of the docs: errors by gaps, over the splits that all have, and the figures that count."""
    straight = [n for n in errors.names if n not in {f"{o} {p}" for o in OURS for p in PIPELINES}]
    compared = [n for n in OURS if any(errors.over_pipeline(t, g, n) for t in errors.tables for g in errors.gaps)]
    heads = ["data", *straight, *(f"{n}: straight / pipeline" for n in compared)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for table in errors.tables:
        shared = errors.means(table, [(g, n) for n in straight for g in errors.gaps])
        means = iter(shared or [None] * len(straight) * len(errors.gaps))
        cells = [" / ".join(cell(next(means)) for _ in errors.gaps) for _ in straight]
        cells += [cell(median([errors.over_pipeline(table, g, n) for g in errors.gaps])) for n in compared]
        lines.append("| " + " | ".join([table, *cells]) + " |")
    added = [g for g in errors.gaps if g != "none"]
    cells = [
        " / ".join(cell(median([errors.over_complete(t, g, n) for t in errors.tables])) for g in added)
        for n in straight
    ]  # fmt: skip
    cells += [
        cell(median([errors.over_pipeline(t, g, n) for t in errors.tables for g in errors.gaps])) for n in compared
    ]
    lines.append("| " + " | ".join(["median; with gaps / without", *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", choices=messy_data.TABLES, default=list(messy_data.TABLES))
    parser.add_argument("--gaps", nargs="*", choices=messy_data.GAPS, default=list(messy_data.GAPS))
    parser.add_argument("--splits", nargs="*", type=int, default=list(range(SPLITS)), help="their numbers, from 0")
    parser.add_argument("--contenders", nargs="*", choices=CONTENDERS, default=list(CONTENDERS))
    pieces.add_arguments(parser, None)
    parser.add_argument("--again", nargs="*", choices=CONTENDERS, default=[], help="contenders to run anew")
    parser.add_argument("--onnx", action="store_true", help="export and compare as well")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs")
    arguments = parser.parse_args()
    asked = list(tasks(arguments.tables, arguments.gaps, arguments.splits, arguments.contenders))
    results = {key(r): r for r in pieces.read([*arguments.more, arguments.out])}
    wanted = {n: "onnx" if arguments.onnx and n in OURS else "error" for n in CONTENDERS}
    todo = [k for k in asked if k[3] in arguments.again or wanted[k[3]] not in results.get(k, {})]
    console = Console(width=150)
    if not arguments.show:
        todo = [(*k, arguments.onnx, arguments.device) for k in todo]
        results |= {key(r): r for r in pieces.run(run, todo, arguments.jobs, arguments.out, console)}
    found = Errors([results[k] for k in asked if k in results])
    if arguments.markdown:
        print(markdown(found))
    else:
        show(found, console)


if __name__ == "__main__":
    main()
