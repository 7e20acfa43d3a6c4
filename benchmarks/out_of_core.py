"""A Parquet file that is larger than the memory a fit may take: time, rows per second, memory, bytes read.

    python benchmarks/out_of_core.py --rows 20000000 --columns 20 --memory 1024
    python benchmarks/out_of_core.py --rows 5000000 --columns 20 --epochs 2
    python benchmarks/out_of_core.py --rows 2000000 --columns 20 --degree 2

The file is made once, in a folder that stays (--folder), of normal columns; y is a sum of bends of five of them and
noise. The fit runs in a process of its own, whose peak memory is compared with that of the same process before the
fit. Bytes read are those that the process asks the operating system for (rchar of /proc/self/io). With --epochs a
network of 32 hidden units is trained on the rows as they are read; its start is a spline fitted to all of them. With
--degree 2 the spline may have interactions: a reading for each step. The load average is the machine's at the start.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

ROW_GROUP = 1_000_000


def columns_of(rng, rows, columns):
    X = rng.normal(size=(columns, rows))
    y = np.abs(X[0]) + np.maximum(X[1], 0.5) + 0.5 * X[2] - np.minimum(X[3] + X[0] * 0, 1.0) + np.abs(X[4] - 1) * 0.7
    return X, y + rng.normal(size=rows)


def make(path, rows, columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [*(f"x{k}" for k in range(columns)), "y"]
    schema = pa.schema([(name, pa.float64()) for name in names])
    rng = np.random.default_rng(0)
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, rows, ROW_GROUP):
            X, y = columns_of(rng, min(ROW_GROUP, rows - first), columns)
            writer.write_table(pa.table([*X, y], names=names))
    part.rename(path)


def peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise OSError("VmHWM is not known here")


def asked():
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


def read_only(path):
    """Read the file once, as the fit does, and do nothing with it."""
    import knotwork as kw

    start = time.perf_counter()
    for _ in kw.Batches(path).source("y", None).parts(None):
        pass
    return time.perf_counter() - start


def models(threads, epochs, degree):
    """Return what is fitted to a few rows first, so that everything is loaded, and what is measured."""
    import knotwork as kw

    if epochs is None:
        return kw.MarsRegressor(max_degree=degree), kw.MarsRegressor(max_degree=degree, n_jobs=threads, verbose=1)
    options = {"hidden": (32,), "random_state": 0}
    return (kw.SplineNetRegressor(epochs=1, **options),
            kw.SplineNetRegressor(epochs=epochs, n_jobs=threads, verbose=1, **options))  # fmt: skip


def measure(path, memory, columns, threads, epochs, degree):
    import pyarrow.dataset  # noqa: F401  # what the interpreter has loaded does not count

    import knotwork as kw

    rng = np.random.default_rng(1)
    X, y = columns_of(rng, 2000, columns)
    small, model = models(threads, epochs, degree)
    small.fit(kw.Batches([(X.T[:1000], y[:1000]), (X.T[1000:], y[1000:])]))  # compiled kernels are loaded
    before, first, start, cpu = peak(), asked(), time.perf_counter(), time.process_time()
    model.fit(kw.Batches(path, memory_limit=memory * 2**20), "y")
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    X, y = columns_of(np.random.default_rng(2), 100_000, columns)
    r2 = model.score(pd.DataFrame(X.T, columns=list(model.feature_names_in_)), y)
    print(json.dumps({
        "seconds": seconds, "cpu": cpu, "above": peak() - before, "before": before,
        "times_read": (asked() - first) / path.stat().st_size, "test_r2": r2, "rsq": getattr(model, "rsq_", None),
        "terms": len(model.spline_.terms), "read_once": read_only(path),
    }))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--memory", type=int, default=1024, help="memory_limit of the fit, in MiB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "knotwork-out-of-core")
    parser.add_argument("--epochs", type=int, help="train a network for so many")
    parser.add_argument("--degree", type=int, default=1, help="maximum number of features in a term")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.memory, options.columns, options.threads, options.epochs, options.degree)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"{options.rows}x{options.columns}.parquet"
    if not path.exists():
        start = time.perf_counter()
        make(path, options.rows, options.columns)
        print(f"made {path.name}: {path.stat().st_size / 2**30:.2f} GiB in {time.perf_counter() - start:.0f} s")
    command = [sys.executable, __file__, "--measure", str(path), "--memory", str(options.memory)]
    command += ["--columns", str(options.columns), "--threads", str(options.threads), "--degree", str(options.degree)]
    command += [] if options.epochs is None else ["--epochs", str(options.epochs)]
    load = os.getloadavg()[0]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    print(f"{options.rows:,} rows × {options.columns} columns, {path.stat().st_size / 2**30:.2f} GiB of Parquet")
    what = "" if options.epochs is None else f", network of {options.epochs} epochs"
    print(f"fit           {found['seconds']:8.2f} s   {options.rows / found['seconds']:,.0f} rows/s, "
          f"{found['terms']} terms{what}")  # fmt: skip
    print(f"              {found['cpu']:8.2f} s   of processor time, in all threads")
    print(f"read once     {found['read_once']:8.2f} s   the file alone, nothing computed")
    print(f"bytes read    {found['times_read']:8.2f} × the file")
    print(
        f"memory        {found['above']:8.0f} MiB above the interpreter's {found['before']:.0f}, limit {options.memory}"
    )
    seen = "" if found["rsq"] is None else f"{found['rsq']:.4f} of the rows, "
    print(f"R²            {seen}{found['test_r2']:.4f} of 100,000 new ones\n")
    print("| rows × columns | degree | s | rows/s | processor, s | file once, s | times read | MiB "
          "| load average at the start |")  # fmt: skip
    print(f"{'|---' * 9}|")
    print(f"| {options.rows:,} × {options.columns} | {options.degree} | {found['seconds']:.1f} | "
          f"{options.rows / found['seconds']:,.0f} | {found['cpu']:.1f} | {found['read_once']:.1f} | "
          f"{found['times_read']:.2f} | {found['above']:.0f} | {load:.1f} |")  # fmt: skip


if __name__ == "__main__":
    main()
