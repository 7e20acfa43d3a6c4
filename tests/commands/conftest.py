import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from knotwork.cli import app


@pytest.fixture(scope="session")
def knotwork():
    """Run the command; expect an exit code, return the result."""

    def run(*arguments, code=0):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == code, (result.output, result.exception)
        if code == 2:
            assert result.stdout == ""
            assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture(scope="session")
def knotwork_json(knotwork):
    return lambda *arguments: json.loads(knotwork(*arguments, "--json").stdout)


@pytest.fixture
def refused(knotwork):
    """Run the command and return the one sentence that it refuses with."""

    def run(*arguments):
        sentence = knotwork(*arguments, code=2).stderr
        assert sentence.startswith("knotwork: ")
        assert sentence.count("\n") == 1
        return sentence

    return run


@pytest.fixture(scope="session")
def frame():
    """300 rows with names that need quotes, a text column, a flag and a target that depends on all of them."""
    rng = np.random.default_rng(0)
    length, width = rng.uniform(0, 10, 300).round(3), rng.normal(size=300).round(3)
    art, flag = rng.choice(["Öl", 'so "so"', "x;y, z"], 300), rng.random(300) < 0.5
    y = 2 * np.abs(length - 4) + width + 3 * (art == "Öl") - flag + rng.normal(0, 0.1, 300)
    return pd.DataFrame({"Länge, cm": length, "width": width, "Art": art, "flag": flag, "y": y.round(4)})


@pytest.fixture(scope="session")
def data(frame, tmp_path_factory):
    """Files of the same table: comma, semicolon, tab, Parquet."""
    folder = tmp_path_factory.mktemp("data")
    frame.to_csv(folder / "comma.csv", index=False)
    frame.to_csv(folder / "semicolon.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig")
    frame.to_csv(folder / "tab.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "table.parquet", index=False)
    return folder


@pytest.fixture(scope="session")
def spline_model(knotwork, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "spline"
    knotwork("fit", data / "comma.csv", "--target", "y", "--out", folder)
    return folder


@pytest.fixture(scope="session")
def network_model(knotwork, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "network"
    knotwork("fit", data / "comma.csv", "--target", "y", "--hidden", "24,8", "--epochs", "3", "--out", folder)
    return folder
