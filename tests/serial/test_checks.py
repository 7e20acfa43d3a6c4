"""What is found when a model is read: changed digits, sizes that no file holds, parts that do not fit."""

import json
import os
import shutil
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import knotwork as kw
from knotwork.errors import DataError
from knotwork.serial.tables import DOCUMENT
from tests.saved.make import HERE, as_input, predict
from tests.serial.edited import arrays_file, edit, replace_arrays

NOW = HERE / "0.1.0-schema-5"


@pytest.fixture
def copy_of(tmp_path):
    def copy(name, version=NOW):
        return shutil.copytree(version / name, tmp_path / name)

    return copy


def test_every_changed_digit_is_found(copy_of):
    """Or it says the same: 0.10 is 0.1."""
    folder = copy_of("spline")
    path, data = folder / DOCUMENT, (folder / DOCUMENT).read_bytes()
    rows = as_input(json.loads((folder / "expected.json").read_text())["rows"])
    before = predict(kw.load(folder), rows)
    changed = 0
    for place, byte in enumerate(data):
        if chr(byte).isdigit():
            path.write_bytes(data[:place] + bytes([48 + (byte - 47) % 10]) + data[place + 1 :])
            try:
                again = kw.load(folder)
            except DataError:
                continue
            changed += not np.array_equal(predict(again, rows), before)
    assert changed == 0


def test_another_layout_of_the_document_is_the_same_model(copy_of):
    folder = copy_of("mars_table")
    before = (folder / DOCUMENT).read_text()
    (folder / DOCUMENT).write_bytes(before.replace("\n", "\r\n").encode())
    kw.load(folder)
    edit(folder, lambda document: None, digest=False)  # without indents
    kw.load(folder)


@pytest.mark.parametrize("key", ["version", "kind", "schema", "arrays", "model"])
def test_nothing_in_the_document_is_beyond_its_digest(copy_of, key):
    folder = copy_of("mars_table")
    values = {"version": "0.1.1", "kind": "Spline", "schema": 2, "arrays": {}, "model": None}
    edit(folder, lambda document: document.update({key: values[key]}), digest=False)
    with pytest.raises(DataError):
        kw.load(folder)


# Sizes


def refused_in_little_memory(folder, message, mebibytes=20):
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            kw.load(folder)
        assert tracemalloc.get_traced_memory()[1] < mebibytes * 2**20
    finally:
        tracemalloc.stop()


def test_a_width_of_text_that_no_file_holds(copy_of):
    folder = copy_of("mars_two_classes")
    edit(folder, lambda document: document["model"]["state"]["classes_"].update(width=20_000_000))
    refused_in_little_memory(folder, "2 texts of width 20000000")


def test_an_array_that_is_asked_for_again_and_again(copy_of):
    folder = copy_of("max_affine")

    def change(document):
        theta = document["model"]["state"]["pwl_"]["fields"]["theta"]
        document["model"]["parameters"]["ridge"] = [theta] * 100_000

    edit(folder, change)
    refused_in_little_memory(folder, "each once", mebibytes=200)


@pytest.mark.parametrize("schema", [1, 2, 3])
@pytest.mark.parametrize("part", ["document", "arrays"])
def test_a_padded_file_is_refused_before_it_is_read(copy_of, schema, part):
    folder = copy_of("mars_min", HERE / f"0.1.0-schema-{schema}")
    path = folder / DOCUMENT if part == "document" else next(folder.glob("*.safetensors"))
    with path.open("r+b") as file:
        file.truncate(2**30)
    refused_in_little_memory(folder, "are the maximum" if part == "document" else "cut short or changed")


def test_a_header_of_arrays_that_no_file_holds(copy_of):
    folder = copy_of("mars_min", HERE / "0.1.0-schema-2")
    path = folder / "model.safetensors"
    header = b'{"a":{"dtype":"F64","shape":[1000000000],"data_offsets":[0,8000000000]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(80))
    refused_in_little_memory(folder, "cut short or changed")


def test_the_arrays_are_in_the_folder(copy_of, tmp_path):
    folder = copy_of("spline")
    arrays_file(folder).rename(tmp_path / "elsewhere.safetensors")
    for name in ("../elsewhere.safetensors", str(tmp_path / "elsewhere.safetensors"), "elsewhere.safetensors"):
        edit(folder, lambda document, name=name: document["arrays"].update(file=name))
        with pytest.raises(DataError, match="no file of arrays"):
            kw.load(folder)


# Parts that do not fit


def state(document):
    return document["model"]["state"]


def spline(document):
    return state(document)["fit_"]["fields"]["spline"]["fields"]


def hinge(document):
    return next(term["fields"] for term in spline(document)["terms"]["tuple"] if term["record"] == "Hinge")


def encoder(document):
    return state(document)["encoder_"]["fields"]


def column(document, k):
    return encoder(document)["columns"]["tuple"][k]["fields"]


def layer(document, k):
    return state(document)["network_"]["network"][k][1]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("mars_table", lambda d: state(d).update(n_features_in_=4), "4 features where there are 3"),
        ("mars_table", lambda d: state(d).update(_flat_output="yes"), "_flat_output is str"),
        ("mars_table", lambda d: state(d).update(encoder_=None), "encoder_ is NoneType"),
        ("mars_table", lambda d: state(d)["feature_names_in_"]["text"].reverse(), "names of other columns"),
        ("mars_table", lambda d: state(d).update(_sklearn_output_config={"dict": {"transform": "x"}}), "unknown kind"),
        ("mars_table", lambda d: spline(d)["feature_names"]["tuple"].append("z"), "limits must be those of the 6"),
        ("mars_table", lambda d: hinge(d).update(sign=0), "sign of a hinge must be 1 or -1, got 0"),
        ("mars_table", lambda d: hinge(d).update(sign=True), "sign is bool"),
        ("mars_table", lambda d: hinge(d).update(knot="0"), "knot of a hinge must be a finite number"),
        ("mars_table", lambda d: hinge(d).update(knot={"float": "nan"}), "knot of a hinge must be a finite number"),
        ("mars_table", lambda d: hinge(d).update(feature=-1), "counted from 0, got -1"),
        ("mars_table", lambda d: spline(d)["terms"]["tuple"].pop(), "one row per term"),
        ("mars_raw_table", lambda d: column(d, 0).update(fill=None), "'age' with gaps and no fill"),
        ("mars_raw_table", lambda d: column(d, 0).update(fill={"float": "inf"}), "'age' with a fill that is none"),
        ("mars_raw_table", lambda d: column(d, 0).update(indicator=1), "Number whose indicator is int"),
        ("mars_raw_table", lambda d: column(d, 1)["levels"]["tuple"].pop(), "'town' with other means"),
        ("mars_raw_table", lambda d: column(d, 1)["levels"]["tuple"].insert(0, [1]), "neither text nor numbers"),
        ("mars_raw_table", lambda d: column(d, 1)["measures"]["tuple"].append("x"), "'town' with other means"),
        ("mars_raw_table", lambda d: column(d, 1).update(gap=column(d, 1)["means"]), "each once|other gaps"),
        ("mars_raw_table", lambda d: column(d, 2).update(categories={"tuple": []}), "'grade' without categories"),
        ("mars_raw_table", lambda d: column(d, 3)["calendar"]["tuple"].append("moon"), "parts of another calendar"),
        ("mars_raw_table", lambda d: column(d, 3).update(zone="Middle/Earth"), "a time zone that is none"),
        ("mars_raw_table", lambda d: column(d, 3).update(origin={"float": "nan"}), "origin is not finite"),
        ("mars_raw_table", lambda d: encoder(d).update(missing="guess"), "does 'guess' about gaps"),
        ("splinenet_two_classes", lambda d: state(d)["classes_"].update(text=["in"]), "not distinct"),
        ("mars_two_classes", lambda d: state(d)["classes_"].update(text=["in", "in"]), "not distinct"),
        ("mars_two_classes", lambda d: state(d)["classes_"].update(text=["a", "b", "c"]), "shares of other classes"),
        ("mars_two_classes", lambda d: state(d)["classes_"].update(text=["a", "\ud800"]), "half a character"),
        ("splinenet", lambda d: layer(d, 2)["options"].update(negative_slope="x"), "negative_slope is 'x'"),
        ("splinenet", lambda d: state(d)["network_"]["network"].pop(0), "Scaling|does not fit|no use for"),
        ("splinenet", lambda d: state(d).update(network_={"tuple": []}), "network_ is tuple"),
        ("splinenet", lambda d: state(d)["history_"]["fields"].update(best_epoch=99), "other epochs"),
        ("splinenet", lambda d: state(d)["history_"]["fields"]["train_loss"].pop(), "differ in length"),
        ("max_affine", lambda d: state(d).update(pwl_=state(d)["fit_"]), "each once|pwl_ is PiecewiseFit"),
        ("lattice", lambda d: d["model"]["fields"]["sets"]["tuple"][0]["tuple"].append(99), "names 99"),
        ("plain_network", lambda d: d["model"]["network"].pop(3), "no use for the array"),
        ("converted_network", lambda d: d["model"]["conversion"]["fields"].update(link="x"), "bound or link"),
    ],
)
def test_parts_that_do_not_fit_are_found_when_reading(copy_of, name, change, message):
    folder = copy_of(name)
    edit(folder, change)
    with pytest.raises(DataError, match=message):
        kw.load(folder)
    assert os.path.exists(folder / DOCUMENT)


@pytest.mark.parametrize("change", [lambda a: a[-1, -1:].fill(0), lambda a: a[-1, :1].fill(1)], ids=["zero", "below"])
def test_a_factor_without_an_inverse(copy_of, change):
    """A forged one would load, and raise from inside when it is explained."""
    folder = copy_of("mars_min")
    arrays = load_arrays(arrays_file(folder).read_bytes())
    name = next(key for key in arrays if key.endswith("inverse"))
    arrays[name] = arrays[name].copy()
    change(arrays[name])
    replace_arrays(folder, save_arrays(arrays))
    with pytest.raises(DataError, match="a triangular factor that has no inverse"):
        kw.load(folder)


def test_a_factor_of_near_collinear_terms_is_explained(copy_of):
    """A large number above the diagonal loads: the factor has an inverse, although its rows differ by rounding only."""
    folder = copy_of("mars_product")
    arrays = load_arrays(arrays_file(folder).read_bytes())
    name = next(key for key in arrays if key.endswith("inverse"))
    arrays[name] = arrays[name].copy()
    arrays[name][1:-1, -1] = -1e9
    replace_arrays(folder, save_arrays(arrays))
    assert np.isfinite(kw.load(folder).feature_importances_).all()
