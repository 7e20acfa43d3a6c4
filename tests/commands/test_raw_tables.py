"""Files as people have them: gaps, text of many values, dates; fitted, predicted and explained from the file."""

import warnings

import numpy as np
import pandas as pd
import pytest

import knotwork as kw

N = 800


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    city = rng.integers(90, size=N)
    effect = rng.normal(size=90)
    sold = pd.Timestamp("2021-05-01") + pd.to_timedelta(rng.integers(0, 900, size=N), unit="D")
    width = rng.normal(size=N)
    gaps = rng.random(N) < 0.1
    y = effect[city] + np.where(gaps, 2.0, np.abs(width)) + 2 * (sold.day_of_week >= 5) + 0.1 * rng.normal(size=N)
    return pd.DataFrame({
        "city": [None if k % 50 == 7 else f"city {c}" for k, c in enumerate(city)], "sold": sold,
        "width": np.where(gaps, np.nan, width), "row": [f"r{k}" for k in range(N)], "y": y,
    })  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_from_file_to_predictions_and_report(knotwork, knotwork_json, table, tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    report = knotwork_json("fit", path, "--target", "y", "--out", tmp_path / "m")
    assert report["columns"]["used"] == ["city", "sold", "width"]
    assert "identifier" in report["columns"]["left_out"]["row"]
    assert report["model"]["features"] == [
        "city: mean", "sold", "sold: day of year", "sold: weekday", "width", "width is missing"
    ]  # fmt: skip
    assert report["error"]["test"]["r2"] > 0.9
    start = table["sold"].min().date()
    assert f"sold: days since {start}" in report["model"]["encoding"]
    found = knotwork_json("predict", tmp_path / "m", path)["predictions"]["prediction"]
    model = kw.load(tmp_path / "m")
    np.testing.assert_allclose(found, model.predict(table[["city", "sold", "width"]]), rtol=1e-12)
    knotwork("report", tmp_path / "m", path, "--target", "y", "--out", tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_dates_that_cannot_be_read_are_refused_in_a_report(knotwork, refused, table, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    knotwork("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m")
    odd = table.assign(sold=["2020-02-30"] * N)
    odd.to_csv(tmp_path / "odd.csv", index=False)
    sentence = refused("report", tmp_path / "m", tmp_path / "odd.csv", "--target", "y", "--out", tmp_path / "r.html")
    assert "dates must be written as 2024-12-31" in sentence
    assert "column 'sold'" in sentence


def test_csv_and_parquet_give_the_same_model(knotwork_json, table, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    one, other = (knotwork_json("fit", tmp_path / f"t.{e}", "--target", "y")["model"] for e in ("csv", "parquet"))
    assert one == other


def test_a_time_zone_goes_with_the_model(knotwork_json, table, tmp_path):
    zoned = table.assign(sold=table["sold"].dt.tz_localize("Asia/Tokyo"))
    zoned.to_parquet(tmp_path / "t.parquet")
    knotwork_json("fit", tmp_path / "t.parquet", "--target", "y", "--out", tmp_path / "m")
    model = kw.load(tmp_path / "m")
    assert model.encoder_.columns[1].zone == "Asia/Tokyo"
    found = knotwork_json("predict", tmp_path / "m", tmp_path / "t.parquet")["predictions"]["prediction"]
    np.testing.assert_allclose(found, model.predict(zoned[["city", "sold", "width"]]), rtol=1e-12)


def test_a_column_that_the_estimator_leaves_out_need_not_be_in_the_file(knotwork_json, table, tmp_path):
    noise = table.assign(city=[f"c{k}" for k in np.random.default_rng(5).integers(300, size=N)])
    noise.to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = knotwork_json("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m")
    assert "no more than by chance" in report["columns"]["left_out"]["city"]
    noise[["sold", "width"]].to_csv(tmp_path / "new.csv", index=False)
    assert knotwork_json("predict", tmp_path / "m", tmp_path / "new.csv")["rows"] == N


def test_dates_of_the_wrong_kind_are_named(refused, knotwork, table, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    knotwork("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m")
    table.assign(sold="tomorrow").to_csv(tmp_path / "new.csv", index=False)
    message = refused("predict", tmp_path / "m", tmp_path / "new.csv")
    assert "column 'sold' held dates in training and now holds text; convert it to dates, or write them as" in message
    message = refused("predict", tmp_path / "gone", tmp_path / "new.csv")
    assert "gone does not exist; check the path" in message
    table.assign(sold=table["sold"].dt.strftime("%d.%m.%Y")).to_csv(tmp_path / "t.csv", index=False)
    assert "ISO 8601" in refused("fit", tmp_path / "t.csv", "--target", "y")
