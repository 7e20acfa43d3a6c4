"""Fits to rows that are elsewhere, of sources that are broken, or change, or hold what nobody should pass.

The promises are those of ``hostile_calls``.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import knotwork as kw
from knotwork.estimators.sources import is_dask
from tests.torture.call_targets import Target
from tests.torture.hostile_calls import one_call, prepared
from tests.torture.odd_sources import ODD, USUAL, Source
from tests.torture.odd_values import odd
from tests.torture.outcome import Outcome

NAME = "hostile_sources"
DEFAULT_COUNT = 3000
SHORT_COUNT = 40
# Of a hundred fits: most are splines, which are quick.
KINDS = [kw.MarsRegressor] * 65 + [kw.MarsClassifier] * 30 + [kw.SplineNetRegressor] * 3 + [kw.SplineNetClassifier] * 2
# Parameters of which some fits have an odd one.
PARAMETERS = ("max_terms", "max_degree", "max_knots", "cv", "knots", "monotonic_cst", "loss", "backend", "extrapolate",
              "missing", "class_weight", "n_jobs", "minspan", "calibrate")  # fmt: skip


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Fit ``count`` times; see ``tests.torture``."""
    counts: Counter[str] = Counter()
    bad: list[str] = []
    with prepared(folder):
        for case in range(first, first + count):
            rng = np.random.default_rng([seed, case])
            target = _target(rng, folder)
            report(f"case {case}, {target.name}")
            what, sentence = one_call(target, rng, folder)
            counts[what] += 1
            if sentence:
                bad.append(f"case {case}, {sentence}")
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Outcome(count, dict(counts), bad)


def _target(rng: np.random.Generator, folder: Path) -> Target:
    kind = KINDS[rng.integers(len(KINDS))]
    pool, name = (ODD, "ODD") if rng.random() < 0.7 else (USUAL, "USUAL")
    place = int(rng.integers(len(pool)))
    options: dict[str, Any] = {"n_jobs": 1}
    if issubclass(kind, kw.SplineNetRegressor | kw.SplineNetClassifier):
        options |= {"epochs": 1, "hidden": (4,), "n_members": 1}
    elif rng.random() < 0.3:
        known = [key for key in PARAMETERS if key in kind().get_params()]
        chosen = known[rng.integers(len(known))]
        options[chosen] = odd(chosen, rng)
    elif rng.random() < 0.4:
        options |= {"max_degree": 2, "max_terms": 7, "interaction": str(rng.choice(["min", "product"]))}
    model = kind(**options)

    def call() -> None:
        X, y, weight = (
            _labelled(pool[place](rng, folder)) if "Classifier" in kind.__name__ else pool[place](rng, folder)
        )
        model.fit(X, y, weight)
        if is_dask(X):
            model.predict(X).compute()

    changed = {key: value for key, value in options.items() if key not in ("n_jobs", "epochs", "hidden", "n_members")}
    return Target(f"{kind.__name__}({changed!r:.80}).fit of {name}[{place}]", (), lambda _: (call, model))


def _labelled(source: Source) -> Source:
    """Return a source with two labels in place of numbers, where that is easily said."""
    X, y, weight = source
    data = X.data if isinstance(X, kw.Batches) else X
    if isinstance(y, str) and y == "y":
        return X, "b", weight
    if isinstance(data, list) and all(
        isinstance(b, tuple) and isinstance(b[-1], np.ndarray) and len(b) > 1 for b in data
    ):
        return kw.Batches([(b[0], b[1] > 0.5, *b[2:]) for b in data]), y, weight
    if is_dask(X) and hasattr(y, "chunks"):
        return X, y > 0.5, weight
    return source
