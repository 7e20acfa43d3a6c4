"""Pictures for papers, on matplotlib's axes: the same curves and bars as the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.errors import DataError, KnotworkError
from knotwork.explanation.effects import Effect
from knotwork.explanation.quality import error_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from knotwork.explanation.explanation import Explanation

ACCENT, QUIET, WARM = "#0b7a75", "#8a949e", "#c2571a"
# Number of curves if no columns are given, the most important ones: more would be a poster.
MAX_EFFECTS = 9
COLUMNS = 3


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise KnotworkError("plots need matplotlib; install it with pip install 'knotwork[plots]'") from None
    return plt


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    axes: Axes = _pyplot().subplots(figsize=size, layout="constrained")[1]
    return axes


def _plain(name: str, max_length: int = 40) -> str:
    """Return a name without dollars that matplotlib would read as mathematics, and not longer than a label."""
    short = name if len(name) <= max_length else name[: max_length - 1] + "…"
    return short.replace("$", r"\$")


def plot_importances(explanation: Explanation, measure: str | None, ax: Axes | None) -> Axes:
    """Draw one measure as bars, the first one unless told which."""
    frame = explanation.importances
    measure = measure or str(frame.columns[0])
    if measure not in frame.columns:
        raise DataError(f"measure must be one of {', '.join(frame.columns)}, got {measure!r}")
    values = frame[measure].sort_values(kind="stable")
    ax = _axes(ax, (6, 0.8 + 0.3 * len(values)))
    ax.barh(np.arange(len(values)), values.to_numpy(), color=ACCENT)
    ax.set_yticks(np.arange(len(values)), [_plain(str(name)) for name in values.index])
    ax.set_xlabel(f"rise in {error_name(explanation.subject)}" if measure == "permutation" else measure)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_effects(explanation: Explanation, columns: list[str] | None, output: int) -> np.ndarray[Any, Any]:
    """Draw effect curves side by side and return their axes, (rows, 3)."""
    effects = explanation.effects
    if columns is None:
        try:
            order = [str(name) for name in explanation.importances.index]
        except DataError:
            order = list(effects)
        columns = [name for name in order if effects[name].size > 0][:MAX_EFFECTS] or order[:1]
    unknown = [name for name in columns if name not in effects]
    if unknown:
        raise DataError(f"columns must be among those of the table, got {unknown[0]!r}; there are {', '.join(effects)}")
    if not 0 <= output < len(explanation.subject.output_names):
        raise DataError(f"output must be 0 to {len(explanation.subject.output_names) - 1}, got {output}")
    count = -(-len(columns) // COLUMNS)
    width = min(COLUMNS, len(columns))
    axes: np.ndarray[Any, Any] = _pyplot().subplots(
        count, width, figsize=(3.2 * width, 2.4 * count), squeeze=False, layout="constrained"
    )[1]
    for name, ax in zip(columns, axes.flat, strict=False):
        _draw_effect(effects[name], output, ax)
    if explanation.subject.spline is not None and explanation.subject.network is not None:
        axes.flat[0].legend(frameon=False, fontsize=8)
    for ax in list(axes.flat)[len(columns) :]:
        ax.set_visible(False)
    return axes


def _draw_effect(effect: Effect, output: int, ax: Axes) -> None:
    curves = [("spline", effect.spline, QUIET), ("network", effect.network, ACCENT)]
    shown = [(label, values, color) for label, values, color in curves if values is not None]
    ax.axhline(0, color="#d5dade", linewidth=0.8, zorder=0)
    if effect.categories is not None:
        step = 0.7 / len(shown)
        for k, (label, values, color) in enumerate(shown):
            ax.bar(effect.grid + (k - (len(shown) - 1) / 2) * step, values[:, output], step, color=color, label=label)
        ax.set_xticks(effect.grid, [_plain(c, 12) for c in effect.categories])
    else:
        if effect.counts is not None and effect.edges is not None:
            density = ax.twinx()
            density.stairs(effect.counts, effect.edges, fill=True, color="#e7eaed")
            density.set_ylim(0, 4 * max(1, effect.counts.max()))
            density.set_axis_off()
            density.set_zorder(0)
            ax.set_zorder(1)
            ax.patch.set_visible(False)
        part = effect.part
        if part is not None and not part.plain:
            ax.xaxis.set_major_locator(_pyplot().MaxNLocator(4, integer=part.steps is not None))
            ax.xaxis.set_major_formatter(lambda value, _: _plain(part.text(float(value)), 12))
        for label, values, color in shown:
            ax.plot(effect.grid, values[:, output], color=color, label=label,
                    linestyle="--" if label == "spline" and len(shown) > 1 else "-")  # fmt: skip
        if effect.missing is not None:
            gap = effect.missing.network if effect.missing.network is not None else effect.missing.spline
            assert gap is not None
            ax.axhline(gap[output], color=WARM, linestyle=":", linewidth=1)
            ax.annotate("missing", (1, gap[output]), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                        color=WARM, fontsize=8)  # fmt: skip
        if effect.spline is not None:
            heights = np.interp(effect.knots, effect.grid, effect.spline[:, output])
            ax.plot(effect.knots, heights, "o", color="white", markeredgecolor=shown[0][2], markersize=5)
    ax.set_title(_plain(effect.column), fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)


def plot_history(explanation: Explanation, ax: Axes | None) -> Axes:
    """Draw the losses of each epoch, and those of the random start where there is one."""
    history = explanation.subject.history
    if history is None or not len(history):
        raise DataError(f"a {explanation.subject.kind} has no history of training; explain a fitted SplineNetRegressor")
    root = explanation.subject.classes is None

    def losses(values: list[float]) -> Any:
        return np.sqrt(values) if root else np.asarray(values)

    ax = _axes(ax, (6, 3.2))
    ax.plot(losses(history.train_loss), color=QUIET, label="training rows")
    ax.plot(losses(history.validation_loss), color=ACCENT, label="validation rows")
    other = explanation.random_start.history if explanation.random_start is not None else None
    if other is not None:
        ax.plot(losses(other.validation_loss), color=WARM, linestyle="--", label="validation rows, random start")
    ax.plot(history.best_epoch, losses(history.validation_loss)[history.best_epoch], "o", color=ACCENT)
    ax.set_xlabel("epoch")
    ax.set_ylabel(error_name(explanation.subject))
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
