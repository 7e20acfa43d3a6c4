"""A fit on Dask workers: the speed-up of two, four and eight, and what a partition costs.

    python benchmarks/dask_workers.py --rows 50000000 --workers 8 4 2 --limit 240 --folder benchmarks/results

Each worker makes its rows before the clock starts and keeps them, so that neither a disk nor the making is measured.
Workers are processes of one thread. Runs that would end after --limit seconds, by what the last one took, are left out.
The tables are written to dask_workers.csv and dask_partition.csv of --folder, after each run; benchmarks/machines.py
calculates from them what many machines take.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import logging
import math
import os
import pickle
import sys
import time
from pathlib import Path

import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.distributed import Client, LocalCluster, wait

import knotwork as kw
from knotwork.compute.workers import Workers
from knotwork.data.batches import Rows
from knotwork.data.learn import learn_encoder
from knotwork.data.limits import range_of
from knotwork.data.part_reader import Numbers, Part, PartReader
from knotwork.estimators.sources import SurveyPart, merged
from knotwork.spline.fit import FitOptions, Plan
from knotwork.spline.layout import Known, settle
from knotwork.spline.moments.moments import TermTable
from knotwork.spline.moments.stored import StoredSums
from knotwork.spline.parts import PartResidual, PartSums, added

PART = 500_000


def part(seed, rows=PART, width=20):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(width, rows)).T
    y = np.abs(X[:, 0]) + X[:, 1].clip(min=0.5) + 0.5 * X[:, 2] + rng.normal(size=rows)
    return X, y


def collection(partitions, columns):
    """Return X and y as arrays of Dask; a task makes both."""
    made = [delayed(part, nout=2, pure=True)(seed, PART, columns) for seed in range(partitions)]
    X = [da.from_delayed(rows, shape=(PART, columns), dtype=float) for rows, _ in made]
    y = [da.from_delayed(target, shape=(PART,), dtype=float) for _, target in made]
    return da.concatenate(X), da.concatenate(y)


def measured(workers, partitions, columns):
    """Return the seconds of a fit to rows that the workers hold."""
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "silence_logs": logging.ERROR}
    with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
        kw.MarsRegressor().fit(*collection(workers, columns))  # every worker has loaded its kernels
        X, y = client.persist(collection(partitions, columns))
        wait([X, y])
        start = time.perf_counter()
        kw.MarsRegressor().fit(X, y)
        return time.perf_counter() - start


def costs(columns):
    """Return for each reading the seconds of a partition, the bytes of its message, and the seconds of adding two."""
    X, y = part(0, width=columns)
    rows = Rows(X, y, None, 0)
    matrix = X[:65_536]
    known = Known(Part(matrix, y[:65_536, None], None), float(len(X)), len(X), range_of(X),
                  np.array([[y.min()], [y.max()]]))  # fmt: skip
    options = FitOptions(max_knots=127)
    with Workers(1) as workers:
        layout = settle(known, Plan.of(options, len(X), columns, float(len(X))), options, workers)
    reader = PartReader(learn_encoder(X), Numbers())
    hinges = [((f, float(layout.grid.knots[layout.grid.linear[f] + k]), 1),) for f in range(3) for k in (20, 60, 100)]
    terms = TermTable.of(hinges, np.ones(columns))
    residual = PartResidual(reader, layout, terms, np.zeros(1), np.ones((len(terms), 1)), 1)
    readings = {
        "knots": (SurveyPart(False), merged),
        "sums": (PartSums(reader, layout, 1), StoredSums.plus),
        "coefficients": (residual, added),
    }
    found = []
    for name, (task, plus) in readings.items():
        one, other = (task(Rows(X, y, None, number)) for number in (0, 1))
        found.append([name, best(lambda task=task: (task(rows), rows.digest())), len(pickle.dumps(one)),
                      best(lambda plus=plus, one=one, other=other: plus(one, other))])  # fmt: skip
    return found


def best(task, times=3):
    """Return the shortest processor time of a few runs in one thread: others may share the processor."""
    found = []
    for _ in range(times):
        start = time.process_time()
        task()
        found.append(time.process_time() - start)
    return min(found)


def keep(folder, name, rows):
    """Write a table as benchmarks/figures.py reads it, and print it."""
    origin = [
        f"command: python benchmarks/dask_workers.py {' '.join(sys.argv[1:])}",
        f"status: written on {datetime.date.today()}, {os.cpu_count()} cores, load average at the start {LOAD:.1f}",
    ]
    if folder is not None:
        with (folder / f"{name}.csv").open("w", newline="") as file:
            file.writelines(f"# {line}\n" for line in origin)
            csv.writer(file, lineterminator="\n").writerows(rows)
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    print("\n".join([head, "|---" * len(rows[0]) + "|", *rest]) + "\n", flush=True)


def speeds(found, rows):
    """Return the table of seconds by the number of workers, beside the fewest of them."""
    first, *_ = base = min(found.items())
    table = [["workers", "rows", "s", f"times as fast as {first}", "rows/s"]]
    for n, s in sorted(found.items()):
        table.append([str(n), f"{rows:,}", f"{s:.1f}", f"{base[1] / s:.2f}", f"{rows / s:,.0f}"])
    return table


LOAD = os.getloadavg()[0]


def main():
    begin = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 1])
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds in all")
    parser.add_argument("--folder", type=Path, help="where to write the tables, nowhere unless given")
    options = parser.parse_args()
    partitions = math.ceil(options.rows / PART)
    rows = partitions * PART
    print(f"{rows:,} rows × {options.columns} columns in {partitions} partitions")
    readings = costs(options.columns)  # compiles the kernels, too
    keep(options.folder, "dask_partition", [
        ["reading", "rows", "columns", "s", "message, bytes", "adding, s"],
        *([name, str(PART), str(options.columns), f"{seconds:.4f}", str(size), f"{adding:.4f}"]
          for name, seconds, size, adding in readings),
    ])  # fmt: skip
    found, work, other = {}, partitions * sum(seconds for _, seconds, *_ in readings), 0.0
    for workers in options.workers:
        so_far = time.perf_counter() - begin
        expected = work / workers + other
        if so_far + expected > options.limit:
            print(f"{workers} workers left out: {so_far:.0f} s so far, and about {expected:.0f} s for them", flush=True)
            continue
        found[workers] = measured(workers, partitions, options.columns)
        work = max(work, found[workers] * workers)
        other = max(other, time.perf_counter() - begin - so_far - found[workers])
        keep(options.folder, "dask_workers", speeds(found, rows))
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
