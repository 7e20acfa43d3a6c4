import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import knotwork as kw
from knotwork.commands.fit_parts import Side
from knotwork.commands.rows import choose_rows
from knotwork.data.column_selection import choose_columns
from knotwork.data.files import read_file
from knotwork.network.chain import read_chain


@pytest.fixture
def write(tmp_path):
    def write(frame, name="t.csv"):
        frame.to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return write


def test_a_fit_says_what_it_did(knotwork, data, tmp_path):
    result = knotwork("fit", data / "comma.csv", "--target", "y", "--exclude", "width", "--out", tmp_path / "model")
    for expected in (
        "300 rows, 5 columns (CSV, fields separated by commas)",
        "y; task: regression, because it holds numbers",
        "Länge, cm, Art, flag",
        "width: excluded",
        "MarsRegressor, 240 rows",
        "60 held-out rows",
        "predicting the mean",
        "y ≈ ",
        "·h(Länge, cm - ",
        "where Art is Öl",
        str(tmp_path / "model"),
    ):
        assert expected in result.stdout
    assert result.stderr == ""


def test_every_format_gives_the_same_model(knotwork_json, data, frame):
    reports = [
        knotwork_json("fit", data / name, "--target", "y")
        for name in ("comma.csv", "semicolon.csv", "tab.tsv", "table.parquet")
    ]
    assert [r["read_as"] for r in reports] == [
        "CSV, fields separated by commas",
        "CSV, fields separated by semicolons with decimal commas",
        "CSV, fields separated by tabs",
        "Parquet",
    ]
    for report in reports:
        assert report["model"] == reports[0]["model"]
        assert report["error"] == reports[0]["error"]
        assert report["columns"] == {"used": ["Länge, cm", "width", "Art", "flag"], "left_out": {}}
        assert report["saved"] is None
    test = reports[0]["error"]["test"]
    assert test["rmse"] < 0.3 < test["rmse_of_the_mean"]
    assert test["r2"] == pytest.approx(1 - (test["rmse"] / test["rmse_of_the_mean"]) ** 2)


def test_the_saved_model_is_the_one_that_was_measured(knotwork_json, data, frame, tmp_path):
    report = knotwork_json("fit", data / "comma.csv", "--target", "y", "--seed", "3", "--out", tmp_path / "model")
    model = kw.load(tmp_path / "model")
    table = read_file(data / "comma.csv")
    rows = choose_rows(table, "y", choose_columns(table, "y"), False, 0.2, 3)
    assert sorted([*rows.train, *rows.test]) == list(range(300))
    error = model.predict(frame.iloc[rows.test].drop(columns="y").astype({"flag": float})) - frame["y"].iloc[rows.test]
    assert report["error"]["test"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert report["model"]["formulas"] == {"y": str(replace(model.spline_, limits=None, output_limits=None))}


def test_a_network(knotwork_json, knotwork, data, tmp_path):
    arguments = ("fit", data / "comma.csv", "--target", "y", "--hidden", "16, 8", "--epochs", "2")
    report = knotwork_json(*arguments, "--out", tmp_path / "net")
    assert report["model"]["kind"] == "SplineNetRegressor"
    assert report["model"]["network"]["hidden"] == [16, 8]
    assert report["model"]["network"]["epochs"] == 2
    assert report["model"]["network"]["members"] == 8
    assert read_chain(kw.load(tmp_path / "net").network_).widths == (8 * 16, 8 * 8)
    again = knotwork(*arguments).stdout
    assert "8 members of 16 × 8 units each, 2 epochs" in again
    assert "the mean of the splines they start from" in again


def test_without_held_out_rows(knotwork_json, data):
    report = knotwork_json("fit", data / "comma.csv", "--target", "y", "--test-size", "0")
    assert report["rows"] == {"read": 300, "train": 300, "test": 0}
    assert list(report["error"]) == ["train"]


def test_copies_of_a_row_are_held_out_together(write, frame):
    path = write(pd.concat([frame, frame, frame]))
    table = read_file(path)
    rows = choose_rows(table, "y", choose_columns(table, "y"), False, 0.2, 0)
    assert not {r % 300 for r in rows.train} & {r % 300 for r in rows.test}
    assert len(rows.test) == 180


def test_an_identifier_is_left_out_and_can_be_forced_in(knotwork_json, knotwork, write, frame):
    path = write(frame.assign(**{"row no": np.arange(300) + 7, "key": [f"k{k}" for k in range(300)]}))
    report = knotwork_json("fit", path, "--target", "y")
    assert set(report["columns"]["left_out"]) == {"row no", "key"}
    text = knotwork("fit", path, "--target", "y").stdout
    assert "row no: looks like an identifier: all values differ (--include 'row no' uses it)" in text
    report = knotwork_json("fit", path, "--target", "y", "--include", "row no", "--exclude", "key")
    assert "row no" in report["columns"]["used"]


@pytest.mark.filterwarnings("ignore:column .town. was left out")
def test_what_the_fit_leaves_out_is_no_feature(knotwork, knotwork_json, write, frame):
    """Categories without an effect turn out in the fit only: named once, and with its reason."""
    towns = np.random.default_rng(3).choice([f"t{k}" for k in range(60)], 300)
    path = write(frame.assign(town=towns, one="x"))
    reason = "categories whose responses differ no more than by chance"
    report = knotwork_json("fit", path, "--target", "y")
    assert report["columns"]["used"] == ["Länge, cm", "width", "Art", "flag"]
    assert list(report["columns"]["left_out"]) == ["one", "town"]
    assert report["columns"]["left_out"]["town"].endswith(reason)
    assert not any("town" in note for note in report["model"]["encoding"])
    text = knotwork("fit", path, "--target", "y").stdout
    assert "300 rows, 7 columns" in text
    assert "\nfeatures Länge, cm, width, Art, flag\nleft out one: is 'x' in every row\nleft out town: has " in text
    assert text.count("town") == text.count(reason) == 1


def test_rows_without_a_target_are_dropped_with_their_count(knotwork_json, write, frame):
    path = write(frame.assign(y=frame["y"].mask(frame.index < 12)))
    report = knotwork_json("fit", path, "--target", "y")
    assert report["notes"] == ["12 of 300 rows have no 'y' and were dropped"]
    assert report["rows"]["train"] + report["rows"]["test"] == 288


def test_a_target_without_any_value(refused, write, frame):
    assert "has 0" in refused("fit", write(frame.assign(y=None)), "--target", "y")


def test_missing_features_are_values_of_their_own_or_dropped(knotwork_json, write, frame):
    path = write(frame.assign(width=frame["width"].mask(frame.index < 3), Art=frame["Art"].mask(frame.index == 9)))
    report = knotwork_json("fit", path, "--target", "y")
    assert report["notes"] == [
        "missing values are kept, and may have an effect of their own: 'width' (3 rows), 'Art' (1 row)"
    ]
    assert {"width is missing", "Art is missing"} <= set(report["model"]["features"])
    assert report["rows"]["train"] + report["rows"]["test"] == 300
    report = knotwork_json("fit", path, "--target", "y", "--drop-missing")
    assert report["notes"] == ["4 rows with missing values in 'width', 'Art' were dropped"]
    assert report["rows"]["train"] + report["rows"]["test"] == 296
    report = knotwork_json("fit", path, "--target", "y", "--exclude", "width", "--exclude", "Art")
    assert report["rows"]["train"] + report["rows"]["test"] == 300


def test_words_for_missing_values(knotwork, knotwork_json, refused, write, frame, tmp_path):
    """A file's own words for a gap: refused by name among numbers, gaps once they are said; CSV and Parquet alike."""
    marked = frame.assign(width=frame["width"].astype(object), flag=frame["width"].round())
    marked.loc[[4, 8], "width"] = "k.A."
    marked.loc[marked.index % 10 == 0, "flag"] = -999
    path = write(marked)
    assert "line 6 of " in (sentence := refused("fit", path, "--target", "y"))
    assert "has 'k.A.'; correct it, say that it means a missing value (--na k.A.), leave" in sentence
    options = ("--target", "y", "--na", "k.A.", "--na", "-999", "--test-size", "0")
    report = knotwork_json("fit", path, *options, "--out", tmp_path / "model")
    assert report["notes"] == [
        "missing values are kept, and may have an effect of their own: 'width' (2 rows), 'flag' (30 rows)"
    ]
    marked.assign(width=marked["width"].astype(str)).to_parquet(tmp_path / "t.parquet")
    gaps = frame.assign(width=frame["width"].mask(marked["width"] == "k.A."), flag=marked["flag"].replace(-999, np.nan))
    blank = write(gaps, "blank.csv")
    assert report["model"] == knotwork_json("fit", blank, "--target", "y", "--test-size", "0")["model"]
    numbers = write(marked.assign(width=frame["width"]), "numbers.csv")
    marked.assign(width=frame["width"]).to_parquet(tmp_path / "numbers.parquet")
    found = [
        knotwork_json("fit", p, "--target", "y", "--na", "-999")["model"]
        for p in (numbers, tmp_path / "numbers.parquet")
    ]
    assert found[0] == found[1]
    assert "(--na k.A.), or leave the field empty" in refused("predict", tmp_path / "model", path)
    predicted = knotwork("predict", tmp_path / "model", path, "--na", "k.A.", "--na", "-999").stdout
    assert predicted == knotwork("predict", tmp_path / "model", blank).stdout
    page = tmp_path / "page.html"
    knotwork("report", tmp_path / "model", path, "--na", "k.A.", "--na", "-999", "--out", page)
    assert page.stat().st_size > 1000


@pytest.mark.parametrize("kind", ["csv", "parquet", "parts"])
def test_all_columns_that_cannot_be_used_are_named_together(knotwork, frame, tmp_path, kind):
    """Text among numbers, dates in words, infinities, lists: a line each, in the file's order; then the fit works."""
    path = tmp_path / f"t.{'csv' if kind == 'csv' else 'parquet'}"
    odd = frame.assign(a=frame["width"].mask(frame.index == 7, -np.inf))
    if kind == "csv":
        odd = odd.assign(b="31.01.2024", c=frame["width"].astype(object).mask(frame.index == 9, "k.A."))
        odd.to_csv(path, index=False)
        expected = {"a": "has -inf in data row 8", "b": "ISO 8601", "c": f"line 11 of {path} has 'k.A.'; correct it"}
    else:
        odd = odd.assign(b=pd.to_timedelta(frame.index, unit="s"), c=[[1]] * 300)
        odd.to_parquet(path)
        expected = {"a": "has -inf in data row 8", "b": "holds other notations or durations", "c": "holds list"}
    arguments = ("fit", path, "--target", "y", *(["--in-parts"] if kind == "parts" else []))
    lines = knotwork(*arguments, code=2).stderr.splitlines()
    assert all(line.startswith("knotwork: ") for line in lines)
    for line, (name, part) in zip(lines, expected.items(), strict=True):
        assert f"column {name!r}" in line
        assert part in line
    knotwork(*arguments, *(word for name in expected for word in ("--exclude", name)))


def test_many_columns_that_cannot_be_used_are_counted(knotwork, frame, tmp_path):
    path = tmp_path / "t.csv"
    frame.assign(**{f"price {k}": "$ 10.50" for k in range(30)}).to_csv(path, index=False)
    lines = knotwork("fit", path, "--target", "y", code=2).stderr.splitlines()
    assert [f"column 'price {k}' must hold numbers" in line for k, line in enumerate(lines)] == [True] * 10 + [False]
    assert lines[-1].startswith("knotwork: and 20 more columns cannot be used as they are: 'price 10', 'price 11', ")


def test_what_looks_like_a_number_is_no_gap(refused, write, frame):
    sentence = refused("fit", write(frame.assign(width="$ 1,000.50")), "--target", "y")
    assert "has '$ 1,000.50'; write its numbers as 1234.5, leave the column out" in sentence


def test_infinities_are_named_with_their_row(knotwork, refused, write, frame, tmp_path):
    path = write(frame.assign(width=frame["width"].mask(frame.index == 7, -np.inf)), "inf.csv")
    expected = f"column 'width' of {path} has -inf in data row 8; correct it, or leave the field empty"
    assert expected in refused("fit", path, "--target", "y")
    knotwork("fit", write(frame), "--target", "y", "--out", tmp_path / "model")
    assert expected in refused("predict", tmp_path / "model", path)


def test_the_limits_are_said_once(knotwork, write, frame):
    text = knotwork("fit", write(frame), "--target", "Art").stdout
    assert text.count("a value beyond its column's limits counts as the limit") == 1
    assert text.count(" ≈ ") == 3
    assert "the prediction is" not in text


def test_the_limits_of_predictions_are_said(knotwork, write, frame):
    y = frame["y"]
    half = (y.max() - y.min()) / 2
    text = knotwork("fit", write(frame), "--target", "y", "--test-size", "0").stdout
    assert f"the prediction is clipped to the range {y.min() - half:.6g} to {y.max() + half:.6g}" in text


def test_numbers_as_categories(knotwork_json, write):
    rng = np.random.default_rng(0)
    code = rng.choice([10115, 20095, 80331], 200)
    path = write(pd.DataFrame({"zip": code, "x": rng.random(200), "y": (code == 20095) * 3 + rng.random(200)}))
    report = knotwork_json("fit", path, "--target", "y", "--category", "zip")
    assert "zip=20095" in report["model"]["features"]


def test_the_nearest_name_is_suggested(refused, data):
    sentence = refused("fit", data / "comma.csv", "--target", "why")
    assert "comma.csv has no column 'why'" in sentence
    sentence = refused("fit", data / "comma.csv", "--target", "y", "--exclude", "länge, mm")
    assert "'länge, mm' (did you mean 'Länge, cm'?)" in sentence


@pytest.mark.parametrize("kind", ["csv", "parquet", "parts"])
def test_names_are_checked_before_columns(refused, frame, tmp_path, kind):
    """A misspelt name hides behind no column that cannot be read; all of them are in one sentence."""
    path = tmp_path / f"t.{'csv' if kind == 'csv' else 'parquet'}"
    odd = frame.assign(price="$ 10.50", when="31.01.2024")
    odd.to_csv(path, index=False) if kind == "csv" else odd.to_parquet(path)
    arguments = ("fit", path, *(["--in-parts"] if kind == "parts" else []))
    for option in ("--exclude", "--include", "--category", "--groups", "--time"):
        sentence = refused(*arguments, "--target", "Flag", option, "widht")
        assert f"{path} has no column 'Flag' (did you mean 'flag'?), 'widht' (did you mean 'width'?); its" in sentence
    assert "no column 'zebra'; its" in refused(*arguments, "--target", "zebra", "--include", "zebra")


@pytest.mark.parametrize(
    ("target", "because"),
    [
        (["yes", "no"] * 30, "it holds text"),
        ([True, False] * 30, "it holds true and false"),
        ([0, 1, 2] * 20, "it holds the whole numbers 0 to 2"),
    ],
)
def test_classification_is_recognised(knotwork, write, target, because):
    rng = np.random.default_rng(0)
    path = write(pd.DataFrame({"x": rng.random(60), "z": rng.random(60), "kind": target}))
    arguments = ("fit", path, "--target", "kind")
    if hasattr(kw, "MarsClassifier"):
        report = json.loads(knotwork(*arguments, "--json").stdout)
        assert (report["task"], report["task_because"]) == ("classification", because)
        assert 0 <= report["error"]["test"]["accuracy"] <= 1
        labels = list(report["model"]["formulas"])
        last = sorted({str(value) for value in target})[-1]
        assert labels[-1] == f"{'log-odds' if len(labels) == 1 else 'centred logit'} of kind = {last}"
    else:
        sentence = knotwork(*arguments, code=2).stderr
        assert f"the target 'kind' is taken for classes because {because}" in sentence
        assert "no MarsClassifier" in sentence


def test_numbers_may_be_taken_as_quantities_after_all(knotwork_json, write):
    rng = np.random.default_rng(0)
    path = write(pd.DataFrame({"x": rng.random(60), "z": rng.random(60), "kind": [0, 1, 2] * 20}))
    report = knotwork_json("fit", path, "--target", "kind", "--task", "regression")
    assert (report["task"], report["task_because"]) == ("regression", "--task says so")


def test_classes_are_fitted_by_a_classifier(knotwork_json, write):
    x = np.random.default_rng(0).random(200)
    path = write(pd.DataFrame({"x": x, "kind": np.where(x > 0.5, "high", "low")}))
    report = knotwork_json("fit", path, "--target", "kind")
    assert report["task"] == "classification"
    assert report["error"]["test"]["accuracy"] > 0.9
    assert list(report["model"]["formulas"]) == ["log-odds of kind = low"]
    assert 0.3 < report["error"]["test"]["accuracy_of_the_majority_class"] < 0.7


def test_interactions(knotwork, write):
    X = np.random.default_rng(0).random((300, 2))
    path = write(pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": np.minimum(X[:, 0], X[:, 1])}))
    arguments = ("fit", path, "--target", "y", "--max-degree", "2", "--json")
    try:
        kw.MarsRegressor(max_degree=2).fit(X, X[:, 0])
    except ValueError:
        assert "max_degree" in knotwork(*arguments, code=2).stderr
    else:
        report = json.loads(knotwork(*arguments).stdout)
        assert any("min(" in term["term"] for term in report["model"]["terms"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--target", "Art", "--task", "regression"], "column 'Art' of"),
        (["--target", "y", "--hidden", "64;64"], "--hidden must be widths of layers such as 64,64, got '64;64'"),
        (["--target", "y", "--hidden", "0"], "--hidden must be"),
        (["--target", "y", "--test-size", "1"], "--test-size must be"),
        (["--target", "y", "--epochs", "3"], "--epochs is for networks"),
    ],
)
def test_options_that_do_not_fit(refused, data, options, expected):
    assert expected in refused("fit", data / "comma.csv", *options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("a,y\n", "has column names only"),
        ("a,y\n1,2\n3\n", "line 3 of"),
        ("a,a,y\n1,2,3\n", "has 'a' in columns 1 and 2"),
        ("a,y\n1,2\n2,3\nx,4\n4,4\n", "column 'a' must hold numbers, line 4 of"),
        ("when,a,y\n31.01.2024,1,2\n01.02.2024,3,3\n", "column 'when'"),
        ("a,y\n1,2\n2,\n", "at least 2 rows with a target"),
    ],
)
def test_files_that_cannot_be_fitted(refused, tmp_path, text, expected):
    (tmp_path / "bad.csv").write_text(text)
    sentence = refused("fit", tmp_path / "bad.csv", "--target", "y")
    assert expected in sentence
    assert "bad.csv" in sentence


def test_what_is_excluded_may_hold_anything(knotwork_json, write, frame, tmp_path):
    odd = {"junk": frame["width"].astype(str).where(frame.index != 7, "?"), "when": pd.date_range("2024", periods=300)}
    path = write(frame.assign(**odd))
    report = knotwork_json("fit", path, "--target", "y", "--exclude", "junk", "--exclude", "when")
    assert report["columns"]["left_out"] == {"junk": "excluded", "when": "excluded"}
    frame.assign(**odd, lists=[[1]] * 300).to_parquet(tmp_path / "t.parquet")
    arguments = ("--exclude", "junk", "--exclude", "when", "--exclude", "lists")
    assert knotwork_json("fit", tmp_path / "t.parquet", "--target", "y", *arguments)["model"] == report["model"]


def test_a_model_that_is_there_is_not_replaced_unasked(knotwork, refused, data, tmp_path):
    out = tmp_path / "model"
    arguments = ("fit", data / "comma.csv", "--target", "y", "--out", out)
    out.mkdir()
    knotwork(*arguments)  # an empty folder is free
    before = (out / "model.json").read_bytes()
    sentence = refused(*arguments, "--exclude", "Art")
    assert "holds a model already ('MarsRegressor'" in sentence
    assert "pass --force" in sentence
    assert (out / "model.json").read_bytes() == before
    knotwork(*arguments, "--exclude", "Art", "--force")
    assert (out / "model.json").read_bytes() != before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    assert len(list(out.iterdir())) == 2


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_nothing_but_a_model_of_ours_is_ever_replaced(knotwork, refused, data, tmp_path, force):
    arguments = ("fit", data / "comma.csv", "--target", "y", "--out")
    papers, site = tmp_path / "papers", tmp_path / "site"
    for folder in (papers, site):
        folder.mkdir()
        (folder / "thesis.txt").write_text("years of work")
    (site / "model.json").write_text('{"layers": ["of another program"]}')
    assert "is not a model of knotwork and is never replaced" in refused(*arguments, site, *force)
    assert "is or lies in a file" in refused(*arguments, papers / "thesis.txt", *force)
    (tmp_path / "link").symlink_to("papers")
    knotwork(*arguments, tmp_path / "link", *force)
    knotwork(*arguments, papers, "--force")
    assert (tmp_path / "link").is_symlink()
    assert {p.name for p in site.iterdir()} == {"thesis.txt", "model.json"}
    assert {(folder / "thesis.txt").read_text() for folder in (papers, site)} == {"years of work"}
    assert isinstance(kw.load(papers), kw.MarsRegressor)


def test_an_output_that_cannot_be_written(refused, data):
    sentence = refused("fit", data / "comma.csv", "--target", "y", "--out", data / "comma.csv" / "model")
    assert "is or lies in a file" in sentence


def test_a_fit_that_fails_leaves_nothing_behind(refused, tmp_path):
    (tmp_path / "bad.csv").write_text("a,y\n1,2\n3,4,5\n")
    refused("fit", tmp_path / "bad.csv", "--target", "y", "--out", tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def test_the_whole_way_in_processes_of_their_own(data, tmp_path):
    """fit | predict | export as a shell runs them; stdout is JSON and nothing else."""

    def run(*arguments):
        command = [sys.executable, "-m", "knotwork", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    model = tmp_path / "model"
    fitted = run("fit", data / "semicolon.csv", "--target", "y", "--out", model, "--json")
    assert fitted.returncode == 0, fitted.stderr
    assert json.loads(fitted.stdout)["saved"] == str(model)
    predicted = run("predict", model, data / "comma.csv")
    assert predicted.returncode == 0, predicted.stderr
    assert len(predicted.stdout.splitlines()) == 301
    exported = run("export", model, "--out", tmp_path / "model.onnx", "--json")
    assert exported.returncode == 0, exported.stderr
    assert json.loads(exported.stdout)["inputs"] == 4
    wrong = run("predict", model, "nothing.csv", "--json")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("knotwork: a table must be a CSV or Parquet file, nothing.csv does not exist")
    assert wrong.stderr.count("\n") == 1


def classes_table(labels, rows=240):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, rows)).round(4)
    place = np.digitize(
        x + 0.3 * rng.normal(size=rows), np.linspace(-1, 1, len(labels) - 1) if len(labels) > 2 else [0]
    )
    return pd.DataFrame({"x": x, "z": z, "kind": np.array(labels)[place]})


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b", "c"]])
def test_classes_come_with_log_loss_and_auc(knotwork_json, knotwork, write, tmp_path, labels):
    from sklearn.metrics import log_loss, roc_auc_score

    frame = classes_table(labels)
    path = write(frame)
    report = knotwork_json("fit", path, "--target", "kind", "--out", tmp_path / "model")
    model, table = kw.load(tmp_path / "model"), read_file(path)
    rows = choose_rows(table, "kind", choose_columns(table, "kind"), False, 0.2, 0)
    test = frame.iloc[rows.test]
    shares = model.predict_proba(test[["x", "z"]])
    error = report["error"]["test"]
    assert error["log_loss"] == pytest.approx(log_loss(test["kind"], shares), rel=1e-9)
    scores = shares[:, 1] if len(labels) == 2 else shares
    assert error["auc"] == pytest.approx(roc_auc_score(test["kind"], scores, multi_class="ovr"), rel=1e-9)
    known = frame["kind"].iloc[rows.train].value_counts(normalize=True)
    assert error["log_loss_of_the_class_shares"] == pytest.approx(-np.log(known[test["kind"]]).mean(), rel=1e-9)
    text = knotwork("fit", path, "--target", "kind").stdout
    assert f"log-loss {error['log_loss']:.4g} (predicting the class shares: " in text
    assert f"AUC {error['auc']:.3f} on 48 held-out rows" in text


def test_classes_that_the_held_out_rows_lack_or_training_rows_lack(knotwork_json, knotwork, write):
    """Held out by time: one class comes last, and training never sees it; the held-out rows have nothing else."""
    frame = classes_table(["no", "yes"]).assign(when=np.arange(240.0))
    frame.loc[frame.index >= 192, "kind"] = "new"
    path = write(frame)
    error = knotwork_json("fit", path, "--target", "kind", "--time", "when")["error"]["test"]
    assert error["accuracy"] == 0
    assert error["auc"] is None
    assert 30 < error["log_loss"] < 37
    assert "AUC" not in knotwork("fit", path, "--target", "kind", "--time", "when").stdout.split("held-out rows")[0]


@pytest.mark.parametrize("hidden", [(), ("--hidden", "16", "--epochs", "2")])
def test_groups_are_held_out_whole(knotwork_json, write, frame, tmp_path, hidden):
    patients = np.repeat([f"p{k:02d}" for k in range(30)], 10)
    path = write(frame.assign(patient=patients))
    report = knotwork_json("fit", path, "--target", "y", "--groups", "patient", "--out", tmp_path / "m", *hidden)
    assert report["columns"]["left_out"] == {"patient": "names the groups (--include patient uses it)"}
    assert report["notes"] == ["whole groups of 'patient' are held out, 6 of 30"]
    assert report["rows"] == {"read": 300, "train": 240, "test": 60}
    table = read_file(path)
    selection = choose_columns(table, "y", groups="patient")
    rows = choose_rows(table, "y", selection, False, 0.2, 0, groups="patient")
    assert not set(patients[rows.train]) & set(patients[rows.test])
    assert "patient" in choose_columns(table, "y", include=["patient"], groups="patient").features
    if hidden:
        model = kw.load(tmp_path / "m")
        training, validation = next(model.validation.split(rows.train, groups=patients[rows.train]))
        assert not set(patients[rows.train[training]]) & set(patients[rows.train[validation]])
        X = frame.drop(columns="y").astype({"flag": float}).iloc[rows.train[validation]]
        error = np.mean((model.spline_(model.encoder_.encode(X)) - frame["y"].iloc[X.index]) ** 2)
        assert model.history_.validation_loss[0] == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("hidden", [(), ("--hidden", "16", "--epochs", "2")])
def test_the_latest_rows_are_held_out(knotwork_json, write, frame, tmp_path, hidden):
    when = np.random.default_rng(0).permutation(np.repeat(np.arange(60.0), 5)) ** 2
    path = write(frame.assign(when=when))
    report = knotwork_json("fit", path, "--target", "y", "--time", "when", "--out", tmp_path / "m", *hidden)
    assert report["notes"] == ["the latest rows by 'when' are held out"]
    assert "when" in report["columns"]["used"]
    table = read_file(path)
    rows = choose_rows(table, "y", choose_columns(table, "y", time="when"), False, 0.2, 0, time="when")
    assert when[rows.train].max() < when[rows.test].min()
    assert len(rows.test) == 60
    if hidden:
        model = kw.load(tmp_path / "m")
        latest = rows.train[np.argsort(when[rows.train], kind="stable")][-36:]  # 15 % of 240
        X = frame.assign(when=when).drop(columns="y").astype({"flag": float}).iloc[latest]
        error = np.mean((model.spline_(model.encoder_.encode(X)) - frame["y"].iloc[latest]) ** 2)
        assert model.history_.validation_loss[0] == pytest.approx(error, rel=1e-9)
    excluded = knotwork_json("fit", path, "--target", "y", "--time", "when", "--exclude", "when", *hidden)
    assert excluded["columns"]["left_out"] == {"when": "excluded"}
    assert excluded["notes"] == report["notes"]


def test_time_by_dates(knotwork_json, write, frame):
    days = pd.Timestamp("2023-12-01") + pd.to_timedelta(np.random.default_rng(0).permutation(300), unit="D")
    path = write(frame.assign(day=days.strftime("%Y-%m-%d")))
    report = knotwork_json("fit", path, "--target", "y", "--time", "day", "--hidden", "8", "--epochs", "1")
    assert report["notes"][-1] == "the latest rows by 'day' are held out"
    table = read_file(path)
    rows = choose_rows(table, "y", choose_columns(table, "y", time="day"), False, 0.2, 0, time="day")
    assert days[rows.train].max() < days[rows.test].min()


def test_groups_and_times_that_cannot_be_used(refused, write, frame):
    path = write(frame.assign(gap=np.where(frame.index < 4, np.nan, 1.0), key=[f"k{k}" for k in range(300)]))
    options = ("fit", path, "--target", "y")
    assert "by --groups or by --time, got both" in refused(*options, "--groups", "Art", "--time", "width")
    assert "got 'y' as both" in refused(*options, "--groups", "y")
    assert "no column 'Arten' (did you mean 'Art'?)" in refused(*options, "--groups", "Arten")
    assert "'gap' of" in refused(*options, "--time", "gap", "--exclude", "gap")


@pytest.mark.parametrize("classes", [False, True])
def test_a_file_in_parts_gives_the_same_kind_of_report(knotwork, tmp_path, classes):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=3000), "b": rng.choice(["x", "y"], 3000), "row": np.arange(3000)})
    y = np.abs(table.a) + (table.b == "x") + 0.2 * rng.normal(size=3000)
    table["y"] = np.where(y > 1, "high", "low") if classes else y
    table.loc[5, "y"] = None if classes else np.nan
    path = tmp_path / "t.parquet"
    table.to_parquet(path, row_group_size=400)
    memory, parts = (
        json.loads(knotwork("fit", path, "--target", "y", "--json", *how).stdout)
        for how in ([], ["--in-parts", "--out", tmp_path / "model"])
    )
    assert parts["columns"] == memory["columns"]
    assert parts["task"] == memory["task"]
    assert parts["rows"]["read"] == 3000
    assert parts["rows"]["train"] + parts["rows"]["test"] == 2999
    assert 0.15 < parts["rows"]["test"] / 2999 < 0.25
    # The errors of both sides are those of the saved model on all rows with a target.
    model, rows = kw.load(tmp_path / "model"), table.dropna(subset="y")
    name, power = ("accuracy", 1) if classes else ("rmse", 2)
    sides = [parts["error"][side][name] ** power * parts["rows"][side] for side in ("train", "test")]
    predicted = model.predict(rows[["a", "b"]])
    right = predicted == rows.y if classes else (predicted - rows.y) ** 2
    assert sum(sides) == pytest.approx(right.sum(), rel=1e-9)
    assert set(parts["error"]["test"]) == set(memory["error"]["test"])
    assert len(knotwork("predict", tmp_path / "model", path).stdout.splitlines()) == 3001
    assert "read in parts" in knotwork("fit", path, "--target", "y", "--in-parts").stdout


def test_the_sides_of_a_file_know_about_how_many_rows_they_have(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": np.arange(5000.0), "y": np.arange(5000.0)}).to_parquet(path, row_group_size=700)
    for held in (False, True):
        side = Side(path, ("a",), "y", 1 << 26, 0, 0.2, held_out=held)
        rows = sum(len(y) for _, y in side)
        assert side.batches.source(None, None).rows() == pytest.approx(rows, rel=0.1)


def test_what_a_file_in_parts_does_not_have(refused, tmp_path):
    pd.DataFrame({"a": [1.0, 2, 3], "y": [1.0, 2, 4]}).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("a,y\n1,2\n2,3\n")
    for arguments, message in (
        (["t.parquet", "--groups", "a"], "has no --groups"),
        (["t.parquet", "--hidden", "8,8"], "has no --hidden"),
        (["t.csv"], "if they are Parquet"),
    ):
        assert message in refused("fit", tmp_path / arguments[0], "--target", "y", "--in-parts", *arguments[1:])
