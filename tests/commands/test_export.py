import warnings

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

import knotwork as kw
from knotwork.export import onnx_feed


@pytest.mark.parametrize("model", ["spline_model", "network_model"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-11)])
def test_onnx_gives_the_predictions_of_the_table(knotwork_json, frame, model, dtype, tolerance, tmp_path, request):
    folder, out = request.getfixturevalue(model), tmp_path / "model.onnx"
    result = knotwork_json("export", folder, "--out", out, "--dtype", dtype, "--inputs", "features")
    assert (result["format"], result["inputs"], result["outputs"]) == ("onnx", 6, 1)
    assert (result["input_names"], result["output_names"], result["dtype"]) == (["features"], ["prediction"], dtype)
    assert result["largest_difference"] < 1e-3
    fitted = kw.load(folder)
    X = frame.drop(columns="y").astype({"flag": float})
    rows = fitted.encoder_.encode(X).astype(dtype)
    (values,) = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"]).run(None, {"features": rows})
    np.testing.assert_allclose(values[:, 0], fitted.predict(X), rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("model", ["spline_model", "network_model"])
def test_torch_gives_the_predictions_of_the_table(knotwork, frame, model, tmp_path, request):
    folder, out = request.getfixturevalue(model), tmp_path / "model.pt2"
    text = knotwork("export", folder, "--out", out, "--dtype", "float64").stdout
    assert "torch, float64, 6 features in, prediction out" in text
    fitted = kw.load(folder)
    X = frame.drop(columns="y").astype({"flag": float})
    program = torch.export.load(out).module()
    for count in (1, 2, 300):  # any number of rows
        rows = torch.from_numpy(fitted.encoder_.encode(X.head(count)))
        np.testing.assert_allclose(program(rows)[:, 0].detach(), fitted.predict(X.head(count)), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("model", ["spline_model", "network_model"])
def test_onnx_takes_the_columns_of_the_file(knotwork, knotwork_json, frame, model, tmp_path, request):
    """What ``knotwork predict`` and any runtime make of the same rows, gaps and new categories among them."""
    folder, out, new = request.getfixturevalue(model), tmp_path / "model.onnx", tmp_path / "new.csv"
    text = knotwork("export", folder, "--out", out).stdout
    assert "onnx, float64, 4 columns in, prediction out" in text
    odd = frame.drop(columns="y").astype({"flag": float})
    odd.loc[::7, "width"], odd.loc[::5, "Art"], odd.loc[3, "Art"] = np.nan, None, "new"
    odd.to_csv(new, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = knotwork_json("predict", folder, new)["predictions"]["prediction"]
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    (values,) = session.run(["prediction"], onnx_feed(session, pd.read_csv(new)))
    np.testing.assert_allclose(values[:, 0], expected, rtol=1e-10, atol=1e-10)


def test_refusals_leave_nothing_behind(knotwork, refused, spline_model, tmp_path):
    out = tmp_path / "model.onnx"
    assert "pass --format onnx or torch" in refused("export", spline_model, "--out", tmp_path / "model.bin")
    assert "has none; check the path" in refused("export", tmp_path, "--out", out)
    assert "a .pt2 takes features" in refused(
        "export", spline_model, "--out", tmp_path / "m.pt2", "--inputs", "columns"
    )
    assert list(tmp_path.iterdir()) == []
    knotwork("export", spline_model, "--out", out)
    before = out.read_bytes()
    assert "exists already; pass --force" in refused("export", spline_model, "--out", out)
    assert "is a folder" in refused("export", spline_model, "--out", tmp_path, "--format", "onnx", "--force")
    assert out.read_bytes() == before
    knotwork("export", spline_model, "--out", out, "--dtype", "float32", "--force")
    assert out.read_bytes() != before
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_without_onnx(refused, spline_model, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    sentence = refused("export", spline_model, "--out", tmp_path / "model.onnx")
    assert "needs onnxruntime; pip install 'knotwork[export]'" in sentence
    assert list(tmp_path.iterdir()) == []
