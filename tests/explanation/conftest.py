"""One browser for all tests of the report."""

import pytest

from tests.explanation.browser import browser, requests


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    pytest.importorskip("selenium", reason="selenium drives the browser: pip install -e '.[dev]'")
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        driver.get("about:blank")
        requests(driver)  # the browser's own first page
        yield driver
