"""How a fit grows with rows, features and threads: time, peak memory, exponents, a picture; R's earth beside it.

    python benchmarks/scale.py --csv scale.csv --picture scale.png            # what this machine holds, 1 and 2 threads
    python benchmarks/scale.py --threads 1 16 --csv scale16.csv               # another machine
    python benchmarks/scale.py --device cuda --csv scale_gpu.csv              # a GPU: float32 columns there
    python benchmarks/scale.py --join scale.csv scale16.csv scale_gpu.csv --picture docs/images/scale.png

Additive fits of 31 terms. Every fit runs in a process of its own, after a small one that loads the kernels: the time is
that of the second fit of two, or of the only one where it takes more than --long seconds; the memory is the peak on top
of the table. Tables that need more than --memory GB, and cases that the last exponent says would take more than
--limit seconds, are left out. earth (fast.k=0) runs as long as its fits are predicted to stay below --earth seconds.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

TERMS = 31
ROWS = (10**4, 10**5, 10**6, 10**7, 10**8)
FEATURES = (10, 100, 1000)
FIELDS = ("engine", "threads", "rows", "features", "seconds", "peak_bytes", "rss")

CHILD = """
import json, sys, time
import numpy as np
import knotwork as kw
n, d, threads, terms = (int(v) for v in sys.argv[1:5])
device, long = sys.argv[5], float(sys.argv[6])
rng = np.random.default_rng(0)

def status(key):
    return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith(key)) * 1024

def model():
    return kw.MarsRegressor(max_terms=terms, threshold=0.0, n_jobs=threads)

if device == 'cuda':
    import torch
    g = torch.Generator('cuda').manual_seed(0)
    X = torch.randn(n, d, device='cuda', generator=g)
    y = 0.5 * torch.randn(n, device='cuda', generator=g)
    for f in range(min(d, 10)):
        y += torch.sin((1 + f % 4) * X[:, f]) / (1 + f / 4)
    small = X[:2000], y[:2000]
else:
    X = rng.standard_normal((n, d), dtype=np.float32 if 8 * n * d > 4e9 else np.float64)
    y = 0.5 * rng.standard_normal(n)
    for f in range(min(d, 10)):
        y += np.sin((1 + f % 4) * X[:, f]) / (1 + f / 4)
    small = X[:2000], y[:2000]
model().fit(*small)
if device == 'cuda':
    torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats(); before = torch.cuda.memory_allocated()
else:
    open('/proc/self/clear_refs', 'w').write('5'); before = status('VmRSS')
times = []
while len(times) < 2:
    start = time.perf_counter(); fitted = model().fit(X, y); times.append(time.perf_counter() - start)
    if times[0] > long:
        break
peak = (torch.cuda.max_memory_allocated() if device == 'cuda' else status('VmHWM')) - before
print(json.dumps({'seconds': times[-1], 'peak_bytes': peak, 'rss': fitted.rss_}))
"""


def run_ours(n: int, d: int, threads: int, device: str, long: float) -> dict[str, float] | None:
    command = [sys.executable, "-c", CHILD, str(n), str(d), str(threads), str(TERMS), device, str(long)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"  {device} {threads} {n} x {d}: {done.stderr.strip().splitlines()[-1][:150]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_earth(n: int, d: int) -> dict[str, float]:
    from fit_vs_earth import additive
    from fit_vs_earth import run_earth as earth

    X, y = additive(n, d)
    found = earth(X, y, str(TERMS), 0.0, 1)
    return {"seconds": float(found["seconds"][0]), "peak_bytes": float("nan"), "rss": float(found["rss"])}


def measure(args: argparse.Namespace) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
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
                if engine == "earth":
                    result = run_earth(n, d)
                else:
                    result = run_ours(n, d, max(threads, 1), args.device, args.long)
                if result is None:
                    break
                last = n, result["seconds"]
                found.append({"engine": engine, "threads": threads, "rows": n, "features": d, **result})
                print(
                    f"{engine:>8} {threads:>2} threads {n:>10} x {d:<5} {result['seconds']:9.3f} s  peak "
                    f"{result['peak_bytes'] / (8.0 * n * d):6.2f} tables",
                    flush=True,
                )
    return found


def exponents(found: list[dict[str, object]]) -> None:
    """Print the slope of log time on log rows, over the last three sizes of each series."""
    for key in dict.fromkeys((r["engine"], r["threads"], r["features"]) for r in found):
        own = [r for r in found if (r["engine"], r["threads"], r["features"]) == key][-3:]
        if len(own) > 1:
            rows, seconds = (np.log([float(str(r[name])) for r in own]) for name in ("rows", "seconds"))
            slope = np.polyfit(rows, seconds, 1)[0]
            print(
                f"{key[0]}, {key[1]} threads, {key[2]} features: time ~ rows^{slope:.2f} from {own[0]['rows']} rows on"
            )


def draw(found: list[dict[str, object]], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    features = sorted({int(str(r["features"])) for r in found})
    figure, axes = plt.subplots(1, len(features), figsize=(3.6 * len(features), 3.4), squeeze=False, sharey=True)
    for ax, d in zip(axes[0], features, strict=True):
        for key in dict.fromkeys((r["engine"], r["threads"]) for r in found):
            own = [r for r in found if (r["engine"], r["threads"], int(str(r["features"]))) == (*key, d)]
            if own:
                label = str(key[0]) if key[0] != "knotwork" else f"knotwork, {key[1]} threads"
                ax.loglog(
                    [float(str(r["rows"])) for r in own], [float(str(r["seconds"])) for r in own], "o-", label=label
                )
        ax.set_title(f"{d} features", fontsize=10)
        ax.set_xlabel("rows")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("seconds, 31 terms")
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
    parser.add_argument("--join", type=Path, nargs="*", help="draw these files in place of measuring")
    parser.add_argument("--picture")
    args = parser.parse_args()
    if args.join:
        found: list[dict[str, object]] = [dict(row) for path in args.join for row in csv.DictReader(path.open())]
    else:
        found = measure(args)
    exponents(found)
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(found)
    if args.picture:
        draw(found, args.picture)


if __name__ == "__main__":
    main()
