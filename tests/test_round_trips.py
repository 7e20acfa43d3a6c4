"""pickle, joblib, copy and clone: everything public comes back as it was."""

import copy
import inspect
import io
import pickle

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import knotwork as kw
from knotwork import errors
from tests.saved.make import MODELS, X, as_input, classifying, mars, network, predict, rows_of, table, two, y

WAYS = {
    **{f"pickle {p}": lambda thing, p=p: pickle.loads(pickle.dumps(thing, protocol=p)) for p in (2, 5)},
    "joblib": lambda thing: _through_joblib(thing),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
SMALL = {
    "Hinge": lambda: kw.Hinge(0, 1.5, -1),
    "Limits": lambda: kw.Limits([0.0, -np.inf], [1.0, 2.0]),
    "Linear": lambda: kw.Linear(2),
    "Min": lambda: kw.Min((kw.Hinge(0, 1.0, 1), kw.Hinge(1, 0.0, 1)), (1.0, 2.0)),
    "Product": lambda: kw.Product((kw.Hinge(0, 1.0, 1), kw.Hinge(1, 0.0, 1))),
    "Spline": MODELS["spline"],
    "LatticePWL": MODELS["lattice"],
    "MaxSum": MODELS["max_sum"],
}


def _through_joblib(thing):
    file = io.BytesIO()
    joblib.dump(thing, file)
    file.seek(0)
    return joblib.load(file)


@pytest.fixture(scope="module")
def fitted():
    made = {}
    return lambda name: made.setdefault(name, MODELS[name]())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_the_same_bits(fitted, name, way):
    model = fitted(name)
    again = WAYS[way](model)
    assert type(again) is type(model)
    rows = as_input(rows_of(name, model))
    assert np.array_equal(predict(again, rows), predict(model, rows))
    if hasattr(model, "get_params"):
        assert repr(again) == repr(model)
    if hasattr(model, "summary"):
        assert again.summary() == model.summary()
    if hasattr(model, "history_"):
        assert again.history_ == model.history_
    if isinstance(model, nn.Module):
        assert getattr(again, "conversion", None).__class__ is getattr(model, "conversion", None).__class__


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SMALL)
def test_a_record_is_equal_and_stays_frozen(name, way):
    thing = SMALL[name]()
    again = WAYS[way](thing)
    assert again == thing
    assert hash(again) == hash(thing)
    for key in ("intercept", "coef", "theta", "affine"):
        if hasattr(thing, key):
            assert not getattr(again, key).flags.writeable


@pytest.mark.parametrize("way", WAYS)
def test_an_explanation(fitted, way, tmp_path):
    model = fitted("mars_table")
    explanation = kw.explain(model, table, y)
    again = WAYS[way](explanation)
    assert again.importances.equals(explanation.importances)
    assert list(again.effects) == list(explanation.effects)
    again.to_html(tmp_path / "again.html")
    explanation.to_html(tmp_path / "before.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "before.html").read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_a_scaling_keeps_its_precision(way):
    layer = kw.Scaling([1e8, 0.0], [2.0, 1.0]).half()
    again = WAYS[way](layer)
    rows = torch.tensor([[1e8 + 4, 3.0]], dtype=torch.float64)
    assert torch.equal(again(rows), layer(rows))
    assert again(rows).dtype == torch.float16
    assert again.centre.dtype == torch.float64


@pytest.mark.parametrize(
    "make",
    [mars, network, classifying, kw.MarsClassifier, kw.MaxAffineRegressor, kw.DCMaxAffineRegressor,
     kw.HingingHyperplanesRegressor],
)  # fmt: skip
def test_clone_takes_the_parameters_and_nothing_else(make):
    labels = two if make in (classifying, kw.MarsClassifier) else y
    model = make().fit(X, labels)
    again = clone(model)
    assert str(again.get_params()) == str(model.get_params())
    assert set(vars(again)) == set(model.get_params())
    again.set_params(**{key: 0 for key in ("random_state",) if key in again.get_params()})
    model = clone(again).fit(X, labels)
    assert np.array_equal(again.fit(X, labels).predict(X), model.predict(X))


@pytest.mark.parametrize("way", WAYS)
def test_pieces(way):
    first = kw.Piece([[1.0], [-1.0]], [0.0, 1.0], [0.0, -1.0])
    second = kw.Piece([[-1.0], [1.0]], [0.0, 1.0], [0.0, 1.0])
    thing = kw.Pieces([first, second])  # |x|
    again = WAYS[way](thing)
    assert [np.array_equal(a.theta, b.theta) for a, b in zip(again.pieces, thing.pieces, strict=True)] == [True, True]
    assert not again.pieces[0].theta.flags.writeable
    assert again.to_lattice() == thing.to_lattice()


@pytest.mark.parametrize("way", WAYS)
def test_batches(way):
    again = WAYS[way](kw.Batches([(X, y)], memory_limit=1 << 27))
    assert again.memory_limit == 1 << 27
    assert np.array_equal(mars().fit(again).predict(X), mars().fit(kw.Batches([(X, y)])).predict(X))


@pytest.mark.parametrize("error", [e for _, e in inspect.getmembers(errors, inspect.isclass)])
def test_errors_come_back_from_other_processes(error):
    again = pickle.loads(pickle.dumps(error("a sentence; what to do")))
    assert type(again) is error
    assert str(again) == "a sentence; what to do"


def test_nothing_public_is_left_out():
    covered = {type(make()).__name__ for make in MODELS.values()} | set(SMALL)
    covered |= {"Batches", "Explanation", "Scaling", "Pieces", "Piece"}
    classes = {name for name in kw.__all__ if inspect.isclass(getattr(kw, name))}
    assert classes <= covered
