"""Two ranks for test_ddp.py: all cases in one pair of processes, for starting one takes longer than the cases do.

``python two_ranks.py FOLDER`` writes what the cases give on each rank to FOLDER/RANK.pt, and what rank 0 says when
rank 1 is killed in the last one to FOLDER/last.pt. The example of docs/networks.md comes first.
"""

import multiprocessing
import os
import pickle
import re
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import distributed, nn

import knotwork as kw
from knotwork.data import survey
from knotwork.network.train import checkpoint as checkpoints
from knotwork.network.train.checkpoint import Checkpoint
from knotwork.network.train.ranks import Ranks
from knotwork.network.train.reading import _held
from knotwork.network.train.rows import Part

RANKS = 2
TIMEOUT = timedelta(seconds=60)
CUT, LAST = 80, 240  # rank 0 has rows up to CUT, rank 1 from there to LAST; the rest validates
DATA = np.random.default_rng(0)
X = DATA.normal(size=(300, 3)) * [1.0, 50.0, 1e-3] + [0.0, 1e3, 0.0]
X[:CUT, 0] *= 10  # the ranks' rows look different
Y = 100 * np.abs(X[:, 0]) + X[:, 1] + DATA.normal(size=300)
WEIGHT = DATA.uniform(0.1, 5.0, size=300)
CLASSES = np.array(["a", "b", "c"])[np.clip(np.round(X[:, 0]), -1, 1).astype(int) + 1]
CLASSES[:CUT][CLASSES[:CUT] == "c"] = "a"  # rank 0 lacks a class
WEIGHT[:CUT] /= 100  # largest weights differ
WEIGHT[250:] *= 30
COUNTS = np.round(np.abs(3 * X[:, 0])).astype(int)
COUNTS[:CUT] = np.minimum(COUNTS[:CUT], 1)  # and would take these for classes
FULL = {"batch_size": 1000, "epochs": 5, "random_state": 0}
# What SplineNet estimators learn from: text and gaps, too.
TABLE = pd.DataFrame(X, columns=["a", "b", "c"]).assign(t=np.where(X[:, 1] > 1010, "high", "low"))
TABLE.loc[5:20, "b"] = np.nan


class Crash(Exception):
    """Stands for anything that ends a training."""


def plain(seed=0, outputs=1):
    torch.manual_seed(seed)
    layers = [nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, outputs)]
    return nn.Sequential(*layers).double()


def batch_norm(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1)]
    return nn.Sequential(*layers)


class Branches(nn.Module):
    """A module of one's own, with parameters that nothing uses."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = plain(), nn.Linear(2, 2).double()

    def forward(self, x):
        return self.used(x / torch.tensor([1.0, 1e3, 1e-3], dtype=x.dtype))


def shard(rank, *tables, cut=CUT, last=LAST):
    rows = slice(0, cut) if rank == 0 else slice(cut, last)
    return tuple(t[rows] for t in tables)


def halves(rank, *tables):
    """The rows that validate, uneven."""
    rows = slice(LAST, 250) if rank == 0 else slice(250, 300)
    return tuple(t[rows] for t in tables)


def loader(rows, target, size):
    table = torch.utils.data.TensorDataset(torch.from_numpy(rows), torch.from_numpy(target))
    return torch.utils.data.DataLoader(table, batch_size=size, shuffle=True)


# Cases that one process with all rows must agree with: options, tables besides X, and the network.
EQUAL = {
    "squared error": (FULL, (Y,), plain),
    "weights": (FULL | {"l1": 1e-3}, (Y, WEIGHT), plain),
    "classes": (FULL, (CLASSES,), lambda: plain(outputs=3)),
    "setbacks": (FULL | {"learning_rate": 3.0, "warmup": 0.0, "setback": 0.0, "average": 0.0}, (Y,), plain),
    "whole numbers": (FULL, (COUNTS,), plain),
    "own loss": (FULL | {"loss": nn.MSELoss()}, (Y,), plain),
    "module": (FULL, (Y,), Branches),
    "poisson": (FULL | {"loss": "poisson"}, (np.abs(Y),), plain),
}


# Estimators that one process with the rows of both must agree with: full batches, and rates at which they learn.
NET = {"hidden": (16,), "batch_size": 1000, "epochs": 12, "learning_rate": 0.05, "random_state": 0}
ESTIMATORS = {
    "SplineNetRegressor": (kw.SplineNetRegressor(**NET), (Y,)),
    "with weights": (kw.SplineNetRegressor(**NET, start="random", extrapolate="linear"), (Y, WEIGHT)),
    "several responses": (kw.SplineNetRegressor(**NET), (np.stack([Y, 1 - X[:, 1]], axis=1),)),
    "SplineNetClassifier": (kw.SplineNetClassifier(**NET, class_weight="balanced"), (CLASSES,)),
}
FITTED = ("encoder_", "limits_", "spline_", "coordinates_", "oof_prediction_", "classes_")


def fitted_to(model, tables):
    """Fit an estimator to this rank's rows of TABLE, y and weights; what it has learned."""
    model = pickle.loads(pickle.dumps(model)).fit(*tables)
    found = {name: pickle.dumps(getattr(model, name)) for name in FITTED if hasattr(model, name)}
    return {"weights": model.network_.state_dict(), "history": vars(model.history_), "fitted": found}


def trained_on(net, options, tables, judges):
    """Train on X and the tables' rows (y, or y and weights)."""
    rows, y, *weight = tables
    history = kw.train(net, rows, y, sample_weight=weight[0] if weight else None, validation=judges, **options)
    return result(net, history)


def result(net, history):
    return {"weights": net.state_dict(), "history": vars(history)}


def failure(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def crash_after(epoch):
    def callback(now):
        if now.epoch == epoch:
            raise Crash

    return callback


def cases(rank, folder):
    """Yield the name of each case and what it gives."""
    for name, (options, tables, make) in EQUAL.items():
        yield name, trained_on(make(), options, shard(rank, X, *tables), halves(rank, X, *tables))

    small = {"batch_size": 16, "epochs": 4, "random_state": 0}
    mine = shard(rank, X, Y)
    yield "unequal", trained_on(batch_norm(seed=rank), small | {"dropout": 0.2}, mine, halves(rank, X, Y))
    net = plain()
    yield "share", result(net, kw.train(net, *mine, **small | {"validation": 0.2}))
    net = plain()
    history = kw.train(net, loader(*mine, 16), validation=halves(rank, X, Y), epochs=3, random_state=0)
    yield "loader", result(net, history)
    terms = kw.Hinge(0, 0.5 + rank, 1), kw.Hinge(0, 0.7, -1), kw.Linear(1)
    net = kw.to_network(kw.Spline(terms, [1.0], [[1.0], [2.0 + rank], [0.5]], ("a", "b", "c")))
    yield "other scaling", result(net, kw.train(net, *mine, **small))
    few = (X[:1], Y[:1]) if rank else (X[1:200], Y[1:200])
    yield "one row", failure(lambda: kw.train(plain(), *few, **small))
    few = (X[:2], Y[:2]) if rank else (X[2:200], Y[2:200])
    net = plain()
    yield "two rows", result(net, kw.train(net, *few, **small | {"validation": halves(rank, X, Y)}))
    net = plain()
    stops = [lambda now: now.epoch == 2] if rank == 1 else []
    yield "stopped by rank 1", result(net, kw.train(net, *mine, **small | {"callbacks": stops, "random_state": None}))

    ranks = Ranks(torch.device("cpu"))
    yield "held", torch.from_numpy(_held(X[20:] if rank else X[:80], 0.25, 7, ranks)[0])
    yield "spread", torch.from_numpy(ranks.spread_rows(mine[0], 33))
    yield "held, one of equal rows", torch.from_numpy(_held(np.ones((3, 2)) if rank else X, 0.25, 7, ranks)[0])

    bad = np.where(np.arange(len(mine[0]))[:, None] == 3, np.nan, mine[0]) if rank == 1 else mine[0]
    net = plain(seed=rank)
    before = [p.detach().clone() for p in net.parameters()]
    yield "bad rows", failure(lambda: kw.train(net, bad, mine[1], **small))
    yield "as it was", all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
    yield "other options", failure(lambda: kw.train(plain(), *mine, epochs=3 + rank))
    yield "other layers", failure(lambda: kw.train(nn.Linear(3, 1) if rank else plain(), *mine))
    yield "in DDP", failure(lambda: kw.train(nn.parallel.DistributedDataParallel(plain()), *mine))
    checkpoints.MAX_SHARE = 1e9  # write after every epoch
    yield from estimators(rank, folder)

    path = folder / f"checkpoint{rank}"
    settings = small | {"validation": halves(rank, X, Y), "dropout": 0.2}
    net = batch_norm()
    yield "whole", result(net, kw.train(net, *mine, **settings))
    net = batch_norm()
    crash = [crash_after(2)] if rank == 1 else []
    yield "crash", failure(lambda: kw.train(net, *mine, checkpoint=path, callbacks=crash, **settings))
    yield "file", path.exists()
    judges, truth = halves(rank, X, Y)
    changed = settings | {"validation": (judges, (1 + rank) * truth)}  # on rank 1 only, and no training rows
    yield "other data", failure(lambda: kw.train(batch_norm(), *mine, checkpoint=path, **changed))
    yield "resumed", result(net, kw.train(net, *mine, checkpoint=path, **settings))
    yield "file afterwards", path.exists()
    kw.train(plain(), *mine, **small | {"epochs": 1, "verbose": 1})


def estimators(rank, folder):
    """Yield what SplineNet estimators do."""
    for name, (model, tables) in ESTIMATORS.items():
        yield name, fitted_to(model, shard(rank, TABLE, *tables))
    mine = shard(rank, TABLE, Y)
    fit = kw.SplineNetRegressor
    few = (TABLE[:1], Y[:1]) if rank else (TABLE[1:200], Y[1:200])
    yield "estimator, one row", failure(lambda: fit(epochs=1).fit(*few))
    yield "estimator, options", failure(lambda: fit(epochs=1 + rank, verbose=rank).fit(*mine))
    yield "estimator, members", failure(lambda: fit(n_members=3).fit(*mine))
    yield "estimator, parts", failure(lambda: fit().fit(*((kw.Batches([mine]),) if rank else mine)))
    yield "estimator, bad rows", failure(lambda: fit().fit(mine[0], mine[1] * (np.nan if rank else 1)))
    negative = kw.SplineNetRegressor(loss="poisson", start="random", epochs=1)
    yield "estimator, responses", failure(lambda: negative.fit(mine[0], np.abs(mine[1]) * (-1) ** rank))
    survey.SAMPLE, before = 100, survey.SAMPLE
    stepped = []
    plain_step = Part.shared

    def watched(self, *how):
        stepped.append(len(self))
        return plain_step(self, *how)

    Part.shared = watched
    try:
        small = kw.SplineNetRegressor(**NET).fit(*mine)
    finally:
        survey.SAMPLE, Part.shared = before, plain_step
    held = int(np.isfinite(small.oof_prediction_).sum())
    yield "beyond the sample", (set(stepped), held, small.network_.state_dict())
    path = folder / f"estimator{rank}"
    settings = {"checkpoint": path, "epochs": 4, "hidden": (8,), "dropout": 0.2}
    whole = kw.SplineNetRegressor(**settings, random_state=3).fit(*mine)
    yield "estimator, whole", list(whole.network_.state_dict().items())
    write = Checkpoint.write

    def crash(self, identity, saved):
        write(self, identity, saved)
        if saved.document["step"]:
            raise Crash

    Checkpoint.write = crash
    yield "estimator, crash", failure(lambda: kw.SplineNetRegressor(**settings, random_state=3).fit(*mine))
    Checkpoint.write = write
    yield "estimator, file left", path.exists()
    resumed = kw.SplineNetRegressor(**settings).fit(*mine)  # the seed is the file's
    yield "estimator, resumed", list(resumed.network_.state_dict().items())
    yield "estimator, file afterwards", path.exists()


def last_case(rank, folder):
    """Rank 1 is killed in the middle of an epoch."""
    calls = []

    def kill(*_):
        calls.append(None)
        if rank == 1 and len(calls) == 50:
            os.kill(os.getpid(), signal.SIGKILL)

    net = plain()
    net[0].register_forward_pre_hook(kill)
    before = net[0].weight.detach().clone()
    options = {"batch_size": 16, "epochs": 50, "checkpoint": folder / "killed"}
    said = failure(lambda: kw.train(net, *shard(rank, X, Y), **options))
    return {"said": said, "as it was": torch.equal(before, net[0].weight), "file": (folder / "killed").exists()}


def documented(rank, port):
    """Run the example of docs/networks.md as torchrun does."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    page = (Path(__file__).parents[3] / "docs/networks.md").read_text()
    (example,) = re.findall(r'```python title="train.py"\n(.*?)```', page, flags=re.DOTALL)
    assert len(example.splitlines()) <= 20
    exec(compile(example, "train.py", "exec"), {})


def run(rank, folder, port):
    os.chdir(folder)
    documented(rank, port)
    # The time-out is for hangs only: connections that are reset end the wait at once.
    store = distributed.FileStore(str(folder / "store"), RANKS)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=TIMEOUT)
    torch.save(dict(cases(rank, folder)), folder / f"{rank}.pt")
    sys.stdout.flush()  # rank 1 will have no time to
    distributed.barrier()
    torch.save(last_case(rank, folder), folder / "last.pt")


def main(folder):
    torch.set_num_threads(1)
    kw.train(plain(), X, Y, epochs=0)  # loads everything once, for both
    kw.SplineNetRegressor()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=run, args=(rank, folder, port)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print([process.exitcode for process in processes])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
