"""Files that are not ours, or not as we wrote them: refused in one sentence; nothing in them is called or imported."""

import builtins
import os
import subprocess

import numpy as np
import pytest
import safetensors.numpy
from torch import nn

import knotwork as kw
from knotwork.errors import DataError
from knotwork.io import load, save
from knotwork.serial import tables
from knotwork.serial.migrate import SCHEMA
from knotwork.serial.tables import DOCUMENT
from tests.serial.edited import arrays_file, edit, replace_arrays


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


class Fatal(Exception):
    pass


@pytest.mark.parametrize("name", ["os.system", "system", "eval", "builtins.eval", "__import__", "Popen", "Exception"])
@pytest.mark.parametrize(
    "forge",
    [
        lambda name: {"kind": name},
        lambda name: {"model": {"record": name, "fields": {"command": "exit 1"}}},
        lambda name: {"model": {"layer": name, "options": {}, "parameters": {}, "training": True}},
        lambda name: {"model": {"estimator": name, "parameters": {"a": "exit 1"}, "state": {}}},
        lambda name: {"model": {name: "exit 1"}},
    ],
)
def test_no_name_in_a_file_is_ever_called_or_imported(saved, monkeypatch, name, forge):
    def fail(*_, **__):
        raise Fatal

    edit(saved, lambda document: document.update(forge(name)))
    for module, function in (
        (os, "system"),
        (subprocess, "Popen"),
        (builtins, "eval"),
        (tables.importlib, "import_module"),
    ):
        monkeypatch.setattr(module, function, fail)
    with pytest.raises(DataError, match="got"):
        load(saved)


def one_sentence(error):
    text = str(error.value)
    return "\n" not in text and "; " in text and len(text) < 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "must be a model of knotwork"),
        (
            lambda d: d.update(schema=SCHEMA + 1, version="9.0"),
            f"up to schema {SCHEMA}, got schema {SCHEMA + 1}, written by version '9.0'",
        ),
        (lambda d: d.update(schema="1"), "schema '1'"),
        (lambda d: d.update(kind=["Spline"]), "may name one of"),
        (lambda d: d.update(kind="MarsRegressor"), "kind MarsRegressor and Spline inside"),
        (lambda d: d.pop("model"), "model.json with model missing or unknown"),
        (lambda d: d.update(model=7), "no use for the array 'coef'"),
        (lambda d: d["model"]["fields"].pop("coef"), "Spline with coef missing or unknown"),
        (lambda d: d["model"]["fields"]["coef"].update(array="other"), "'other' is missing"),
        (lambda d: d["model"]["fields"]["coef"].update(shape=[3, 1]), r"shape \[3, 1\], got float64 of shape \[2, 1\]"),
        (lambda d: d["model"]["fields"]["coef"].update(dtype="int64"), "must be int64 .* got float64"),
        (lambda d: d["model"]["fields"]["coef"].update(array=[]), "a part that does not fit"),
        (
            lambda d: d["model"]["fields"].update(coef=d["model"]["fields"]["intercept"]),
            "'intercept' is missing",
        ),
        (lambda d: d["model"]["fields"].update(terms="ab"), "a part of Spline that does not fit"),
        (lambda d: d["model"]["fields"].update(feature_names={"list": []}), "an object with the keys list"),
    ],
)
def test_a_changed_document_is_refused_in_one_sentence(saved, change, message):
    edit(saved, change)
    with pytest.raises(DataError, match=message) as error:
        load(saved)
    assert one_sentence(error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda layer: layer["options"].update(in_features=10**12),
            r"must have shape \(2, 1000000000000\), got \(2, 3\)",
        ),
        (lambda layer: layer["options"].update(in_features="x"), "Linear whose in_features is 'x'"),
        (lambda layer: layer["options"].update(evil=1), "Linear with evil missing or unknown"),
        (lambda layer: layer["parameters"].pop("weight"), "Linear with weight missing or unknown"),
        (lambda layer: layer["parameters"]["bias"]["tensor"].update(array="0.weight", shape=[2, 3]), "each once"),
    ],
)
def test_a_changed_layer_is_refused(tmp_path, change, message):
    save(nn.Sequential(nn.Linear(3, 2)), tmp_path)
    edit(tmp_path, lambda document: change(document["model"]["network"][0][1]))
    with pytest.raises(DataError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("name", ["predict", "__class__"])
def test_an_attribute_of_another_name_is_refused(mars, tmp_path, name):
    save(mars, tmp_path)
    edit(tmp_path, lambda document: document["model"]["state"].update({name: 1}))
    with pytest.raises(DataError, match=f"MarsRegressor with {name} missing or unknown"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[1" + b"0" * 5000 + b"]"])
def test_a_document_that_is_not_json(saved, content):
    (saved / DOCUMENT).write_bytes(content)
    with pytest.raises(DataError, match="not JSON") as error:
        load(saved)
    assert one_sentence(error)


@pytest.mark.parametrize("content", [b"[]", b"null", b'{"kind": "Spline"}'])
def test_json_of_somebody_else(saved, content):
    (saved / DOCUMENT).write_bytes(content)
    with pytest.raises(DataError, match="must be a model of knotwork"):
        load(saved)


def test_paths_without_a_model(saved, tmp_path):
    for path in (tmp_path / "nothing", saved / DOCUMENT):
        with pytest.raises(DataError, match=r"folder with model\.json"):
            load(path)
    with pytest.raises(DataError, match="is or lies in a file"):
        save(load(saved), saved / DOCUMENT)
    with pytest.raises(DataError, match="is or lies in a file"):
        save(load(saved), saved / DOCUMENT / "below")
    arrays_file(saved).unlink()
    with pytest.raises(DataError, match=r"has the file model-.*\.safetensors of its arrays next to"):
        load(saved)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_arrays_that_are_damaged(saved, damage):
    arrays_file(saved).write_bytes(damage(arrays_file(saved).read_bytes()))
    with pytest.raises(DataError, match="cut short or changed") as error:
        load(saved)
    assert one_sentence(error)


BFLOAT = b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'


@pytest.mark.parametrize(
    "content", [b"", b"no tensor in sight", b"\xff" * 100, len(BFLOAT).to_bytes(8, "little") + BFLOAT + b"\0\0"]
)
def test_arrays_that_are_no_safetensors(saved, content):
    replace_arrays(saved, content)
    with pytest.raises(DataError) as error:
        load(saved)
    assert one_sentence(error)


def test_arrays_of_another_model(saved):
    replace_arrays(saved, safetensors.numpy.save({"coef": np.zeros((2, 1))}))
    with pytest.raises(DataError, match="'intercept' is missing"):
        load(saved)


def test_whole_numbers_that_numpy_does_not_have_are_refused(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    save(kw.MarsClassifier().fit(X, X[:, 0] > 0), tmp_path / "m")

    def change(document):
        search = document["model"]["state"]["fit_"]["fields"]["search"]
        search["fields"]["selection"]["fields"]["observations"] = 10**29

    edit(tmp_path / "m", change)
    with pytest.raises(DataError, match="Selection whose observations is int"):
        load(tmp_path / "m")


def test_a_refused_name_is_answered_in_one_sentence_of_few_names(tmp_path):
    save(kw.Spline((kw.Linear(0),), [0.0], [[1.0]], ("x",)), tmp_path / "m")
    edit(tmp_path / "m", lambda d: d["model"]["fields"]["terms"]["tuple"][0].update(record="a" * 3000))
    with pytest.raises(DataError, match="may name one of") as error:
        load(tmp_path / "m")
    assert one_sentence(error)
