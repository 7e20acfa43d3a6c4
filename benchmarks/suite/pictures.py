"""Two pictures: mean ranks with critical differences, and error against the time of a fit."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import pandas as pd

from .models import NAMES
from .ranks import geometric_mean, is_ours, rank, to_best_peer

OURS_COLOUR, PEERS_COLOUR = "#0b6e4f", "#555555"
# The same file for the same results.
plt.rcParams.update({"svg.hashsalt": "suite", "svg.fonttype": "none", "font.size": 9})


def draw_ranks(errors: pd.DataFrame, path: Path) -> None:
    """Draw a row per model at its mean rank; its bar reaches as far as the critical difference."""
    ranks = rank(errors)
    means = ranks.mean.sort_values()
    figure, axes = plt.subplots(figsize=(7, 0.28 * len(means) + 1))
    for place, (name, value) in enumerate(means.items()):
        colour = OURS_COLOUR if is_ours(str(name)) else PEERS_COLOUR
        axes.plot([value, value + ranks.critical_difference], [place, place], color="#cccccc", linewidth=4, zorder=1)
        axes.plot(value, place, "o", color=colour, zorder=2)
    axes.set_yticks(range(len(means)), [NAMES[str(name)] for name in means.index])
    for label, name in zip(axes.get_yticklabels(), means.index, strict=True):
        label.set_color(OURS_COLOUR if is_ours(str(name)) else PEERS_COLOUR)
    axes.invert_yaxis()
    difference = f"Nemenyi, 5 %: {ranks.critical_difference:.2f}"
    axes.set_xlabel(f"mean rank over {len(errors)} tables; models beyond the end of a bar differ ({difference})")
    _save(figure, axes, path)


def draw_error_against_time(errors: pd.DataFrame, seconds: pd.DataFrame, path: Path) -> None:
    """Draw the error over the best peer's against the seconds of a fit, geometric means over tables."""
    ratios, time = geometric_mean(to_best_peer(errors)), geometric_mean(seconds)
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name in errors:
        colour = OURS_COLOUR if is_ours(name) else PEERS_COLOUR
        axes.plot(time[name], ratios[name], "o", color=colour)
        axes.annotate(NAMES[name], (time[name], ratios[name]), (4, 4), textcoords="offset points", color=colour, size=8)
    axes.set_xscale("log")
    axes.set_xlabel("seconds of a fit on one thread (geometric mean)")
    axes.set_ylabel("error / best peer (geometric mean)")
    _save(figure, axes, path)


def _save(figure: plt.Figure, axes: plt.Axes, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
