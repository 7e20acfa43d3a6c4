"""Work under a limit on the address space: it succeeds, or says in one sentence that memory is short.

Each case is a process of its own with ``RLIMIT_AS``: what it has loaded, and some megabytes more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.torture.limits import Clock
from tests.torture.outcome import Outcome

NAME = "memory_limits"
DEFAULT_COUNT = 50
SHORT_COUNT = 1
SECONDS = 300
MEGABYTES = (8, 32, 64, 128, 256, 512)

# What a process does before the limit, and then under it. Estimators must be as they were if the work fails.
SETUP = """
import os, resource, sys
import numpy as np
import knotwork as kw
import torch
torch.set_num_threads(1)
from knotwork.errors import KnotworkError
rng = np.random.default_rng(int(sys.argv[2]))
small = rng.normal(size=(200, 3))
models = {
    "mars": kw.MarsRegressor(n_jobs=1), "classes": kw.MarsClassifier(n_jobs=1),
    "pairs": kw.MarsRegressor(max_degree=2, n_jobs=1), "hinges": kw.HingingHyperplanesRegressor(n_hinges=2, n_init=1),
    "net": kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=1, n_jobs=1),
}
models = {name: model for name, model in models.items() if name in (sys.argv[6], "mars")}
for name, model in models.items():
    model.fit(small, small[:, 0] > 0 if name == "classes" else small[:, 0])
expected = {name: model.predict(small) for name, model in models.items()}
states = {name: dict(model.__dict__) for name, model in models.items()}
rows, columns = int(sys.argv[3]), int(sys.argv[4])
X = rng.normal(size=(rows, columns))
y = X[:, 0] + np.abs(X[:, -1])
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
limit = used + (int(sys.argv[5]) << 20)
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
"""
WORK = {
    "fit": "models[sys.argv[6]].fit(X, y > 0 if sys.argv[6] == 'classes' else y)",
    "predict": "models[sys.argv[6]].predict(np.tile(X[:, :1], 3))",
    "network": "kw.reshape(kw.to_network(models['mars']), (4000, 4000))",
    "explain": "str(kw.explain(models['mars'], np.tile(X[:, :1], 3)))",
    "save": "kw.save(models[sys.argv[6]], os.path.join(sys.argv[1], 'saved'), overwrite=True)",
}
REST = """
short = False
try:
    {work}
except MemoryError:
    short = True
except KnotworkError as error:
    short = "memory" in str(error)
    if not short:
        raise
except RuntimeError as error:
    if "memory" not in str(error) and "start new thread" not in str(error):
        raise
    short = True
resource.setrlimit(resource.RLIMIT_AS, before)
"""
CHECK = """
for name, model in models.items():
    if short or "{kind}" != "fit" or name != sys.argv[6]:
        assert all(model.__dict__[key] is value for key, value in states[name].items()), f"{name} was changed"
        assert np.array_equal(model.predict(small), expected[name]), f"{name} predicts otherwise"
print("short of memory" if short else "succeeded")
"""


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Work ``count`` times under a limit; see ``tests.torture``."""
    counts: Counter[str] = Counter()
    bad = []
    for case in range(first, first + count):
        rng = np.random.default_rng([seed, case])
        kind = list(WORK)[rng.integers(len(WORK))]
        model = ["mars", "classes", "pairs", "hinges", "net"][rng.integers(5)]
        rows, columns = int(rng.choice([1000, 20_000, 200_000])), int(rng.choice([2, 5, 20]))
        megabytes = int(rng.choice(MEGABYTES))
        what = f"{kind} of {model}, {rows} × {columns}, {megabytes} MB more"
        report(f"case {case}: {what}")
        counts_as, fault = _run(kind, [str(folder), str(case), str(rows), str(columns), str(megabytes), model])
        counts[counts_as] += 1
        if fault:
            bad.append(f"case {case}, {what}: {fault}")
    return Outcome(count, dict(counts), bad)


def _run(kind: str, arguments: list[str]) -> tuple[str, str | None]:
    setup, rest, check = SETUP, REST.replace("{work}", WORK[kind]), CHECK.replace("{kind}", kind)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", setup + rest + check, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    clock = Clock(process.pid)
    while True:
        try:
            out, errors = process.communicate(timeout=1)
            break
        except subprocess.TimeoutExpired:
            if clock.seconds() > SECONDS:
                process.kill()
                process.communicate()
                return "hung", f"took more than {SECONDS} s"
    if process.returncode == 0 and out:
        return out.splitlines()[-1], None
    lines = errors.strip().splitlines() or ["nothing on stderr"]
    return "crashed", f"exit code {process.returncode}: {lines[-1][:300]}"
