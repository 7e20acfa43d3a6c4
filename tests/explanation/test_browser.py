"""The report in a real browser: nothing breaks, nothing leaves the machine, nothing in the data runs."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import knotwork as kw
from tests.explanation.browser import AXE, BROWSER, DRIVER, MISSING, findings, open_page, outside, resize, texts, theme

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
CHARTS = ["quality-grid", "importance-chart", "row-chart", "training-chart", "drift-chart", "inputs-chart"]
CHARTS += ["sparsity-chart"]
TABLES = ["quality-table", "knots-table", "knot-rows", "units-table"]


@pytest.fixture(scope="module")
def abalone(tmp_path_factory):
    X, y = kw.datasets.load_abalone()
    model = kw.SplineNetRegressor(n_members=1, max_degree=2, epochs=6, random_state=0).fit(
        X, y
    )  # with interactions to show
    path = tmp_path_factory.mktemp("report") / "abalone.html"
    kw.explain(model, X, y).to_html(path)
    return model, X, path


def test_the_page_is_small_and_asks_for_nothing(driver, abalone):
    _, _, path = abalone
    assert path.stat().st_size < 3_000_000
    open_page(driver, path, draw=False)
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
    open_page(driver, path, draw=False)
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
        """const input = document.querySelector(`#row-controls [data-column="${arguments[0]}"]`);
        input.value = arguments[1]; input.dispatchEvent(new Event("input", {bubbles: true}));""", column, str(value),
    )  # fmt: skip


def row_of(driver):
    return driver.execute_script(
        "return [...document.querySelectorAll('#row-controls [data-column]')]"
        ".sort((a, b) => a.dataset.column - b.dataset.column).map(i => Number(i.value))"
    )


def test_a_slider_moves_the_prediction_to_what_predict_says(driver, abalone):
    from selenium.webdriver import Keys

    model, X, path = abalone
    open_page(driver, path, draw=False)
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
    slider = driver.find_element("css selector", '#row-controls [data-column="4"]')
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
        open_page(driver, abalone[2], draw=False)
        dark = paper()
        driver.execute_script("document.getElementById('theme').click()")
        light = paper()
        assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)))
        theme(driver, "light")
        open_page(driver, abalone[2], draw=False)
        assert paper() == light
        resize(driver, 375, 800)
        open_page(driver, abalone[2], draw=False)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 375
        assert driver.get_log("browser") == []
    finally:
        theme(driver, "light")
        resize(driver, 1240, 900)


@pytest.mark.parametrize("activation", ["leaky_relu", "prelu", "softplus", "silu", "gelu", "elu", "relu6", "hardtanh"])
def test_the_page_computes_every_activation(driver, tmp_path, activation):
    X, y = kw.datasets.load_wine_quality("red")
    hidden = (64,) if activation in ("elu", "relu6", "hardtanh") else (64, 8)
    model = kw.SplineNetRegressor(n_members=1, hidden=hidden, activation=activation, epochs=1, random_state=0).fit(X, y)
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
    open_page(driver, folder / "page.html", draw=False)
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
    model = kw.SplineNetRegressor(n_members=1, hidden=(64,), max_terms=30, epochs=2, random_state=0).fit(X, y)
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
    assert sorted(texts(driver, "#row-controls .name")) == sorted(NASTY)
    assert sorted(texts(driver, "#effects-grid h3, #effects-unused li")) == sorted(NASTY)
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


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    """Three classes, rows that the model has not seen, and two columns that it does not use."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 600)
    X = pd.DataFrame({
        "width": kind + 0.6 * rng.normal(size=600), "length": np.abs(kind - 1) + 0.6 * rng.normal(size=600),
        "wild": ((kind == 2) ^ (rng.random(600) < 0.15)).astype(int), "noise": rng.normal(size=600),
        "colour": rng.choice(["red", "blue"], 600), "year": rng.integers(1990, 2020, 600),
    })  # fmt: skip
    y = pd.Series(np.array(["rose", "lily", "tulip"])[kind], name="flower")
    model = kw.MarsClassifier(threshold=0.02).fit(X[:400], y[:400])
    path = tmp_path_factory.mktemp("report") / "flowers.html"
    explanation = kw.explain(model, X[400:], y[400:])
    explanation.to_html(path)
    return model, explanation, X[400:], y[400:], path


def test_quality_of_numbers_says_which_rows(driver, abalone):
    open_page(driver, abalone[2])
    assert driver.find_element("id", "quality-basis").text == "validation rows"
    assert "was not trained on" in driver.find_element("id", "quality-lead").text
    assert texts(driver, "#quality-grid h3") == ["Predicted against actual", "Residuals", "How large the errors are"]
    counts = driver.execute_script(
        "return [...document.querySelectorAll('#quality-grid .chart')].map(c => c.querySelectorAll('.point').length)"
    )
    judged = int(np.isfinite(abalone[0].oof_prediction_).sum())
    assert counts[:2] == [judged, judged]
    assert 10 < counts[2] <= 40
    assert texts(driver, "#quality-grid .xtitle, #quality-grid .ytitle").count("predicted Rings") == 2


def test_quality_of_classes(driver, flowers):
    from sklearn.metrics import confusion_matrix

    model, _, X, y, path = flowers
    open_page(driver, path)
    assert driver.find_element("id", "quality-basis").text == "test rows"
    cells = [int(t) for t in texts(driver, "#confusion tbody td span")]
    np.testing.assert_array_equal(np.reshape(cells, (3, 3)), confusion_matrix(y, model.predict(X)))
    wanted = ["Confusion matrix", "ROC of lily", "Precision and recall of lily", "Calibration of lily"]
    assert texts(driver, "#quality-grid h3") == wanted
    assert len(driver.find_elements("css selector", "#quality-grid path.js-line")) >= 5
    choose(driver, 2)
    assert texts(driver, "#quality-grid h3")[1:] == [t.replace("lily", "tulip") for t in wanted[1:]]
    assert "centred logit of tulip" in texts(driver, "#effects-grid .ytitle, #effects-grid .y2title")[0]
    assert driver.get_log("browser") == []


def choose(driver, output):
    driver.execute_script(
        "const s = document.getElementById('output'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))",
        str(output),
    )


def test_probabilities_are_a_chart(driver, flowers):
    model, _, X, _, path = flowers
    open_page(driver, path)
    number = int(driver.execute_script("return document.getElementById('row-number').selectedOptions[0].textContent"))
    found = json.loads(driver.find_element("id", "chances").get_attribute("data-value"))
    expected = model.predict_proba(X.iloc[[number]])[0]
    assert found == pytest.approx(expected, abs=1e-9)
    labels = texts(driver, "#chances-chart .bartext")
    assert [float(t.split()[-2]) for t in labels] == pytest.approx(sorted(100 * expected, reverse=True), abs=0.1)
    assert sorted(texts(driver, "#chances-chart .ytick text")) == sorted(model.classes_)


def test_every_bar_has_its_number(driver, flowers, abalone):
    for path in (flowers[-1], abalone[2]):
        open_page(driver, path)
        for chart in ("#importance-chart", "#row-chart", "#chances-chart", "#inputs-chart"):
            bars = len(driver.find_elements("css selector", f"{chart} .bars .point"))
            assert len(driver.find_elements("css selector", f"{chart} .bartext")) == bars
    open_page(driver, flowers[-1])
    assert all(t.startswith(("+", "−")) for t in texts(driver, "#row-chart .bartext"))


def test_what_is_not_used_is_folded_away_and_said(driver, flowers):
    _, explanation, _, _, path = flowers
    unused = [name for name, effect in explanation.effects.items() if not effect.used]
    assert "colour" in unused
    open_page(driver, path)
    assert sorted(texts(driver, "#effects-unused li")) == sorted(unused)
    assert set(texts(driver, "#effects-grid h3")) == set(explanation.effects) - set(unused)
    assert sorted(texts(driver, "#sliders-unused .name")) == sorted(unused)
    assert all(name in texts(driver, "#row-zero")[0] for name in unused)
    zero = explanation.importances.index[explanation.importances["permutation"] == 0]
    assert texts(driver, "#importance-zero li") == list(zero)
    assert not set(texts(driver, "#importance-chart .ytick text")) & set(zero)
    wild = driver.execute_script(
        "return [...document.querySelectorAll('#effects-grid .card')].find(c => c.textContent.includes('wild'))"
        ".querySelectorAll('.bars .point').length"
    )
    assert wild == 2
    years = [t for t in texts(driver, "#knots-table td") + texts(driver, "#row-controls .value") if "," in t]
    assert years == []


def test_a_page_of_a_network_that_training_did_not_change(driver, tmp_path):
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=2, learning_rate=1e-30, random_state=0).fit(
        X[:400], y[:400]
    )
    kw.explain(model, X[:400], y[:400]).to_html(tmp_path / "page.html")
    open_page(driver, tmp_path / "page.html", draw=False)
    assert driver.find_element("id", "unchanged").text.startswith("Training changed nothing")
    assert not driver.find_element("id", "drift-parts").is_displayed()
    assert driver.get_log("browser") == []


def test_bands_and_intervals_and_gaps_are_drawn(driver, tmp_path):
    X, y = kw.datasets.load_wine_quality("red")
    X = X.assign(pH=X["pH"].where(X["alcohol"] < 11)).assign(
        bottled=pd.Timestamp("2001-01-01") + pd.to_timedelta(np.arange(len(X)) % 700, unit="D")
    )
    model = kw.MarsRegressor().fit(X, y + X["pH"].isna() + X["bottled"].dt.year / 10)
    model.fold_splines_ = (model.spline_, model.spline_)
    model.predict_interval = lambda X, coverage: np.stack([model.predict(X) - 1, model.predict(X) + 1], axis=1)
    kw.explain(model, X, y).to_html(tmp_path / "page.html")
    open_page(driver, tmp_path / "page.html")
    assert len(driver.find_elements("css selector", "#effects-grid path.js-fill")) > 0
    assert "range over 2 folds" in driver.find_element("id", "effects-legend").text
    assert "90 % interval" in driver.find_element("id", "aside").text
    assert "intervals hold" in driver.find_element("id", "quality-lead").text
    assert driver.get_log("browser") == []


def test_the_keyboard_reaches_tabs_and_knots(driver, abalone):
    from selenium.webdriver import Keys

    open_page(driver, abalone[2], draw=False)
    tabs = driver.find_elements("css selector", "#importance-tabs button")
    tabs[0].send_keys(Keys.ARROW_RIGHT)
    assert driver.switch_to.active_element == tabs[1]
    assert tabs[1].get_attribute("aria-selected") == "true"
    knot = driver.find_elements("css selector", "#knots-table button")[2]
    knot.send_keys(Keys.ENTER)
    assert knot.get_attribute("aria-pressed") == "true"
    assert driver.find_element("id", "knot-title").text.startswith(knot.text)


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core: npm install --no-save axe-core")
@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize("width", [1240, 375])
def test_nothing_serious_for_people_who_use_a_page_otherwise(driver, abalone, flowers, name, width):
    try:
        theme(driver, name)
        resize(driver, width, 900)
        for path in (abalone[2], flowers[-1]):
            open_page(driver, path)
            driver.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            assert findings(driver) == []
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            assert driver.get_log("browser") == []
    finally:
        theme(driver, "light")
        resize(driver, 1240, 900)


def test_a_wide_and_long_table_opens_at_once(driver, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(50_000, 100)).round(3), columns=[f"column {k}" for k in range(100)])
    y = sum(np.abs(X[f"column {k}"] - 0.02 * k) for k in range(0, 100, 2)) + rng.normal(size=len(X))
    path = tmp_path / "wide.html"
    kw.explain(kw.MarsRegressor(max_terms=120).fit(X[:40_000], y[:40_000]), X, y).to_html(path)
    assert path.stat().st_size < 3_000_000
    times = []
    for _ in range(3):  # other programs may have been in the way
        driver.get(path.as_uri())
        times.append(driver.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd"))
        assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
    assert min(times) < 2000
    assert driver.get_log("browser") == []
