import json

import pytest
from typer.testing import CliRunner

from knotwork.atomic import new_name
from knotwork.cli import app
from knotwork.commands.output import MARK
from knotwork.experiments import reproduction


def fake(result=None, error=None):
    def reproduce(names, plan, out, *, jobs, progress):
        fake.call = (names, plan, out, jobs)
        with progress("training", 2) as advance:
            advance(True)
            advance(False)
        if error is not None:
            raise error
        return result

    return reproduce


def test_json_is_all_of_stdout(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "reproduce", fake({"abalone": {"before": 1}}))
    result = CliRunner().invoke(app, ["reproduce", "abalone", "--quick", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"abalone": {"before": 1}}
    assert "training" in result.stderr


@pytest.mark.parametrize(
    ("options", "seeds", "epochs"),
    [([], 20, 500), (["--quick"], 2, 50), (["--seeds", "3"], 3, 500), (["--quick", "--seeds", "4"], 4, 50)],
)
def test_options_make_the_plan(options, seeds, epochs, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "reproduce", fake({}))
    result = CliRunner().invoke(app, ["reproduce", "all", "--json", "--out", str(tmp_path), "--jobs", "1", *options])
    assert result.exit_code == 0, result.output
    names, plan, out, jobs = fake.call
    assert (names, plan.seeds, plan.epochs, out, jobs) == (("abalone", "wine"), seeds, epochs, tmp_path, 1)


def test_an_interruption_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "reproduce", fake(error=KeyboardInterrupt()))
    result = CliRunner().invoke(app, ["reproduce", "wine", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "the same command goes on" in result.stderr


def test_a_folder_of_somebody_else_is_refused_and_its_own_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "reproduce", fake({}))
    (tmp_path / "runs").mkdir()  # many programs make such a folder
    (tmp_path / "report.md").write_text("mine")
    (tmp_path / MARK).write_text("mine")
    command = ["reproduce", "wine", "--json", "--out"]
    result = CliRunner().invoke(app, [*command, str(tmp_path)])
    assert result.exit_code == 2
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "report.md", MARK}
    assert (tmp_path / MARK).read_text() == "mine"
    for _ in range(2):
        assert CliRunner().invoke(app, [*command, str(tmp_path / "own")]).exit_code == 0
    assert CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "own")]).exit_code == 2
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / f".knotwork-{new_name()}.txt").touch()  # before the mark was there
    assert CliRunner().invoke(app, [*command, str(tmp_path / "killed")]).exit_code == 0


@pytest.mark.parametrize("arguments", [["reproduce", "cheese"], ["reproduce", "wine", "--seeds", "0"]])
def test_what_cannot_be_run_is_refused(arguments):
    assert CliRunner().invoke(app, arguments).exit_code == 2
