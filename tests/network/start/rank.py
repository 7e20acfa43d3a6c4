"""One of two ranks, as ``torchrun`` would start it: python rank.py RANK FOLDER. Not a test itself."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from torch import nn

import knotwork as kw
from knotwork.errors import NetworkError

N = 1201
OUTPUTS = {"regression": 1, "several responses": 2, "classes": 3, "two classes": 1, "weights": 1, "text": 1, "gaps": 1}


def data(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    z = np.abs(X[:, 0]) + X[:, 1].clip(0) + 0.3 * rng.normal(size=N)
    if name in ("text", "gaps"):
        X = pd.DataFrame(X, columns=["a", "b", "c"])
        X["t"] = rng.choice(["x", "y"], N)
        z = z + (X.t == "x").to_numpy()
    if name == "gaps":
        X.loc[rng.random(N) < 0.1, "c"] = np.nan
    y = {
        "several responses": np.stack([z, 1.0 - np.asarray(X)[:, 2]], axis=1),
        "classes": np.array(["low", "middle", "top"])[np.digitize(z, [0.8, 1.6])],
        "two classes": (z > 1).astype(int),
    }.get(name, z)
    return X, y, rng.uniform(0.5, 1.5, N) if name == "weights" else None


def module(name):
    torch.manual_seed(0)
    features = {"text": 5, "gaps": 6}.get(name, 3)
    return nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, OUTPUTS[name])).double()


def shard(values, rank):
    own = slice(0, 400) if rank == 0 else slice(400, None)
    return None if values is None else values.iloc[own] if hasattr(values, "iloc") else values[own]


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for name in OUTPUTS:
        X, y, weight = (shard(values, rank) for values in data(name))
        net = module(name)
        report = kw.init_(net, X, y, sample_weight=weight)  # the seed is the first rank's choice
        torch.save((net.state_dict(), report.spline), folder / f"{name}-{rank}")
    X, y, _ = (shard(values, rank) for values in data("regression"))
    messages = []
    for bad in ({"X": np.where(X > 2, np.nan, X)}, {"y": y[:5]}, {"sample_weight": y} if rank else {}):
        before = module("regression")
        try:
            kw.init_(before, **{"X": X, "y": y, **(bad if rank else {})})
        except NetworkError as error:
            messages.append(str(error))
    (folder / f"messages-{rank}").write_text("\n".join(messages))
    if rank:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        kw.init_(module("regression"), X, y)
    except NetworkError as error:
        (folder / "alone").write_text(str(error))
    dist.destroy_process_group()  # without it gloo's threads may abort a process that ends


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
