"""Pictures of the report for the docs, light and dark, from the real page: ``make screenshots``."""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

import knotwork as kw
from tests.explanation.browser import BROWSER, DRIVER, MISSING, browser, resize, theme

MAX_BYTES = 200_000
WIDTH, HEIGHT, PHONE = 1240, 1180, 390


def main() -> None:
    if not (BROWSER and DRIVER):
        sys.exit(MISSING)
    folder = Path(__file__).parents[2] / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "report.html")
        X, X_test, y, y_test = train_test_split(*kw.datasets.load_abalone(), random_state=0)
        model = kw.SplineNetRegressor(n_members=1, epochs=40, patience=None, random_state=0).fit(X, y)
        other = clone(model).set_params(start="random").fit(X, y)
        kw.explain(model, X_test, y_test, random_start=other).to_html(page)
        classes = Path(scratch, "classes.html")
        X, X_test, y, y_test = train_test_split(*load_iris(return_X_y=True, as_frame=True), random_state=0)
        names = dict(enumerate(["setosa", "versicolor", "virginica"]))
        flowers = kw.MarsClassifier().fit(X, y.map(names))
        kw.explain(flowers, X_test, y_test.map(names).rename("iris")).to_html(classes)
        with browser(Path(scratch, "profile")) as driver:
            for name in ("light", "dark"):
                theme(driver, name)
                for section in ("overview", "effects", "row", "drift"):
                    shoot(driver, page, WIDTH, section, folder / f"report-{section}-{name}.png")
            theme(driver, "light")
            shoot(driver, classes, WIDTH, "quality", folder / "report-classes.png")
            shoot(driver, page, PHONE, "effects", folder / "report-phone.png")


def shoot(driver: Any, page: Path, width: int, section: str, path: Path) -> None:
    """Take the picture of the page from a section on."""
    resize(driver, width, HEIGHT)
    driver.get(page.as_uri())
    driver.execute_script(
        """document.documentElement.style.cssText = "scroll-behavior: auto; scroll-padding-top: 0";
        document.querySelector(".top").style.position = "static";
        document.getElementById(arguments[0]).scrollIntoView({block: "start", behavior: "instant"});
        if (arguments[0] === "overview") window.scrollTo(0, 0);""", section,
    )  # fmt: skip
    time.sleep(1.5)  # charts that were outside the window are drawn
    path.write_bytes(compressed(driver.get_screenshot_as_png()))
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def compressed(png: bytes) -> bytes:
    """Return the picture in 256 colours, which a page of flat ones does not miss."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    if out.tell() > MAX_BYTES:
        raise SystemExit(f"a picture has {out.tell()} bytes, more than {MAX_BYTES}; take a smaller part of the page")
    return out.getvalue()


if __name__ == "__main__":
    main()
