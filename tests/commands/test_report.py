import numpy as np
import pytest


@pytest.fixture
def without_width(knotwork, data, tmp_path):
    """A model that does not use the column ``width``."""
    knotwork("fit", data / "comma.csv", "--target", "y", "--exclude", "width", "--out", tmp_path / "model")
    return tmp_path / "model"


def test_a_report_says_that_it_does_not_know_the_response(knotwork, knotwork_json, data, without_width, tmp_path):
    unknown = knotwork("report", without_width, data / "comma.csv", "--out", tmp_path / "a.html")
    expected = "the report cannot measure the model's errors, any of 'width', 'y' could be the target; pass --target"
    assert unknown.stderr == f"note: {expected}\n"
    known = knotwork("report", without_width, data / "comma.csv", "--target", "y", "--out", tmp_path / "b.html")
    assert known.stderr == ""
    assert knotwork_json("report", without_width, data / "comma.csv", "--out", tmp_path / "c.html")["notes"] == [
        expected
    ]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("target", ["y", "label"])
def test_rows_without_a_target_are_dropped_with_their_count(knotwork, knotwork_json, frame, tmp_path, kind, target):
    table = frame.assign(label=np.where(frame["y"] > 5, "high", "low"))
    table[target] = table[target].mask(table.index % 25 == 3)
    for name, rows in (("gaps", table), ("whole", table.dropna(subset=target))):
        path = tmp_path / f"{name}.{kind}"
        rows.to_csv(path, index=False) if kind == "csv" else rows.to_parquet(path)
    other = "label" if target == "y" else "y"
    gaps, whole = tmp_path / f"gaps.{kind}", tmp_path / f"whole.{kind}"
    fitted = knotwork_json("fit", gaps, "--target", target, "--exclude", other, "--out", tmp_path / "model")
    expected = [f"12 of 300 rows have no {target!r} and were dropped"]
    assert fitted["notes"] == expected
    arguments = ("report", tmp_path / "model", gaps, "--target", target, "--out", tmp_path / "gaps.html")
    report = knotwork_json(*arguments)
    assert (report["rows"], report["notes"]) == (288, expected)
    text = knotwork(*arguments, "--force")
    assert text.stderr == f"note: {expected[0]}\n"
    assert text.stdout.startswith("288 rows explained in ")
    out = tmp_path / "whole.html"
    report = knotwork_json("report", tmp_path / "model", whole, "--target", target, "--out", out)
    assert (report["rows"], report["notes"]) == (288, [])


def test_a_target_without_any_value(refused, frame, without_width, tmp_path):
    path = tmp_path / "t.csv"
    frame.assign(y=np.nan).to_csv(path, index=False)
    sentence = refused("report", without_width, path, "--target", "y", "--out", tmp_path / "a.html")
    assert f"the target must have values, 'y' of {path} has none; name another column in --target" in sentence


def test_a_target_that_is_not_there_or_that_the_model_uses(refused, data, without_width, tmp_path):
    arguments = ("report", without_width, data / "comma.csv", "--out", tmp_path / "a.html", "--target")
    assert "comma.csv has no column 'Y' (did you mean 'y'?)" in refused(*arguments, "Y")
    assert "a column that the model does not use, got 'flag', which it uses" in refused(*arguments, "flag")


def test_what_the_model_does_not_use_may_hold_anything(knotwork, frame, tmp_path):
    """A column that fit was told to leave out, because it cannot be read, is in the way of no report."""
    path, model = tmp_path / "t.csv", tmp_path / "model"
    frame.assign(price=frame["width"].map("$ {:,.2f}".format), when="31.01.2024").to_csv(path, index=False)
    knotwork("fit", path, "--target", "y", "--exclude", "price", "--exclude", "when", "--out", model)
    report = knotwork("report", model, path, "--target", "y", "--out", tmp_path / "a.html")
    assert report.stdout.startswith("300 rows explained in ")
    frame.assign(lists=[[1]] * 300).to_parquet(tmp_path / "t.parquet")
    knotwork("report", model, tmp_path / "t.parquet", "--target", "y", "--out", tmp_path / "b.html")
