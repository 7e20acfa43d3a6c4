import subprocess
import sys
import warnings

import typer
from typer.testing import CliRunner

import knotwork
from knotwork.cli import app, plain_warnings
from knotwork.errors import ColumnsError, DataError


def test_help_without_arguments():
    output = CliRunner().invoke(app, []).output
    assert all(command in output for command in ("demo", "fit", "predict", "export", "report", "reproduce"))


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"knotwork {knotwork.__version__}\n")


def test_an_unknown_command_or_option_is_exit_code_2():
    assert CliRunner().invoke(app, ["fti"]).exit_code == 2
    assert CliRunner().invoke(app, ["demo", "--epoch", "2"]).exit_code == 2


def test_errors_of_ours_are_one_sentence_and_others_keep_their_traceback():
    def fails(error):
        def command():
            raise error

        trial = typer.Typer(cls=app.info.cls)
        trial.callback()(lambda: None)
        trial.command("trial")(command)
        return CliRunner().invoke(trial, ["trial"])

    result = fails(DataError("columns must be numbers, got a goat; leave it out"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "knotwork: columns must be numbers, got a goat; leave it out\n"
    result = fails(ColumnsError("a must be numbers; correct it", "b must be\nfinite; correct it"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "knotwork: a must be numbers; correct it\nknotwork: b must be\\nfinite; correct it\n"
    result = fails(PermissionError(13, "Permission denied", "secret.csv"))
    assert (result.exit_code, result.stderr) == (2, "knotwork: secret.csv cannot be used: Permission denied\n")
    result = fails(ZeroDivisionError("ours"))
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)


def test_warnings_are_notes_on_stderr(capsys):
    with warnings.catch_warnings(), plain_warnings():
        warnings.simplefilter("always")
        for _ in range(2):  # said once
            warnings.warn("one category is new", stacklevel=1)
    assert capsys.readouterr().err == "note: one category is new\n"


def test_help_loads_nothing_heavy():
    code = """
import sys
from typer.testing import CliRunner
from knotwork.cli import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
heavy = {"torch", "numba", "sklearn", "pandas", "numpy", "scipy", "matplotlib", "pyarrow", "onnx"}
print(sorted(heavy & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
