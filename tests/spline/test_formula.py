"""Formulas: digits that matter, 0/1 features in words, names that cannot steer what shows them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import knotwork as kw
from knotwork.data.columns.part import Part
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.spline.formula import DIGITS, short
from knotwork.spline.model import Hinge, Linear, Min, Product, Spline

SEX = (Part("length"), Part("sex", categories=("F", "I")))
NAMES = ("length", "sex=F", "sex=I")


def _spline(term, limits=True, parts=SEX):
    held = Limits([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]) if limits else None
    return Spline((term,), [2.0], [[3.0]], NAMES, held, parts)


def test_an_interaction_with_a_category_says_where():
    length = Hinge(0, 0.4, 1)
    high = Min((length, Hinge(2, 0.0, 1)), (1.0, 0.7))  # never reaches 0.7: length is at most 1
    assert str(_spline(high)).splitlines()[0] == "2 + 3·h(length - 0.4) where sex is I"
    capped = Min((length, Hinge(2, 0.0, 1)), (1.0, 0.25))
    assert str(_spline(capped)).splitlines()[0] == "2 + 3·min(h(length - 0.4), 0.25) where sex is I"
    other = Min((length, Hinge(2, 1.0, -1)), (1.0, 0.7))
    assert str(_spline(other)).splitlines()[0] == "2 + 3·h(length - 0.4) where sex is not I"
    product = Product((length, Hinge(1, 0.5, 1)))
    assert str(_spline(product)).splitlines()[0] == "2 + 1.5·h(length - 0.4) where sex is F"
    assert str(_spline(Linear(1))).splitlines()[0] == "2 + 3 where sex is F"
    both = Min((Hinge(1, 0.0, 1), Hinge(2, 1.0, -1)), (1.0, 0.5))
    assert str(_spline(both)).splitlines()[0] == "2 + 1.5 where sex is F and sex is not I"
    # Without limits nothing says that the constant is never reached.
    assert "min(h(length - 0.4), 0.7) where" in str(_spline(high, limits=False))
    assert "where" not in str(_spline(high, parts=None))


def test_words_say_what_the_term_is():
    """What is printed, evaluated by hand, is the term on all values that the features have."""
    rows = np.array([[x, f, i] for x in np.linspace(0, 1, 21) for f, i in ((0, 0), (1, 0), (0, 1))])
    for slope in (0.1, 0.3, 0.9):
        term = Min((Hinge(0, 0.4, 1), Hinge(2, 0.0, 1)), (1.0, slope))
        text = _spline(term).term_texts()[0]
        body, where = text.split(" where ")
        value = eval(  # a text that this test has just made
            body.replace("·", "*"), {"h": lambda u: np.maximum(0, u), "min": np.minimum, "length": rows[:, 0]}
        )
        assert where == "sex is I"
        np.testing.assert_allclose(np.where(rows[:, 2] == 1, value, 0.0), term(rows), atol=1e-12)


def test_a_fitted_model_reads_categories_gaps_dates_and_flags():
    rng = np.random.default_rng(0)
    n = 400
    days = pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    since = (days - pd.Timestamp("2021-03-01")).days.to_numpy()
    age = rng.uniform(20, 70, n)
    gaps = rng.random(n) < 0.2
    flag = rng.integers(0, 2, n)
    sex = rng.choice(["F", "I", "M"], n)
    y = 0.1 * np.maximum(since - 150, 0) + 5.0 * flag + 3.0 * gaps + (sex == "I") * 2.0 + rng.normal(0, 0.1, n)
    X = pd.DataFrame({"sold": days, "age": np.where(gaps, np.nan, age), "member": flag, "sex": sex})
    text = str(kw.MarsRegressor().fit(X, y).spline_)
    assert re.search(r"where member is 1$", text, re.M)
    assert re.search(r"where sex is I$", text, re.M) or re.search(r"where sex is", text)
    assert re.search(r"where age is missing$", text, re.M)
    assert re.search(r"h\(sold - 2021-0[78]-\d\d\)", text)


def test_large_knots_keep_the_digits_that_tell_them_apart():
    limits = Limits([1_000_000.0], [1_000_100.0])
    spline = Spline((Hinge(0, 1_000_041.25, 1), Hinge(0, 1_000_042.5, 1)), [0.0], [[1.0], [1.0]], ("id",), limits)
    assert "h(id - 1000041.25)" in str(spline)
    assert "h(id - 1000042.5)" in str(spline)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(-8, 8), st.floats(-8, 8))
def test_a_formula_as_printed_is_as_good_as_it_says(seed, size, scale):
    rng = np.random.default_rng(seed)
    low = rng.normal(0, 3) * 10.0**size
    limits = Limits([low], [low + 10.0**size])
    knots = rng.uniform(limits.lower[0], limits.upper[0], 4)
    terms = tuple(Hinge(0, float(k), int(s)) for k, s in zip(knots, rng.choice([-1, 1], 4), strict=True))
    coef = rng.normal(size=(4, 1)) * 10.0 ** (scale + rng.uniform(-2, 0, (4, 1)))
    spline = Spline(terms, [10.0**scale], coef, ("x",), limits)
    x = np.linspace(limits.lower[0], limits.upper[0], 201)
    lines = str(spline).splitlines()[:-1]
    formula = " ".join(lines).replace("·", "*")
    printed = eval(formula, {"h": lambda u: np.maximum(0, u), "x": x})  # a text that this test has just made
    ranges = np.abs(coef[:, 0]) * spline.basis(x[:, None]).max(axis=0)
    parts = ranges.max() + np.abs(coef).max() * np.abs(low) * 1e-11  # rounding of x - knot itself
    np.testing.assert_allclose(printed, spline(x[:, None]), rtol=0, atol=(2 * len(terms) + 1) * DIGITS * parts)


def test_coefficients_of_zero_without_limits():
    """Nothing is multiplied by infinity; warnings are errors here."""
    spline = Spline((Hinge(0, 0.5, 1), Linear(1)), [1.0], [[2.0], [-0.0]], ("a", "b"))
    assert "h(a - 0.5)" in str(spline)


def test_numbers_are_written_as_people_write_them():
    assert [short(v, None) for v in (0.0, -3.0, 2003.25, 1_000_000.0, 1e-7, 1e20, 0.1 + 0.2)] == [
        "0", "-3", "2003.25", "1000000", "1e-07", "1e+20", "0.3",
    ]  # fmt: skip
    assert [short(12345.6789, q) for q in (100.0, 1.0, 0.05)] == ["12346", "12346", "12345.68"]


HOSTILE = ['<script>alert("1")</script>', "a\nb", "\\input{x}$%_^~#&{}", "*/ int main() { /*", "\x1b[31m", "'''\"\"\""]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_everywhere(name):
    spline = Spline((Hinge(0, 1.0, 1), Linear(1)), [0.0], [[1.0], [2.0]], (name, "y"))
    assert "\n" not in spline.term_texts()[0]
    assert "\x1b" not in str(spline)
    page = spline._repr_html_()
    assert "<script" not in page
    latex = spline._repr_latex_()
    assert "\\input" not in latex
    assert "\x1b" not in latex
    inner = latex.removeprefix("$").removesuffix("$")
    assert not re.search(r"(?<!\\)\$", inner)
    assert not re.search(r"(?<!\\)%", inner)


def test_estimators_show_themselves_in_notebooks():
    X, y = kw.datasets.load_abalone()
    model = kw.MarsRegressor()
    assert model._repr_latex_() is None
    assert "h(u)" not in model._repr_mimebundle_()["text/html"]
    model.fit(X, y)
    assert "h(Shell weight" in model._repr_mimebundle_()["text/html"]
    assert "aligned" in model._repr_latex_()
    classes = kw.MarsClassifier().fit(X, X["Sex"])
    assert classes._repr_latex_().count("f_{") == 3
    assert "<th>3</th>" in classes._repr_html_()


def test_parts_are_checked_and_kept():
    with pytest.raises(DataError, match="parts must be those of the 3 features, got 1"):
        Spline((Linear(0),), [0.0], [[1.0]], NAMES, None, (Part("a"),))
    with pytest.raises(DataError, match="parts must be a tuple of Part"):
        Spline((Linear(0),), [0.0], [[1.0]], NAMES, None, ("a",))
    spline = _spline(Linear(0))
    assert Spline.from_dict(spline.to_dict()) == spline
    assert Spline.from_dict(spline.to_dict()).parts == SEX
    old = {key: value for key, value in spline.to_dict().items() if key != "parts"}
    assert Spline.from_dict(old).parts is None
