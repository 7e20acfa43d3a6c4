from typer.testing import CliRunner

from knotwork.cli import app


def test_help_without_arguments():
    output = CliRunner().invoke(app, []).output
    assert "demo" in output
    assert "reproduce" in output
