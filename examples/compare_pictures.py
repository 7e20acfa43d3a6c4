"""The same table and the same split in three pictures: knotwork's report, an EBM dashboard, a SHAP summary.

    pip install 'knotwork[ebm]' shap selenium pillow      (and Chromium with its driver)
    python examples/compare_pictures.py [FOLDER]

writes knotwork.png, ebm.png and shap.png into the folder (the current one without it) and prints the test errors of the
three models. SHAP explains scikit-learn's HistGradientBoostingRegressor, as it is most often used.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

import knotwork as kw

WIDTH, HEIGHT = 1240, 1150


def main() -> None:
    try:
        import selenium  # noqa: F401
        import shap
        from interpret.glassbox import ExplainableBoostingRegressor
    except ImportError:
        sys.exit(
            "this example compares with InterpretML and SHAP in a browser; install them with "
            "pip install 'knotwork[ebm]' shap selenium pillow"
        )
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    X, y = kw.datasets.load_abalone()
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

    network = kw.SplineNetRegressor(epochs=40, random_state=0).fit(X_train, y_train)
    ebm = ExplainableBoostingRegressor(random_state=0).fit(X_train, y_train)
    trees = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    trees.fit(coded(X_train), y_train)
    for name, predicted in (
        ("knotwork", network.predict(X_test)),
        ("EBM", ebm.predict(X_test)),
        ("trees under SHAP", trees.predict(coded(X_test))),
    ):
        print(f"{name:18s} test RMSE {np.sqrt(np.mean((predicted - y_test) ** 2)):.3f}")

    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "knotwork.html")
        kw.explain(network, X_test, y_test).to_html(page)
        shoot(page, folder / "knotwork.png", "importance")
        explanation = ebm.explain_global(name="Explainable boosting machine")
        figures = [explanation.visualize(key) for key in (None, 7, 4, 0)]  # the summary, two weights and the sex
        parts = [f.to_html(full_html=False, include_plotlyjs=k == 0) for k, f in enumerate(figures)]
        page = Path(scratch, "ebm.html")
        page.write_text(
            "<!doctype html><meta charset='utf-8'><title>EBM</title><style>body{display:grid;"
            "grid-template-columns:1fr 1fr;gap:8px;margin:8px;background:#fff}</style>"
            + "".join(f"<div>{part}</div>" for part in parts),
            encoding="utf-8",
        )
        shoot(page, folder / "ebm.png")
    draw_shap(shap, trees, coded(X_test), folder / "shap.png")


def coded(X: Any) -> Any:
    """Return the table with its text as a categorical column, which the trees take."""
    return X.assign(Sex=X["Sex"].astype("category"))


def draw_shap(shap: Any, trees: Any, X: Any, path: Path) -> None:
    """Draw SHAP's summary of the trees."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    values = shap.TreeExplainer(trees).shap_values(X.assign(Sex=X["Sex"].cat.codes))
    shap.summary_plot(values, X.assign(Sex=X["Sex"].cat.codes), show=False, plot_size=(9, 5.5))
    figure = io.BytesIO()
    plt.savefig(figure, format="png", dpi=100)
    path.write_bytes(compressed(figure.getvalue()))


def shoot(page: Path, path: Path, section: str | None = None) -> None:
    """Take a picture of a page, from a section on."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    size = f"--window-size={WIDTH},{HEIGHT}"
    for flag in ("--headless", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", size):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_window_size(WIDTH, HEIGHT)
        driver.get(page.resolve().as_uri())
        if section is not None:
            driver.execute_script("document.getElementById(arguments[0]).scrollIntoView()", section)
        time.sleep(2)
        path.write_bytes(compressed(driver.get_screenshot_as_png()))
    finally:
        driver.quit()


def compressed(png: bytes) -> bytes:
    """Return the picture in 128 colours, which charts do not miss."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
