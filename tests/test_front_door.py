"""What a newcomer meets first: a short README, links, help that fits a screen, an example for every public name."""

import inspect
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

import knotwork as kw
from knotwork.cli import COMMANDS, app

ROOT = Path(__file__).parent.parent
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted(ROOT.glob("docs/*.md"))]
CODE = re.compile(r"^( *)```.*?^\1```", flags=re.DOTALL | re.MULTILINE)


def prose(text):
    return CODE.sub("", text)


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page.read_text()), flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title)).strip().lower() for title in titles]
    return {title.replace(" ", "-") for title in plain}


def dead_links(page):
    """Relative links and images of a page that lead to no file, or to no heading of it."""
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page.read_text()))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    assert list(dead_links(page)) == []


def test_a_dead_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A title\n[here](#a-title) [file](gone.md) [heading](#gone) ![picture](gone.png) `[x](y)`\n")
    assert list(dead_links(page)) == ["gone.md", "#gone", "gone.png"]


def test_the_readme_has_at_most_900_words_outside_code():
    text = re.sub(r"\]\([^)]*\)|<!--.*?-->", "]", prose((ROOT / "README.md").read_text()))
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= 900


def test_the_units_that_the_readme_s_picture_names_add_up_to_its_spline():
    pytest.importorskip("matplotlib")
    picture = runpy.run_path(str(ROOT / "docs/front_picture.py"))
    x, y = picture["rows"]()
    spline = kw.MarsRegressor(max_terms=5).fit(x, y)
    intercept, units = picture["units"](spline.spline_)
    assert len(units) == len(kw.to_network(spline)[1].weight)
    assert {unit.sign for unit in units} == {1, -1}
    np.testing.assert_allclose(intercept + sum(unit(x[:, 0]) for unit in units), spline.predict(x), atol=1e-12)
    for unit in units:  # as it is labelled, with its knot rounded
        said = eval(unit.label.replace("−", "-").replace("max", "np.maximum"), {"np": np, "x": x[:, 0]})
        np.testing.assert_allclose(unit(x[:, 0]), unit.weight * said, atol=abs(unit.weight) * 0.0501)


@pytest.mark.parametrize("name", kw.__all__)
def test_every_public_name_has_an_example(name):
    assert ">>> " in (inspect.getdoc(getattr(kw, name)) or "")  # --doctest-modules runs them


@pytest.mark.parametrize("command", ["", *(function.__name__ for function, _ in COMMANDS)])
def test_help_fits_a_screen_and_ends_with_an_example(command):
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80"}, terminal_width=80)
    lines = shown.output.rstrip().splitlines()
    assert shown.exit_code == 0
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith(f"  Example: knotwork {command}")


def test_every_page_of_the_docs_is_on_the_site_and_in_its_index():
    site, index = (ROOT / "mkdocs.yml").read_text(), (ROOT / "docs/index.md").read_text()
    for page in ROOT.glob("docs/*.md"):
        assert f": {page.name}\n" in site
        assert page.name == "index.md" or re.search(rf"\({page.name}[)#]", index), page.name


# What the library itself asks of these classes; nobody needs to call it.
INSIDE = {"describe", "features", "inputs", "outputs", "source", "turned_back", "dtype", "limits"}


def public_methods():
    """Every method and property of ours that a public class offers, those of the classes it is built from included."""
    for name in kw.__all__:
        cls = getattr(kw, name)
        if not inspect.isclass(cls):
            continue
        for method in dir(cls):
            found = inspect.getattr_static(cls, method)
            for wrapped in ("__func__", "fget", "func", "fn"):  # class methods, properties, cached ones, available_if
                found = getattr(found, wrapped, found)
            ours = inspect.isfunction(found) and found.__module__.startswith("knotwork")
            if ours and not method.startswith("_") and method not in INSIDE | set(dir(nn.Module)):
                yield pytest.param(cls, method, found, id=f"{name}.{method}")


@pytest.mark.parametrize(("cls", "method", "found"), list(public_methods()))
def test_every_public_method_has_an_example(cls, method, found):
    lines = [line.strip() for line in (inspect.getdoc(cls) or "").splitlines()]
    shown = "\n".join(line for line in lines if line.startswith((">>>", "...")))
    assert ">>> " in (inspect.getdoc(found) or "") or f".{method}" in shown


def test_a_method_without_an_example_is_noticed():
    names = {param.id for param in public_methods()}
    assert names >= {"MarsRegressor.predict_interval", "MarsClassifier.predict_set", "Spline.to_dict"}
    assert names >= {"SplineNetRegressor.score", "Explanation.to_html", "MarsRegressor.forget", "MarsRegressor.path_"}
    with pytest.raises(AssertionError):
        test_every_public_method_has_an_example(object, "nothing", test_a_method_without_an_example_is_noticed)
