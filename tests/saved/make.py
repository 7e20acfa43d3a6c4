"""Make the folder of this version: small models as save writes them, and what they predict.

Every release and every schema gets a folder, named after both, and later versions must load what is in it. Run from the
repository's root, with PYTHONPATH at the sources of the version to save from if it is not the installed one:

    .venv/bin/python -m tests.saved.make

``expected.json`` beside each model has the rows, the predictions, and what else a later version must give again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import knotwork as kw
from knotwork.serial.migrate import SCHEMA

HERE = Path(__file__).parent
ROWS = 60
# Rows stored with a model: enough to tell two models apart.
SHOWN = 8

rng = np.random.default_rng(0)
X = np.round(rng.normal(size=(ROWS, 3)), 3)
y = np.round(np.abs(X[:, 0]) - 0.5 * X[:, 1] + 0.1 * rng.normal(size=ROWS), 3)
pair = np.round(np.minimum(np.maximum(X[:, 0], 0), np.maximum(X[:, 1] + 0.5, 0)) + 0.02 * rng.normal(size=ROWS), 3)
both = np.column_stack([y, np.round(1000 * np.maximum(X[:, 2], 0.0), 3)])
counts = np.floor(2 * np.abs(X[:, 0]))
weights = np.arange(ROWS) % 4.0  # some rows do not count
two = np.where(np.abs(X[:, 0]) < 0.7, "in", "out")
three = np.array([3, 5, 9])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])]
place = np.array(["north", "south", "west"])[np.arange(ROWS) % 3]
table = pd.DataFrame({"length": X[:, 0], "place": place, "year": 2000 + np.round(5 * X[:, 1])})
by_place = y + np.where(place == "west", 2.0, 0.0)


# A table as people have it: gaps, many categories, rare ones, an order, dates.
draw = np.random.default_rng(1)
PLACES = draw.integers(40, size=240)
raw = pd.DataFrame({
    "age": np.where(draw.random(240) < 0.2, np.nan, draw.integers(20, 80, size=240)),
    "town": [f"t{k}" for k in PLACES],
    "grade": pd.Categorical(draw.choice(["low", "mid", "high"], 240), ["low", "mid", "high"], ordered=True),
    "sold": np.datetime_as_string(np.datetime64("2020-02-03") + draw.integers(900, size=240)),
})  # fmt: skip
price = np.round(raw["age"].fillna(90) / 10 + PLACES % 7 + raw["grade"].cat.codes + 0.1 * draw.normal(size=240), 3)


def mars(**options: Any) -> kw.MarsRegressor:
    return kw.MarsRegressor(**{"max_terms": 7, "n_jobs": 1, **options})


def network(**options: Any) -> kw.SplineNetRegressor:
    return kw.SplineNetRegressor(**{"hidden": (8,), "epochs": 2, "random_state": 0, "device": "cpu", **options})


def classifying(**options: Any) -> kw.SplineNetClassifier:
    return kw.SplineNetClassifier(**{"hidden": (8,), "epochs": 2, "random_state": 0, "device": "cpu", **options})


def plain_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Dropout(0.1), nn.Linear(4, 2, bias=False)).double().eval()


def converted_network() -> nn.Sequential:
    box = (X.min(axis=0), X.max(axis=0))
    return kw.to_network(mars().fit(X, y), activation="relu6", box=box, fold=False, dtype=torch.float64)


MODELS: dict[str, Callable[[], Any]] = {
    "mars_table": lambda: mars().fit(table, by_place),
    "mars_raw_table": lambda: mars(max_terms=15).fit(raw.assign(sold=pd.to_datetime(raw["sold"])), price),
    "mars_min": lambda: mars(max_degree=2, max_terms=11).fit(X, pair),
    "mars_product": lambda: mars(max_degree=2, interaction="product").fit(X, pair),
    "mars_auto_degree": lambda: mars(max_degree="auto").fit(X, pair),
    "mars_responses": lambda: mars().fit(X, both),
    "mars_scaled_responses": lambda: mars(scale_responses=True).fit(X, both),
    "mars_weights": lambda: mars(compat="earth").fit(X, y, sample_weight=weights),
    "mars_constant": lambda: mars().fit(X, np.full(ROWS, 2.5)),
    "mars_two_classes": lambda: kw.MarsClassifier(max_terms=7, n_jobs=1).fit(X, two),
    "mars_three_classes": lambda: kw.MarsClassifier(max_terms=7, n_jobs=1).fit(table, three, sample_weight=weights),
    "splinenet": lambda: network(activation="leaky_relu").fit(table, by_place),
    "splinenet_random": lambda: network(start="random", hidden=[4, 4]).fit(X, both),
    "splinenet_two_classes": lambda: classifying().fit(X, two),
    "splinenet_three_classes": lambda: classifying(start="random").fit(X, three),
    "splinenet_members": lambda: network(n_members=3, hidden=(6, 4)).fit(X, both, sample_weight=weights),
    "splinenet_members_classes": lambda: classifying(n_members=2, hidden=(6, 4)).fit(X, three),
    "mars_poisson": lambda: mars(loss="poisson").fit(X, counts),
    "mars_folds": lambda: mars(cv=3).fit(table, by_place),
    "mars_monotone": lambda: mars(monotonic_cst=[0, -1, 0]).fit(X, y),
    "splinenet_quantile": lambda: network(loss="quantile", quantile=0.9, n_members=2).fit(X, y),
    "splinenet_calibrated": lambda: classifying(calibrate=True, n_members=2).fit(X, two),
    "max_affine": lambda: kw.MaxAffineRegressor(random_state=0).fit(X, y),
    "dc_max_affine": lambda: kw.DCMaxAffineRegressor(random_state=0).fit(X, both),
    "hinging_hyperplanes": lambda: kw.HingingHyperplanesRegressor(random_state=0).fit(X, y, sample_weight=weights),
    "spline": lambda: mars(max_degree=2, max_terms=11).fit(X, pair).spline_,
    "lattice": lambda: kw.LatticePWL([[0.0, 1.0, 0.0], [1.0, -1.0, 0.5], [0.2, 0.0, 2.0]], [[0, 1], [1, 2]]),
    "max_sum": lambda: kw.DCMaxAffineRegressor(random_state=0).fit(X, y).pwl_,
    "plain_network": plain_network,
    "converted_network": converted_network,
}


def rows_of(name: str, model: Any) -> dict[str, list[Any]] | list[list[float]]:
    """Return rows for a model as JSON: a table by its columns, an array by its rows; one lies far outside the data."""
    if name == "mars_raw_table":
        shown = raw[:SHOWN].astype({"grade": object})
        return {column: [None if v != v else v for v in values.tolist()] for column, values in shown.items()}
    if hasattr(model, "feature_names_in_"):
        return {column: values[:SHOWN].tolist() for column, values in table.items()}
    rows = np.vstack([X[: SHOWN - 1], np.full((1, 3), 50.0)])
    rows = np.clip(rows, X.min(axis=0), X.max(axis=0)) if name == "converted_network" else rows
    return rows[:, : model.inputs if isinstance(model, kw.LatticePWL) else 3].tolist()


def as_input(rows: Any) -> Any:
    """Undo the JSON of :func:`rows_of`."""
    return pd.DataFrame(rows) if isinstance(rows, dict) else np.array(rows)


def predict(model: Any, rows: Any) -> np.ndarray:
    """Evaluate any model: the logits of a classifier, the values of everything else."""
    if isinstance(model, nn.Module):
        with torch.no_grad():
            return model(torch.from_numpy(rows).to(next(model.parameters()).dtype)).numpy()
    for name in ("decision_function", "predict"):
        if hasattr(model, name):
            return getattr(model, name)(rows)
    return model(rows)


def write(name: str, folder: Path) -> None:
    """Save a model and what it gives."""
    model = MODELS[name]()
    kw.save(model, folder)
    rows = rows_of(name, model)
    values = predict(model, as_input(rows))
    expected: dict[str, Any] = {"rows": rows, "dtype": values.dtype.name, "predictions": values.tolist()}
    if hasattr(model, "classes_"):
        expected["labels"] = model.predict(as_input(rows)).tolist()
    if hasattr(model, "summary"):
        expected["summary"] = model.summary()
        expected["feature_importances"] = model.feature_importances_.tolist()
        expected["importances"] = kw.explain(model).importances.to_dict(orient="split")
        quality = {key: getattr(model, key) for key in ("gcv_", "grsq_", "rss_", "rsq_")}
        expected["quality"] = {key: float(value) for key, value in quality.items()}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    home = HERE / f"{kw.__version__}-schema-{SCHEMA}"
    if home.exists():
        sys.exit(
            f"the models of a version are made once, {home} is there already; raise __version__ for a release, or "
            f"delete the folder if the release is not out yet"
        )
    print(f"knotwork {kw.__version__} from {Path(kw.__file__).parent}")
    for name in MODELS:
        write(name, home / name)
        print(f"{name:24} {sum(f.stat().st_size for f in (home / name).iterdir()):7} bytes")


if __name__ == "__main__":
    main()
