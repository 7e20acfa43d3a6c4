import errno
import os
import re
import signal
import stat
import time
from pathlib import Path

import numpy as np
import pytest

import knotwork as kw
from knotwork import atomic
from knotwork.atomic import atomic_file, locked_folder
from knotwork.errors import DataError, FileError
from knotwork.experiments import store
from knotwork.explanation import report
from tests.torture.full_disk import short_files
from tests.torture.processes import ended, forked


def write(path, text, **options):
    with atomic_file(path, **options) as fresh:
        fresh.write_text(text)


def killed_while_writing(path):
    def work():
        with atomic_file(path) as fresh:
            fresh.write_text("half of")
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(work)) == -signal.SIGKILL


def test_the_draft_of_a_killed_process_is_removed_by_the_next_write(tmp_path):
    write(tmp_path / "a.txt", "before")
    killed_while_writing(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "before"
    assert len(os.listdir(tmp_path)) == 2
    write(tmp_path / "b.txt", "another file in the same folder")
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


def test_the_draft_of_somebody_who_is_still_writing_stays(tmp_path):
    with atomic_file(tmp_path / "a.txt") as fresh:
        fresh.write_text("mine")
        write(tmp_path / "b.txt", "theirs")
        assert ended(forked(lambda: write(tmp_path / "c.txt", "another process's"))) == 0
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt", "c.txt"]
    assert (tmp_path / "a.txt").read_text() == "mine"


def test_somebody_elses_file_is_never_taken_for_a_draft(tmp_path):
    names = [f".knotwork-{'0' * 32}.txt", ".knotwork-notes", f".knotwork-{atomic.new_name()[:-1]}"]
    for name in names:
        (tmp_path / name).write_text("mine")
    link = tmp_path / f".knotwork-{atomic.new_name()}"
    link.symlink_to(names[0])
    write(tmp_path / "a.txt", "whole")
    assert set(os.listdir(tmp_path)) == {"a.txt", link.name, *names}


@pytest.mark.parametrize("target", ["there", "not there"])
def test_a_link_stays_a_link(tmp_path, target):
    (tmp_path / "deep").mkdir()
    real, link = tmp_path / "deep" / "real.txt", tmp_path / "link.txt"
    if target == "there":
        real.write_text("before")
    link.symlink_to("deep/real.txt")
    write(link, "after")
    assert link.is_symlink()
    assert real.read_text() == "after"
    assert sorted(os.listdir(tmp_path)) == ["deep", "link.txt"]
    assert os.listdir(tmp_path / "deep") == ["real.txt"]


def test_the_rights_of_a_file_stay(tmp_path):
    before = os.umask(0o022)
    try:
        write(tmp_path / "new.txt", "a")
        assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o644
    finally:
        os.umask(before)
    (tmp_path / "new.txt").chmod(0o640)
    write(tmp_path / "new.txt", "b")
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o640


def test_places_that_are_none(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("circle", "link in a circle"), ("pipe", "a device"), (".", "a folder")):
        with pytest.raises(DataError, match=message):
            write(tmp_path / name, "text")
    with pytest.raises(DataError, match="must exist"):
        write(tmp_path / "none" / "a.txt", "text")
    with pytest.raises(FileError, match="cannot be written"):
        write(tmp_path / ("a" * 300), "text")
    assert sorted(os.listdir(tmp_path)) == ["circle", "pipe"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_may_not_be_replaced(tmp_path, monkeypatch, links):
    if not links:

        def refuse(*_):
            raise OSError(errno.EPERM, "no hard links here")

        monkeypatch.setattr(os, "link", refuse)
    write(tmp_path / "a.txt", "first", overwrite=False)
    with pytest.raises(DataError, match="exists already"):
        write(tmp_path / "a.txt", "second", overwrite=False)
    assert (tmp_path / "a.txt").read_text() == "first"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failure_of_the_system_is_one_sentence(tmp_path):
    write(tmp_path / "a.txt", "before")
    with (
        short_files(10),
        pytest.raises(FileError, match=r"a\.txt cannot be written \(File too large\) and is as it was"),
    ):
        write(tmp_path / "a.txt", "x" * 100)
    assert (tmp_path / "a.txt").read_text() == "before"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_folders_are_waited_for(tmp_path, monkeypatch):
    with locked_folder(tmp_path) as locked:
        assert locked
        monkeypatch.setattr(atomic, "_PATIENCE", 0.05)
        with pytest.raises(FileError, match="another process has been writing"), locked_folder(tmp_path):
            pass
    start = time.monotonic()
    with locked_folder(tmp_path):
        assert time.monotonic() - start < 1


# Every file that we write


def test_a_page_on_a_full_disk_leaves_the_old_one(tmp_path):
    page = tmp_path / "report.html"
    explanation = kw.explain(kw.Spline((kw.Hinge(0, 0.0, 1),), [0.0], [[1.0]], ("x",)), np.arange(9.0)[:, None])
    explanation.to_html(page)
    before = page.read_bytes()
    with short_files(len(before) // 2), pytest.raises(FileError, match="File too large"):
        explanation.to_html(page)
    assert page.read_bytes() == before
    assert os.listdir(tmp_path) == ["report.html"]


def test_an_interrupted_page_leaves_the_old_one(tmp_path, monkeypatch):
    page = tmp_path / "report.html"
    page.write_text("the old one")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_file(page) as fresh:
        fresh.write_text(report.render({}))
    assert page.read_text() == "the old one"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_finished_run_on_a_full_disk(tmp_path):
    class Work:
        key = "run"

        def __call__(self):
            return {"rows": list(range(1000))}

    with short_files(100), pytest.raises(FileError):
        store.compute(tmp_path, Work())
    assert os.listdir(tmp_path) == []
    assert store.compute(tmp_path, Work()) == store.read(tmp_path, Work())


def test_only_the_atomic_write_opens_files_to_write():
    """A file that is written in another way can be there in part."""
    source = Path(kw.__file__).parent
    direct = re.compile(
        r"(?<!fresh)\.write_(text|bytes)\(|(?<!fresh\.)open\([^)]*[\"'][wax]b?\+?[\"']|NamedTemporaryFile|mkstemp"
    )
    found = {
        f"{path.relative_to(source)}: {line.strip()}"
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if direct.search(line)
    }
    assert found == set()
