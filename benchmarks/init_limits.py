"""In which coordinates and architectures training keeps a start from ``init_``: the tables in docs/networks.md.

    python benchmarks/init_limits.py scales
    python benchmarks/init_limits.py architectures

A bare loop, Adam at 1e-3 with batches of 128 rows. Errors are RMSEs on rows that neither spline nor loop saw, over the
error of the start: the greatest of epochs 1 to 10 and that of epoch 30. Real tables from :mod:`benchmarks.real_data`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import knotwork as kw
import real_data
from knotwork.network.start import tame

SEEDS = range(2)
ROWS = 3000
SCALED = ("airfoil", "concrete", "wine_red", "medical_cost")
TABLES = (*SCALED, "bikes", "abalone")
# What is done to standardised columns and responses: std and mean of the columns, std and mean of the response.
SCALES = {
    "features, std": [(std, 0.0, 1.0, 0.0) for std in (1e-6, 0.01, 0.1, 1.0, 3.0, 10.0, 20.0, 30.0, 100.0)],
    "features, mean at std 1": [(1.0, mean, 1.0, 0.0) for mean in (1.0, 3.0, 5.0, 10.0, 30.0, 100.0)],
    "features, mean at std 0.01": [(0.01, mean, 1.0, 0.0) for mean in (1.0, 3.0, 5.0, 10.0)],
    "response, std": [(1.0, 0.0, std, 0.0) for std in (0.01, 0.1, 0.2, 0.3, 3.0, 10.0, 30.0, 100.0, 1e5)],
    "response, mean": [(1.0, 0.0, 1.0, mean) for mean in (10.0, 1000.0)],
}


class Block(nn.Module):
    def __init__(self, width: int, norm: Callable[[int], nn.Module], post: bool = False) -> None:
        super().__init__()
        self.norm, self.post = norm(width), post
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out = x + self.second(torch.relu(self.first(self.norm(x))))
        return torch.relu(out) if self.post else out


def plain(d: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def dropout(d: int) -> nn.Module:
    layers = list(plain(d))
    return nn.Sequential(*layers[:2], nn.Dropout(0.1), *layers[2:4], nn.Dropout(0.1), layers[4])


def batch_norm(d: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(d, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1),
    )  # fmt: skip


def residual(norm: Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    def make(d: int) -> nn.Module:
        blocks = (Block(32, norm), Block(32, norm))
        return nn.Sequential(nn.Linear(d, 32), *blocks, nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))

    return make


def bent_inside(d: int) -> nn.Module:
    width = max(32, d + 1)
    blocks = (Block(width, nn.BatchNorm1d), Block(width, nn.BatchNorm1d))
    return nn.Sequential(nn.Linear(d, width), *blocks, nn.Linear(width, 1))


def layer_norm(d: int) -> nn.Module:
    blocks = (Block(64, nn.LayerNorm), Block(64, nn.LayerNorm))
    return nn.Sequential(nn.Linear(d, 64), *blocks, nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 1))


def smooth(activation: Callable[[], nn.Module], layers: int = 2) -> Callable[[int], nn.Module]:
    def make(d: int) -> nn.Module:
        hidden = [m for k in range(layers) for m in (nn.Linear(64 if k else d, 64), activation())]
        return nn.Sequential(*hidden, nn.Linear(64, 1))

    return make


def tanh(d: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


# By init_ behind a Scaling at both ends, or by with_spline.
ARCHITECTURES: dict[str, tuple[str, Callable[[int], nn.Module]]] = {
    "64 × 64": ("init_", plain),
    "64 × 64, Dropout 0.1": ("init_", dropout),
    "64 × 64, GELU": ("init_", smooth(nn.GELU)),
    "64 × 64, SiLU": ("init_", smooth(nn.SiLU)),
    "64 × 64, Softplus": ("init_", smooth(nn.Softplus)),
    "64, ELU": ("init_", smooth(nn.ELU, layers=1)),
    "64 × 64, BatchNorm": ("init_", batch_norm),
    "residual, BatchNorm": ("init_", residual(nn.BatchNorm1d)),
    "residual, LayerNorm in the branches": ("init_", residual(nn.LayerNorm)),
    "residual, activations in the branches only": ("init_", bent_inside),
    "64 × 64 beside the spline": ("with_spline", plain),
    "residual, LayerNorm throughout": ("with_spline", layer_norm),
    "64 × 64, Tanh": ("with_spline", tanh),
}


def split(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, y = real_data.load(name)
    order = np.random.default_rng(seed).permutation(len(X))[:ROWS]
    cut = len(order) * 3 // 4 // 128 * 128  # whole batches: a BatchNorm cannot take a last one of one row
    return X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]]


def errors(net: nn.Module, X: np.ndarray, y: np.ndarray, other: np.ndarray, truth: np.ndarray, seed: int) -> np.ndarray:
    """Train; return the errors on the other rows over the start's, epochs 0 to 30."""
    rows, target, held = torch.tensor(X), torch.tensor(y).float(), torch.tensor(other)
    rows, held = (rows, held) if has_scaling(net) else (rows.float(), held.float())
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    order = torch.Generator().manual_seed(seed)

    def error() -> float:
        with torch.no_grad():
            return float(np.sqrt(np.mean((net.eval()(held).double().numpy() - truth) ** 2)))

    found = [error()]
    for _ in range(30):
        net.train()
        for batch in torch.randperm(len(X), generator=order).split(128):
            optimiser.zero_grad()
            nn.functional.mse_loss(net(rows[batch]), target[batch]).backward()
            optimiser.step()
        found.append(error())
    return np.array(found) / found[0]


def has_scaling(net: nn.Module) -> bool:
    return any(isinstance(m, kw.Scaling) for m in net.modules())


def dead(net: nn.Sequential, X: np.ndarray) -> float:
    """Share of the units of a 64 × 64 network that no row reaches."""
    with torch.no_grad():
        first = net[:2](torch.tensor(X).float())
        live = torch.cat([(first > 0).any(dim=0), (net[2:4](first) > 0).any(dim=0)])
    return 1 - live.float().mean().item()


def scales() -> None:
    tame.X_MEAN = tame.X_STD = tame.RESOLVED = np.inf  # the limits are what this is about
    tame.Y_STD = (0.0, np.inf)
    print(
        "| what | size | epochs 1–10's greatest, mean | worst run | epoch 30 | dead units |\n|---|---|---|---|---|---|"
    )
    for what, sizes in SCALES.items():
        place = ("features, std", "features, mean", "response, std", "response, mean").index(what.partition(" at")[0])
        for size in sizes:
            found = []
            for name in SCALED:
                for seed in SEEDS:
                    X, y, other, truth = split(name, seed)
                    x_mean, x_std, y_mean, y_std = X.mean(axis=0), X.std(axis=0), y.mean(), y.std()
                    X, other = ((v - x_mean) / np.where(x_std > 0, x_std, 1) * size[0] + size[1] for v in (X, other))
                    y, truth = ((v - y_mean) / y_std * size[2] + size[3] for v in (y, truth))
                    torch.manual_seed(seed)
                    net = plain(X.shape[1])
                    kw.init_(net, X, y, random_state=seed)
                    course = errors(net, X, y, other, truth, seed)
                    found.append((course[1:11].max(), course[30], dead(net, X)))
            greatest, last, gone = np.array(found).T
            print(
                f"| {what} | {size[place]:g} | {greatest.mean():.2f} | {greatest.max():.2f} | {last.mean():.2f} | "
                f"{gone.mean():.1%} |",
                flush=True,
            )


def architectures() -> None:
    print("| network | by | epochs 1–10's greatest, means of tables | worst run | epoch 30 |\n|---|---|---|---|---|")
    for title, (way, make) in ARCHITECTURES.items():
        means, worst = [], 0.0
        for name in TABLES:
            found = []
            for seed in SEEDS:
                X, y, other, truth = split(name, seed)
                torch.manual_seed(seed)
                module = make(X.shape[1])
                if way == "with_spline":
                    net = kw.with_spline(module, kw.MarsRegressor().fit(X, y[:, 0]))
                else:
                    net = nn.Sequential(kw.Scaling.of(X), module, kw.Scaling.back_to(y))
                    kw.init_(net, X, y, random_state=seed)
                course = errors(net, X, y, other, truth, seed)
                found.append((course[1:11].max(), course[30]))
            means.append(np.mean(found, axis=0))
            worst = max(worst, np.max(found, axis=0)[0])
        low, high = np.min(means, axis=0), np.max(means, axis=0)
        print(
            f"| {title} | `{way}` | {low[0]:.2f} to {high[0]:.2f} | {worst:.2f} | {low[1]:.2f} to {high[1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("scales", "architectures"))
    torch.set_num_threads(1)
    {"scales": scales, "architectures": architectures}[parser.parse_args().what]()
