import io
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

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


@pytest.mark.parametrize("command", ["predict", "report", "export"])
def test_an_input_is_never_replaced(knotwork, refused, spline_model, frame, tmp_path, command):
    model, table = tmp_path / "m", tmp_path / "table.csv"
    kw.save(kw.load(spline_model), model)
    frame.to_csv(table, index=False)
    arrays = next(model.glob("*.safetensors"))
    (tmp_path / "soft.csv").symlink_to(table)
    (tmp_path / "hard.csv").hardlink_to(table)
    (tmp_path / "model.csv").symlink_to(arrays)
    (tmp_path / "folder").symlink_to(model)
    shutil.copytree(model, tmp_path / "another")
    names = dict.fromkeys(["model.csv", "m/model.json", f"folder/{arrays.name}"], "no part of a saved model")
    names |= dict.fromkeys(["another/model.json", f"another/{arrays.name}"], "no part of a saved model")
    if command != "export":
        names |= dict.fromkeys(["table.csv", "m/../table.csv", "soft.csv", "hard.csv"], "another file than the inputs")
    before = {path: path.read_bytes() for path in (table, *model.iterdir(), *(tmp_path / "another").iterdir())}
    for name, rule in names.items():
        inputs = (tmp_path / "folder",) if command == "export" else (tmp_path / "folder", table)
        more = ("--format", "onnx") if command == "export" else ()
        sentence = refused(command, *inputs, *more, "--out", tmp_path / name, "--force")
        assert f"the output must be {rule}" in sentence
        assert {path: path.read_bytes() for path in before} == before
    knotwork(command, *inputs, *more, "--out", model / "other.csv")  # beside the model's own files


@pytest.mark.parametrize("command", ["predict", "report", "export"])
def test_a_file_that_appears_meanwhile_stays(knotwork, refused, spline_model, data, tmp_path, command, monkeypatch):
    out = tmp_path / {"predict": "out.csv", "report": "out.html", "export": "out.onnx"}[command]
    inputs = (spline_model,) if command == "export" else (spline_model, data / "comma.csv")
    load = kw.load

    def slow_load(path):
        out.write_text("somebody else's")
        return load(path)

    with monkeypatch.context() as patch:
        patch.setattr(kw, "load", slow_load)
        assert "may not be replaced" in refused(command, *inputs, "--out", out)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["somebody else's"]
    knotwork(command, *inputs, "--out", out, "--force")
    assert out.read_bytes() != b"somebody else's"


def test_refusals(refused, spline_model, data, frame, tmp_path):
    new = tmp_path / "new.csv"
    frame.rename(columns={"width": "Widht", "Art": "nothing alike"}).to_csv(new, index=False)
    sentence = refused("predict", spline_model, new)
    assert "no column 'width' (did you mean 'Widht'?), 'Art'" in sentence
    frame.assign(width=frame["width"].astype(str).where(frame.index != 4, "wide")).to_csv(new, index=False)
    assert "column 'width' must hold numbers, line 6 of" in refused("predict", spline_model, new)
    assert "has none; check the path" in refused("predict", tmp_path, new)
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


KEYS = ["007", "NA", "", "1e5", "0x1F", "trailing ", "a,b", 'say "so"', "ünï", "=1+1"]


@pytest.fixture
def small_blocks(monkeypatch):
    """Read files in blocks of 100 rows, the minimum."""
    monkeypatch.setattr("knotwork.data.files.BLOCK", 1)


def test_id_columns_are_carried_over_as_they_are(knotwork, knotwork_json, spline_model, frame, tmp_path, small_blocks):
    new = frame.assign(key=KEYS * 30, **{"no.": [f"{k:05d}" for k in range(300)]})
    new.to_csv(tmp_path / "new.csv", index=False)
    options = ("predict", spline_model, tmp_path / "new.csv", "--id", "no.", "--id", "key")
    knotwork(*options, "--out", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    assert written.columns.tolist() == ["no.", "key", "prediction"]
    assert written["no."].tolist() == new["no."].tolist()
    assert written["key"].tolist() == [*KEYS[:-1], "'=1+1"] * 30  # a spreadsheet would run the last one
    expected = kw.load(spline_model).predict(features(frame))
    np.testing.assert_allclose(written["prediction"].astype(float), expected, rtol=1e-14)
    assert knotwork(*options).stdout == (tmp_path / "p.csv").read_text()
    predictions = knotwork_json(*options)["predictions"]
    assert list(predictions) == ["no.", "key", "prediction"]
    assert predictions["key"] == KEYS * 30


def test_a_column_may_be_an_id_and_a_feature(knotwork, spline_model, frame, tmp_path):
    shown = frame.drop(columns="y").map(lambda v: f"{v:+.3f}" if isinstance(v, float) else v)
    shown.to_csv(tmp_path / "new.csv", index=False)
    result = knotwork("predict", spline_model, tmp_path / "new.csv", "--id", "width", "--id", "Art", "--id", "width")
    written = pd.read_csv(io.StringIO(result.stdout), dtype=str)
    assert written.columns.tolist() == ["width", "Art", "prediction"]
    assert written["width"].tolist() == shown["width"].tolist()
    assert written["Art"].tolist() == shown["Art"].tolist()
    np.testing.assert_allclose(
        written["prediction"].astype(float), kw.load(spline_model).predict(features(frame)), rtol=1e-12
    )


def test_parquet_ids_keep_their_types(knotwork, knotwork_json, spline_model, frame, tmp_path, monkeypatch):
    monkeypatch.setattr("knotwork.data.files.BLOCK", 1)
    days = pd.Timestamp("2024-02-28 23:00") + pd.to_timedelta(np.arange(2400), unit="h")
    table = pd.concat([frame] * 8, ignore_index=True)
    new = table.assign(no=pd.array([None, *range(2**62, 2**62 + 2399)], dtype="Int64"), day=days)
    new.to_parquet(tmp_path / "new.parquet", index=False)
    options = ("predict", spline_model, tmp_path / "new.parquet", "--id", "no", "--id", "day")
    knotwork(*options, "--out", tmp_path / "p.parquet")
    written = pd.read_parquet(tmp_path / "p.parquet", dtype_backend="pyarrow")
    assert written["no"].tolist()[1:] == new["no"].tolist()[1:]
    assert written["no"].isna().tolist() == [True] + [False] * 2399
    assert pd.DatetimeIndex(written["day"]).equals(pd.DatetimeIndex(days))
    knotwork(*options, "--out", tmp_path / "p.csv")
    text = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert text["no"].tolist()[1:] == [str(v) for v in new["no"][1:]]
    assert text["day"].tolist() == [str(day) for day in days]
    predictions = knotwork_json(*options)["predictions"]
    assert predictions["no"] == [None, *range(2**62, 2**62 + 2399)]
    assert predictions["day"][:2] == ["2024-02-28 23:00:00", "2024-02-29 00:00:00"]


@pytest.mark.parametrize("model", ["spline_model", "network_model"])
@pytest.mark.parametrize("name", ["comma.csv", "semicolon.csv", "table.parquet"])
def test_blocks_change_nothing(knotwork_json, data, model, name, monkeypatch, request):
    options = ("predict", request.getfixturevalue(model), data / name, "--id", "width")
    whole = knotwork_json(*options)
    monkeypatch.setattr("knotwork.data.files.BLOCK", 1)
    monkeypatch.setattr("knotwork.data.blocks.rows_of_block", lambda dialect: 7)
    blocks = knotwork_json(*options)
    assert blocks["rows"] == whole["rows"]
    assert blocks["predictions"]["width"] == whole["predictions"]["width"]
    # A product of another number of rows may differ in its last bit.
    np.testing.assert_allclose(
        blocks["predictions"]["prediction"], whole["predictions"]["prediction"], rtol=1e-13, atol=1e-13
    )


def test_longer_lines_than_the_first_are_read_in_smaller_blocks(
    knotwork_json, spline_model, frame, tmp_path, monkeypatch
):
    frame.assign(note=["x"] * 150 + ["x" * 5000] * 150).to_csv(tmp_path / "new.csv", index=False)
    options = ("predict", spline_model, tmp_path / "new.csv")
    expected = knotwork_json(*options)["predictions"]["prediction"]
    monkeypatch.setattr("knotwork.data.files.MAX_BLOCK", 1 << 19)
    monkeypatch.setattr("knotwork.data.blocks.rows_of_block", lambda dialect: 110)
    np.testing.assert_allclose(knotwork_json(*options)["predictions"]["prediction"], expected, rtol=1e-13, atol=1e-13)


def test_nothing_is_written_if_a_later_block_cannot_be_read(refused, spline_model, frame, tmp_path, small_blocks):
    new = tmp_path / "new.csv"
    frame.assign(width=frame["width"].astype(str).where(frame.index != 250, "wide")).to_csv(new, index=False)
    assert "column 'width' must hold numbers, line 252" in refused("predict", spline_model, new)  # stdout is empty
    assert "line 252" in refused("predict", spline_model, new, "--out", tmp_path / "p.csv")
    assert "line 252" in refused("predict", spline_model, new, "--json")
    frame.to_csv(new, index=False)
    with new.open("a") as file:
        file.write("1,2\n")
    assert "as many fields as there are column names" in refused("predict", spline_model, new)
    assert [p.name for p in tmp_path.iterdir()] == ["new.csv"]


def test_ids_that_cannot_be_carried_over(refused, spline_model, frame, tmp_path):
    new = tmp_path / "new.csv"
    frame.assign(prediction=1).to_csv(new, index=False)
    assert "no column 'Breite'" in refused("predict", spline_model, new, "--id", "Breite")
    sentence = refused("predict", spline_model, new, "--id", "prediction", "--out", tmp_path / "p.csv")
    assert "--id 'prediction' is the name of a column of predictions; rename it" in sentence
    assert [p.name for p in tmp_path.iterdir()] == ["new.csv"]


def test_unseen_categories_in_many_blocks_are_noted_once(knotwork, spline_model, frame, tmp_path, small_blocks):
    frame.assign(Art=[f"new {k}" for k in range(300)]).to_csv(tmp_path / "new.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = knotwork("predict", spline_model, tmp_path / "new.csv")
    assert result.stderr.count("note: column 'Art' has categories that training did not see") == 1
    assert result.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux's /proc")
def test_memory_does_not_grow_with_the_file(tmp_path):
    """Peak memory of two runs in processes of their own, on files of which one is ten times as long."""
    X = np.random.default_rng(0).normal(size=(1000, 4))
    kw.save(kw.MarsRegressor().fit(pd.DataFrame(X, columns=list("abcd")), np.abs(X[:, 0])), tmp_path / "m")
    head, _, rows = pd.DataFrame(X, columns=list("abcd")).assign(key="00012345").to_csv(index=False).partition("\n")
    program = (
        "import pathlib, sys\nfrom knotwork.data import files\nfiles.BLOCK = 100_000\nfrom knotwork.cli import app\n"
        "app(sys.argv[1:], standalone_mode=False)\nstatus = pathlib.Path('/proc/self/status').read_text()\n"
        "print(status.partition('VmHWM:')[2].split()[0])\n"
    )
    peaks = []
    for times in (60, 600):
        (tmp_path / "new.csv").write_text(f"{head}\n{rows * times}")
        arguments = ["predict", tmp_path / "m", tmp_path / "new.csv", "--id", "key", "--out", tmp_path / f"{times}.csv"]
        run = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=True
        )
        peaks.append(int(run.stdout.split()[-1]) / 1024)
    # 540 000 rows more would be 22 MB as numbers, and about 100 MB with the ids.
    assert peaks[1] - peaks[0] < 20, peaks


def test_row_groups_that_were_read_leave_memory(tmp_path, monkeypatch):
    """What pyarrow holds while a Parquet file is read in blocks does not grow with the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from knotwork.data.blocks import read_blocks

    monkeypatch.setattr("knotwork.data.files.BLOCK", 40_000)
    rows = np.random.default_rng(0).normal(size=400_000)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": rows, "b": -rows}), path, row_group_size=20_000, compression="none")
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in read_blocks(path, {"a": "number", "b": "number"}, [], ())]
    assert len(held) > 1
    assert max(held) < path.stat().st_size / 2
