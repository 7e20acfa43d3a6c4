"""A headless Chromium for the tests and the pictures of the report.

Debian: ``apt-get install -y chromium chromium-driver``; other systems need both on the PATH.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
# Rules of accessibility: ``npm install --no-save axe-core`` in the repository, as ``make browser`` does.
AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
MISSING = "no browser: install Chromium and its driver (Debian: apt-get install -y chromium chromium-driver)"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--force-color-profile=srgb",
)  # fmt: skip


@contextmanager
def browser(profile: Path, *, width: int = 1240, height: int = 900, scale: float = 1.0) -> Iterator[Any]:
    """Start a browser with an empty profile; it logs its console and its requests."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}",
                 f"--force-device-scale-factor={scale}"):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.set_script_timeout(180)  # other programs may be in the way
        yield driver
    finally:
        driver.quit()


def requests(driver: Any) -> list[str]:
    """Addresses that pages have asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def findings(driver: Any) -> list[str]:
    """What axe-core finds serious or critical on the page: the rule and the element each."""
    driver.execute_script(AXE.read_text(encoding="utf-8"))
    found = driver.execute_async_script(
        "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations))"
    )
    bad = [v for v in found if v["impact"] in ("serious", "critical")]
    return [f"{v['id']}: {node['html'][:120]}" for v in bad for node in v["nodes"]]


def theme(driver: Any, name: str) -> None:
    """Let the system ask for dark or light."""
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]}
    )


def resize(driver: Any, width: int, height: int) -> None:
    """Give the page this size, a phone's too."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def open_page(driver: Any, path: Path, draw: bool = True) -> None:
    """Open a page; ``draw`` draws every chart, also those that the window is far from."""
    driver.get_log("browser")
    requests(driver)
    driver.get(path.as_uri())
    assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
    if draw:  # charts are drawn when they come near the window; on paper there are all
        driver.execute_script("window.dispatchEvent(new Event('beforeprint'))")


def outside(driver: Any) -> list[str]:
    """Addresses that pages have asked for and that are not in the page itself."""
    return [url for url in requests(driver) if not url.startswith(("data:", "blob:", "file:", "chrome:"))]


def texts(driver: Any, selector: str) -> list[str]:
    """Texts of the elements."""
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )
    return found
