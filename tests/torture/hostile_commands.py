"""Command lines with hostile files and options: exit code 0 or 2, a sentence, no traceback, nothing raw shown."""

from __future__ import annotations

import gzip
import io
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.main import get_command
from typer.testing import CliRunner

from knotwork.cli import app
from knotwork.data.refused import SHOWN
from tests.torture.limits import Timeout, limit
from tests.torture.outcome import Outcome

NAME = "hostile_commands"
DEFAULT_COUNT = 500
SHORT_COUNT = 25
SECONDS = 60.0
# What would steer a terminal; the report of rich may end lines.
STEERING = [chr(k) for k in (*range(9), *range(11, 32), *range(127, 160))]

Rng = np.random.Generator


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Run ``count`` command lines; see ``tests.torture``."""
    counts: Counter[str] = Counter()
    bad = []
    models = _models(folder / "models")
    for case in range(first, first + count):
        rng = np.random.default_rng([seed, case])
        arguments = _command(rng, folder, models)
        report(f"case {case}: knotwork {' '.join(arguments)!r:.200}")
        inputs = {path: path.read_bytes() for path in _inputs(arguments)}
        what, fault = run(arguments)
        if not all(path.is_file() and path.read_bytes() == content for path, content in inputs.items()):
            what, fault = "input changed", "changed its input"
        counts[what] += 1
        if fault:
            bad.append(f"case {case}, knotwork {' '.join(arguments)!r:.300}: {fault}")
    return Outcome(count, dict(counts), bad)


def _inputs(arguments: list[str]) -> list[Path]:
    """Return the files that a command line reads: a table, those of a model."""
    places = [Path(a) for a in arguments[1 : {"fit": 2, "export": 2}.get(arguments[0], 3)]]
    found = [p for place in places for p in ([place] if place.is_file() else place.glob("model*"))]
    return [p for p in found if p.is_file()]  # a folder of models may stand in place of a table


def run(arguments: list[str]) -> tuple[str, str | None]:
    """Run a command line; return what came of it, and what was wrong with that."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            with limit(SECONDS):
                result = CliRunner().invoke(app, arguments)
        except Timeout:
            return "hung", f"took more than {SECONDS:.0f} s"
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return "traceback", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if result.exit_code not in (0, 2):
        return "exit code", f"ended with {result.exit_code}"
    written = result.stdout + result.stderr
    steering = [sign for sign in STEERING if sign in written.replace("\r\n", "\n")]
    # Labels reach a CSV on stdout as they are: it is a file in the making, and escaped where it is shown.
    if steering and not (arguments[0] == "predict" and "--json" not in arguments):
        return "raw characters", f"shows {steering[0]!r}"
    if result.exit_code == 2 and not result.stderr.strip():
        return "no sentence", "said nothing"
    if result.exit_code == 2 and result.stderr.startswith("knotwork: "):
        sentences = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
        # Columns that cannot be used have a line each.
        if len(sentences) > SHOWN + 1 or not all(line.startswith("knotwork: ") for line in sentences):
            return "no sentence", f"said {result.stderr!r:.200}"
    return ("succeeded" if result.exit_code == 0 else "refused"), None


def _models(folder: Path) -> list[Path]:
    """Fit small models to predict, report and export with."""
    if not folder.exists():
        folder.mkdir(parents=True)
        _table(np.random.default_rng(0)).to_csv(folder / "t.csv", index=False)
        for name, options in {
            "spline": [],
            "classes": ["--target", "label"],
            "net": ["--hidden", "4", "--epochs", "1"],
        }.items():
            target = [] if "--target" in options else ["--target", "y"]
            run(["fit", str(folder / "t.csv"), *target, *options, "--out", str(folder / name)])
    return [folder / name for name in ("spline", "classes", "net", "nowhere", "t.csv")]


def _table(rng: Rng, rows: int = 40) -> pd.DataFrame:
    a = rng.normal(size=rows)
    return pd.DataFrame(
        {
            "a": a,
            "b": rng.normal(size=rows),
            "c": rng.choice(["u", "v"], rows),
            "label": np.where(a > 0, "p", "q"),
            "y": 2 * a,
            "who": rng.choice(["ann", "ben", "cem"], rows),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D"),
            "part": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows)),
        }
    )


def _command(rng: Rng, folder: Path, models: list[Path]) -> list[str]:
    """Put a command line together: a command, a file, options of which some are odd."""
    command = ["fit", "predict", "report", "export"][rng.choice(4, p=[0.5, 0.3, 0.1, 0.1])]
    model = str(models[rng.integers(len(models))])
    data = str(_file(rng, folder))
    out = str(folder / f"out{rng.integers(5)}{rng.choice(['', '.csv', '.parquet', '.html', '.onnx', '.pt2', '.xyz'])}")
    if rng.random() < 0.05:  # an input, under its own name or another
        out = _one(rng, [data, f"{model}/model.json", str(_link_to(data, folder))])
    arguments = {
        "fit": [command, data, "--target", _one(rng, ["y", "label", "a", "c", "nothing", "", "\x1b[31m"])],
        "predict": [command, model, data],
        "report": [command, model, data, "--out", out],
        "export": [command, model, "--out", out],
    }[command]
    if command in ("fit", "predict") and rng.random() < 0.4:
        arguments += ["--out", out]
    for option, values in _options(command).items():
        if rng.random() < (0.5 if option == "--force" else 0.08):
            value = _one(rng, values)
            arguments += [option] if value is None else [option, value]
    return arguments


def _link_to(path: str, folder: Path) -> Path:
    link = folder / "link.csv"
    link.unlink(missing_ok=True)
    link.symlink_to(path)
    return link


@cache
def _options(command: str) -> dict[str, list[Any]]:
    """Return odd values of a command's options, of those that are new too."""
    found = {}
    for parameter in get_command(app).commands[command].params:
        option = max(parameter.opts, key=len)
        if option.startswith("--") and option not in ("--out", "--help"):
            odd = [None] if parameter.is_flag else [*_NUMBERS, *_NAMES]
            found[option] = OPTIONS[command].get(option, odd)
    return found | OPTIONS[command]


_NUMBERS = ["-1", "0", "1", "2", "3", "1000000000", "9" * 30, "1.5", "nan", "inf", "", "x", "0x10", "1e3", "٣"]
_NAMES = ["a", "b", "c", "y", "label", "who", "when", "part", "nothing", "", "a\n", "\x1b[2J", "-a", "é" * 500]
OPTIONS: dict[str, dict[str, list[Any]]] = {
    "fit": {
        "--hidden": ["4", "4,4", "0", "-1", ",", "99999999999", "9" * 5000, "4,x", "4.5", "٣", "99999,99999", ""],
        "--task": ["auto", "regression", "classification", "banana"], "--exclude": _NAMES, "--include": _NAMES,
        "--category": _NAMES, "--drop-missing": [None],
        "--test-size": ["0", "0.2", "0.999", "1", "-1", "nan", "inf", "x"],
        "--seed": _NUMBERS, "--max-terms": _NUMBERS, "--max-degree": ["1", "2", "3", "0", "9" * 30, "x"],
        "--epochs": ["0", "1", "-1", "x", ""], "--force": [None], "--json": [None], "--groups": _NAMES,
        "--time": _NAMES,
    },
    "predict": {"--id": _NAMES, "--force": [None], "--json": [None], "--banana": ["1"]},
    "report": {"--target": _NAMES, "--force": [None], "--json": [None]},
    "export": {
        "--inputs": ["columns", "features", "banana", ""],
        "--format": ["onnx", "torch", "banana"], "--dtype": ["float32", "float64", "int8"],
        "--force": [None],
    },
}  # fmt: skip


def _one(rng: Rng, values: list[Any]) -> Any:
    return values[rng.integers(len(values))]


def _file(rng: Rng, folder: Path) -> Path:
    """Write a table with something wrong with it, or none at all."""
    path = folder / f"data{rng.integers(20)}.csv"
    if path.is_dir():
        path = folder / "data.csv"
    spoil = SPOILERS[rng.integers(len(SPOILERS))] if rng.random() < 0.7 else SPOILERS[0]
    content = spoil(rng, _table(rng))
    if content is None:
        return folder / "nothing.csv" if rng.random() < 0.5 else folder
    path.write_bytes(content)
    return path


def _csv(frame: pd.DataFrame, **how: Any) -> bytes:
    return frame.to_csv(index=False, **how).encode("utf-8", "surrogatepass")


def _parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


def _flipped(content: bytes, rng: Rng) -> bytes:
    array = bytearray(content)
    for _ in range(rng.integers(1, 20)):
        array[rng.integers(len(array))] = rng.integers(256)
    return bytes(array)


def _with_column(name: str, values: Callable[[Rng, int], Any]) -> Callable[[Rng, pd.DataFrame], bytes]:
    return lambda rng, frame: _csv(frame.assign(**{name: values(rng, len(frame))}))


SPOILERS: list[Callable[[Rng, pd.DataFrame], bytes | None]] = [
    lambda rng, frame: _csv(frame),
    lambda rng, frame: _csv(frame, sep=";", decimal=","),
    lambda rng, frame: _csv(frame, sep="\t"),
    lambda rng, frame: _parquet(frame),
    lambda rng, frame: None,
    lambda rng, frame: b"",
    lambda rng, frame: b"\n\n\n",
    lambda rng, frame: b"a,y\n",
    lambda rng, frame: b"y\n1\n2\n3\n",
    lambda rng, frame: rng.bytes(2000),
    lambda rng, frame: b"\x1f\x8b" + rng.bytes(200),
    lambda rng, frame: b"PAR1" + rng.bytes(200) + b"PAR1",
    lambda rng, frame: gzip.compress(_csv(frame)),
    lambda rng, frame: gzip.compress(_csv(frame))[: rng.integers(2, 400)],
    lambda rng, frame: _flipped(gzip.compress(_csv(frame)), rng),
    lambda rng, frame: _flipped(_csv(frame), rng),
    lambda rng, frame: _flipped(_parquet(frame), rng),
    lambda rng, frame: _parquet(frame)[: rng.integers(4, 2000)],
    lambda rng, frame: _csv(frame)[: rng.integers(1, 1500)],
    lambda rng, frame: _csv(frame).replace(b"\n", b"\r"),
    lambda rng, frame: _csv(frame).replace(b",", b",,", 30),
    lambda rng, frame: _csv(frame) + b'"never closed,1,2\n' + _csv(frame),
    lambda rng, frame: _csv(frame).decode().encode("utf-16"),
    lambda rng, frame: _csv(frame) + "ü".encode("latin-1"),
    lambda rng, frame: _csv(frame).replace(b"\n", b"\0\n", 5),
    lambda rng, frame: _csv(frame.rename(columns={"a": "b"})),
    lambda rng, frame: _csv(frame.rename(columns={"a": "\x1b[31mred\x07\x9b"})),
    lambda rng, frame: _csv(frame.rename(columns={"b": "[bold]", "c": ":smile:"})),
    lambda rng, frame: _csv(frame.rename(columns={"b": "c=u"})),
    lambda rng, frame: _csv(frame.rename(columns={"b": '"', "c": "'"})),
    lambda rng, frame: _csv(frame.rename(columns={"b": "x" * 100_000})),
    lambda rng, frame: _csv(frame.mask(rng.random(frame.shape) < 0.1)),
    lambda rng, frame: _csv(frame.head(int(rng.integers(4)))),
    lambda rng, frame: _csv(pd.concat([frame] * 3).assign(a=1.0)),
    _with_column("label", lambda rng, n: ["=HYPERLINK(1)", "\x1b[2J"] * (n // 2)),
    _with_column("label", lambda rng, n: [f"t{k}" for k in range(n)]),
    _with_column("c", lambda rng, n: ["2020-01-01"] * n),
    _with_column("when", lambda rng, n: ["2020-01-01", "31.12.2020"] * (n // 2)),
    _with_column("when", lambda rng, n: ["2020-01-01T00:00Z", "2020-01-01T00:00+03:00"] * (n // 2)),
    _with_column("when", lambda rng, n: ["0001-01-01", "9999-12-31"] * (n // 2)),
    _with_column("when", lambda rng, n: ["25:61", "12:00"] * (n // 2)),
    _with_column("when", lambda rng, n: ["", "2020-02-30"] * (n // 2)),
    _with_column("who", lambda rng, n: ["one"] * n),
    _with_column("who", lambda rng, n: [f"\x1b[3{k}m" for k in range(n)]),
    _with_column("part", lambda rng, n: ["NA", "nan", "inf", "-"] * (n // 4)),
    _with_column("part", lambda rng, n: [""] * n),
    lambda rng, frame: _csv(frame.rename(columns={"c": "part is missing"})),
    lambda rng, frame: _parquet(frame.assign(when=pd.to_timedelta(np.arange(len(frame)), "h"))),
    lambda rng, frame: _parquet(frame.assign(when=frame["when"].dt.tz_localize("Asia/Kathmandu"))),
    lambda rng, frame: _parquet(frame.assign(c=pd.Categorical(frame["c"], ordered=True))),
    _with_column("c", lambda rng, n: [10**400] * n),
    _with_column("y", lambda rng, n: [10**400] * n),
    _with_column("a", lambda rng, n: [1e308, -1e308] * (n // 2)),
    _with_column("y", lambda rng, n: [1e308, -1e308] * (n // 2)),
    _with_column("a", lambda rng, n: [5e-324, 0] * (n // 2)),
    _with_column("a", lambda rng, n: ["inf", "1"] * (n // 2)),
    _with_column("a", lambda rng, n: ["1,234.5", "$ 3"] * (n // 2)),
    _with_column("a", lambda rng, n: ["1_000", "2"] * (n // 2)),
    _with_column("y", lambda rng, n: ["True", "False"] * (n // 2)),
    _with_column("y", lambda rng, n: [""] * n),
    _with_column("c", lambda rng, n: ["z" * 60_000, "u"] * (n // 2)),
    lambda rng, frame: _parquet(frame.assign(c=[[1, 2]] * len(frame))),
    lambda rng, frame: _parquet(frame.assign(c=[b"x"] * len(frame))),
    lambda rng, frame: _parquet(frame.assign(a=pd.array([True, None] * (len(frame) // 2), dtype="boolean"))),
    lambda rng, frame: _parquet(frame.assign(y=pd.date_range("2020", periods=len(frame)))),
]
