from typer.testing import CliRunner

from knotwork.cli import app


def test_demo_shows_the_whole_way():
    result = CliRunner().invoke(app, ["demo", "--epochs", "2"])
    assert result.exit_code == 0, result.output
    for expected in ("fitted in", "Shell weight", "GCV", "ReLU", "spline start", "random start", "depends on"):
        assert expected in result.output


def test_help_without_arguments():
    assert "demo" in CliRunner().invoke(app, []).output
