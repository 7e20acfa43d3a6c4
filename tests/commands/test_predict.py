import io
import json
import warnings

import numpy as np
import pandas as pd
import pytest

import knotwork as kw


def features(frame):
    return frame.drop(columns="y").astype({"flag": float})


@pytest.mark.parametrize("model", ["spline_model", "network_model"])
@pytest.mark.parametrize("name", ["comma.csv", "semicolon.csv", "tab.tsv", "table.parquet"])
def test_predictions_are_those_of_the_model(knotwork, data, frame, model, name, request):
    folder = request.getfixturevalue(model)
    written = pd.read_csv(io.StringIO(knotwork("predict", folder, data / name).stdout))
    assert written.columns.tolist() == ["prediction"]
    np.testing.assert_allclose(written["prediction"], kw.load(folder).predict(features(frame)), rtol=1e-14)


def test_other_columns_and_their_order_do_not_matter(knotwork_json, spline_model, frame, tmp_path):
    shuffled = frame.drop(columns="y")[["flag", "Art", "width", "Länge, cm"]].assign(more="text", when="2024-01-01")
    shuffled.to_csv(tmp_path / "new.csv", index=False)
    result = knotwork_json("predict", spline_model, tmp_path / "new.csv")
    assert result["rows"] == 300
    np.testing.assert_array_equal(result["predictions"]["prediction"], kw.load(spline_model).predict(features(frame)))


def test_one_row(knotwork_json, spline_model, frame, tmp_path):
    frame.drop(columns="y").head(1).to_csv(tmp_path / "one.csv", index=False)
    predictions = knotwork_json("predict", spline_model, tmp_path / "one.csv")["predictions"]
    assert predictions == {"prediction": kw.load(spline_model).predict(features(frame).head(1)).tolist()}


def test_a_category_of_digits_stays_one(knotwork, knotwork_json, tmp_path):
    rng = np.random.default_rng(0)
    kind = rng.choice(["1", "2", "three"], 90)
    frame = pd.DataFrame({"kind": kind, "x": rng.random(90), "y": (kind == "2") * 5 + rng.random(90)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    knotwork("fit", tmp_path / "t.csv", "--target", "y", "--category", "kind", "--out", tmp_path / "m")
    frame[frame["kind"] != "three"].to_csv(tmp_path / "new.csv", index=False)
    predictions = knotwork_json("predict", tmp_path / "m", tmp_path / "new.csv")["predictions"]["prediction"]
    assert np.corrcoef(predictions, frame.loc[frame["kind"] != "three", "y"])[0, 1] > 0.95


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_into_a_file(knotwork, knotwork_json, refused, spline_model, data, frame, tmp_path, ending):
    out = tmp_path / f"predictions.{ending}"
    assert f"300 predictions in {out}" in knotwork("predict", spline_model, data / "comma.csv", "--out", out).stdout
    written = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    np.testing.assert_allclose(written["prediction"], kw.load(spline_model).predict(features(frame)), rtol=1e-14)
    assert "exists already; pass --force" in refused("predict", spline_model, data / "comma.csv", "--out", out)
    result = knotwork_json("predict", spline_model, data / "comma.csv", "--out", out, "--force")
    assert result == {"rows": 300, "saved": str(out)}
    assert [p.name for p in tmp_path.iterdir()] == [out.name]


def test_refusals(refused, spline_model, data, frame, tmp_path):
    new = tmp_path / "new.csv"
    frame.rename(columns={"width": "Widht", "Art": "nothing alike"}).to_csv(new, index=False)
    sentence = refused("predict", spline_model, new)
    assert "no column 'width' (did you mean 'Widht'?), 'Art'" in sentence
    frame.assign(width=frame["width"].astype(str).where(frame.index != 4, "wide")).to_csv(new, index=False)
    assert "column 'width' must hold numbers, line 6 of" in refused("predict", spline_model, new)
    assert "is not; check the path" in refused("predict", tmp_path, new)
    assert ".csv or .parquet" in refused("predict", spline_model, new, "--out", tmp_path / "p.xlsx")
    assert "the folder of the output must exist" in refused(
        "predict", spline_model, new, "--out", tmp_path / "no" / "p.csv"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["new.csv"]


def test_a_new_category_is_a_note_on_stderr(knotwork, spline_model, frame, tmp_path):
    frame.assign(Art="new").to_csv(tmp_path / "new.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = knotwork("predict", spline_model, tmp_path / "new.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 300
    assert result.stderr.startswith("note: column 'Art' has categories that training did not see ('new')")
    assert result.stderr.count("\n") == 1


def test_a_gap_that_training_did_not_have_is_a_note_on_stderr(knotwork, spline_model, frame, tmp_path):
    frame.assign(width=frame["width"].mask(frame.index == 4)).to_csv(tmp_path / "new.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = knotwork("predict", spline_model, tmp_path / "new.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 300
    assert result.stderr.startswith("note: columns that had no missing values in training have some now ('width')")


def test_models_saved_from_python(knotwork_json, refused, frame, data, tmp_path):
    X, y = features(frame)[["Länge, cm", "width"]], frame["y"]
    both = kw.MarsRegressor().fit(X, np.stack([y, -y], axis=1))
    kw.save(both, tmp_path / "two")
    predictions = knotwork_json("predict", tmp_path / "two", data / "comma.csv")["predictions"]
    assert list(predictions) == ["prediction 0", "prediction 1"]
    kw.save(both.spline_, tmp_path / "spline")
    assert knotwork_json("predict", tmp_path / "spline", data / "comma.csv")["predictions"] == predictions
    kw.save(kw.to_network(both), tmp_path / "net")
    assert "holds a network; save the estimator" in refused("predict", tmp_path / "net", data / "comma.csv")
    array = kw.MarsRegressor().fit(X.to_numpy(), y)
    kw.save(array, tmp_path / "array")
    X.set_axis(["x0", "x1"], axis=1).to_csv(tmp_path / "x.csv", index=False)
    predictions = knotwork_json("predict", tmp_path / "array", tmp_path / "x.csv")["predictions"]["prediction"]
    np.testing.assert_array_equal(predictions, array.predict(X.to_numpy()))
