"""Draw the picture of the README: a curve becomes a network, and the network a better curve.

pip install "knotwork[plots]"
python docs/front_picture.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

import knotwork as kw

IMAGES = Path(__file__).parent / "images"
INK, DATA, SPLINE, NETWORK = "#37474f", "#b0bec5", "#e65100", "#00695c"


def truth(x: np.ndarray) -> np.ndarray:
    """Return what the noisy rows scatter around."""
    return np.sin(1.7 * x) + 0.35 * x + 1.2 * np.exp(-4 * (x - 3.2) ** 2)


def style(axes: plt.Axes, title: str) -> None:
    axes.set_title(title, fontsize=11, color=INK, loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def draw_network(axes: plt.Axes, knots: list[float]) -> None:
    """Draw a hidden layer with a unit for each hinge."""
    places = np.linspace(0.92, 0.08, len(knots))
    for place, knot in zip(places, knots, strict=True):
        axes.plot([0.08, 0.5], [0.5, place], color=SPLINE, lw=1.1, zorder=1)
        axes.plot([0.5, 0.92], [place, 0.5], color=SPLINE, lw=1.1, zorder=1)
        axes.scatter([0.5], [place], s=230, facecolor="white", edgecolor=SPLINE, lw=1.4, zorder=2)
        axes.plot([0.478, 0.5, 0.522], [place - 0.012, place - 0.012, place + 0.02], color=SPLINE, lw=1.4, zorder=3)
        axes.annotate(f"max(0, x − {knot:.1f})", (0.545, place), fontsize=7.5, color=INK, va="center")
    for place, name in ((0.08, "x"), (0.92, "y")):
        axes.scatter([place], [0.5], s=330, facecolor="white", edgecolor=INK, lw=1.4, zorder=2)
        axes.annotate(name, (place, 0.5), fontsize=11, color=INK, ha="center", va="center", zorder=3)
    axes.set_xlim(0, 1.0)
    axes.set_ylim(0, 1)


def main() -> None:
    """Fit, convert, train, draw."""
    mpl.rcParams["font.family"] = "DejaVu Sans"
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 6, 400))[:, None]
    y = truth(x[:, 0]) + 0.18 * rng.normal(size=400)
    grid = np.linspace(0, 6, 600)[:, None]

    spline = kw.MarsRegressor(max_terms=9).fit(x, y)
    net = kw.reshape(kw.to_network(spline), (64, 64), X=x)
    kw.train(net, x, y, epochs=200, random_state=0)

    def error(values: np.ndarray) -> float:
        return float(np.sqrt(np.mean((values - truth(grid[:, 0])) ** 2)))

    fitted, trained = spline.predict(grid), kw.to_network(net)(grid_tensor(grid))[:, 0].detach().numpy()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.1), gridspec_kw={"width_ratios": [1, 0.9, 1]})
    for axes in (left, right):
        axes.scatter(x, y, s=6, color=DATA, lw=0)
    left.plot(grid, fitted, color=SPLINE, lw=2)
    knots = sorted({knot.value for knot in spline.knots_})
    left.scatter(knots, spline.predict(np.array(knots)[:, None]), s=36, color=SPLINE, zorder=3)
    style(left, f"a spline, in milliseconds: error {error(fitted):.2f}")
    draw_network(middle, knots)
    style(middle, "the same function, exactly, as ReLU units")
    right.plot(grid, fitted, color=SPLINE, lw=1, ls=":")
    right.plot(grid, trained, color=NETWORK, lw=2)
    style(right, f"grown and trained on: error {error(trained):.2f}")
    figure.tight_layout()
    figure.savefig(IMAGES / "knots-become-networks.png", dpi=110)


def grid_tensor(grid: np.ndarray):  # noqa: ANN201
    import torch

    return torch.from_numpy(grid)


if __name__ == "__main__":
    main()
