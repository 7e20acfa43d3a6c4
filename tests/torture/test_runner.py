"""The runner itself: blocks, resumption, and processes that die or hang."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.torture import limits
from tests.torture.__main__ import main, run_attack, table
from tests.torture.attacks import find_attacks
from tests.torture.block import run_block
from tests.torture.outcome import Outcome
from tests.torture.runner_cases import attack

CASES = "tests.torture.runner_cases"


class This:
    NAME, DEFAULT_COUNT, attack = "test", 120, staticmethod(attack)
    __name__ = CASES


def test_a_block_brings_its_outcome_and_a_lost_process_is_reported() -> None:
    assert run_block(CASES, 0, 4, 0) == Outcome(4, {"even": 2}, ["case 0"])
    died = run_block(CASES, 5, 4, 1)
    assert died.tried == 0
    assert died.bad == ["cases 5 to 8: the process ended with exit code 9 after: case 7"]
    hung = run_block(CASES, 5, 4, 2, silence=10)
    assert hung.bad == ["cases 5 to 8: the process hung for 10 s after: case 7"]


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = []

    def stopped(module: str, first: int, count: int, seed: int) -> Outcome:
        if first == 18:
            raise KeyboardInterrupt
        blocks.append(first)
        return attack(first, count, seed, tmp_path, lambda _: None)

    monkeypatch.setattr("tests.torture.__main__.run_block", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_attack(This, None, 0, tmp_path, fresh=False)
    assert blocks == [0, 6, 12]
    monkeypatch.setattr(
        "tests.torture.__main__.run_block",
        lambda module, first, count, seed: blocks.append(first) or attack(first, count, seed, tmp_path, print),
    )
    outcome, _ = run_attack(This, None, 0, tmp_path, fresh=False)
    assert blocks == list(range(0, 120, 6))
    assert outcome == Outcome(120, {"even": 60}, [f"case {k}" for k in range(0, 120, 10)])
    stored = json.loads((tmp_path / "test.json").read_text())
    (tmp_path / "test.json").write_text(json.dumps(stored | {"code": "another"}))
    run_attack(This, None, 0, tmp_path, fresh=False)
    assert len(blocks) == 40  # what other code did counts for nothing


def test_the_table_and_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert table({"a": (Outcome(3, {"refused": 2, "done": 1}, ["x"]), 1.5)}).splitlines()[-1] == (
        "| a | 3 | done 1, refused 2 | 1 | 2 |"
    )
    monkeypatch.setattr("tests.torture.__main__.find_attacks", lambda: {"test": This})
    monkeypatch.setattr(
        "tests.torture.__main__.run_block", lambda m, first, count, seed: attack(first, count, seed, tmp_path, print)
    )
    assert main(["--state", str(tmp_path / "new")]) == 1
    printed = capsys.readouterr().out
    assert "| test | 120 | even 60 | 12 |" in printed
    assert "test: and 2 more" in printed


def test_attacks_are_named_like_their_modules() -> None:
    """``make torture ATTACKS="one another"`` takes names apart at spaces."""
    assert {name: module.__name__ for name, module in find_attacks().items()} == {
        path.stem: f"tests.torture.{path.stem}"
        for path in Path(__file__).parent.glob("[a-z]*.py")
        if "\ndef attack(" in path.read_text() and "\nNAME = " in path.read_text()
    }


@pytest.mark.parametrize("name", find_attacks())
def test_short(name: str, tmp_path: Path) -> None:
    """A few cases of every attack."""
    module = find_attacks()[name]
    count = getattr(module, "SHORT_COUNT", 0)
    if not count:
        pytest.skip("has a test of its own")
    if getattr(module, "FORKS", False):
        # This process has threads of other tests: a child may wait for ever for a lock that one of them held.
        outcome = run_block(module.__name__, 0, count, 0, silence=120)
    else:
        outcome = module.attack(0, count, 0, tmp_path, lambda _: None)
    assert outcome.tried == count
    assert not outcome.bad, "\n".join(outcome.bad)


def test_without_atheris_nothing_is_tried_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert find_attacks()["fuzz_readers"].attack(0, 10, 0, tmp_path, print) == Outcome(
        0, {"atheris is not installed": 1}
    )


def test_waiting_for_a_processor_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.waited() >= 0
    monkeypatch.setattr(limits, "waited", lambda process="self": time.monotonic())  # all the time is spent in line
    with limits.limit(0.02):
        time.sleep(0.1)
    monkeypatch.setattr(limits, "waited", lambda process="self": 0.0)
    with pytest.raises(limits.Timeout), limits.limit(0.02):
        time.sleep(60)


def test_the_timer_of_the_whole_test_goes_on() -> None:
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    assert before > 0  # pytest-timeout's
    with limits.limit(5):
        pass
    assert before - 5 < signal.getitimer(signal.ITIMER_REAL)[0] <= before
