"""Pictures for papers, on matplotlib's axes: the same curves and bars as the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.errors import DataError, KnotworkError
from knotwork.explanation.diagnostics import ClassCurves, Residuals, class_curves, confusion, residuals
from knotwork.explanation.effects import Effect
from knotwork.explanation.labels import measure_unit, output_labels, response_labels
from knotwork.explanation.quality import error_name, judged, predictions, reported_loss
from knotwork.parameters import shown
from knotwork.spline.path import PathModel

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
    if ax is not None and not hasattr(ax, "get_xlim"):
        raise TypeError(f"ax must be matplotlib axes or None, got {shown(ax)}")
    if ax is not None:
        return ax
    axes: Axes = _pyplot().subplots(figsize=size, layout="constrained")[1]
    return axes


def _plain(name: str, max_length: int = 40) -> str:
    """Return a name without dollars that matplotlib would read as mathematics, and not longer than a label."""
    short = name if len(name) <= max_length else name[: max_length - 1] + "…"
    return short.replace("$", r"\$")


def plot_importances(explanation: Explanation, measure: str | None, ax: Axes | None) -> Axes:
    """Draw one measure as bars, the first one unless told which; columns of importance 0 are named below."""
    frame = explanation.importances
    measure = measure or str(frame.columns[0])
    if measure not in frame.columns:
        raise DataError(f"measure must be one of {', '.join(frame.columns)}, got {measure!r}")
    values = frame[measure].sort_values(kind="stable")
    zero = int((values == 0).sum())
    values = values[values != 0] if zero < len(values) else values
    ax = _axes(ax, (6, 0.9 + 0.3 * len(values)))
    _label(ax.barh(np.arange(len(values)), values.to_numpy(), color=ACCENT), ax)
    ax.margins(x=0.12)
    ax.set_yticks(np.arange(len(values)), [_plain(str(name)) for name in values.index])
    unit = measure_unit(explanation, measure)
    ax.set_xlabel(unit if not zero or zero == len(frame) else f"{unit}\n{zero} column(s) of importance 0 not shown")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _label(bars: Any, ax: Axes) -> None:
    """Write its number on every bar."""
    ax.bar_label(bars, fmt="{:.3g}", padding=2, fontsize=8)


def plot_effects(explanation: Explanation, columns: list[str] | None, output: int) -> np.ndarray[Any, Any]:
    """Draw effect curves side by side and return their axes, (rows, 3)."""
    effects = explanation.effects
    if columns is None:
        try:
            order = [str(name) for name in explanation.importances.index]
        except DataError:
            order = list(effects)
        columns = [name for name in order if effects[name].size > 0][:MAX_EFFECTS] or order[:1]
    if not columns:
        raise DataError("columns must name at least one column, got none; None draws the most important ones")
    unknown = [name for name in columns if name not in effects]
    if unknown:
        raise DataError(f"columns must be among those of the table, got {unknown[0]!r}; there are {', '.join(effects)}")
    if not 0 <= output < len(explanation.subject.output_names):
        raise DataError(f"output must be 0 to {len(explanation.subject.output_names) - 1}, got {output}")
    count = -(-len(columns) // COLUMNS)
    width = min(COLUMNS, len(columns))
    axes: np.ndarray[Any, Any] = _pyplot().subplots(
        count, width, figsize=(3.4 * width, 2.6 * count), squeeze=False, layout="constrained"
    )[1]
    label = f"effect on {output_labels(explanation.subject, explanation.rows)[output]}"
    for name, ax in zip(columns, axes.flat, strict=False):
        _draw_effect(effects[name], output, ax)
        ax.set_ylabel(_plain(label, 30), fontsize=8)
    if explanation.subject.spline is not None and explanation.subject.network is not None:
        drawn = next((ax for ax in axes.flat if ax.get_legend_handles_labels()[1]), None)
        if drawn is not None:
            drawn.legend(frameon=False, fontsize=8)
    for ax in list(axes.flat)[len(columns) :]:
        ax.set_visible(False)
    return axes


def _draw_effect(effect: Effect, output: int, ax: Axes) -> None:
    ax.axhline(0, color="#d5dade", linewidth=0.8, zorder=0)
    ax.set_title(_plain(effect.column), fontsize=10, loc="left")
    part = effect.part
    ax.set_xlabel(_plain(effect.column if part is None or part.unit is None else f"{effect.column} ({part.unit})", 30),
                  fontsize=8)  # fmt: skip
    ax.spines[["top", "right"]].set_visible(False)
    if not effect.used and not effect.used_by_spline:
        ax.text(0.5, 0.55, "not used", transform=ax.transAxes, ha="center", va="bottom", color=QUIET)
        ax.set_xlim(float(effect.grid[0]), float(effect.grid[-1]) + (effect.grid[0] == effect.grid[-1]))
        ax.set_ylim(-1, 1)
        return
    curves = [("spline", effect.spline, QUIET), ("network", effect.network, ACCENT)]
    shown = [(label, values, color) for label, values, color in curves if values is not None]
    labels = effect.categories if effect.categories is not None else ("0", "1") if effect.binary else None
    if labels is not None:
        _draw_bars(effect, output, ax, shown, labels)
    else:
        _draw_lines(effect, output, ax, shown)
    if effect.missing is not None:
        gap = effect.missing.network if effect.missing.network is not None else effect.missing.spline
        assert gap is not None
        ax.axhline(gap[output], color=WARM, linestyle=":", linewidth=1)
        ax.annotate("missing", (1, gap[output]), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                    color=WARM, fontsize=8)  # fmt: skip


def _draw_bars(effect: Effect, output: int, ax: Axes, shown: list[Any], labels: tuple[str, ...]) -> None:
    step = 0.7 / len(shown)
    for k, (label, values, color) in enumerate(shown):
        heights, last, errors = values[:, output], k == len(shown) - 1, None
        if effect.band is not None and last:
            errors = np.abs([heights - effect.band.lower[:, output], effect.band.upper[:, output] - heights])
        place = effect.grid + (k - (len(shown) - 1) / 2) * step
        _label(ax.bar(place, heights, step, color=color, label=label, yerr=errors, ecolor="#5c6875"), ax)
    ax.margins(y=0.18)
    ax.set_xticks(effect.grid, [_plain(c, 12) for c in labels])


def _draw_lines(effect: Effect, output: int, ax: Axes, shown: list[Any]) -> None:
    if effect.counts is not None and effect.edges is not None:
        density = ax.twinx()
        heights = effect.counts / np.maximum(np.diff(effect.edges), 1e-300)
        density.stairs(heights / heights.max(), effect.edges, fill=True, color="#e7eaed")
        density.set_ylim(0, 4)
        density.set_axis_off()
        density.set_zorder(0)
        ax.set_zorder(1)
        ax.patch.set_visible(False)
    part = effect.part
    if part is not None and not part.plain:
        ax.xaxis.set_major_locator(_pyplot().MaxNLocator(4, integer=part.steps is not None))
        ax.xaxis.set_major_formatter(lambda value, _: _plain(part.text(float(value)), 12))
    else:  # years and ids with all their digits, never an offset in a corner
        ax.ticklabel_format(axis="x", style="plain" if abs(effect.grid).max() < 1e9 else "sci", useOffset=False)
    if effect.band is not None:
        lower, upper = effect.band.lower[:, output], effect.band.upper[:, output]
        label = f"range over {effect.band.what}"
        ax.fill_between(effect.grid, lower, upper, color=ACCENT, alpha=0.2, linewidth=0, label=label)
    for label, values, color in shown:
        ax.plot(effect.grid, values[:, output], color=color, label=label,
                linestyle="--" if label == "spline" and len(shown) > 1 else "-")  # fmt: skip
    if effect.spline is not None:
        heights = np.interp(effect.knots, effect.grid, effect.spline[:, output])
        ax.plot(effect.knots, heights, "o", color="white", markeredgecolor=shown[0][2], markersize=5)


def plot_quality(explanation: Explanation, output: int) -> np.ndarray[Any, Any]:
    """Draw predictions against the truth and return the axes: of numbers (2,), of classes (4,)."""
    subject, rows, basis = explanation.subject, explanation.rows, explanation.basis
    if rows is None or rows.y is None or basis is None:
        raise DataError("quality is drawn on rows and their responses, got no y; pass explain(model, X, y)")
    if not 0 <= output < len(subject.output_names):
        raise DataError(f"output must be 0 to {len(subject.output_names) - 1}, got {output}")
    outputs, on = judged(subject, rows, basis)
    count = 2 if subject.classes is None else 4
    figure, axes = _pyplot().subplots(1, count, figsize=(3.6 * count, 3.2), layout="constrained")
    figure.suptitle(f"{len(on)} rows, {basis.name}", fontsize=10)
    if subject.classes is None:
        found_residuals = residuals(predictions(subject, outputs), on)[output]
        _draw_residuals(found_residuals, response_labels(subject, rows)[output], axes)
    else:
        names = [str(label) for label in subject.classes]
        _draw_confusion(confusion(subject, outputs, on), names, axes[0])
        curves = class_curves(subject, outputs, on)
        _draw_class(curves[output], names[-1] if len(curves) == 1 else names[output], axes[1:])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    found: np.ndarray[Any, Any] = axes
    return found


def _draw_residuals(r: Residuals, name: str, axes: Any) -> None:
    ends = [min(r.actual.min(), r.predicted.min()), max(r.actual.max(), r.predicted.max())]
    axes[0].plot(ends, ends, ":", color=QUIET)
    axes[0].plot(r.predicted, r.actual, ".", color=ACCENT, alpha=0.4)
    axes[1].axhline(0, color=QUIET)
    axes[1].plot(r.predicted, r.actual - r.predicted, ".", color=ACCENT, alpha=0.4)
    for value in r.quantiles[[0, 2]]:
        axes[1].axhline(value, color=QUIET, linestyle=":")
    for ax, label in zip(axes, (f"actual {name}", f"actual − predicted {name}"), strict=True):
        ax.set_xlabel(_plain(f"predicted {name}"))
        ax.set_ylabel(_plain(label))


def _draw_confusion(counts: Any, names: list[str], ax: Axes) -> None:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Greens", vmin=0, vmax=2, aspect="auto")
    for i, line in enumerate(counts):
        for j, value in enumerate(line):
            ax.text(j, i, f"{value}", ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(names)), [_plain(n, 12) for n in names])
    ax.set_yticks(range(len(names)), [_plain(n, 12) for n in names])
    ax.set_xlabel("predicted class")
    ax.set_ylabel("actual class")


def _draw_class(c: ClassCurves, name: str, axes: Any) -> None:
    axes[0].plot([0, 1], [0, 1], ":", color=QUIET)
    axes[0].plot(c.false_positive, c.true_positive, color=ACCENT)
    axes[1].axhline(c.share, color=QUIET, linestyle=":")
    axes[1].plot(c.recall, c.precision, color=ACCENT)
    axes[2].plot([0, 1], [0, 1], ":", color=QUIET)
    axes[2].plot(c.chance, c.found, "o-", color=ACCENT)
    words = [("false positive rate", "true positive rate", f"ROC of {name}, area {c.auc:.3g}"),
             ("recall", "precision", f"average precision {c.ap:.3g}"),
             (f"predicted probability of {name}", f"share of {name}", "calibration")]  # fmt: skip
    for ax, (x, y, title) in zip(axes, words, strict=True):
        ax.set_xlabel(_plain(x))
        ax.set_ylabel(_plain(y))
        ax.set_title(_plain(title), fontsize=10, loc="left")
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(-0.02, 1.02)


def plot_history(explanation: Explanation, ax: Axes | None) -> Axes:
    """Draw the losses of each epoch, and those of the random start where there is one."""
    history = explanation.subject.history
    if history is None or not len(history):
        raise DataError(f"a {explanation.subject.kind} has no history of training; explain a fitted SplineNetRegressor")
    subject = explanation.subject

    def losses(values: list[float]) -> Any:
        return np.array([reported_loss(subject, value) for value in values])

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


def plot_path(path: Sequence[PathModel], chosen: int, ax: Axes | None) -> Axes:
    """Draw the errors of models by their number of terms, as shares of that of the intercept alone."""
    ax = _axes(ax, (6, 3.2))
    size = np.array([model.terms for model in path])
    held = [model for model in path if model.held_out is not None]
    charged = np.array([model.gcv for model in path])
    shown = np.isfinite(charged)
    ax.plot(size[shown], charged[shown] / charged[0], color=ACCENT if not held else QUIET, label="GCV")
    if held:
        errors = np.array([model.held_out for model in held])
        ax.plot([model.terms for model in held], errors / errors[0], color=ACCENT, label="rows held out")
        ax.legend(frameon=False)
    ax.axvline(chosen, color=WARM, linestyle=":", linewidth=1)
    ax.annotate(f"{chosen}", (chosen, 1), xycoords=("data", "axes fraction"), ha="left", va="top", color=WARM)
    ax.set_xlabel("terms, the intercept included")
    ax.set_ylabel("error, share of the intercept's")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
