"""Small tables: 200 and 600 training rows of ten development tables, ten draws, the other rows to test.

The ten tables were drawn from the development tables by a fixed seed before the first run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from .catalogue import CLASSES, REGRESSION
from .draw import FINAL
from .models import NAMES
from .ranks import geometric_mean
from .results import read

SEED = 200


def tables() -> list[str]:
    """Return five development tables of each task."""
    rng = np.random.default_rng(SEED)
    return [
        str(name)
        for names in (REGRESSION, CLASSES)
        for name in rng.choice([name for name in names if name not in FINAL], 5, replace=False)
    ]


def run(out: Path, models: list[str], rows: list[int], draws: list[int], device: str = "cpu") -> None:
    from .__main__ import attempt

    done = read(out)
    have = set(zip(done.table, done.split, done.model, done.max_rows, strict=True))
    for draw in draws:
        for table in tables():
            for count in rows:
                for model in models:
                    if (table, draw, model, count) not in have:
                        attempt(out, table, draw, model, max_rows=count, device=device)


def report(out: Path) -> str:
    """Return errors over CatBoost's, means over the draws that all models have, and the geometric mean over tables."""
    results = read(out)
    if results.empty:
        return "no results yet"
    parts = []
    for count, some in results.groupby("max_rows"):
        errors = some.pivot(index=["table", "split"], columns="model", values="error").dropna()
        errors = errors[[name for name in NAMES if name in errors]]
        draws = errors.groupby("table").size()
        means = errors.groupby("table").mean()
        ratios = means.div(means["catboost"], axis=0) if "catboost" in means else means
        parts.append(_rows(ratios, int(str(count)), draws))
    return "\n\n".join(parts)


def _rows(ratios: pd.DataFrame, count: int, draws: pd.Series) -> str:
    lines = [
        f"{count} training rows, errors over CatBoost's:",
        "",
        "| table | draws | " + " | ".join(NAMES[name] for name in ratios) + " |",
        "|---|---:|" + "---:|" * ratios.shape[1],
    ]
    for table, row in ratios.iterrows():
        lines.append(f"| {table} | {draws[table]} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
    means = geometric_mean(ratios)
    lines.append("| geometric mean | | " + " | ".join(f"{value:.3f}" for value in means) + " |")
    return "\n".join(lines)
