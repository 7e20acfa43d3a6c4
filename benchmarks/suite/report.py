"""The results in Markdown: a summary of the models, then an error per table and model."""

from __future__ import annotations

import pandas as pd

from .catalogue import TABLES
from .models import NAMES
from .ranks import geometric_mean, is_ours, rank, to_best_peer


def report(errors: pd.DataFrame, seconds: pd.DataFrame) -> str:
    parts = [_what(errors), _models(errors, seconds), _tests(errors), _degree(errors), _tables(errors)]
    return "\n\n".join(part for part in parts if part)


def _what(errors: pd.DataFrame) -> str:
    splits = sorted({tuple(found) for found in errors.attrs["splits"].values()})
    missing = errors.attrs["missing"]
    text = f"{len(errors)} tables, splits {' or '.join(', '.join(map(str, some)) for some in splits)}."
    return f"{text} Not yet run by every model: {', '.join(missing)}." if missing else text


def _models(errors: pd.DataFrame, seconds: pd.DataFrame) -> str:
    ratios, ranks = to_best_peer(errors), rank(errors)
    by_task = {
        task: geometric_mean(ratios.loc[[name for name in ratios.index if TABLES[name].task == task]])
        for task in ("regression", "classes")
    }
    overall, time = geometric_mean(ratios), geometric_mean(seconds)
    lines = [
        "| model | mean rank | error / best peer | regression | classes | seconds of a fit |",
        "|---|" + "---:|" * 5,
    ]
    for name in ranks.mean.sort_values().index:
        shown = f"**{NAMES[name]}**" if is_ours(name) else NAMES[name]
        lines.append(
            f"| {shown} | {ranks.mean[name]:.2f} | {overall[name]:.3f} | {by_task['regression'][name]:.3f} | "
            f"{by_task['classes'][name]:.3f} | {time[name]:.2g} |"
        )
    return "\n".join(lines)


def _tests(errors: pd.DataFrame) -> str:
    ranks = rank(errors)
    pairs = ranks.different[ranks.different < 0.05]
    named = "; ".join(f"{NAMES[a]} and {NAMES[b]} ({p:.2g})" for (a, b), p in pairs.items())
    return (
        f"Friedman's test that all ranks are equal: p = {ranks.friedman:.2g}. Critical difference of mean ranks "
        f"(Nemenyi, 5 %): {ranks.critical_difference:.2f}. Pairs that differ (Wilcoxon with Holm's correction, 5 %): "
        f"{named or 'none'}."
    )


def _degree(errors: pd.DataFrame) -> str:
    """Say how often the degree chosen automatically is as good as the better of degrees 1 and 2."""
    each = errors.attrs["each"]
    if not {"mars_1", "mars_2", "mars_auto"} <= each.keys():
        return ""
    better = map(min, each["mars_1"], each["mars_2"])
    good = [chosen <= 1.01 * least for chosen, least in zip(each["mars_auto"], better, strict=True)]
    return f"MARS, degree chosen: within 1 % of the better of degrees 1 and 2 on {sum(good)} of {len(good)} splits."


def _tables(errors: pd.DataFrame) -> str:
    lines = ["| table | " + " | ".join(NAMES[name] for name in errors) + " |", "|---|" + "---:|" * errors.shape[1]]
    for table, row in errors.iterrows():
        best = row.min()
        cells = (f"**{value:.4g}**" if value == best else f"{value:.4g}" for value in row)
        lines.append(f"| {table} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
