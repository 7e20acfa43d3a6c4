"""The wheel and the source distribution: complete, installable, typed."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import knotwork as kw

ROOT = Path(__file__).parents[1]

USE = """
import knotwork as kw
assert kw.__file__.startswith({prefix!r}), kw.__file__
X, y = kw.datasets.load_abalone()
model = kw.MarsRegressor().fit(X, y)
kw.explain(model, X, y).to_html("report.html")
kw.save(model, "model")
print(kw.__version__, model.score(X, y) > 0.5)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("hatchling", reason="the dev extra has it")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True,
                   capture_output=True)  # fmt: skip
    return {path.suffix: path for path in folder.iterdir()}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = zipfile.ZipFile(built[".whl"]).namelist()
    assert all(name.startswith(("knotwork/", f"knotwork-{kw.__version__}.dist-info/")) for name in names)
    for needed in ["py.typed", "data/datasets/LICENSE-DATA.md", "explanation/vendor/LICENSE-plotly.txt"]:
        assert f"knotwork/{needed}" in names
    inside = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/knotwork").rglob("*.py")}
    assert inside <= set(names)


def test_the_source_distribution_can_run_the_tests(built):
    with tarfile.open(built[".gz"]) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    documents = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "docs/index.md"}
    assert names >= documents | {"Makefile", "constraints.txt", "tests/reference.py", "src/knotwork/py.typed"}


def test_the_core_metadata_are_valid_and_complete(built):
    wheel = zipfile.ZipFile(built[".whl"])
    raw = wheel.read(f"knotwork-{kw.__version__}.dist-info/METADATA")
    found = Metadata.from_email(raw, validate=True)  # what twine and the index check, but for the README's markup
    assert (found.name, str(found.version), found.license_expression) == ("knotwork", kw.__version__, "Apache-2.0")
    assert found.summary
    assert found.description_content_type == "text/markdown"
    assert found.description.startswith("# knotwork")
    assert found.requires_python == ">=3.11"


def test_the_metadata_pass_the_index_s_checks(built):
    pytest.importorskip("twine", reason="the release workflow has it")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.values())]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_wheel_runs_in_an_environment_without_the_sources(built, tmp_path):
    # The dependencies are those of this environment, without its own knotwork: a .pth file inside a folder that a .pth
    # file names is not read.
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    place = Path(subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                                capture_output=True, text=True).stdout.strip())  # fmt: skip
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet", "--no-index"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, "--target", str(place), str(built[".whl"])], check=True, env=environment)
    used = subprocess.run([python, "-c", USE.format(prefix=str(place))], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert used.stdout.split() == [kw.__version__, "True"], used.stderr
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "model" / "model.json").exists()


def test_version_numbers_agree():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {kw.__version__}\n" in citation
    assert f'\nversion = "{kw.__version__}"\n' in (ROOT / "pyproject.toml").read_text()
