"""Categories and dates that are the same, whichever library or file they come from and whatever row comes first."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import knotwork as kw
from knotwork.data.columns.series import recognised
from knotwork.errors import ColumnWarning, DataError

ROWS = 300
RNG = np.random.default_rng(0)
LENGTH = RNG.normal(size=ROWS)


@pytest.mark.parametrize("values", [[3, 5, 9], [True, False], ["a", "b", "c"]], ids=str)
def test_categories_are_the_same_from_arrow_and_from_files(values, knotwork, tmp_path):
    kind = pd.Categorical(np.random.default_rng(1).choice(values, size=ROWS))
    frame = pd.DataFrame({"x": LENGTH, "kind": kind})
    y = LENGTH + 2.0 * kind.codes
    model = kw.MarsRegressor().fit(frame, y)
    table = pa.Table.from_pandas(frame)
    np.testing.assert_array_equal(model.predict(table), model.predict(frame))
    assert kw.MarsRegressor().fit(table, y).spline_ == model.spline_
    pq.write_table(table, tmp_path / "t.parquet")
    kw.save(model, tmp_path / "m")
    knotwork("predict", tmp_path / "m", tmp_path / "t.parquet", "--out", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv").iloc[:, -1]
    np.testing.assert_allclose(written, model.predict(frame), rtol=1e-9)


def test_arrow_keeps_an_order():
    kind = pd.Categorical(RNG.choice(["low", "mid", "high"], ROWS), categories=["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"x": LENGTH, "kind": kind})
    one, other = (kw.MarsRegressor().fit(t, kind.codes) for t in (frame, pa.Table.from_pandas(frame)))
    assert one.encoder_.feature_names == other.encoder_.feature_names == ("x", "kind")


def test_a_mixture_of_texts_and_numbers_is_refused():
    kind = pd.Categorical(RNG.choice(np.array([1, "a", 2.5], dtype=object), ROWS))
    with pytest.raises(DataError, match=r"column 'kind' mix str and float and int; convert them with astype\(str\)"):
        kw.MarsRegressor().fit(pd.DataFrame({"x": LENGTH, "kind": kind}), LENGTH)


def test_what_is_not_known_stays():
    assert recognised(["3", "x", 5, "true"], [3, 5, True]) == [3, "x", 5, True]
    assert recognised(["3"], ["3", 3]) == ["3"]


@pytest.mark.parametrize("zone", ["America/New_York", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "Europe/Berlin"])
def test_dates_of_every_zone(zone):
    days = pd.Timestamp("2020-01-01 12:00") + pd.to_timedelta(RNG.integers(0, 900, ROWS), "D")
    frame = pd.DataFrame({"day": days.tz_localize(zone)})
    frame.loc[7, "day"] = pd.NaT
    utc = frame.assign(day=frame["day"].dt.tz_convert("UTC"))
    y = np.arange(ROWS) % 7 + LENGTH
    fits = [kw.MarsRegressor(penalty=0).fit(table, y) for table in (frame, utc)]
    np.testing.assert_allclose(fits[0].encoder_.encode(frame)[:, 0], fits[1].encoder_.encode(utc)[:, 0], atol=1)


def test_the_first_row_does_not_decide_about_time_zones():
    day = [f"2021-{month:02d}-05 00:00Z" for month in RNG.integers(1, 13, ROWS)]
    with pytest.warns(ColumnWarning, match="dates as text"):
        model = kw.MarsRegressor().fit(pd.DataFrame({"x": LENGTH, "day": day}), LENGTH)
    some = pd.DataFrame({"x": LENGTH[:4], "day": ["2021-03-01", *day[:3]]})
    np.testing.assert_array_equal(model.predict(some)[::-1], model.predict(some[::-1]))
