"""Models saved by earlier versions: they load, predict what they did, and can be explained, converted and saved again.

``tests/saved/make.py`` makes the folder of a version.
"""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import knotwork as kw
from knotwork.errors import NetworkError
from knotwork.serial.migrate import SCHEMA
from knotwork.serial.tables import DOCUMENT
from tests.saved.make import HERE, as_input, predict

SAVED = sorted(path.parent for path in HERE.glob("*/*/model.json"))


@pytest.fixture(params=SAVED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def folder(request):
    return request.param


@pytest.fixture
def expected(folder):
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def tolerance(model):
    """Relative error of a prediction, by the precision of the weights: another machine may sum in another order."""
    net = model if isinstance(model, nn.Module) else getattr(model, "network_", None)
    single = net is not None and any(p.dtype == torch.float32 for p in net.parameters())
    return 1e-5 if single else 1e-12


def assert_close(found, stored, rtol):
    scale = np.abs(stored).max() if np.size(stored) else 0.0
    np.testing.assert_allclose(found, stored, rtol=rtol, atol=rtol * scale)


def test_there_are_saved_models_of_every_schema():
    schemas = {json.loads((folder / DOCUMENT).read_text())["schema"] for folder in SAVED}
    assert schemas == set(range(1, SCHEMA + 1))
    assert len(SAVED) >= 22 * SCHEMA


def test_it_predicts_what_it_did(folder, expected):
    model, rows = kw.load(folder), as_input(expected["rows"])
    values = predict(model, rows)
    assert values.dtype.name == expected["dtype"]
    assert_close(values, np.array(expected["predictions"]), tolerance(model))
    if "labels" in expected:
        assert model.predict(rows).tolist() == expected["labels"]


def test_it_says_what_it_did(folder, expected):
    if "summary" not in expected:
        return
    model = kw.load(folder)
    assert model.summary() == expected["summary"]
    assert_close(model.feature_importances_, expected["feature_importances"], 1e-9)
    for name, value in expected["quality"].items():
        assert math.isclose(getattr(model, name), value, rel_tol=1e-12)
    stored = pd.DataFrame(**expected["importances"])
    found = kw.explain(model).importances
    assert found.index.tolist() == stored.index.tolist()
    assert_close(found[stored.columns].to_numpy(), stored.to_numpy(), 1e-9)


def test_it_can_be_explained(folder, expected):
    model, rows = kw.load(folder), as_input(expected["rows"])
    y = np.array(expected.get("labels", expected["predictions"]))
    explanation = kw.explain(model, rows, y)
    columns = [f"x{k}" for k in range(len(rows[0]))] if isinstance(rows, np.ndarray) else list(rows.columns)
    if hasattr(model, "encoder_"):
        columns = [part.name for part in model.encoder_.parts]
    assert list(explanation.effects) == columns
    assert set(explanation.importances.index) == set(columns)


def test_it_becomes_a_network(folder, expected):
    model, rows = kw.load(folder), as_input(expected["rows"])
    spline = model if isinstance(model, kw.Spline) else getattr(model, "spline_", None)
    if isinstance(model, nn.Module) or (spline is None and hasattr(model, "network_")):
        return  # a network it is already
    if spline is not None and any(isinstance(term, kw.Product) for term in spline.terms):
        with pytest.raises(NetworkError, match="piecewise linear"):
            kw.to_network(model)
        return
    matrix = model.encoder_.encode(rows) if hasattr(model, "encoder_") else rows
    for fold in (True, False):
        net = kw.to_network(model, fold=fold, dtype=torch.float64)
        values = net(torch.from_numpy(np.ascontiguousarray(matrix))).detach().numpy()
        stored = np.array(expected["predictions"]).reshape(len(matrix), -1)
        values = np.exp(values) if net.conversion.link == "log" else values
        assert values.shape == stored.shape
        if not hasattr(model, "network_"):
            assert_close(values, stored, 1e-9)


def test_it_can_be_saved_again(folder, expected, tmp_path):
    model, rows = kw.load(folder), as_input(expected["rows"])
    kw.save(model, tmp_path)
    assert json.loads((tmp_path / DOCUMENT).read_text())["schema"] == SCHEMA
    again = kw.load(tmp_path)
    assert np.array_equal(predict(again, rows), predict(model, rows))
    if "summary" in expected:
        assert again.summary() == expected["summary"]
        assert np.array_equal(again.feature_importances_, model.feature_importances_)
