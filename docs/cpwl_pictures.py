"""Draw the pictures of cpwl.md: every source as it is, as a network, and after training.

pip install 'knotwork[plots]'
python docs/cpwl_pictures.py
"""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.collections import PolyCollection
from scipy.interpolate import LinearNDInterpolator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

import knotwork as kw

IMAGES = Path(__file__).parent / "images"
X, Y = kw.datasets.load_wine_quality("red")
TABLE = X[["alcohol", "volatile acidity"]].to_numpy()
TARGET = Y.to_numpy(float)
LOW, HIGH = np.quantile(TABLE, [0.01, 0.99], axis=0)
INSIDE = ((TABLE >= LOW) & (TABLE <= HIGH)).all(axis=1)
ROWS, VALUES = TABLE[INSIDE], TARGET[INSIDE]
# Sources see these rows only, networks train on all others: otherwise there would be little left to learn.
FEW = np.random.default_rng(0).permutation(len(ROWS)) < 250


def run(net: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    """Run a network of one output in double precision."""
    with torch.no_grad():
        return net(torch.tensor(rows, dtype=torch.float64)).numpy()[:, 0]


def train(net: torch.nn.Module, rows: np.ndarray) -> None:
    """Train for 60 epochs and keep what comes out, whether held-out rows like it or not: the picture shows training."""
    rest = rows[~FEW], VALUES[~FEW]
    kw.train(net, *rest, validation=rest, epochs=60, random_state=0)


def node_means(nodes: np.ndarray) -> np.ndarray:
    """Mean response of the 20 rows nearest to each node."""
    scale = ROWS.std(axis=0)
    distance = np.linalg.norm((nodes[:, None] - ROWS[FEW]) / scale, axis=2)
    return VALUES[FEW][np.argsort(distance, axis=1)[:, :20]].mean(axis=1)


def grid_pieces() -> list[kw.Piece]:
    """Triangles of a grid of 3 × 3 nodes, with the plane through the means at their corners."""
    ticks = [np.linspace(LOW[k], HIGH[k], 3) for k in (0, 1)]
    nodes = np.array([(a, b) for a in ticks[0] for b in ticks[1]])
    values = node_means(nodes)
    pieces = []
    for i in range(2):
        for j in range(2):
            a, b, c, d = 3 * i + j, 3 * i + j + 1, 3 * i + j + 3, 3 * i + j + 4
            for corners in ([a, b, c], [b, c, d]):
                planes = np.column_stack([np.ones(3), nodes[corners]])
                pieces.append(kw.Piece.hull(nodes[corners], np.linalg.solve(planes, values[corners])))
    return pieces


def surface_sources() -> dict[str, tuple[object, object]]:
    """Name → what to_network takes, and the function to draw."""
    rng = np.random.default_rng(0)
    nodes = np.concatenate([[(a, b) for a in (LOW[0], HIGH[0]) for b in (LOW[1], HIGH[1])],
                            ROWS[rng.choice(len(ROWS), 9, replace=False)]])  # fmt: skip
    delaunay = LinearNDInterpolator(nodes, node_means(nodes))
    pieces = grid_pieces()
    fitted = {
        "max-affine (concave)": kw.MaxAffineRegressor(shape="concave", random_state=0, n_pieces=4),
        "difference of max-affine": kw.DCMaxAffineRegressor(random_state=0, n_pieces=4),
        "hinging hyperplanes": kw.HingingHyperplanesRegressor(random_state=0, n_hinges=4),
        "SplineTransformer + Ridge": make_pipeline(StandardScaler(), SplineTransformer(degree=1), Ridge()),
    }
    sources = {name: (model.fit(ROWS[FEW], VALUES[FEW]), model.predict) for name, model in fitted.items()}
    sources["Delaunay interpolation"] = (delaunay, delaunay)
    sources["list of pieces"] = (pieces, kw.Pieces(tuple(pieces)))
    return sources


def surfaces() -> None:
    """Draw the sources of two features."""
    a, b = (np.linspace(LOW[k], HIGH[k], 90) for k in (0, 1))
    grid = np.stack(np.meshgrid(a, b), axis=-1).reshape(-1, 2)
    sources = surface_sources()
    figure, axes = plt.subplots(len(sources), 3, figsize=(7.5, 11.5), sharex=True, sharey=True, layout="constrained")
    for row, (name, (model, function)) in zip(axes, sources.items(), strict=True):
        net = kw.to_network(model, dtype=torch.float64)
        before = run(net, grid)
        train(net, ROWS)
        drawn = {name: function(grid), f"network ({kw.network_size(model).units} units)": before,
                 "after training": run(net, grid)}  # fmt: skip
        for axis, (title, values) in zip(row, drawn.items(), strict=True):
            axis.contourf(a, b, values.reshape(90, 90), levels=np.linspace(4.4, 6.9, 21), cmap="viridis", extend="both")
            axis.set_title(title, fontsize=8)
            axis.tick_params(labelsize=7)
    figure.supxlabel("alcohol", fontsize=9)
    figure.supylabel("volatile acidity", fontsize=9)
    save(figure, "cpwl_surfaces.png")


def curves() -> None:
    """Draw the sources of one feature."""
    x, few, values = ROWS[:, :1], ROWS[FEW, :1], VALUES[FEW]
    bins = np.unique(np.quantile(few, np.linspace(0, 1, 9)))
    middle = (bins[1:] + bins[:-1]) / 2
    means = [values[(few[:, 0] >= low) & (few[:, 0] <= high)].mean() for low, high in itertools.pairwise(bins)]
    models = {
        "IsotonicRegression": IsotonicRegression(out_of_bounds="clip").fit(few, values),
        "numpy.interp table": (middle, np.array(means)),
        "StandardScaler + LinearRegression": make_pipeline(StandardScaler(), LinearRegression()).fit(few, values),
    }
    grid = np.linspace(LOW[0], HIGH[0], 300)[:, None]
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.8), sharey=True, layout="constrained")
    for axis, (name, model) in zip(axes, models.items(), strict=True):
        source = np.interp(grid[:, 0], *model) if isinstance(model, tuple) else model.predict(grid)
        net = kw.to_network(model, dtype=torch.float64)
        converted = run(net, grid)
        grown = kw.reshape(net, (32,), X=x, random_state=0)
        train(grown, x)
        axis.plot(grid, source, lw=5, color="0.8", label="source")
        axis.plot(grid, converted, lw=1.5, color="C0", label="network")
        axis.plot(grid, run(grown, grid), lw=1.5, color="C3", ls="--", label="grown to 32 units, trained")
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("alcohol", fontsize=8)
        axis.tick_params(labelsize=7)
    axes[0].set_ylabel("quality", fontsize=8)
    axes[0].legend(fontsize=7)
    save(figure, "cpwl_curves.png")


def regions() -> None:
    """Draw the pieces of networks."""
    model = kw.SplineNetRegressor(hidden=(16, 8), epochs=40, random_state=0).fit(ROWS, VALUES)
    torch.manual_seed(0)
    tanh = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()
    kw.train(tanh, ROWS, VALUES, epochs=40, random_state=0)
    relu = kw.to_relu(tanh, (LOW, HIGH), 0.2, random_state=0)
    networks = {
        "the spline": kw.to_network(model.spline_, dtype=torch.float64),
        "after training": model.network_.double(),
        f"a tanh network by to_relu\nbound {relu.bound:.3f}, seen {relu.observed:.3f}": relu.network,
    }
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.2), sharex=True, sharey=True, layout="constrained")
    for axis, (name, net) in zip(axes, networks.items(), strict=True):
        pieces = kw.from_network(net, (LOW, HIGH)).pieces
        values = np.array([piece(piece.points.mean(axis=0, keepdims=True))[0, 0] for piece in pieces])
        shapes = PolyCollection([p.points for p in pieces], array=values, cmap="viridis", edgecolor="w", linewidth=0.6)
        shapes.set_clim(4.4, 6.9)
        axis.add_collection(shapes)
        axis.set_xlim(LOW[0], HIGH[0])
        axis.set_ylim(LOW[1], HIGH[1])
        axis.set_title(f"{name}, {len(pieces)} pieces", fontsize=8)
        axis.tick_params(labelsize=7)
    save(figure, "cpwl_regions.png")


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture and say how large it is."""
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / name, dpi=85, pil_kwargs={"optimize": True})
    plt.close(figure)
    print(name, (IMAGES / name).stat().st_size // 1000, "kB")


if __name__ == "__main__":
    mpl.use("agg")
    surfaces()
    curves()
    regions()
