"""Dates, durations and times of the day in ONNX files: days, the calendar and time zones, against predict and numpy."""

import datetime as dt
import warnings
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
from onnx import TensorProto, helper

import knotwork as kw
from knotwork.data.columns.date import CALENDAR, Date
from knotwork.errors import DataError
from knotwork.export import onnx_feed
from knotwork.export.dates import date
from knotwork.export.nodes import Nodes
from tests.export.test_columns import NET, TOLERANCE, outputs, quietly, session_of

ZONES = [None, "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca"]


def run(column, seconds):
    """Run the nodes of a date alone: (N,) → (N, features)."""
    nodes = Nodes(np.dtype(float), ("x", "y"))
    nodes.output(nodes.node("Concat", *date(nodes, "x", column), axis=1), "y")
    graph = helper.make_graph(
        nodes.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["rows", 1])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)], initializer=nodes.tensors,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": seconds[:, None]})[0]


@pytest.mark.parametrize("zone", ZONES)
def test_the_calendar_is_that_of_numpy(zone):
    """Every day of four centuries, the last microsecond before it, and random moments."""
    days = np.arange(np.datetime64("1701-01-01"), np.datetime64("2262-01-01")).astype("datetime64[us]").astype(np.int64)
    rng = np.random.default_rng(0)
    moments = np.concatenate([days, days - 1, rng.integers(days[0], days[-1], 50_000)]).astype(float)
    if zone not in (None, "UTC"):  # the file knows the changes of the clocks of these years
        first, last = (np.datetime64(year, "us").astype(float) for year in ("1900", "2100"))
        moments = moments[(moments > first) & (moments < last)]
    column = Date("x", 1.5e15, zone, tuple(CALENDAR), daily=False)
    found = run(column, moments / 1e6)
    # Seconds of 1701 as a double are off by a microsecond or two: ask about the moments that the file was told.
    told = np.rint(moments / 1e6 * 1e6)
    expected = np.empty((len(told), 4))
    column.write_moments(told, expected)
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-15)
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], rtol=0, atol=1e-9)


def frame(rows=500, seed=0):
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2019-03-01 05:00")
    when = pd.Series(start + pd.to_timedelta(rng.integers(0, 4 * 365 * 86_400, rows), unit="s"))
    X = pd.DataFrame({
        "when": when, "zoned": when.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"),
        "day": when.dt.normalize().sample(frac=1, random_state=0, ignore_index=True),
        "took": pd.to_timedelta(rng.exponential(3600, rows).round(3), unit="s"), "x": rng.normal(size=rows),
    })  # fmt: skip
    calendar = when.dt.hour + when.dt.day_of_week + 2 * np.sin(X["day"].dt.day_of_year / 58)
    y = calendar + X["took"].dt.total_seconds() / 3600 + (when - start).dt.days / 300 + X["x"]
    X.loc[rng.random(rows) < 0.1, "day"] = pd.NaT
    return X, y.to_numpy()


def strange(X):
    odd = X.sample(200, random_state=1, ignore_index=True)
    rng = np.random.default_rng(1)
    for name in odd.columns:
        odd.loc[rng.random(len(odd)) < 0.15, name] = pd.NaT if odd[name].dtype.kind in "mM" else np.nan
    odd.loc[0, "when"] = pd.Timestamp("1950-02-28 23:59:59.999999")
    odd.loc[1, "zoned"] = pd.Timestamp("2040-02-29 12:00", tz="Europe/Berlin")
    return odd


@pytest.mark.parametrize(
    "model", [kw.MarsRegressor(), kw.SplineNetRegressor(n_members=1, **NET), kw.MarsRegressor(max_degree=2)]
)
def test_dates_and_durations_on_the_raw_table(tmp_path, model):
    X, y = frame()
    model.fit(X, y)
    assert {"when: hour", "when: weekday"} <= set(model.encoder_.feature_names)
    kw.export_onnx(model, tmp_path / "m.onnx")
    for rows in (X, strange(X), pl.from_pandas(X), X.convert_dtypes(dtype_backend="pyarrow")):
        values = outputs(tmp_path / "m.onnx", rows)["prediction"][:, 0]
        assert np.abs(values - quietly(model.predict, rows)).max() <= TOLERANCE * y.std()


def test_texts_of_dates_and_times_of_the_day(tmp_path):
    X, y = frame()
    rows = pd.DataFrame({
        "when": X["when"].dt.strftime("%Y-%m-%d %H:%M:%S"), "clock": [t.time() for t in X["when"]], "x": X["x"],
    })  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that texts are taken for dates
        model = kw.MarsRegressor().fit(rows, y)
    kw.export_onnx(model, tmp_path / "m.onnx")
    assert {i.type for i in session_of(tmp_path / "m.onnx").get_inputs()} == {"tensor(double)"}
    values = outputs(tmp_path / "m.onnx", rows)["prediction"][:, 0]
    assert np.abs(values - quietly(model.predict, rows)).max() <= TOLERANCE * y.std()


def test_a_file_is_told_seconds(tmp_path):
    X, y = frame()
    model = kw.MarsRegressor().fit(X[["zoned", "took"]], y)
    kw.export_onnx(model, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    one = pd.DataFrame({
        "zoned": [dt.datetime(2020, 7, 1, 12, 30, tzinfo=dt.UTC)], "took": [dt.timedelta(hours=2, milliseconds=1)],
    })  # fmt: skip
    one["zoned"] = one["zoned"].dt.tz_convert("Europe/Berlin")
    fed = onnx_feed(session, one)
    assert fed["zoned"].tolist() == [[1593606600.0]]
    assert fed["took"].tolist() == [[7200.001]]
    with pytest.raises(DataError, match="column 'zoned' has None and had Europe/Berlin"):
        onnx_feed(session, one.assign(zoned=one["zoned"].dt.tz_localize(None)))


def test_gaps_that_are_refused_are_nan(tmp_path):
    X, y = frame()
    model = kw.MarsRegressor(missing="error").fit(X[["when", "took"]], y)
    kw.export_onnx(model, tmp_path / "m.onnx")
    rows = X[["when", "took"]].head(3).copy()
    rows.loc[1, "when"], rows.loc[2, "took"] = pd.NaT, pd.NaT
    assert np.isnan(outputs(tmp_path / "m.onnx", rows)["prediction"][:, 0]).tolist() == [False, True, True]


def test_a_column_of_a_part_that_onnx_has_not(tmp_path):
    column = replace(Date("x", 0.0, None, ("weekday",), daily=True), calendar=("moon",))
    with pytest.raises(kw.errors.NetworkError, match="pass inputs='features'"):
        date(Nodes(np.dtype(float)), "x", column)
