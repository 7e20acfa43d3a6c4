"""The report as people see it: labels that can be read, bars with their numbers, no empty room, in a real browser."""

import numpy as np
import pandas as pd
import pytest

import knotwork as kw
from tests.explanation.browser import BROWSER, DRIVER, MISSING, open_page, resize, texts, theme

pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)

# Labels of charts that are cut off by the border or lie upon each other; boxes of slanted ones say less.
CLASHES = """
const found = [];
for (const chart of document.querySelectorAll('.chart:has(.main-svg)')) {
  const name = chart.id || chart.closest('.card').textContent.slice(0, 30), frame = chart.getBoundingClientRect();
  for (const kind of ['.xtick', '.ytick, .y2tick', '.bartext, .annotation-text']) {
    const boxes = [...chart.querySelectorAll(kind)].map((e) => e.matches('text') ? e : e.querySelector('text'))
      .filter((e) => e && e.textContent && !/rotate\\(-?(30|45)/.test(e.getAttribute('transform') || ''))
      .map((e) => [e.textContent, e.getBoundingClientRect()]);
    boxes.forEach(([text, a], i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1)
        found.push(`${name}: ${text} is cut`);
      for (const [other, b] of boxes.slice(i + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 2 && down > 4) found.push(`${name}: ${text} upon ${other}`);
      }
    });
  }
}
return found;"""
# Pixels between the last thing in a card and its border.
ROOM = """
return [...document.querySelectorAll('section:not([hidden]) .card')].filter((c) => c.offsetHeight).map((card) => {
  const last = [...card.children].filter((e) => e.offsetHeight).pop();
  return [card.textContent.slice(0, 30), card.getBoundingClientRect().bottom - last.getBoundingClientRect().bottom];
});"""


@pytest.fixture(scope="module")
def shops():
    """A table with all kinds of columns, and a response."""
    rng = np.random.default_rng(0)
    n = 1500
    X = pd.DataFrame({
        "year": rng.integers(1995, 2024, n), "customer": rng.integers(10_000_000, 99_999_999, n),
        "children": rng.choice([0.0, 1.0, np.nan], n, p=[0.5, 0.4, 0.1]),
        "city": rng.choice([f"city {k}" for k in range(60)], n),
        "shop": rng.choice([f"shop of the number {k}" for k in range(12)], n),
        "plan": rng.choice(["basic", "plus", "premium"], n),
        "joined": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, n), unit="D"),
        "distance": np.where(rng.random(n) < 0.15, np.nan, rng.gamma(2, 10, n)),
    })  # fmt: skip
    y = 0.1 * (X["year"] - 2010) + X["children"].fillna(2) + 0.02 * X["city"].str[5:].astype(int)
    y += 0.2 * X["shop"].str[19:].astype(int) + (X["plan"] == "basic")
    y += 5e-4 * (X["joined"] - X["joined"].min()).dt.days + X["distance"].isna() + 3e-8 * X["customer"]
    return X, (y + 0.3 * rng.normal(size=n)).rename("spend")


@pytest.fixture(scope="module")
def pages(shops, tmp_path_factory):
    """Reports of a spline with folds, a network with members, and three classes."""
    X, y = shops
    folder = tmp_path_factory.mktemp("layout")
    classes = pd.Series(pd.cut(y, [-99, y.quantile(0.3), y.quantile(0.7), 99], labels=["low", "middle", "high"]))
    models = {
        "spline": (kw.MarsRegressor(), y),
        "network": (kw.SplineNetRegressor(hidden=(64,), n_members=2, epochs=2, random_state=0), y),
        "classes": (kw.MarsClassifier(), classes.astype(str).rename("level")),
    }
    for name, (model, target) in models.items():
        kw.explain(model.fit(X[:1000], target[:1000]), X[1000:], target[1000:]).to_html(folder / f"{name}.html")
    return folder


@pytest.mark.parametrize("width", [1240, 390])
@pytest.mark.parametrize("name", ["spline", "network", "classes"])
def test_labels_are_whole_and_apart(driver, pages, name, width):
    try:
        resize(driver, width, 900)
        open_page(driver, pages / f"{name}.html")
        assert driver.execute_script(CLASHES) == []
    finally:
        resize(driver, 1240, 900)


@pytest.mark.parametrize("name", ["spline", "network", "classes"])
def test_cards_have_no_empty_room(driver, pages, name):
    open_page(driver, pages / f"{name}.html")
    assert [(card, room) for card, room in driver.execute_script(ROOM) if room > 80] == []


def effect(driver, column, script):
    """Run a script on the card of a column, ``card``."""
    return driver.execute_script(
        "const card = [...document.querySelectorAll('#effects-grid .card')]"
        ".find((c) => c.querySelector('h3').textContent === arguments[0]);" + script, column
    )  # fmt: skip


def test_every_bar_of_an_effect_has_its_number(driver, pages):
    marks = "return ['.bars .point', '.annotation-text'].map((s) => card.querySelectorAll(s).length)"
    for name, models in (("spline", 1), ("network", 2)):
        open_page(driver, pages / f"{name}.html")
        assert effect(driver, "plan", marks) == [3 * models] * 2
        assert effect(driver, "children", marks) == [3 * models] * 2  # 0, 1 and missing
        assert effect(driver, "shop", marks) == [12, 12]  # many: the model's bars alone, the spline is a mark
    ticks = "return [...card.querySelectorAll('.ytick text')].map((t) => t.textContent)"
    wanted = [f"shop of …number {k}" if k < 10 else f"shop of …umber {k}" for k in range(12)]
    assert sorted(effect(driver, "shop", ticks)) == sorted(wanted)


def test_axes_say_years_ids_and_dates_as_people_do(driver, pages):
    open_page(driver, pages / "spline.html")
    ticks = "return [...card.querySelectorAll('.xtick text')].map((t) => t.textContent)"
    assert effect(driver, "year", ticks) == ["1995", "2000", "2005", "2010", "2015", "2020"]
    assert effect(driver, "customer", ticks) == ["20000000", "60000000"]
    assert effect(driver, "joined", ticks) == ["2016", "2018", "2020", "2022"]
    assert effect(driver, "children", ticks) == ["0", "1", "missing"]


def test_many_categories_say_what_they_count_as(driver, pages):
    open_page(driver, pages / "spline.html")
    said = effect(driver, "city: mean", "return card.querySelector('details').textContent")
    assert said.startswith("60 categories, each drawn at its mean response")
    assert "Highest: city 5" in said


def test_missing_is_a_value_to_choose(driver, pages, shops):
    X, y = shops
    model = kw.MarsRegressor().fit(X[:1000], y[:1000])
    open_page(driver, pages / "spline.html", draw=False)
    number = int(driver.execute_script("return document.getElementById('row-number').selectedOptions[0].textContent"))
    row = X[1000:].iloc[[number]].copy()
    for chosen, value in (("", np.nan), ("1", 1.0)):
        driver.execute_script(
            """const input = document.querySelector('#row-controls select[aria-label="children"]');
            input.value = arguments[0]; input.dispatchEvent(new Event("input", {bubbles: true}));""", chosen,
        )  # fmt: skip
        row["children"] = value
        shown = driver.find_element("id", "prediction").get_attribute("data-value")
        assert float(shown.strip("[]")) == pytest.approx(model.predict(row)[0], abs=1e-9)


def test_the_answer_of_classes_is_a_probability_and_stays_in_view(driver, pages):
    open_page(driver, pages / "classes.html")
    assert driver.find_element("id", "answer-name").text == "probability of high"
    assert driver.find_element("id", "prediction").text.endswith("%")
    assert "the centred logit of high" in driver.find_element("id", "row-title").text
    driver.execute_script(
        "document.getElementById('sliders').lastChild.scrollIntoView({block: 'end', behavior: 'instant'})"
    )
    top, bottom = driver.execute_script(
        "const r = document.getElementById('prediction').getBoundingClientRect(); return [r.top, r.bottom]"
    )
    assert 0 < top < bottom < 900


def test_cells_of_the_confusion_matrix_have_shares(driver, pages):
    theme(driver, "dark")
    try:
        open_page(driver, pages / "classes.html")
        counts = np.array([int(t) for t in texts(driver, "#confusion td span")]).reshape(3, 3)
        shares = 100 * counts / counts.sum(axis=1, keepdims=True)
        shown = [float(t.split()[0]) for t in texts(driver, "#confusion small")]
        np.testing.assert_allclose(shown, shares.ravel(), atol=0.51)
    finally:
        theme(driver, "light")


def test_the_table_marks_what_the_pictures_show(driver, tmp_path):
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.SplineNetRegressor(hidden=(32,), n_members=2, epochs=2, random_state=0).fit(X[:500], y[:500])
    kw.explain(model, X[:500], y[:500]).to_html(tmp_path / "page.html")
    open_page(driver, tmp_path / "page.html", draw=False)
    assert driver.find_element("id", "quality-basis").text == "out-of-fold"
    assert texts(driver, "#quality-table tr.best td:first-child") == ["out-of-fold prediction"]


def odd_tables():
    """Name, model, table and response; the rows to explain are the first ones."""
    rng = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame(
        {"a": rng.normal(size=n), "constant": 1.0, "nothing": np.nan, "cat": rng.choice(["", "missing"], n)}
    )
    y = X["a"] + (X["cat"] == "")
    yield "one row", kw.MarsRegressor(), X, y, 1
    sizes = [rng.normal(size=n) * 1e300, rng.normal(size=n) * 1e-300, rng.integers(0, 2**53, n).astype(float)]
    huge = pd.DataFrame(np.transpose(sizes), columns=["huge", "tiny", "<b>id</b>"])
    yield "huge", kw.MarsRegressor(), huge, (huge["huge"] / 1e100).rename("$y$"), n
    classes = pd.Series([f"class number {k}" for k in rng.integers(0, 30, n)], name="many")
    yield "many classes", kw.MarsClassifier(), X[["a", "cat"]], classes, n
    rare = pd.Series(np.where(X["a"] > 0, "p", "q"), name="kind")
    rare[[3, 7]] = "rare"
    yield "two of a class", kw.MarsClassifier(), X[["a", "cat"]], rare, n
    hours = X.assign(hours=pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 4000, n), unit="min"))
    yield "hours", kw.MarsRegressor(), hours, y + (hours["hours"].dt.day == 2), n


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", list(odd_tables()), ids=lambda case: case[0])
def test_odd_tables_make_whole_pages(driver, tmp_path, case):
    _, model, X, y, rows = case
    kw.explain(model.fit(X, y), X[:rows], y[:rows]).to_html(tmp_path / "page.html")
    try:
        for width in (1240, 390):
            resize(driver, width, 900)
            open_page(driver, tmp_path / "page.html")
            assert driver.get_log("browser") == []
            assert driver.execute_script(CLASHES) == []
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            shown = driver.find_element("tag name", "body").text + " ".join(texts(driver, "svg text"))
            assert not [word for word in ("NaN", "undefined", "[object", "Infinity") if word in shown]
    finally:
        resize(driver, 1240, 900)
