"""Files and options that are wrong, damaged or written to do harm: one sentence, exit code 2, nothing shown raw."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import knotwork as kw
from knotwork.commands.prediction_files import open_csv
from knotwork.commands.spreadsheet import marked, unmarked
from knotwork.data import files, stream
from knotwork.data.files import read_file
from knotwork.errors import DataError

ESCAPE = "\x1b[31mred\x07\x9b2J"


def table(names=("a", "b", "y"), rows=60, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, len(names))), columns=list(names))
    frame[names[-1]] = frame[names[0]] + np.abs(frame[names[1]])
    return frame


@pytest.fixture
def plain(tmp_path):
    table().to_csv(tmp_path / "plain.csv", index=False)
    return tmp_path / "plain.csv"


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b[:300] + b"xxxxx" + b[305:], lambda b: b[:12]]
)
def test_damaged_gzip(refused, plain, tmp_path, damage):
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(damage(gzip.compress(plain.read_bytes(), mtime=0)))
    assert f"a file packed by gzip must be whole, {packed} cannot be unpacked" in refused(
        "fit", packed, "--target", "y"
    )


def test_a_long_field(refused, tmp_path):
    path = tmp_path / "long.csv"
    for text in ("a,b,y\n1,2,3\n2," + "z" * (2 << 20) + ",4\n", "a," + "z" * (2 << 20) + ",y\n1,2,3\n"):
        path.write_text(text)
        assert "a field must have at most 1 MB" in refused("fit", path, "--target", "y")


def test_a_line_is_refused_before_it_is_in_memory(tmp_path):
    """1 MB of gzip that holds a line of 1 GB."""
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"a,y\n1,")
        for _ in range(64):
            file.write(b"7" * (1 << 24))
    code = (
        "import resource, sys; from pathlib import Path; from knotwork.data.files import read_file\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: read_file(Path(sys.argv[1]))\n"
        "except ValueError as error: print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    sentence, megabytes = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "a line must have at most 16 MB, line 2 of" in sentence
    assert int(megabytes) < 200


def test_blocks_are_bounded_in_bytes(tmp_path, monkeypatch):
    """Lines that grow behind the first hundred, and a quote that is never closed."""
    monkeypatch.setattr(files, "MAX_BLOCK", 1 << 20)
    path = tmp_path / "growing.csv"
    frame = table(rows=3000).assign(text=lambda f: np.where(f.index < 200, "x", "y" * 3000))
    frame.to_csv(path, index=False)
    read = read_file(path)
    assert read.rows == 3000
    np.testing.assert_array_equal(read.columns["a"], frame["a"])
    path.write_text('a,y\n1,2\n3,"' + "4,5\n" * 600_000)
    with pytest.raises(DataError, match="quotes must be closed"):
        read_file(path)


def test_a_stray_quote_is_no_open_one(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "MAX_LINE", 1000)
    path = tmp_path / "inches.csv"
    path.write_text("size,y\n" + "".join(f'{k}" pipe,{k}\n' for k in range(5)) + "6,6\n" * 3000)
    assert read_file(path, as_text=["size"]).rows == 3005


def test_options_that_ask_for_too_much(refused, knotwork, plain):
    for hidden in ("99999999999", "9" * 5000, "999999999"):
        assert len(refused("fit", plain, "--target", "y", "--hidden", hidden)) < 300
    assert "weights" in refused("fit", plain, "--target", "y", "--hidden", "99999,99999")
    many = knotwork("fit", plain, "--target", "y", "--max-terms", "1000000000", "--test-size", "0").stdout
    assert "saved    nothing" in many
    with pytest.raises(DataError, match=r"max_terms must leave room for its tables"):
        kw.MarsRegressor(max_degree=2, max_terms=10**9).fit(np.random.default_rng(0).random((10**5, 2)), np.ones(10**5))


def save_steep(plain, place):
    """A model that goes on beyond its training range, up to infinity."""
    table = pd.read_csv(plain)
    kw.save(kw.MarsRegressor(extrapolate="linear").fit(table.drop(columns="y"), 1e6 * table["y"]), place)


def test_an_infinite_prediction(knotwork, plain, tmp_path):
    save_steep(plain, tmp_path / "m")
    pd.DataFrame({"a": [1e308, 1.0], "b": [1e308, 2.0]}).to_csv(tmp_path / "far.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = knotwork("predict", tmp_path / "m", tmp_path / "far.csv", "--json")
    assert result.stderr.startswith("note: 1 of 2 predictions are not finite")
    values = json.loads(result.stdout)["predictions"]["prediction"]
    assert values[0] is None
    assert isinstance(values[1], float)


def test_integers_beyond_the_range_of_floats(refused, plain, tmp_path):
    frame = pd.read_csv(plain)
    for name in ("a", "y"):
        frame.assign(**{name: [10**400] * len(frame)}).to_csv(tmp_path / "t.csv", index=False)
        refused("fit", tmp_path / "t.csv", "--target", "y", "--include", "a", "--task", "regression")
    frame.assign(a=[10**400, -(10**400)] * (len(frame) // 2)).to_csv(tmp_path / "t.csv", index=False)
    assert "has inf in data row 1" in refused("fit", tmp_path / "t.csv", "--target", "y")


def test_many_columns_take_linear_time(tmp_path):
    def seconds(count):
        path = tmp_path / f"{count}.csv"
        pd.DataFrame(np.zeros((2, count)), columns=[f"c{k}" for k in range(count)]).to_csv(path, index=False)
        start = time.perf_counter()
        files.read_dialect(path)
        files.require_columns([f"c{k}" for k in range(count)], [f"c{k}" for k in range(count)], path)
        return time.perf_counter() - start

    seconds(100)
    assert seconds(40_000) < 40 * min(seconds(4000) for _ in range(3))  # quadratic would be 100


def test_names_cannot_steer_the_terminal(knotwork, tmp_path):
    """Column names, labels, files: in reports, errors, notes and JSON."""
    frame = table((ESCAPE, "[bold]b[/]", ":smile:"))
    frame["label"] = np.where(frame[ESCAPE] > 0, f"x{ESCAPE}", "\u202eevil\u2028")
    path = tmp_path / "steer.csv"
    frame.to_csv(path, index=False)
    shown = [
        knotwork("fit", path, "--target", ":smile:", "--exclude", "label").stdout,
        knotwork("fit", path, "--target", "label", "--out", tmp_path / "m").stdout,
        knotwork("fit", path, "--target", "label", "--json").stdout,
        knotwork("fit", path, "--target", f"{ESCAPE}x", code=2).stderr,
        knotwork("fit", tmp_path / f"{ESCAPE}.csv", "--target", "y", code=2).stderr,
        knotwork("predict", tmp_path / "m", path, "--out", tmp_path / f"{ESCAPE}.csv").stdout,
        str(kw.load(tmp_path / "m").spline_),
        kw.load(tmp_path / "m").summary(),
        str(kw.explain(kw.load(tmp_path / "m"), frame[[ESCAPE, "[bold]b[/]", ":smile:"]])),
    ]
    for text in shown:
        assert not any(sign in text for sign in "\x1b\x07\x9b\u202e\u2028")
    assert r"\x1b[31mred\x07\x9b2J" in shown[0]
    assert "[bold]b[/]" in shown[0]
    assert ":smile:" in shown[0]
    assert ESCAPE in json.loads(shown[2])["columns"]["used"]  # JSON says the same, in other letters


def test_labels_do_not_become_formulas(knotwork, knotwork_json, tmp_path):
    frame = table().drop(columns="y")
    frame["y"] = np.where(frame["a"] > 0, '=HYPERLINK("x")', "-1")
    frame.to_csv(tmp_path / "t.csv", index=False)
    knotwork("fit", tmp_path / "t.csv", "--target", "y", "--category", "y", "--out", tmp_path / "m")
    written = pd.read_csv(io.StringIO(knotwork("predict", tmp_path / "m", tmp_path / "t.csv").stdout))
    assert set(written["prediction"]) == {'\'=HYPERLINK("x")', "-1"}
    raw = knotwork_json("predict", tmp_path / "m", tmp_path / "t.csv")["predictions"]["prediction"]
    assert [unmarked(text) for text in written["prediction"]] == raw


@pytest.mark.parametrize("text", ["=1+1", "'=1", "''@x", "+1", "-1e5", "-x", "'quoted", "", "'", "\t=1", "plain", "-"])
def test_marks_can_be_taken_off(text):
    assert unmarked(marked(text)) == text
    assert marked(text) in (text, f"'{text}")


def test_csv_on_a_terminal_is_escaped():
    frame = pd.DataFrame({"prediction": [ESCAPE], "n": [1.5]})
    terminal, pipe = io.StringIO(), io.StringIO()
    open_csv(terminal, on_terminal=True)(frame)
    open_csv(pipe)(frame)
    assert "\x1b" not in terminal.getvalue()
    assert ESCAPE in pipe.getvalue()


def test_a_reader_that_stops_early_is_no_error(knotwork, plain, tmp_path):
    knotwork("fit", plain, "--target", "y", "--out", tmp_path / "m")
    pd.concat([table()] * 2000).to_csv(tmp_path / "long.csv", index=False)
    for arguments in (
        ("predict", tmp_path / "m", tmp_path / "long.csv"),  # more than a pipe holds
        ("predict", tmp_path / "m", plain),  # less
        ("fit", plain, "--target", "y"),  # rich writes it
    ):
        read, write = os.pipe()
        os.close(read)
        ended = subprocess.run(
            [sys.executable, "-m", "knotwork", *arguments],
            stdout=write, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        os.close(write)
        assert ended.returncode == 0
        assert "Error" not in ended.stderr


def test_closed_outputs_are_no_error(knotwork, plain, tmp_path):
    """``>&-`` and ``2>&-``: notes do not end up in the results."""
    save_steep(plain, tmp_path / "m")
    pd.DataFrame({name: [1e308, 1.0] for name in pd.read_csv(plain).columns}).to_csv(tmp_path / "inf.csv", index=False)
    for closed in (1, 2):
        ended = subprocess.run(
            [sys.executable, "-m", "knotwork", "predict", tmp_path / "m", tmp_path / "inf.csv", "--json"],
            capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
            preexec_fn=lambda closed=closed: os.close(closed),
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr.count("\n") == (closed == 1), ended.stderr
        assert closed == 1 or json.loads(ended.stdout)["rows"] == 2


def test_too_little_memory_is_one_sentence(plain):
    limited = subprocess.run(
        [sys.executable, "-m", "knotwork", "fit", plain, "--target", "y", "--hidden", "20000,20000"],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parent,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)),
    )  # fmt: skip
    assert limited.returncode == 2, limited.stderr
    assert "more memory than there is" in limited.stderr
    assert "Traceback" not in limited.stderr
