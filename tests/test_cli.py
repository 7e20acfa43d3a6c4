from typer.testing import CliRunner

from knotwork.cli import app


def test_demo_prints_the_spline():
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    for expected in ("Fitted in", "Shell weight", "GCV", "Every knot is a value of the data"):
        assert expected in result.output


def test_help_without_arguments():
    assert "demo" in CliRunner().invoke(app, []).output
