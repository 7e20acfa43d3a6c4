"""How a fit grows with rows, features and threads: time, peak memory, exponents, a picture; R's earth beside it.

    python benchmarks/scale.py --earth 60 --csv scale.csv                     # what this machine holds, 1 and 2 threads
    python benchmarks/scale.py --threads 16 2 1 --csv scale16.csv             # another machine
    python benchmarks/scale.py --device cuda --csv scale_gpu.csv              # a GPU: float32 columns there
    python benchmarks/scale.py --join scale.csv scale16.csv scale_gpu.csv --markdown --picture docs/images/scale.png

Additive fits of 31 terms. The time is that of the second fit of two, or of the only one where it takes more than --long
seconds; the memory is the peak on top of the table. Tables that need more than --memory GB, and cases that would take
more than --limit seconds if time grew like the rows, are left out. earth (fast.k=0) runs as long as its fits are
predicted to stay below --earth seconds. The csv has every result as soon as it is there.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import knotwork as kw
from knotwork.errors import DataError

TERMS = 31
ROWS = (10**4, 10**5, 10**6, 10**7, 10**8)
FEATURES = (10, 100, 1000)
FIELDS = ("engine", "threads", "rows", "features", "seconds", "peak_bytes", "rss")
# Rows that are drawn at a time, each lot with a seed of its own.
LOT = 100_000
# Tables above this size are float32 in memory too.
LARGE = 4e9

Result = dict[str, Any]


def host_data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw normal features, a sum of sines of the first ten, and noise of std 0.5."""
    X = np.empty((n, d), np.float32 if 8.0 * n * d > LARGE else np.float64)
    y = np.empty(n)

    def draw_lot(start: int) -> None:
        rng, own = np.random.default_rng(start), slice(start, min(start + LOT, n))
        rng.standard_normal(dtype=X.dtype, out=X[own])
        y[own] = 0.5 * rng.standard_normal(len(y[own]))
        for f in range(min(d, 10)):
            y[own] += np.sin((1 + f % 4) * X[own, f]) / (1 + f / 4)

    with ThreadPoolExecutor() as pool:
        list(pool.map(draw_lot, range(0, n, LOT)))
    return X, y


def device_data(n: int, d: int) -> tuple[Any, Any]:
    """Draw the same on the GPU, as float32."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    X = torch.randn(n, d, device="cuda", generator=generator)
    y = 0.5 * torch.randn(n, device="cuda", generator=generator)
    for f in range(min(d, 10)):
        y += torch.sin((1 + f % 4) * X[:, f]) / (1 + f / 4)
    return X, y


def status(key: str) -> int:
    """Return an entry of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def host_meter() -> Callable[[], int]:
    """Begin to measure the peak memory of this process; return what says how far it rose."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier cases left
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    return lambda: status("VmHWM") - before


def device_meter() -> Callable[[], int]:
    """Do the same for the memory of the GPU."""
    import torch

    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    return lambda: torch.cuda.max_memory_allocated() - before


def run_ours(n: int, d: int, threads: int, device: str, long: float) -> Result:
    """Time a fit, after a small one that loads the kernels."""
    data, meter = (device_data, device_meter) if device == "cuda" else (host_data, host_meter)
    kw.MarsRegressor(max_terms=TERMS, threshold=0.0, n_jobs=threads).fit(*data(2000, d))
    X, y = data(n, d)
    risen, times = meter(), []
    while len(times) < 2 and (not times or times[0] <= long):
        start = time.perf_counter()
        model = kw.MarsRegressor(max_terms=TERMS, threshold=0.0, n_jobs=threads).fit(X, y)
        times.append(time.perf_counter() - start)
    return {"seconds": times[-1], "peak_bytes": risen(), "rss": model.rss_}


def run_earth(n: int, d: int) -> Result:
    from fit_vs_earth import run_earth as earth

    found = earth(*host_data(n, d), str(TERMS), 0.0, 1)
    return {"seconds": float(found["seconds"][0]), "peak_bytes": float("nan"), "rss": float(found["rss"])}


def store(found: list[Result], path: Path | None) -> None:
    if path is not None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(found)


def measure(args: argparse.Namespace) -> list[Result]:
    found: list[Result] = []
    series = [("knotwork", t) for t in args.threads] if args.device == "cpu" else [("cuda", 0)]
    for engine, threads in [*series, *([("earth", 1)] if args.earth else [])]:
        for d in args.features:
            last: tuple[int, float] | None = None
            for n in args.rows:
                if 8.0 * n * d > args.memory * 1e9 / 2.5:
                    break
                # Time grows at most in proportion to the rows.
                limit = args.earth if engine == "earth" else args.limit
                if last is not None and last[1] * n / last[0] > limit:
                    break
                try:
                    result = (
                        run_earth(n, d)
                        if engine == "earth"
                        else run_ours(n, d, max(threads, 1), args.device, args.long)
                    )
                except (DataError, MemoryError, RuntimeError) as error:
                    print(f"{engine:>8} {threads:>2} threads {n:>10} x {d:<5} {error}"[:200], flush=True)
                    break
                last = n, result["seconds"]
                found.append({"engine": engine, "threads": threads, "rows": n, "features": d, **result})
                store(found, args.csv)
                print(
                    f"{engine:>8} {threads:>2} threads {n:>10} x {d:<5} {result['seconds']:9.3f} s  peak "
                    f"{result['peak_bytes'] / (8.0 * n * d):6.2f} tables",
                    flush=True,
                )
    return found


def series_of(found: list[Result]) -> list[tuple[str, int]]:
    """Return the (engine, threads) of some results, in the order in which they are shown."""
    order = {"earth": 0, "knotwork": 1, "cuda": 2}
    return sorted({(r["engine"], int(r["threads"])) for r in found}, key=lambda key: (order[key[0]], key[1]))


def name_of(engine: str, threads: int) -> str:
    if engine != "knotwork":
        return {"cuda": "GPU", "earth": "earth"}[engine]
    return f"{threads} thread{'s' if threads > 1 else ''}"


def power(number: int) -> str:
    return f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[round(np.log10(number))]}"


def markdown(found: list[Result]) -> str:
    """Lay results out: seconds, peak memory over the table as float64, and exponents of the last three sizes."""
    series = series_of(found)
    memory = [key for key in series if key[0] != "earth"]
    lines = [["rows × features", *(name_of(*key) for key in series), "peak memory / table, " + ", ".join(
        name_of(*key) for key in memory)]]  # fmt: skip
    at = {(r["engine"], int(r["threads"]), int(r["rows"]), int(r["features"])): r for r in found}
    for d in sorted({key[3] for key in at}):
        for n in sorted({key[2] for key in at if key[3] == d}):
            own = {key: at.get((*key, n, d)) for key in series}
            seconds = [f"{float(r['seconds']):.3g} s" if r else "" for r in own.values()]
            peaks = [f"{float(own[key]['peak_bytes']) / (8.0 * n * d):.2g}" if own[key] else "–" for key in memory]
            lines.append([f"{power(n)} × {d}", *seconds, ", ".join(peaks)])
        slopes = [slope(found, *key, d) for key in series]
        lines.append([f"exponent of the rows, {d} features", *(f"{s:.2f}" if s else "" for s in slopes), ""])
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def slope(found: list[Result], engine: str, threads: int, features: int) -> float | None:
    """Slope of log time on log rows, over the last three sizes of a series."""
    own = [r for r in found if (r["engine"], int(r["threads"]), int(r["features"])) == (engine, threads, features)][-3:]
    if len(own) < 2:
        return None
    return float(np.polyfit(*(np.log([float(r[name]) for r in own]) for name in ("rows", "seconds")), 1)[0])


def read(path: Path) -> list[Result]:
    """Return stored results; lines that begin with # say where they come from."""
    return [dict(row) for row in csv.DictReader(line for line in path.open() if not line.startswith("#"))]


def draw(found: list[Result], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    features = sorted({int(r["features"]) for r in found})
    figure, axes = plt.subplots(1, len(features), figsize=(3.6 * len(features), 3.4), squeeze=False, sharey=True)
    for ax, d in zip(axes[0], features, strict=True):
        for key in series_of(found):
            own = [r for r in found if (r["engine"], int(r["threads"]), int(r["features"])) == (*key, d)]
            rows, seconds = ([float(r[name]) for r in own] for name in ("rows", "seconds"))
            ax.loglog(rows, seconds, "o-", label=name_of(*key))
        ax.set_title(f"{d} features", fontsize=10)
        ax.set_xlabel("rows")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel(f"seconds, {TERMS} terms")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), nargs="*", default=list(ROWS))
    parser.add_argument("--features", type=int, nargs="*", default=list(FEATURES))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    parser.add_argument("--memory", type=float, default=0.7 * pages, help="GB that a case may take")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a fit may be predicted to take")
    parser.add_argument("--long", type=float, default=10.0, help="seconds from which on a fit is timed once")
    parser.add_argument("--earth", type=float, default=0.0, help="seconds that a fit of earth may take; 0: no earth")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--join", type=Path, nargs="*", help="show these files in place of measuring")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs")
    parser.add_argument("--picture")
    args = parser.parse_args()
    found = [row for path in args.join for row in read(path)] if args.join else measure(args)
    if args.markdown:
        print(markdown(found))
    else:
        for engine, threads in series_of(found):
            for d in sorted({int(r["features"]) for r in found}):
                if exponent := slope(found, engine, threads, d):
                    print(f"{name_of(engine, threads)}, {d} features: time ~ rows^{exponent:.2f}")
    if args.picture:
        draw(found, args.picture)


if __name__ == "__main__":
    main()
