"""A fit on Dask workers: the speed-up of two, four and eight, and 100 machines calculated from what one costs.

    python benchmarks/dask_workers.py --rows 50000000 --workers 2 4 8

Each partition makes its own rows, so that no disk is measured; the time of making them is measured apart and taken off.
Workers are processes of one thread. The simulation takes from the largest run the time of a partition's tasks and the
bytes of a message, and from --network the speed of a link: 100 machines work on ceil(partitions/100) partitions each,
then add in a tree of ceil(log2) steps, each of which sends one message and adds it.
"""

from __future__ import annotations

import argparse
import logging
import math
import pickle
import time

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster

import knotwork as kw
from knotwork.compute.workers import Workers
from knotwork.data.batches import Rows
from knotwork.data.learn import learn_encoder
from knotwork.data.limits import range_of
from knotwork.data.part_reader import Numbers, Part, PartReader
from knotwork.estimators.sources import SurveyPart
from knotwork.spline.fit import FitOptions, Plan
from knotwork.spline.parts import Known, PartSums, settle

PART = 500_000


def part(seed, rows=PART, width=20):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(width, rows)).T, columns=[f"x{k}" for k in range(width)])
    table["y"] = table.x0.abs() + table.x1.clip(lower=0.5) + 0.5 * table.x2 + rng.normal(size=rows)
    return table


def collection(partitions, columns):
    return dd.from_map(part, range(partitions), width=columns, meta=part(0, 2, columns))


def measured(workers, partitions, columns):
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "silence_logs": logging.ERROR}
    with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster):
        frames = collection(partitions, columns)
        names = [f"x{k}" for k in range(columns)]
        small = collection(workers, columns)
        kw.MarsRegressor().fit(small[names], small["y"])  # every worker has loaded its kernels
        start = time.perf_counter()
        frames.map_partitions(len, meta=("rows", int)).compute()
        making = time.perf_counter() - start
        start = time.perf_counter()
        model = kw.MarsRegressor().fit(frames[names], frames["y"])
        return time.perf_counter() - start, making, model


def costs(columns):
    """Return seconds of a partition in each of the two large readings, and the bytes and the addition of a message."""
    table = part(0, width=columns)
    X, y = table.drop(columns="y"), table["y"].to_numpy()
    rows = Rows(X, y, None, 0)
    first = best(lambda: SurveyPart(False)(rows))
    matrix = X.to_numpy()[:65_536]
    known = Known(Part(matrix, y[:65_536, None], None), float(len(X)), len(X), range_of(X.to_numpy()),
                  np.array([[y.min()], [y.max()]]))  # fmt: skip
    options = FitOptions(max_knots=127)
    with Workers(1) as workers:
        layout = settle(known, Plan.of(options, len(X), columns, float(len(X))), options, workers)
    task = PartSums(PartReader(learn_encoder(X), Numbers()), layout, 1)
    sums = task(rows)
    return first, best(lambda: task(rows)), len(pickle.dumps(sums)), best(lambda: sums.plus(sums))


def best(task, times=3):
    """Return the shortest time of a few: the others had to share the processor."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        task()
        found.append(time.perf_counter() - start)
    return min(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--network", type=float, default=10.0, help="Gbit/s of a link, for the simulation")
    parser.add_argument("--terabytes", type=float, default=1.0, help="size of the simulated table, 8 bytes a number")
    options = parser.parse_args()
    partitions = math.ceil(options.rows / PART)
    print(f"{partitions * PART:,} rows × {options.columns} columns in {partitions} partitions")
    print("| workers | fit, s | making the rows three times, s | fit alone, s | speed-up |")
    print("|---|---|---|---|---|")
    base = None
    for workers in options.workers:
        seconds, making, _ = measured(workers, partitions, options.columns)
        alone = seconds - 3 * making
        base = base or alone * workers
        print(f"| {workers} | {seconds:.1f} | {3 * making:.1f} | {alone:.1f} | {base / alone:.2f} |", flush=True)
    first, second, size, adding = costs(options.columns)
    print(f"\na partition of {PART:,} rows: {first:.2f} s for knots, {second:.2f} s for sums; a message of "
          f"{size / 2**20:.0f} MiB is added in {adding * 1e3:.0f} ms")  # fmt: skip
    rows = options.terabytes * 1e12 / (8 * options.columns)
    each = math.ceil(rows / PART / 100)
    sending = size * 8 / (options.network * 1e9) + adding
    work = each * (first + second)
    tree = math.ceil(math.log2(100)) * sending
    print(f"calculated, not measured: {options.terabytes:g} TB on 100 machines of one core: {each} partitions each, "
          f"{work:.0f} s of work, {tree:.1f} s of adding at {options.network:g} Gbit/s, without reading")  # fmt: skip


if __name__ == "__main__":
    main()
