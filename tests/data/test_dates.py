"""Dates, durations and times of the day: numbers that people understand, and dates again where they are shown."""

import datetime as dt

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import knotwork as kw
from knotwork.data.columns.date import Date
from knotwork.data.columns.duration import Duration
from knotwork.data.columns.instants import lengths
from knotwork.data.learn import learn_encoder, learn_table
from knotwork.errors import ColumnWarning, DataError, MissingWarning

N = 900
rng = np.random.default_rng(0)
DAYS = np.sort(rng.integers(0, 1200, size=N))
SOLD = pd.Timestamp("2019-03-05") + pd.to_timedelta(DAYS, unit="D")
WEEKEND = SOLD.day_of_week >= 5
Y = (
    np.maximum(DAYS - 700, 0) / 100
    + 2 * WEEKEND
    + np.sin(2 * np.pi * SOLD.day_of_year / 365)
    + 0.05 * rng.normal(size=N)
)
PYTHON = [d.date() for d in SOLD]
FRAMES = {
    "pandas": pd.DataFrame({"sold": SOLD}),
    "pandas ns": pd.DataFrame({"sold": SOLD.astype("datetime64[ns]")}),
    "pandas arrow": pd.DataFrame({"sold": SOLD}).astype({"sold": "timestamp[us][pyarrow]"}),
    "Python's dates": pd.DataFrame({"sold": PYTHON}),
    "polars date": pl.DataFrame({"sold": PYTHON}),
    "polars datetime": pl.DataFrame({"sold": SOLD.to_pydatetime().tolist()}),
    "pyarrow date": pa.table({"sold": pa.array(PYTHON)}),
    "pyarrow timestamp": pa.table({"sold": pa.array(SOLD.to_pydatetime().tolist(), pa.timestamp("ms"))}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_dates_of_every_library_encode_alike(kind):
    encoder, matrix = learn_table(FRAMES[kind])
    expected = learn_encoder(FRAMES["pandas"])
    assert encoder == expected
    assert encoder.feature_names == ("sold", "sold: day of year", "sold: weekday")
    assert np.array_equal(encoder.encode(FRAMES[kind]), matrix)
    np.testing.assert_array_equal(matrix[:, 0], DAYS - DAYS[0])
    np.testing.assert_array_equal(matrix[:, 1], SOLD.day_of_year)
    np.testing.assert_array_equal(matrix[:, 2], SOLD.day_of_week)


def test_a_spline_of_dates_is_shown_with_dates(tmp_path):
    frame = FRAMES["pandas"]
    model = kw.MarsRegressor().fit(frame, Y)
    assert model.rsq_ > 0.98
    start = SOLD[0].strftime("%Y-%m-%d")
    assert f"sold: days since {start}" in model.summary()
    explanation = kw.explain(model, frame, Y)
    assert list(explanation.effects) == ["sold", "sold: day of year", "sold: weekday"]
    knots = explanation.knots.query("feature == 'sold'")
    near = [abs((pd.Timestamp(text) - pd.Timestamp("2021-02-02")).days) for text in knots["shown"]]
    assert min(near) < 60
    for text, rows in zip(knots["shown"], knots["rows"], strict=True):
        assert (SOLD[rows] == pd.Timestamp(text)).all()
        assert text in model.summary()
    assert set(explanation.knots.query("feature == 'sold: weekday'")["shown"]) <= {
        "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"
    }  # fmt: skip
    explanation.to_html(tmp_path / "report.html")
    assert '"shown":"20' in (tmp_path / "report.html").read_text()
    axes = explanation.plot_effects(["sold"])
    axes[0, 0].figure.canvas.draw()
    assert any(label.get_text().startswith("20") for label in axes[0, 0].get_xticklabels())
    kw.save(model, tmp_path / "m")
    again = kw.load(tmp_path / "m")
    assert again.encoder_ == model.encoder_
    assert np.array_equal(again.predict(FRAMES["polars date"]), model.predict(frame))


def test_calendars_only_where_they_repeat():
    day = pd.Timestamp("2020-01-01")
    week = pd.DataFrame({"t": day + pd.to_timedelta(np.arange(10), unit="D")})
    assert learn_encoder(week).feature_names == ("t",)
    year = pd.DataFrame({"t": day + pd.to_timedelta(np.arange(100), unit="D")})
    assert learn_encoder(year).feature_names == ("t", "t: weekday")
    hours = pd.DataFrame({"t": day + pd.to_timedelta(np.arange(100), unit="h")})
    assert learn_encoder(hours).feature_names == ("t", "t: hour")
    weekly = pd.DataFrame({"t": day + pd.to_timedelta(7 * np.arange(20), unit="D")})
    assert learn_encoder(weekly).feature_names == ("t",)


def test_time_zones():
    """Instants count in UTC; the calendar is that of the column's own zone."""
    local = pd.date_range("2021-03-20", periods=30, freq="D", tz="Europe/Berlin")  # summer time begins on the 28th
    frame = pd.DataFrame({"t": local})
    encoder, matrix = learn_table(frame)
    assert encoder.columns[0].zone == "Europe/Berlin"
    assert encoder.columns[0].daily
    np.testing.assert_allclose(np.diff(matrix[:, 0])[[0, 8]], [1.0, 23 / 24])
    np.testing.assert_array_equal(matrix[:, 1], local.day_of_week)
    part = encoder.parts[0]
    assert [part.text(v) for v in matrix[[0, 8, 20], 0]] == ["2021-03-20", "2021-03-28", "2021-04-09"]
    for other in (frame.assign(t=local.tz_convert("UTC")), pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        assert np.array_equal(encoder.encode(other), matrix)
    with pytest.raises(DataError, match=r"column 't' had the time zone .* in training and now has none; say in which"):
        encoder.encode(frame.assign(t=local.tz_localize(None)))
    naive = learn_encoder(frame.assign(t=local.tz_localize(None)))
    with pytest.raises(DataError, match="had no time zone in training and now has Europe/Berlin; convert it"):
        naive.encode(frame)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_table_with_nothing_but_gaps_for_dates(zone):
    model = kw.MarsRegressor().fit(pd.DataFrame({"t": pd.Series(SOLD).dt.tz_localize(zone)}), Y)
    for nothing in ([None], [""], [pd.NaT]):
        with pytest.warns(MissingWarning, match="'t'"):
            value = model.predict(pd.DataFrame({"t": pd.Series(nothing, dtype=object)}))
        assert np.isfinite(value).all()


def test_words_for_no_value_among_dates_as_text():
    texts = ["" if k % 9 == 0 else f"{d:%Y-%m-%d}" for k, d in enumerate(PYTHON)]
    with pytest.warns(ColumnWarning, match="'sold' holds dates as text and is read as dates, '' as missing"):
        encoder, matrix = learn_table(pd.DataFrame({"sold": texts}))
    assert encoder.feature_names[:2] == ("sold", "sold is missing")
    assert np.array_equal(encoder.encode(pd.DataFrame({"sold": texts})), matrix)


def test_gaps_in_dates():
    gaps = rng.random(N) < 0.1
    column = pd.Series(SOLD).mask(gaps)
    y = np.where(gaps, 8.0, Y)
    model = kw.MarsRegressor().fit(pd.DataFrame({"sold": column}), y)
    assert model.encoder_.feature_names == ("sold", "sold is missing", "sold: day of year", "sold: weekday")
    assert abs(model.predict(pd.DataFrame({"sold": [pd.NaT]}, dtype="datetime64[us]"))[0] - 8) < 0.5
    polars = pl.DataFrame({"sold": [None if gap else d for d, gap in zip(PYTHON, gaps, strict=True)]})
    assert np.array_equal(model.predict(polars), model.predict(pd.DataFrame({"sold": column})))
    full = learn_encoder(FRAMES["pandas"])
    with pytest.warns(MissingWarning, match="'sold'"):
        found = full.encode(pd.DataFrame({"sold": [pd.NaT, SOLD[0]]}))
    assert found[0, 0] == np.median(DAYS - DAYS[0])
    with pytest.raises(DataError, match="column 'sold' has"):
        kw.MarsRegressor(missing="error").fit(pd.DataFrame({"sold": column}), y)


@pytest.mark.parametrize(
    ("texts", "zone"),
    [([d.isoformat() for d in PYTHON], None), ([f"{d} 00:00:00" for d in PYTHON], None),
     ([f"{d}T00:00:00Z" for d in PYTHON], "UTC")],
    ids=["date", "datetime", "zone"],
)  # fmt: skip
def test_iso_dates_as_text_are_read_as_dates_and_said(texts, zone):
    with pytest.warns(ColumnWarning, match="column 'sold' holds dates as text and is read as dates"):
        encoder, matrix = learn_table(pd.DataFrame({"sold": texts}))
    assert encoder.columns[0].zone == zone
    np.testing.assert_array_equal(matrix[:, 0], DAYS - DAYS[0])
    if zone is None:
        assert np.array_equal(encoder.encode(FRAMES["polars date"]), matrix)
    with pytest.raises(DataError, match="column 'sold' held dates in training"):
        encoder.encode(pd.DataFrame({"sold": ["yesterday"]}))


def test_text_that_only_looks_like_dates_stays_text():
    frame = pd.DataFrame({"code": ["2020-13-45", "2020-01-01"] * 5})
    assert learn_encoder(frame).feature_names == ("code=2020-01-01", "code=2020-13-45")


def test_durations_and_times_of_the_day():
    hours = rng.integers(1, 400, size=100)
    lengths = [dt.timedelta(hours=int(h)) for h in hours]
    times = [dt.time(int(h) % 24, 30) for h in hours]
    frames = [
        pd.DataFrame({"lasted": lengths, "at": times}),
        pl.DataFrame({"lasted": lengths, "at": times}),
        pa.table({"lasted": lengths, "at": times}),
        pd.DataFrame({"lasted": pd.Series(lengths, dtype=object), "at": times}),
    ]
    expected = np.column_stack([hours / 24, hours % 24 + 0.5])
    for frame in frames:
        encoder, matrix = learn_table(frame)
        assert [type(c) for c in encoder.columns] == [Duration, Duration]
        assert [c.unit for c in encoder.columns] == ["days", "hours"]
        np.testing.assert_allclose(matrix, expected)
        assert all(np.array_equal(encoder.encode(other), matrix) for other in frames)
    short = learn_encoder(pd.DataFrame({"lasted": pd.to_timedelta([10, 20], unit="s")}))
    assert short.columns[0].unit == "seconds"
    assert short.parts[0].text(10.0) == "10 seconds"


def test_far_dates_keep_their_microseconds():
    stamps = pd.Series(
        pd.to_datetime(["2024-01-01T00:00:00.000001", "2024-01-01T00:00:00.000002", "2024-06-01"], format="ISO8601")
    )
    matrix = learn_table(pd.DataFrame({"t": stamps}))[1]
    np.testing.assert_allclose(np.diff(matrix[:2, 0]) * 86400e6, 1.0, rtol=1e-3)


def test_classes_and_networks_take_dates():
    frame = FRAMES["pandas"].assign(a=rng.normal(size=N))
    net = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=3, random_state=0).fit(frame, Y)
    assert net.score(frame, Y) > 0.9
    assert isinstance(net.encoder_.columns[0], Date)
    kw.explain(net, frame, Y).effects["sold"]


def test_durations_keep_every_microsecond():
    exact = np.arange(2_902_423_000, 2_902_423_400)
    series = pd.Series(exact.astype("timedelta64[us]"))
    series.iloc[3] = pd.NaT
    for table in (pd.DataFrame({"took": series}), pl.DataFrame({"took": series})):
        found = lengths(nw.from_native(table, eager_only=True)["took"], "took")
        assert np.isnan(found[3])
        assert np.delete(found, 3).tolist() == np.delete(exact, 3).tolist()
