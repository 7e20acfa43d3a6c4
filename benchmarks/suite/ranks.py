"""Models compared over tables: mean errors, ratios to the best peer, ranks, and which differences are more than chance.

Only tables and splits that every compared model has are counted, so that no model gets an easier set than another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from .models import NAMES, OURS, PEERS


@dataclass(frozen=True)
class Ranks:
    """Mean ranks (K,) by model, the p-value of Friedman's test that all are equal, and Nemenyi's critical difference.

    ``different`` has the p-values of Wilcoxon's signed-rank test for every pair, with Holm's correction.
    """

    mean: pd.Series
    friedman: float
    critical_difference: float
    different: pd.Series


def select(
    results: pd.DataFrame, tables: list[str], models: list[str] | None = None, splits: list[int] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return mean errors and mean seconds of a fit, each (tables, models), over the splits that all models have.

    ``errors.attrs`` has the splits that count for each table, the errors of each split, and the tables that some model
    lacks.
    """
    wanted = results.table.isin(tables)
    if models is not None:
        wanted &= results.model.isin(models)
    if splits is not None:
        wanted &= results.split.isin(splits)
    results = results[wanted]
    order = [name for name in models or NAMES if name in set(results.model)]
    if not order:
        raise SystemExit("no results for these tables, models and splits; python -m benchmarks.suite run makes them")
    index = ["table", "split"]
    errors = results.pivot(index=index, columns="model", values="error")[order].dropna()
    seconds = results.pivot(index=index, columns="model", values="fit_seconds")[order].loc[errors.index]
    means = errors.groupby("table").mean()
    kept = [name for name in tables if name in means.index]
    found = means.loc[kept]
    found.attrs["splits"] = errors.reset_index().groupby("table").split.apply(list).to_dict()
    found.attrs["each"] = errors.to_dict("list")
    found.attrs["missing"] = [name for name in tables if name not in kept]
    return found, seconds.groupby("table").mean().loc[kept]


def to_best_peer(errors: pd.DataFrame) -> pd.DataFrame:
    """Return each error over the least of the peers' on the same table."""
    peers = [name for name in errors if name in PEERS]
    return errors.div(errors[peers or list(errors)].min(axis=1), axis=0)


def geometric_mean(values: pd.DataFrame) -> pd.Series:
    return np.exp(np.log(values).mean())


def rank(errors: pd.DataFrame, alpha: float = 0.05) -> Ranks:
    """Rank models on every table (1 is the least error, ties share) and test the differences."""
    count, models = errors.shape
    means = errors.rank(axis=1).mean()
    friedman = float(stats.friedmanchisquare(*errors.to_numpy().T).pvalue) if models > 2 and count > 1 else np.nan
    # Nemenyi: two mean ranks differ if they are this far apart (Demšar 2006, section 3.2.2).
    quantile = stats.studentized_range.ppf(1 - alpha, models, np.inf) / np.sqrt(2)
    difference = float(quantile * np.sqrt(models * (models + 1) / (6 * count)))
    return Ranks(means, friedman, difference, wilcoxon_holm(errors))


def wilcoxon_holm(errors: pd.DataFrame) -> pd.Series:
    """Return Holm's adjusted p-values of Wilcoxon's test on the logarithms of errors, for every pair of models."""
    pairs = [(a, b) for i, a in enumerate(errors) for b in errors.columns[i + 1 :]]
    values = []
    for a, b in pairs:
        difference = np.log(errors[a]) - np.log(errors[b])
        values.append(float(stats.wilcoxon(difference).pvalue) if (difference != 0).any() else 1.0)
    order = np.argsort(values)
    adjusted = np.empty(len(pairs))
    worst = 0.0
    for place, i in enumerate(order):
        worst = max(worst, min(1.0, (len(pairs) - place) * values[i]))
        adjusted[i] = worst
    return pd.Series(adjusted, index=pd.MultiIndex.from_tuples(pairs, names=["a", "b"]) if pairs else None)


def is_ours(name: str) -> bool:
    return name in OURS
