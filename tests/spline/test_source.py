"""Source for other programs equals the spline on 1000 rows: Python, C by gcc, a spreadsheet by LibreOffice."""

from __future__ import annotations

import csv
import ctypes
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

import knotwork as kw
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.spline.model import Hinge, Linear, Spline
from knotwork.spline.source import MAX_FORMULA
from tests.spline.test_formula import HOSTILE

OFFICE = shutil.which("soffice") or shutil.which("libreoffice")


def _models():
    X, y = kw.datasets.load_abalone()
    clip = kw.MarsRegressor(max_degree=3).fit(X, y)
    linear = kw.MarsRegressor(extrapolate="linear").fit(X, y)
    product = kw.MarsRegressor(max_degree=2, interaction="product").fit(X, y)
    classes = kw.MarsClassifier().fit(X, X["Sex"])
    few = kw.MarsRegressor(max_degree=2, max_terms=12).fit(X, y)
    return {"clip": clip, "linear": linear, "product": product, "classes": classes, "few": few}, X


@pytest.fixture(scope="module")
def models():
    return _models()


def messy(rows, seed):
    """Numbers with gaps, text of few and of many categories, 0 and 1, a date, and a response of all of them."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({
        "length": np.where(rng.random(rows) < 0.2, np.nan, rng.gamma(2, 3, rows)),
        "sex": rng.choice(["F", "I", "M", None], rows), "city": rng.choice([f"city {k}" for k in range(50)], rows),
        "member": rng.choice([0.0, 1.0, np.nan], rows), "rings": rng.integers(0, 30, rows),
        "joined": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, rows), unit="D"),
    })  # fmt: skip
    y = X["length"].fillna(9).clip(upper=8) * (1 + (X["sex"] == "I")) + X["member"].fillna(3) + X["sex"].isna()
    y += 0.05 * X["city"].str[5:].astype(int) + 1e-3 * (X["joined"] - X["joined"].min()).dt.days
    return X, y - 0.2 * (X["rings"] - 12).clip(lower=0) + rng.normal(size=rows)


@pytest.fixture(scope="module")
def gaps():
    """A model of a table with gaps and categories, and 1000 rows that it has not seen."""
    model = kw.MarsRegressor(max_degree=2, max_terms=21).fit(*messy(3000, 0))
    return model, messy(1000, 1)[0]


def _check_gaps(gaps):
    """Return features of rows that have gaps, categories and dates in terms of the spline, and what predict says."""
    model, X = gaps
    used = {model.spline_.feature_names[f] for term in model.spline_.terms for f in term.features}
    assert used >= {"length", "length is missing", "sex=I", "city: mean", "joined", "rings"}, used
    assert X.isna().any(axis=1).sum() > 300
    return model.spline_, model.encoder_.encode(X), model.predict(X)


def _rows(model, X):
    """1000 rows, a third of them far outside the training range."""
    rng = np.random.default_rng(0)
    rows = model.encoder_.encode(X)[rng.permutation(len(X))[:1000]].copy()
    rows[::3] *= rng.uniform(-5, 5, size=rows[::3].shape)
    return rows


def _size(spline, rows):
    """Return what rounding is measured against: the sum of the parts."""
    return np.abs(spline.intercept) + np.abs(spline.basis(rows)) @ np.abs(spline.coef)


def _close(found, spline, rows):
    gap = np.abs(np.asarray(found).reshape(len(rows), -1) - spline(rows).reshape(len(rows), -1))
    assert (gap <= 1e-12 * np.maximum(1.0, _size(spline, rows))).all(), (gap / _size(spline, rows)).max()


@pytest.mark.parametrize("kind", ["clip", "linear", "product", "classes"])
def test_python_equals_predict(models, kind):
    fitted, X = models
    spline, rows = fitted[kind].spline_, _rows(fitted[kind], X)
    space: dict = {}
    exec(spline.to_python("f"), {"__builtins__": {"float": float}}, space)  # needs nothing
    _close([space["f"](row.tolist()) for row in rows], spline, rows)
    if kind == "clip":
        np.testing.assert_allclose(
            [space["f"](row) for row in fitted[kind].encoder_.encode(X.head(1000))],
            fitted[kind].predict(X.head(1000)),
            rtol=1e-12,
        )


def test_python_equals_predict_on_gaps_and_categories(gaps):
    spline, rows, expected = _check_gaps(gaps)
    space: dict = {}
    exec(spline.to_python(), space)
    np.testing.assert_allclose([space["predict"](row) for row in rows.tolist()], expected, rtol=1e-12)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_c_equals_predict_on_gaps_and_categories(gaps, tmp_path):
    spline, rows, expected = _check_gaps(gaps)
    function = _compiled(spline, tmp_path)
    pointer = ctypes.POINTER(ctypes.c_double)
    found = [function(row.ctypes.data_as(pointer)) for row in np.ascontiguousarray(rows)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("kind", ["clip", "linear", "product", "classes"])
def test_c_equals_predict(models, kind, tmp_path):
    fitted, X = models
    spline, rows = fitted[kind].spline_, np.ascontiguousarray(_rows(fitted[kind], X))
    function = _compiled(spline, tmp_path)
    outputs = spline.intercept.size
    found = np.empty((len(rows), outputs))
    pointer = ctypes.POINTER(ctypes.c_double)
    for row, out in zip(rows, found, strict=True):
        if outputs == 1:
            out[0] = function(row.ctypes.data_as(pointer))
        else:
            function(row.ctypes.data_as(pointer), out.ctypes.data_as(pointer))
    _close(found, spline, rows)


def _compiled(spline, folder):
    (folder / "f.c").write_text(spline.to_c("f"))
    flags = ["-std=c89", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", folder / "f.so", folder / "f.c"], check=True)
    function = ctypes.CDLL(str(folder / "f.so")).f
    function.restype = ctypes.c_double if spline.intercept.size == 1 else None
    return function


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_comments(name, tmp_path):
    spline = Spline((Hinge(0, 1.0, 1), Linear(1)), [0.0], [[1.0], [2.0]], (name, "y"), Limits([0.0, 0.0], [9.0, 9.0]))
    _compiled(spline, tmp_path)
    space: dict = {}
    exec(spline.to_python(), space)
    assert space["predict"]([3.0, 1.0]) == 4.0


def _calculated(spline, rows, folder):
    """Let LibreOffice evaluate the spline's formula on every row."""
    letters = [f"{chr(ord('A') + f)}" for f in range(rows.shape[1])]
    with (folder / "in.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*spline.feature_names, "f"])
        for k, row in enumerate(rows, start=2):
            formula = spline.to_excel_formula([f"{letter}{k}" for letter in letters])
            assert k != 2 or formula == spline.to_excel_formula()
            writer.writerow([*(repr(v) for v in row.tolist()), formula])
    profile = f"-env:UserInstallation=file://{folder}/profile"
    # Evaluate formulas; write values in full ("false" for as shown).
    options = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,false,false,false,-1"
    subprocess.run(
        [OFFICE, profile, "--headless", "--infilter=CSV:44,34,76,1,,1033,false,true,false,false,false,-1,true",
         "--convert-to", options, "--outdir", folder / "out", folder / "in.csv"],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (out,) = (folder / "out").glob("*.csv")
    with out.open(newline="") as file:
        return [float(line[-1]) for line in list(csv.reader(file))[1:]]


@pytest.mark.skipif(OFFICE is None, reason="needs LibreOffice (libreoffice-calc)")
@pytest.mark.parametrize("kind", ["few", "linear"])
def test_a_spreadsheet_equals_predict(models, kind, tmp_path):
    fitted, X = models
    spline, rows = fitted[kind].spline_, _rows(fitted[kind], X)
    _close(_calculated(spline, rows, tmp_path), spline, rows)


@pytest.mark.skipif(OFFICE is None, reason="needs LibreOffice (libreoffice-calc)")
def test_a_spreadsheet_equals_predict_on_gaps_and_categories(gaps, tmp_path):
    spline, rows, expected = _check_gaps(gaps)
    found = _calculated(spline, rows, tmp_path)
    size = _size(spline, rows).ravel()
    assert len(found) == 1000
    assert (np.abs(found - expected) <= 1e-12 * size).all(), (np.abs(found - expected) / size).max()


def test_nan_stays_nan_in_python():
    spline = Spline((Hinge(0, 1.0, 1),), [0.0], [[1.0]], ("x",), Limits([0.0], [2.0]))
    space: dict = {}
    exec(spline.to_python(), space)
    assert np.isnan(space["predict"]([float("nan")]))


def test_one_sentence_for_what_cannot_be_written():
    spline = Spline((Hinge(0, 1.0, 1),), [0.0, 1.0], [[1.0, 2.0]], ("x",))
    with pytest.raises(DataError, match="2 outputs; choose one"):
        spline.to_excel_formula()
    assert spline.to_excel_formula(output=1) == "=1+2*MAX(0,A2-1)"
    for wrong in (2, -1, True, "a"):
        with pytest.raises(DataError, match="output must be a number from 0 to 1"):
            spline.to_excel_formula(output=wrong)
    for wrong in (["A2", "B2"], "A2", [3]):
        with pytest.raises(DataError, match="cells must be the cells of the 1 features"):
            spline.to_excel_formula(cells=wrong, output=0)
    with pytest.raises(DataError, match="'x' has none"):
        spline.to_excel_formula(cells={"z": "A2"}, output=0)
    for wrong in ("for", "a b", "", 3, "f()"):
        with pytest.raises(DataError, match="name must be that of a function"):
            spline.to_python(wrong)
    for wrong in ("double", "hinge", "1f", None):
        with pytest.raises(DataError, match="name must be that of a function"):
            spline.to_c(wrong)
    many = Spline(tuple(Hinge(0, 0.1 + k / 7, 1) for k in range(300)), [0.0], np.full((300, 1), 1 / 3), ("x",))
    with pytest.raises(DataError, match=f"at most {MAX_FORMULA} characters"):
        many.to_excel_formula()


@pytest.mark.parametrize("name", ["namespace", "operator", "try", "and", "nullptr"])
def test_words_of_cpp_are_no_names(name):
    spline = Spline((Linear(0),), [0.0], [[1.0]], ("x",))
    with pytest.raises(DataError, match="name must be that of a function"):
        spline.to_c(name)


def test_a_function_that_would_call_itself_is_refused():
    with pytest.raises(DataError, match="name must be that of a function"):
        Spline((Linear(0),), [0.0], [[1.0]], ("x",)).to_python("float")
