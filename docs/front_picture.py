"""Draw the picture of the README: a spline becomes a network, and the network a better curve.

pip install 'knotwork[plots]'
python docs/front_picture.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt

import knotwork as kw

IMAGES = Path(__file__).parent / "images"
INK, DATA, SPLINE, NETWORK = "#37474f", "#b0bec5", "#e65100", "#00695c"
MINUS = "−"  # as long as a plus


@dataclass(frozen=True)
class Unit:
    """A ReLU unit of one input: weight · max(0, sign · (x - knot))."""

    knot: float
    sign: int
    weight: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return what the unit adds to the output."""
        return self.weight * np.maximum(0, self.sign * (x - self.knot))

    @property
    def label(self) -> str:
        """The unit as a formula, without its weight."""
        inside = f"x {MINUS} {self.knot:.1f}" if self.sign > 0 else f"{self.knot:.1f} {MINUS} x"
        return f"max(0, {inside})"


def truth(x: np.ndarray) -> np.ndarray:
    """Return what the noisy rows scatter around."""
    return np.sin(1.7 * x) + 0.35 * x + 1.2 * np.exp(-4 * (x - 3.2) ** 2)


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Return x (400, 1) and y (400,)."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 6, 400))[:, None]
    return x, truth(x[:, 0]) + 0.18 * rng.normal(size=400)


def units(spline: kw.Spline) -> tuple[float, list[Unit]]:
    """Return the intercept and a unit for each hinge, from left to right: their sum is the spline."""
    assert all(isinstance(term, kw.Hinge) for term in spline.terms)
    found = [Unit(term.knot, term.sign, beta) for term, beta in zip(spline.terms, spline.coef[:, 0], strict=True)]
    return spline.intercept[0], sorted(found, key=lambda unit: (unit.knot, unit.sign))


def signed(number: float) -> str:
    """Return the number with its sign and one decimal."""
    return f"{'+' if number > 0 else MINUS}{abs(number):.1f}"


def style(axes: plt.Axes, title: str) -> None:
    """Leave the title and the drawing, no ticks and no frame."""
    axes.set_title(title, fontsize=11, color=INK, loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def draw_network(axes: plt.Axes, intercept: float, hidden: list[Unit]) -> None:
    """Draw the network: a unit for each hinge with its weight, and the intercept as the bias of the output."""
    hidden_x, output_x, weight_x = 0.36, 0.92, 0.6
    white = {"facecolor": "white", "lw": 0, "pad": 1}
    small = {"fontsize": 8.5, "color": INK, "ha": "center", "va": "center", "zorder": 3}
    for place, unit in zip(np.linspace(0.94, 0.16, len(hidden)), hidden, strict=True):
        axes.plot([0.06, hidden_x], [0.55, place], color=SPLINE, lw=1.1, zorder=1)
        axes.plot([hidden_x, output_x], [place, 0.55], color=SPLINE, lw=1.1, zorder=1)
        axes.scatter([hidden_x], [place], s=230, facecolor="white", edgecolor=SPLINE, lw=1.4, zorder=2)
        ramp = np.array([-0.012, -0.012, 0.02])[:: unit.sign]
        axes.plot(hidden_x + np.array([-0.022, 0, 0.022]), place + ramp, color=SPLINE, lw=1.4, zorder=3)
        axes.annotate(unit.label, (hidden_x, place - 0.1), bbox=white, **small)
        height = place + (0.55 - place) * (weight_x - hidden_x) / (output_x - hidden_x)
        axes.annotate(signed(unit.weight), (weight_x, height), bbox=white, **small)
    for place, name in ((0.06, "x"), (output_x, "y")):
        axes.scatter([place], [0.55], s=330, facecolor="white", edgecolor=INK, lw=1.4, zorder=2)
        axes.annotate(name, (place, 0.55), fontsize=11, color=INK, ha="center", va="center", zorder=3)
    axes.annotate(signed(intercept), (output_x, 0.43), **small)
    axes.set_xlim(0, 1.0)
    axes.set_ylim(0, 1)


def main() -> None:
    """Fit, convert, train, draw."""
    mpl.rcParams["font.family"] = "DejaVu Sans"
    x, y = rows()
    grid = np.linspace(x.min(), x.max(), 600)[:, None]
    spline = kw.MarsRegressor(max_terms=5).fit(x, y)  # four hinges, so that the network can be drawn
    net = kw.reshape(kw.to_network(spline), (64, 64), X=x, random_state=0)
    kw.train(net, x, y, epochs=200, random_state=0)

    def error(values: np.ndarray) -> float:
        return float(np.sqrt(np.mean((values - truth(grid[:, 0])) ** 2)))

    fitted, trained = spline.predict(grid), net(torch.from_numpy(grid))[:, 0].detach().numpy()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.1), gridspec_kw={"width_ratios": [1, 1.05, 1]})
    for axes in (left, right):
        axes.scatter(x, y, s=6, color=DATA, lw=0)
    left.plot(grid, fitted, color=SPLINE, lw=2)
    knots = np.array(sorted({knot.value for knot in spline.knots_}))
    left.scatter(knots, spline.predict(knots[:, None]), s=36, color=SPLINE, zorder=3)
    style(left, f"a spline of {len(knots)} knots: error {error(fitted):.2f}")
    intercept, hidden = units(spline.spline_)
    draw_network(middle, intercept, hidden)
    style(middle, f"the same function as {len(hidden)} ReLU units")
    right.plot(grid, fitted, color=SPLINE, lw=1, ls=":")
    right.plot(grid, trained, color=NETWORK, lw=2)
    style(right, f"grown to 64 × 64 units, trained: error {error(trained):.2f}")
    figure.tight_layout()
    figure.savefig(IMAGES / "knots-become-networks.png", dpi=110)


if __name__ == "__main__":
    main()
