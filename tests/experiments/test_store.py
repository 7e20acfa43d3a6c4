import json
from dataclasses import replace

import pytest

from knotwork.experiments import store
from knotwork.experiments.protocol import FULL
from knotwork.experiments.store import read, run_tasks, task

SETTINGS = ("epochs", "widths", "batch_size", "weight_decay", "warmup")
TINY = replace(FULL, epochs=1, widths=(24, 4))


def piece(plan=TINY, seed=0, **others):
    arguments = {"data": "wine", "scaling": "minmax", "start": "random", "rate": 1e-3, "seed": seed, **others}
    return task("runs", "run", plan, SETTINGS, **arguments)


def test_a_stored_run_is_found_and_not_run_again(tmp_path, monkeypatch):
    told = []
    first = run_tasks(tmp_path, [piece()], jobs=1, progress=told.append)
    monkeypatch.setattr(store.Task, "__call__", lambda self: pytest.fail("was run again"))
    assert run_tasks(tmp_path, [piece()], jobs=1, progress=told.append) == first
    assert told == [False, True]


def test_an_interruption_keeps_what_was_finished(tmp_path, monkeypatch):
    work = [piece(seed=s) for s in range(3)]
    compute, ran = store.Task.__call__, []

    def interrupted(self):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(self)
        return compute(self)

    monkeypatch.setattr(store.Task, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tmp_path, work, jobs=1)
    assert sorted(p.stem for p in tmp_path.iterdir()) == sorted(w.key for w in work[:2])

    again = []
    monkeypatch.setattr(store.Task, "__call__", lambda self: again.append(self) or compute(self))
    assert len(run_tasks(tmp_path, work, jobs=1)) == 3
    assert again == work[2:]


@pytest.mark.parametrize(
    "other",
    [
        piece(seed=1),
        piece(rate=2e-3),
        piece(start="converted"),
        piece(replace(TINY, epochs=2)),
        piece(replace(TINY, batch_size=64)),
    ],
)
def test_another_configuration_is_another_file(other):
    assert other.key != piece().key


def test_settings_that_a_result_does_not_depend_on_do_not_part_it():
    assert piece(replace(TINY, seeds=3, repeats=1)).key == piece().key


def test_other_code_is_another_file(monkeypatch):
    before = piece().key
    monkeypatch.setattr(store, "_code_of", lambda module: "changed")
    assert piece().key != before


def test_a_file_that_is_not_whole_counts_as_none(tmp_path):
    (tmp_path / f"{piece().key}.json").write_text(json.dumps({"a": 1})[:4])
    assert read(tmp_path, piece()) is None


def test_processes_give_the_same_bits(tmp_path):
    work = [piece(seed=s) for s in range(2)]
    alone = run_tasks(tmp_path / "a", work, jobs=1)
    together = run_tasks(tmp_path / "b", work, jobs=2)
    assert list(alone.values()) == list(together.values())
