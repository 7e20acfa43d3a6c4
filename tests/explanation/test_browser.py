"""The report in a real browser: nothing breaks, nothing leaves the machine, nothing in the data runs."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import knotwork as kw
from tests.explanation.browser import BROWSER, DRIVER, MISSING, browser, requests, resize, theme

pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)

SECTIONS = [
    "overview",
    "quality",
    "importance",
    "effects",
    "interactions",
    "row",
    "knots",
    "training",
    "drift",
    "sparsity",
]
CHARTS = ["importance-chart", "row-chart", "training-chart", "drift-chart", "inputs-chart", "sparsity-chart"]
TABLES = ["quality-table", "knots-table", "knot-rows", "units-table"]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    pytest.importorskip("selenium", reason="selenium drives the browser: pip install -e '.[dev]'")
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        driver.get("about:blank")
        requests(driver)  # the browser's own first page
        yield driver


def open_page(driver, path):
    driver.get_log("browser")
    requests(driver)
    driver.get(path.as_uri())
    assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"


def outside(driver):
    return [url for url in requests(driver) if not url.startswith(("data:", "blob:", "file:", "chrome:"))]


@pytest.fixture(scope="module")
def abalone(tmp_path_factory):
    X, y = kw.datasets.load_abalone()
    model = kw.SplineNetRegressor(max_degree=2, epochs=6, random_state=0).fit(X, y)  # with interactions to show
    path = tmp_path_factory.mktemp("report") / "abalone.html"
    kw.explain(model, X, y).to_html(path)
    return model, X, path


def test_the_page_is_small_and_asks_for_nothing(driver, abalone):
    _, _, path = abalone
    assert path.stat().st_size < 3_000_000
    open_page(driver, path)
    assert driver.get_log("browser") == []
    assert outside(driver) == []


def test_every_section_has_something_in_it(driver, abalone):
    open_page(driver, abalone[2])
    shown = driver.execute_script(
        "return [...document.querySelectorAll('main > section:not([hidden])')].map(s => s.id)"
    )
    assert shown == SECTIONS
    for section in SECTIONS:
        assert len(driver.find_element("id", section).text) > 40
    for chart in CHARTS:
        marks = driver.execute_script(
            "return document.querySelectorAll('#' + arguments[0] + ' :is(.point, path.js-line, .hm image)').length",
            chart,
        )
        assert marks > 0, chart
    for table in TABLES:
        assert len(driver.find_elements("css selector", f"#{table} tbody tr")) > 0, table
    assert len(driver.find_elements("css selector", "#effects-grid .effect .main-svg")) >= 8
    assert len(driver.find_elements("css selector", "#nav a")) == len(SECTIONS)


def test_hovering_shows_values(driver, abalone):
    from selenium.webdriver import ActionChains

    open_page(driver, abalone[2])
    over = {"#importance-chart": ".point path", "#drift-chart": ".hm image", "#row-chart": ".point path"}
    for place in ("#importance-chart", "#effects-grid .effect", "#drift-chart", "#training-chart", "#row-chart"):
        chart = driver.find_element("css selector", place)
        driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", chart)
        target = chart.find_element("css selector", over.get(place, ".nsewdrag"))
        ActionChains(driver).move_to_element(target).move_by_offset(1, 1).pause(0.4).perform()
        text = driver.execute_script(
            "return [...arguments[0].querySelectorAll('.hoverlayer text')].map(t => t.textContent).join(' ')", chart
        )
        assert re.search(r"\d", text), (place, text)


def test_a_knot_shows_its_rows(driver, abalone):
    model, X, path = abalone
    open_page(driver, path)
    knots = kw.explain(model, X).knots
    for k in (1, len(knots) - 1):
        line = driver.find_elements("css selector", "#knots-table tbody tr")[k]
        driver.execute_script("arguments[0].click()", line)
        rows = driver.execute_script(
            "return [...document.querySelectorAll('#knot-rows tbody tr td:first-child')].map(c => c.textContent)"
        )
        assert [int(r) for r in rows] == knots["rows"][k][:12]
        assert driver.find_element("id", "knot-title").text.startswith(knots["feature"][k])


def prediction(driver):
    return json.loads(driver.find_element("id", "prediction").get_attribute("data-value"))


def set_control(driver, column, value):
    driver.execute_script(
        """const input = document.querySelector(`#sliders [data-column="${arguments[0]}"]`);
        input.value = arguments[1]; input.dispatchEvent(new Event("input", {bubbles: true}));""", column, str(value),
    )  # fmt: skip


def row_of(driver):
    return driver.execute_script(
        "return [...document.querySelectorAll('#sliders [data-column]')].map(i => Number(i.value))"
    )


def test_a_slider_moves_the_prediction_to_what_predict_says(driver, abalone):
    from selenium.webdriver import Keys

    model, X, path = abalone
    open_page(driver, path)
    number = int(driver.execute_script("return document.getElementById('row-number').selectedOptions[0].textContent"))
    assert prediction(driver) == pytest.approx(model.predict(X.iloc[[number]]), abs=1e-9)
    before = prediction(driver)
    row = X.iloc[[number]].copy()
    set_control(driver, 7, 0.61)
    row["Shell weight"] = 0.61
    assert prediction(driver) == pytest.approx(model.predict(row), abs=1e-5)
    assert prediction(driver) != pytest.approx(before, abs=1e-3)
    set_control(driver, 0, 1)  # the category I
    row["Sex"] = "I"
    assert prediction(driver) == pytest.approx(model.predict(row), abs=1e-5)
    # And by hand, as people do it.
    slider = driver.find_element("css selector", '#sliders [data-column="4"]')
    slider.send_keys(Keys.END)
    row["Whole weight"] = X["Whole weight"].max()
    assert prediction(driver) == pytest.approx(model.predict(row), abs=1e-5)
    assert float(driver.find_element("id", "prediction").text) == pytest.approx(prediction(driver)[0], rel=1e-5)
    driver.execute_script("document.getElementById('row-reset').click()")
    assert prediction(driver) == pytest.approx(before, abs=1e-12)


def test_dark_and_light_and_a_phone(driver, abalone):
    def paper():
        return driver.execute_script("return getComputedStyle(document.body).backgroundColor")

    try:
        theme(driver, "dark")
        open_page(driver, abalone[2])
        dark = paper()
        driver.execute_script("document.getElementById('theme').click()")
        light = paper()
        assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)))
        theme(driver, "light")
        open_page(driver, abalone[2])
        assert paper() == light
        resize(driver, 375, 800)
        open_page(driver, abalone[2])
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 375
        assert driver.get_log("browser") == []
    finally:
        theme(driver, "light")
        resize(driver, 1240, 900)


@pytest.mark.parametrize("activation", ["leaky_relu", "prelu", "softplus", "silu", "gelu", "elu", "relu6", "hardtanh"])
def test_the_page_computes_every_activation(driver, tmp_path, activation):
    X, y = kw.datasets.load_wine_quality("red")
    hidden = (64,) if activation in ("elu", "relu6", "hardtanh") else (64, 8)
    model = kw.SplineNetRegressor(hidden=hidden, activation=activation, epochs=1, random_state=0).fit(X, y)
    check_live(driver, tmp_path, model, X, y)


def test_the_page_computes_a_spline_of_several_responses(driver, tmp_path):
    X, y = kw.datasets.load_wine_quality("red")
    both = np.stack([y, y * X["alcohol"]], axis=1)
    check_live(driver, tmp_path, kw.MarsRegressor().fit(X, both), X, both)
    driver.execute_script(
        "const s = document.getElementById('output'); s.value = '1'; s.dispatchEvent(new Event('change'))"
    )
    assert float(driver.find_element("id", "prediction").text.replace(",", "")) == pytest.approx(
        prediction(driver)[1], rel=1e-4
    )
    assert driver.get_log("browser") == []


def check_live(driver, folder, model, X, y):
    kw.explain(model, X, y).to_html(folder / "page.html")
    open_page(driver, folder / "page.html")
    set_control(driver, 1, 0.7)
    set_control(driver, 10, 12.25)
    row = pd.DataFrame([row_of(driver)], columns=X.columns)
    expected = np.ravel(model.predict(row))
    assert prediction(driver) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert driver.get_log("browser") == []
    assert outside(driver) == []


NASTY = [
    "<script>window.hit = 1</script>",
    "</script><script>window.hit = 2</script>",
    '"><img src=x onerror="window.hit = 3">',
    "<b>bold</b> <a href='javascript:window.hit=4'>link</a>",
    "{{script}} ${window.hit = 5} %{x} \\u003c <!--",
    "quotes ' \" ` & &lt;b&gt; &amp;",
    "emoji 🐚👩‍🔬 \u2028\u2029 \u202e right to left",
    "long " + "x" * 495,
]


def test_nothing_in_the_data_runs_or_turns_into_markup(driver, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.normal(size=200) for name in NASTY[:-1]})
    X[NASTY[-1]] = rng.choice([*NASTY[:3], NASTY[-1], "plain"], 200)
    y = pd.Series(sum(np.abs(X[name]) for name in NASTY[:4]) + (X[NASTY[-1]] == "plain"), name=NASTY[2])
    model = kw.SplineNetRegressor(hidden=(64,), max_terms=30, epochs=2, random_state=0).fit(X, y)
    path = tmp_path / "nasty.html"
    explanation = kw.explain(model, X, y)
    explanation.to_html(path)
    source = path.read_text(encoding="utf-8")
    for name in NASTY[:4]:
        assert name not in source
    open_page(driver, path)
    assert driver.get_log("browser") == []
    assert outside(driver) == []
    assert driver.execute_script("return window.hit") is None
    # Names are there, letter by letter, as text.
    shown = driver.execute_script("return [...document.querySelectorAll('#sliders .name')].map(n => n.textContent)")
    assert shown == NASTY
    headings = driver.execute_script(
        "return [...document.querySelectorAll('#effects-grid h3')].map(n => n.textContent)"
    )
    assert sorted(headings) == sorted(NASTY)
    assert (
        driver.execute_script("return document.getElementById('headline').textContent") == f"What {NASTY[2]} depends on"
    )
    # No element came out of them: no picture, no link but the page's own, no bold label.
    assert driver.execute_script("return document.querySelectorAll('main img, main a, svg a, main iframe').length") == 0
    assert driver.execute_script("return document.querySelectorAll('script').length") == 3
    labels = driver.execute_script(
        "return [...document.querySelectorAll('#importance-chart .ytick text')].map(t => t.textContent)"
    )
    assert any(label.startswith("<script>window.hit") for label in labels)
    bold = driver.execute_script(
        "return [...document.querySelectorAll('.chart tspan')].filter(t => t.style.fontWeight === 'bold').length"
    )
    assert bold == 0
    # Every hover, every category, both themes: still nothing.
    for c in range(len(NASTY) - 1):
        set_control(driver, c, 0.3)
    for k in range(4):
        set_control(driver, len(NASTY) - 1, k)
    driver.execute_script("document.getElementById('theme').click()")
    driver.execute_script("document.querySelectorAll('.tabs button, #knots-table tr').forEach(b => b.click())")
    assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert driver.execute_script("return window.hit") is None
    assert driver.get_log("browser") == []
    # The notebook's table escapes them too.
    for name in NASTY[:4]:
        assert name not in explanation._repr_html_()
