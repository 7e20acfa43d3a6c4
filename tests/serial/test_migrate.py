import copy
import json

import numpy as np
import pytest

import knotwork as kw
from knotwork.errors import DataError
from knotwork.serial import migrate
from knotwork.serial.document import ARRAYS_1
from knotwork.serial.tables import DOCUMENT
from tests.saved.make import HERE

VERSION_1 = HERE / "0.1.0-schema-1"


def model_of(name):
    return json.loads((VERSION_1 / name / DOCUMENT).read_text())["model"]


def copy_of(name, folder, change):
    """A saved model with a changed document."""
    document = json.loads((VERSION_1 / name / DOCUMENT).read_text())
    change(document)
    (folder / DOCUMENT).write_text(json.dumps(document))
    (folder / ARRAYS_1).write_bytes((VERSION_1 / name / ARRAYS_1).read_bytes())
    return folder


def test_there_is_a_step_from_every_earlier_schema():
    assert list(migrate.STEPS) == list(range(1, migrate.SCHEMA))


@pytest.mark.parametrize("name", ["mars_table", "mars_three_classes", "max_affine"])
def test_the_document_that_came_is_not_changed(name):
    model = model_of(name)
    before = copy.deepcopy(model)
    migrated = migrate.migrate(model, 1)
    assert model == before != migrated
    assert migrate.migrate(migrated, migrate.SCHEMA) == migrated


def test_every_field_of_a_spline_fit_arrives():
    old = model_of("mars_auto_degree")["state"]["fit_"]["fields"]
    fit = kw.load(VERSION_1 / "mars_auto_degree").fit_
    assert [getattr(fit.quality, name) for name in ("rss", "gcv", "rsq", "grsq")] == [
        old[name] for name in ("rss", "gcv", "rsq", "grsq")
    ]
    assert fit.selection.stopped == old["stopped"]
    assert fit.selection.observations == old["total"] == 60
    assert fit.selection.penalty == old["penalty"]
    assert list(fit.selection.gcv_by_degree) == old["degrees"]["tuple"]
    assert len(fit.selection.steps) == len(old["steps"]["tuple"])
    assert fit.standardised.rss_unit == old["unit"]
    assert fit.standardised.refit.coef.shape == fit.spline.coef.shape
    assert np.isfinite(fit.coordinates.x_centre).all()
    assert (fit.coordinates.x_scale > 0).all()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("mars_min", lambda f: f.pop("unit"), "SplineFit with unit missing or unknown"),
        ("mars_min", lambda f: f.update(quality=1), "SplineFit with quality missing or unknown"),
        ("max_affine", lambda f: f.pop("feature_scale"), "PiecewiseFit with feature_scale missing or unknown"),
        ("dc_max_affine", lambda f: f["sizes"]["tuple"].pop(), "coordinates of 1 outputs where there are 2"),
    ],
)
def test_an_earlier_document_that_was_changed_is_refused(tmp_path, name, change, message):
    folder = copy_of(name, tmp_path, lambda document: change(document["model"]["state"]["fit_"]["fields"]))
    with pytest.raises(DataError, match=message):
        kw.load(folder)


def test_no_earlier_record_is_read_in_a_later_schema(tmp_path):
    folder = copy_of("mars_min", tmp_path, lambda document: document.update(schema=2))
    with pytest.raises(DataError, match=r"SplineFit with .*feature_centre"):
        kw.load(folder)


def test_a_dictionary_that_looks_like_a_record_is_left_alone():
    own = {"dict": {"record": "SplineFit", "fields": {"dict": {"rss": 1.0}}}}
    assert migrate.migrate(own, 1) == own


def test_a_record_that_gained_fields(monkeypatch):
    rewrite = migrate.gains("Spans", unit="rows")
    steps = {schema: {} for schema in range(2, migrate.SCHEMA)}
    monkeypatch.setattr(migrate, "STEPS", {1: {"Spans": rewrite}, **steps})
    old = {"tuple": [{"record": "Spans", "fields": {"minspan": 1, "endspan": 2}}]}
    new = {"minspan": 1, "endspan": 2, "unit": "rows"}
    assert migrate.migrate(old, 1) == {"tuple": [{"record": "Spans", "fields": new}]}
