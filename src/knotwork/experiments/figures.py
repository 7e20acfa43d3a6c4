"""Pictures of the results, PNG and SVG. matplotlib is an extra: ``pip install 'knotwork[plots]'``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.atomic import atomic_file
from knotwork.errors import KnotworkError
from knotwork.experiments.clock import our_cost, published_cost
from knotwork.experiments.protocol import SUBJECTS
from knotwork.experiments.summary import Runs, chosen

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = dict[str, Any]
BLUE, ORANGE, GREY, GREEN, PURPLE = "#1f6fb4", "#d9702b", "#6b7280", "#2f8f5b", "#8457a8"
COLOURS = {"converted": BLUE, "random": ORANGE, "hinge fill": GREEN, "zero fill": PURPLE}
LABELS = {"converted": "converted spline", "random": "random start", "hinge fill": "converted, hinge fill",
          "zero fill": "converted, zero fill (published)"}  # fmt: skip
STYLE = {
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white", "font.size": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e5e7eb",
    "axes.axisbelow": True, "axes.titlesize": 11, "axes.titleweight": "bold", "legend.frameon": False,
    "svg.hashsalt": "knotwork", "svg.fonttype": "path",
}  # fmt: skip


def require_matplotlib() -> None:
    """Refuse at once where pictures cannot be drawn, rather than after the work."""
    if importlib.util.find_spec("matplotlib") is None:
        raise KnotworkError(
            "pictures need matplotlib, which is not installed; install it with: pip install 'knotwork[plots]'"
        )


def draw(path: Path, size: tuple[float, float], panels: int, paint: Callable[[Figure, list[Axes]], None]) -> list[Path]:
    """Paint a figure of one row of panels and save it as PNG and SVG, without a display."""
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        axes = list(figure.subplots(1, panels, squeeze=False)[0])
        paint(figure, axes)
        files = [path.with_suffix(".png"), path.with_suffix(".svg")]
        with atomic_file(files[0]) as fresh:
            figure.savefig(fresh, dpi=150)
        with atomic_file(files[1]) as fresh:
            figure.savefig(fresh, metadata={"Date": None})
    return files


def loss_curves(path: Path, data: str, runs: Runs, epochs: int) -> list[Path]:
    """Training and test error of both networks against epochs: mean over seeds and the range between them."""

    def paint(figure: Figure, axes: list[Axes]) -> None:
        for ax, part, title in zip(axes, ("train", "test"), ("training rows", "test rows"), strict=True):
            for start in ("random", "converted"):
                curves = np.array([r[part] for r, _ in chosen(runs.of(start), epochs, best=False).values()])
                x = np.arange(curves.shape[1])
                ax.plot(x, curves.mean(axis=0), color=COLOURS[start], label=LABELS[start], lw=1.8)
                ax.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=COLOURS[start], alpha=0.18, lw=0)
            if part == "test":
                level = np.mean([r["test_variance"] for r in runs.of("converted")])
                ax.axhline(level, color=GREY, ls=":", lw=1.2, label="guessing the mean")
            ax.set(xlabel="epoch", ylabel="mean squared error, min-max scaled", yscale="log", title=title)
            ax.set_xscale("symlog", linthresh=1)
            ticks = [t for t in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500) if t <= epochs]
            ax.set_xticks(ticks, [str(t) for t in ticks])
            ax.minorticks_off()
            _plain_log_ticks(ax)
            ax.set_xlim(0, epochs)
        axes[1].legend(loc="upper right")
        seeds = len({r["seed"] for r in runs.of("converted")})
        figure.suptitle(f"{SUBJECTS[data].title}: mean of {seeds} seeds, band from minimum to maximum", fontsize=12)

    return draw(path, (10, 4.2), 2, paint)


def _plain_log_ticks(ax: Axes) -> None:
    """Label a logarithmic axis with plain numbers, at 1, 2 and 5 of each decade where there are few."""
    low, high = ax.get_ylim()
    decades = np.log10(high / low)
    steps = (1, 2, 5) if decades < 2.5 else (1,)
    ticks = [m * 10.0**k for k in range(-6, 9) for m in steps]
    ticks = [t for t in ticks if low <= t <= high]
    ax.set_yticks(ticks, [f"{t:,.10g}" for t in ticks])


def variant_curves(path: Path, data: str, runs: Runs, epochs: int) -> list[Path]:
    """Validation-chosen test curves of the ways to fill new units, and of the random start."""

    def paint(figure: Figure, axes: list[Axes]) -> None:
        (ax,) = axes
        lows = []
        common = set.intersection(*({r["seed"] for r in runs.of(s)} for s in COLOURS))
        for start in ("zero fill", "hinge fill", "converted", "random"):
            picked = chosen(runs.of(start), epochs, best=False)
            curve = np.mean([picked[seed][0]["test"] for seed in common], axis=0)
            name = "converted, random fill" if start == "converted" else LABELS[start]
            ax.plot(curve, color=COLOURS[start], label=name, lw=1.8)
            lows.append(float(curve.min()))
        spline = float(np.mean([runs.before("converted")[seed] for seed in common]))
        ax.axhline(spline, color=GREY, ls=":", lw=1.2, label="the spline itself")
        ax.set_ylim(0.97 * min(lows), 1.25 * spline)
        ax.set(
            xlabel="epoch", ylabel="test MSE, min-max scaled", title=f"{SUBJECTS[data].title}: ways to fill new units"
        )
        ax.set_xlim(0, epochs)
        ax.legend(loc="upper right", fontsize=9)

    return draw(path, (7, 4.2), 1, paint)


def weight_matrices(path: Path, data: str, records: Sequence[Record]) -> list[Path]:
    """First hidden layer of both networks before and after training, and the difference."""

    def paint(figure: Figure, axes: list[Axes]) -> None:
        figure.clear()
        grid = figure.subplots(len(records), 3, squeeze=False)
        for row, record in zip(grid, records, strict=True):
            before, after = np.array(record["before"][0]), np.array(record["after"][0])
            limit = float(np.quantile(np.abs(np.concatenate([before, after])), 0.99))
            images = (before, after, after - before)
            titles = ("before training", f"after {record['epochs']} epochs", f"difference ({record['shift'][0]:.0%})")
            for ax, image, title in zip(row, images, titles, strict=True):
                shown = ax.imshow(image.T, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="none")
                ax.grid(False)
                ax.set_title(f"{LABELS[record['start']]}\n{title}", fontsize=10)
                ax.set_xlabel("unit of the first hidden layer")
                if 0 < record["own_units"] < len(before):
                    ax.axvline(record["own_units"] - 0.5, color="black", lw=0.8, ls="--")
            for ax in row:
                ax.set_yticks(range(before.shape[1]), [])
            row[0].set_yticks(range(before.shape[1]), [*record["names"], "bias"], fontsize=8)
            figure.colorbar(shown, ax=list(row), shrink=0.9, label="weight")
        figure.suptitle(
            f"{SUBJECTS[data].title}: weights of the first hidden layer; left of the dashed line the spline's own "
            f"units",
            fontsize=12,
        )

    return draw(path, (12, 3.1 * len(records) + 0.5), 1, paint)


def fit_growth(path: Path, record: Record) -> list[Path]:
    """Fit time against N, d and M, with both formulas, each scaled to meet the smallest time."""

    def paint(figure: Figure, axes: list[Axes]) -> None:
        for ax, name, label in zip(axes, "ndm", ("rows N", "features d", "terms M"), strict=True):
            points = record[name]
            n, d, m, k = (np.array([float(p[key]) for p in points]) for key in "ndmk")
            took = np.array([1000 * p["seconds"] for p in points])
            x = {"n": n, "d": d, "m": m}[name]
            for theory, colour, title in ((published_cost(n, d, m), ORANGE, "published N(d·M³ + M⁴)"),
                                          (our_cost(n, d, m, k), GREY, "ours N·d·M + d·K·M² + M³")):  # fmt: skip
                ax.plot(x, took[0] * theory / theory[0], color=colour, ls="--", lw=1.4, label=title)
            ax.plot(x, took, "o-", color=BLUE, lw=1.8, label="measured")
            ax.set(xscale="log", yscale="log", xlabel=label, title=f"measured slope {slope(x, took):.2f}")
            ax.set_xticks(x, [f"{v:,.0f}" for v in x])
            ax.minorticks_off()
            _plain_log_ticks(ax)
        axes[0].set_ylabel("milliseconds of one fit, one thread")
        axes[0].legend(loc="upper left", fontsize=8)
        base = record["base"]
        figure.suptitle(f"Time of a spline fit around N = {base['n']:,}, d = {base['d']}, M = {base['m']}", fontsize=12)

    return draw(path, (12, 4), 3, paint)


def slope(x: Any, y: Any) -> float:
    """Slope of log y against log x by least squares.

    >>> slope([1, 2, 4], [3, 12, 48])
    2.0
    """
    return round(float(np.polyfit(np.log(x), np.log(y), 1)[0]), 10)


def epoch_growth(path: Path, record: Record) -> list[Path]:
    """Time of an epoch against the rows and against Σ aᵢ·aᵢ₊₁."""

    def paint(figure: Figure, axes: list[Axes]) -> None:
        labels = {"n": "rows N", "weights": "Σ aᵢ·aᵢ₊₁"}
        for ax, (name, label) in zip(axes, labels.items(), strict=True):
            x = np.array([p[name] for p in record[name]], dtype=float)
            took = np.array([1000 * p["seconds"] for p in record[name]])
            ax.plot(x, took[-1] * x / x[-1], color=ORANGE, ls="--", lw=1.4, label="proportional (published)")
            ax.plot(x, took, "o-", color=BLUE, lw=1.8, label="measured")
            ax.set(xscale="log", yscale="log", xlabel=label, title=f"measured slope {slope(x, took):.2f}")
            ax.set_xticks(x, [f"{v:,.0f}" for v in x])
            ax.minorticks_off()
            _plain_log_ticks(ax)
        axes[0].set_ylabel("milliseconds of one epoch, one thread")
        axes[0].legend(loc="upper left")
        figure.suptitle(f"Time of an epoch, batches of {record['batch_size']} rows", fontsize=12)

    return draw(path, (9.5, 4), 2, paint)


def fewer_rows(path: Path, data: str, table: Sequence[Record]) -> list[Path]:
    """Errors of the spline and of the trained network against the share of rows the spline saw."""

    def paint(figure: Figure, axes: list[Axes]) -> None:
        (ax,) = axes
        kinds = ((False, "spline", "spline", GREY), (False, "best", "network, trains on all rows", BLUE),
                 (True, "best", "network, trains on the other rows", GREEN))  # fmt: skip
        for exclusive, value, label, colour in kinds:
            points = [p for p in table if p["exclusive"] == exclusive]
            ax.plot([100 * p["share"] for p in points], [p[value]["mean"] for p in points], "o-", color=colour,
                    label=label, lw=1.8)  # fmt: skip
        ax.set(xlabel="rows that the spline was fitted to, % of the training rows", ylabel="test MSE, min-max scaled",
               title=f"{SUBJECTS[data].title}: the spline on fewer rows, and on rows of its own")  # fmt: skip
        ax.set_xticks([10, 25, 50, 75, 100])
        ax.legend()

    return draw(path, (7.5, 4.2), 1, paint)


def sparsity(path: Path, data: str, table: Sequence[Record]) -> list[Path]:
    """Test error against the share of small weights, one point per penalty."""

    def paint(figure: Figure, axes: list[Axes]) -> None:
        (ax,) = axes
        colours = {"none": GREY, "L2": ORANGE, "L1": BLUE, "dropout": GREEN}
        for kind, colour in colours.items():
            points = [p for p in table if p["penalty"].split()[0] == kind]
            x, y = [100 * p["small"]["mean"] for p in points], [p["last"]["mean"] for p in points]
            strengths = ", ".join(p["penalty"].partition(" ")[2] for p in points)
            ax.plot(x, y, "-", color=colour, lw=1.0)
            # Larger marks for stronger penalties.
            ax.scatter(x, y, s=[30 * 2.2**k for k in range(len(points))], color=colour, alpha=0.75, zorder=3,
                       label=f"{kind} {strengths}" if strengths else "no penalty")  # fmt: skip
        ax.margins(0.12)
        ax.set(xlabel="weights below 1 % of their layer's largest, %", ylabel="test MSE, min-max scaled",
               title=f"{SUBJECTS[data].title}: L1 and dropout against L2")  # fmt: skip
        legend = ax.legend(title="larger marks: stronger", title_fontsize=9)
        for handle in legend.legend_handles:
            handle.set_sizes([45])  # type: ignore[union-attr]

    return draw(path, (7.5, 4.2), 1, paint)


def demo_curves(path: Path, curves: dict[str, list[float]]) -> list[Path]:
    """Validation error of the demo's two networks, in rings."""

    def paint(figure: Figure, axes: list[Axes]) -> None:
        (ax,) = axes
        for (name, curve), colour in zip(curves.items(), (BLUE, ORANGE), strict=True):
            ax.plot(curve, color=colour, label=name, lw=2)
        ax.set(xlabel="epoch", ylabel="error on validation rows, rings", title="Abalone: one network, two starts")
        ax.set_xlim(0, len(next(iter(curves.values()))) - 1)
        ax.legend()

    return draw(path, (7, 4), 1, paint)
