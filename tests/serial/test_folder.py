"""The folder of a saved model: what a save may touch, and what is left when it fails."""

import contextlib
import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import knotwork as kw
from knotwork.errors import DataError, FileError, ParameterError
from knotwork.export import export_torch
from knotwork.io import load, save
from knotwork.serial import folder as folders
from knotwork.serial.tables import DOCUMENT
from tests.saved.make import HERE
from tests.serial.edited import arrays_file
from tests.torture.processes import ended, forked


@pytest.fixture(scope="module")
def mars():
    return kw.MarsRegressor(max_terms=15, penalty=3.0).fit(*kw.datasets.load_abalone())


@pytest.fixture
def spline():
    return kw.Spline(
        (kw.Hinge(0, 0.1, 1), kw.Linear(1)), intercept=[1 / 3], coef=[[np.pi], [-0.0]], feature_names=("a", "b")
    )


@pytest.fixture
def saved(spline, tmp_path):
    save(spline, tmp_path)
    return tmp_path


def test_parents_are_made_and_a_model_is_replaced(mars, spline, tmp_path):
    folder = tmp_path / "a" / "b"
    save(mars, str(folder))
    for name in ("notes.txt", "model.safetensors", f"model-{'0' * 32}.safetensors"):
        (folder / name).write_text("mine")
    save(spline, folder, overwrite=True)
    assert load(str(folder)) == spline
    others = {"notes.txt", "model.safetensors", f"model-{'0' * 32}.safetensors"}
    assert set(os.listdir(folder)) == {DOCUMENT, arrays_file(folder).name, *others}
    assert {(folder / name).read_text() for name in others} == {"mine"}


def test_a_model_is_replaced_only_if_asked(mars, spline, tmp_path):
    save(mars, tmp_path)
    before = (tmp_path / DOCUMENT).read_bytes()
    with pytest.raises(DataError, match=r"holds a model already \('MarsRegressor', .* pass overwrite=True"):
        save(spline, tmp_path)
    assert (tmp_path / DOCUMENT).read_bytes() == before
    assert len(os.listdir(tmp_path)) == 2
    save(spline, tmp_path, overwrite=True)
    assert load(tmp_path) == spline


def test_of_two_first_saves_one_is_refused(mars, spline, tmp_path, monkeypatch):
    """The other process saves between our look and our rename."""
    look = folders.require_free
    monkeypatch.setattr(folders, "locked_folder", lambda folder: contextlib.nullcontext(False))
    monkeypatch.setattr(folders, "require_free", lambda *a, **k: (look(*a, **k), fast_writer(tmp_path)))

    def fast_writer(folder):
        monkeypatch.setattr(folders, "require_free", look)
        save(mars, folder)

    with pytest.raises(DataError, match="exists already"):
        save(spline, tmp_path)
    assert isinstance(load(tmp_path), kw.MarsRegressor)
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text('{"model": "a web framework\'s"}'),
        lambda path: path.write_text("not JSON"),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("elsewhere.json"),
    ],
    ids=["foreign", "text", "folder", "link"],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_ours_is_never_replaced(spline, tmp_path, make, overwrite):
    (tmp_path / "elsewhere.json").write_text('{"format": "knotwork", "schema": 3}')
    make(tmp_path / DOCUMENT)
    before = {p.name: p.read_bytes() if p.is_file() else None for p in tmp_path.iterdir()}
    with pytest.raises(DataError, match="never replaced; choose another path"):
        save(spline, tmp_path, overwrite=overwrite)
    assert {p.name: p.read_bytes() if p.is_file() else None for p in tmp_path.iterdir()} == before


def test_a_link_in_the_place_of_the_arrays_is_never_replaced(spline, saved, tmp_path):
    name, other = arrays_file(saved).name, tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("mine")
    (other / name).symlink_to("mine")
    with pytest.raises(DataError, match="is a link, which is never replaced; choose another path"):
        save(spline, other)
    assert (other / "mine").read_text() == "mine"
    assert (other / name).is_symlink()
    assert len(os.listdir(other)) == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_results_never_replace_a_part_of_a_model(spline, saved, overwrite):
    """Nor through a link; beside it they may lie."""
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    (saved / "link").symlink_to(DOCUMENT)
    network, told = kw.to_network(spline), kw.explain(spline, np.eye(2))
    for name in (*before, "link"):
        for write in (told.to_html, partial(kw.export_onnx, network), partial(export_torch, network)):
            with pytest.raises(DataError, match=r"an output must be no part of a saved model, .* is one; choose"):
                write(saved / name, overwrite=overwrite)
    assert {name: (saved / name).read_bytes() for name in before} == before
    told.to_html(saved / "report.html", overwrite=overwrite)
    assert load(saved) == spline


def test_a_path_that_no_file_system_has_is_one_sentence(spline, tmp_path):
    with pytest.raises(FileError, match=r"cannot be written \(File name too long\)"):
        save(spline, tmp_path / ("a" * 300))
    with pytest.raises(ParameterError, match="path must be the path of a file or folder"):
        save(spline, str(tmp_path / "\ud800"))


def test_a_link_to_a_folder_stays_one(spline, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    save(spline, tmp_path / "link")
    save(spline, tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "real") == spline


@pytest.mark.parametrize("schema", [1, 2])
def test_the_arrays_of_an_earlier_version_go_with_it(spline, tmp_path, schema):
    """And only they: the same name may be somebody else's."""
    for name in ("ours", "theirs"):
        shutil.copytree(HERE / f"0.1.0-schema-{schema}" / "spline", tmp_path / name)
    (tmp_path / "theirs" / "model.safetensors").write_bytes(b"weights of another program")
    for name in ("ours", "theirs"):
        save(spline, tmp_path / name, overwrite=True)
        assert load(tmp_path / name) == spline
    assert not (tmp_path / "ours" / "model.safetensors").exists()
    assert (tmp_path / "theirs" / "model.safetensors").read_bytes() == b"weights of another program"


def failing(function, after, forever):
    """A function that fails once it was called ``after`` times; for ever is what a killed process looks like."""
    calls = 0

    def fails(*arguments):
        nonlocal calls
        calls += 1
        if calls == after + 1 or (forever and calls > after):
            raise OSError("no space left")
        return function(*arguments)

    return fails


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize(("name", "after"), [("fsync", 0), ("fsync", 1), ("fsync", 2), ("replace", 0), ("replace", 1)])
def test_a_save_that_fails_leaves_the_model_from_before(spline, saved, monkeypatch, name, after, forever):
    other = kw.Spline((), [5.0], [], ("z",))
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(getattr(os, name), after, forever))
        with pytest.raises(FileError, match=r"no space left.*is as it was; make room"):
            save(other, saved, overwrite=True)
    assert load(saved) == spline
    assert sorted(os.listdir(saved)) == sorted([DOCUMENT, arrays_file(saved).name])
    save(other, saved, overwrite=True)
    assert load(saved) == other


@pytest.mark.parametrize(("name", "after"), [("fsync", 0), ("fsync", 1), ("fsync", 2), ("replace", 0), ("link", 0)])
def test_a_first_save_that_fails_leaves_nothing(spline, tmp_path, monkeypatch, name, after):
    monkeypatch.setattr(os, name, failing(getattr(os, name), after, False))
    with pytest.raises(FileError, match="no space left"):
        save(spline, tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_interrupt_behind_the_last_rename_keeps_the_new_model(saved, monkeypatch):
    other = kw.Spline((), [5.0], [], ("z",))

    def replace(source, target):
        rename(source, target)
        if target.name == DOCUMENT:
            raise KeyboardInterrupt

    rename = os.replace
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        save(other, saved, overwrite=True)
    assert load(saved) == other


# Kills


def killed_before(name, place, model, target):
    """Save in another process, killed just before it renames something onto the target."""

    def work():
        rename = getattr(os, name)

        def kill(source, to, *rest):
            if Path(to).name == target:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, to, *rest)

        setattr(os, name, kill)
        save(model, place, overwrite=True)

    assert ended(forked(work)) == -signal.SIGKILL


@pytest.mark.parametrize("times", [1, 2, 3])
def test_saves_killed_just_before_the_documents_rename(spline, saved, times):
    for k in range(times):
        killed_before("replace", saved, kw.Spline((), [float(k)], [], ("z",)), DOCUMENT)
        assert load(saved) == spline
    assert len(os.listdir(saved)) > 2  # the arrays and the document of the killed ones
    other = kw.Spline((), [5.0], [], ("z",))
    save(other, saved, overwrite=True)
    assert load(saved) == other
    assert sorted(os.listdir(saved)) == sorted([DOCUMENT, arrays_file(saved).name])


# Readers and writers


def test_a_reader_begins_again_when_the_model_is_replaced_under_it(mars, saved, monkeypatch):
    """Between the document and its arrays somebody saves, and the arrays of the old document are gone."""
    read = folders.read_arrays

    def slow(folder, *rest):
        monkeypatch.setattr(folders, "read_arrays", read)
        save(mars, folder, overwrite=True)
        return read(folder, *rest)

    monkeypatch.setattr(folders, "read_arrays", slow)
    assert isinstance(load(saved), kw.MarsRegressor)


def test_a_reader_begins_again_even_if_the_same_model_is_back(mars, spline, saved, monkeypatch):
    read, calls = folders.read_arrays, []

    def slow(folder, *rest):
        calls.append(1)
        if len(calls) == 1:
            save(mars, folder, overwrite=True)
            with pytest.raises(DataError, match="lacks it"):
                read(folder, *rest)
            save(spline, folder, overwrite=True)
            raise FileNotFoundError
        return read(folder, *rest)

    monkeypatch.setattr(folders, "read_arrays", slow)
    assert load(saved) == spline
    assert len(calls) == 2


def test_writers_wait_for_each_other(spline, mars, saved):
    """A second one beside the first would remove the arrays that the first is about to name."""
    with folders.locked_folder(saved):
        child = forked(lambda: save(mars, saved, overwrite=True))
        time.sleep(0.3)
        assert load(saved) == spline
    assert ended(child) == 0
    assert isinstance(load(saved), kw.MarsRegressor)
