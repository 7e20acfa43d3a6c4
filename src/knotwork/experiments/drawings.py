"""The paper's two drawings, made from a real spline: the structure of the converted layers, and a worked example."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from knotwork.experiments.figures import BLUE, GREEN, GREY, ORANGE, draw
from knotwork.experiments.protocol import load_matrix
from knotwork.network.compile.convert import to_network
from knotwork.network.compile.units import count_units
from knotwork.network.reshape import reshape
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.model import Spline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def small_spline(data: str, terms: int) -> Spline:
    """Fit a spline of a handful of terms, in the units of the data."""
    x, y, names = load_matrix(data)
    return fit_spline(x, y, names=names, options=FitOptions(max_terms=terms, threads=1, spacing="free")).spline


def structure(path: Path, data: str) -> list[Path]:
    """Weights of a spline's network grown to three hidden layers, block by block: what is spline, carried, new."""
    spline = small_spline(data, 9)
    x, _, names = load_matrix(data)
    own = count_units(spline)[0]
    folded = to_network(spline, fold=True, dtype=torch.float64)
    net = reshape(folded, (own + 6, 8, 8), X=x, fill="hinge", random_state=0)
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    titles = (f"hidden layer 1\n{own} units of the spline, 6 new", "hidden layer 2\nthe sum: R(f), R(−f)",
              "hidden layer 3\ncarried on", "output\nf = R(f) − R(−f)")  # fmt: skip
    kept = (own, 2, 2, 1)
    read = (len(names), own, 2, 2)

    def paint(figure: Figure, axes: list[Axes]) -> None:
        for ax, layer, title, rows, columns in zip(axes, layers, titles, kept, read, strict=True):
            weight = layer.weight.detach().numpy()
            kinds = np.zeros(weight.shape)  # 0: zero, 1: spline, 2: new and live
            kinds[weight != 0] = 2
            kinds[:rows, :columns][weight[:rows, :columns] != 0] = 1
            colours = np.array([[0.95, 0.955, 0.96], _rgb(BLUE), _rgb(GREEN)])
            ax.imshow(colours[kinds.astype(int)], aspect="auto", interpolation="none")
            ax.set_xticks(np.arange(weight.shape[1] + 1) - 0.5, minor=True)
            ax.set_yticks(np.arange(weight.shape[0] + 1) - 0.5, minor=True)
            ax.grid(False)
            ax.grid(which="minor", color="white", lw=1.0)
            ax.tick_params(which="both", length=0)
            ax.set_title(title, fontsize=10)
            ax.set_yticks(range(weight.shape[0]), [str(k + 1) for k in range(weight.shape[0])], fontsize=7)
            if layer is layers[0]:
                ax.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
                ax.set_ylabel("unit")
            else:
                ax.set_xticks(range(weight.shape[1]), [str(k + 1) for k in range(weight.shape[1])], fontsize=7)
                ax.set_xlabel("unit of the layer before")
        handles = _patches(("weight of the spline", BLUE), ("new unit's weight: live input, its output is zero", GREEN),
                           ("zero", "#f2f4f5"))  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        figure.suptitle("A spline as layers: which weights are not zero (biases left out)", fontsize=12)

    return draw(path, (12, 5.6), 4, paint)


def _rgb(colour: str) -> list[float]:
    return [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def _patches(*entries: tuple[str, str]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(facecolor=colour, edgecolor=GREY, lw=0.5, label=label) for label, colour in entries]


def worked_example(path: Path, data: str, terms: int = 6) -> list[Path]:
    """A handful of terms and their network with every weight."""
    spline = small_spline(data, terms)
    net = to_network(spline, fold=True, dtype=torch.float64)
    first, last = net[0], net[-1]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    weight, bias, out = first.weight.detach().numpy(), first.bias.detach().numpy(), last.weight.detach().numpy()[0]
    # In the order of the units, so that no lines cross.
    used = list(dict.fromkeys(int(f) for f in np.nonzero(weight)[1]))

    def paint(figure: Figure, axes: list[Axes]) -> None:
        (ax,) = axes
        ax.axis("off")
        height = max(len(weight), len(used))
        y_in = {f: _spread_out(k, len(used), height) for k, f in enumerate(used)}
        y_unit = [_spread_out(k, len(weight), height) for k in range(len(weight))]
        middle = (height - 1) / 2
        for k, y in enumerate(y_unit):
            for f in map(int, np.flatnonzero(weight[k])):
                _edge(ax, (0.3, y_in[f]), (2.5, y), f"{weight[k, f]:+.4g}", BLUE, at=0.6)
            _edge(ax, (3.5, y), (5.6, middle), f"{out[k]:+.4g}", ORANGE, at=0.34)
            ax.add_patch(_box(2.5, y - 0.27, 1.0, 0.54))
            ax.text(
                3, y, f"R(· {'+' if bias[k] >= 0 else '−'} {abs(bias[k]):.4g})", ha="center", va="center", fontsize=9
            )
        for f, y in y_in.items():
            ax.text(0.2, y, spline.feature_names[f], ha="right", va="center", fontsize=10,
                    bbox={"boxstyle": "round,pad=0.4", "fc": "white", "ec": GREY})  # fmt: skip
        constant = float(last.bias.detach()[0])
        ax.text(5.7, middle, f"Σ {'+' if constant >= 0 else '−'} {abs(constant):.4g}", ha="left", va="center",
                fontsize=10, bbox={"boxstyle": "round,pad=0.45", "fc": "#fdf1e8", "ec": ORANGE})  # fmt: skip
        ax.set(xlim=(-1.5, 6.9), ylim=(height - 0.4, -0.9))
        for x, title in ((0.0, "features"), (3.0, "units R(weight·x + bias)"), (5.9, "output")):
            ax.text(x, -0.75, title, ha="center", fontsize=10, fontweight="bold", color=GREY)
        figure.suptitle("A spline of a handful of terms and its network, with every weight", fontsize=12)
        figure.text(0.5, 0.02, _formula(spline, 100), ha="center", va="bottom", fontsize=9, family="monospace")
        ax.set_position((0.02, 0.16, 0.96, 0.76))
        figure.set_layout_engine("none")

    return draw(path, (11, 1.0 + 0.85 * max(4, len(weight))), 1, paint)


def _spread_out(k: int, count: int, height: int) -> float:
    return (k + 0.5) * height / count - 0.5


def _box(x: float, y: float, width: float, height: float) -> Any:
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08", fc="#eaf2fa", ec=BLUE)


def _formula(spline: Spline, width: int) -> str:
    """Return the spline as text, lines broken between terms."""
    lines = ["f ="]
    for part in str(spline).split("\n"):
        word = f" {part.strip()}"
        lines[-1:] = [lines[-1] + word] if len(lines[-1] + word) <= width else [lines[-1], word]
    return "\n".join(lines)


def _edge(ax: Axes, start: tuple[float, float], end: tuple[float, float], label: str, colour: str, at: float) -> None:
    ax.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-", "color": colour, "lw": 1.2, "alpha": 0.7})
    x, y = (a + at * (b - a) for a, b in zip(start, end, strict=True))
    ax.text(x, y, label, fontsize=8, color=colour, ha="center", va="center",
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"})  # fmt: skip
