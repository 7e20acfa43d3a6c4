"""Parameters of public functions: what breaks a rule is refused by its name, before anything happens."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import knotwork as kw
from knotwork.errors import DataError, KnotworkError, NetworkError, ParameterError
from knotwork.explanation.effects import _histogram
from knotwork.parameters import number, place, positive, seed, shown, switch, whole


class Broken:
    def __iter__(self):
        raise NotImplementedError


X = np.random.default_rng(0).normal(size=(30, 3))
Y = np.abs(X[:, 0])


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kw.train(net(), X, Y, learning_rate=float("nan")), "learning_rate must be a positive, finite number"),
        (lambda: kw.train(net(), X, Y, epochs=1.5), "epochs must be a whole number of at least 0, got 1.5"),
        (lambda: kw.train(net(), X, Y, dropout=1.0), "dropout must be .* less than 1, got 1.0"),
        (lambda: kw.train(net(), X, Y, patience=0), "patience must be a whole number of at least 1 or None, got 0"),
        (lambda: kw.train(net(), X, Y, random_state="a"), "random_state must be a whole number from 0"),
        (lambda: kw.train(net(), X, Y, standardise="yes"), "standardise must be True or False, got 'yes'"),
        (lambda: kw.init_(net(), X, Y, max_terms="many"), "max_terms must be a whole number or None, got 'many'"),
        (lambda: kw.init_(net(), X, Y, ridge=[1]), r"ridge must be a finite number or None, got \[1\]"),
        (lambda: kw.init_head_(net(), 3, (X, Y)), "head must be text, got 3"),
        (lambda: kw.reshape(net(), fill=np.ones(3)), r"fill must be text or None, got ndarray of shape \(3,\)"),
        (lambda: kw.deepen(net(), "2"), "layers must be a whole number, got '2'"),
        (lambda: kw.to_network(kw.MarsRegressor().fit(X, Y), dtype=torch.int64), "dtype must be a floating dtype"),
        (lambda: kw.to_network(kw.MarsRegressor().fit(X, Y), tolerance="x"), "tolerance must be a number or None"),
        (lambda: kw.to_relu(net(), (-1, 1), range(3)), "tolerance must be a finite number, got range"),
        (lambda: kw.from_network(net(), (-1, 1), samples=0), "samples must be a whole number of at least 1, got 0"),
        (lambda: kw.load(None), "path must be the path of a file or folder, got None"),
        (lambda: kw.save(kw.MarsRegressor().fit(X, Y), "a\0b"), "path must be the path"),
        (lambda: kw.explain(kw.MarsRegressor().fit(X, Y), X, curves=3), "curves must be text, got 3"),
        (lambda: kw.explain(kw.MarsRegressor().fit(X, Y), X).plot_importances(ax=3), "ax must be matplotlib axes"),
        (lambda: kw.datasets.load_wine_quality("pink"), "colour must be 'white' or 'red', got 'pink'"),
        (
            lambda: kw.with_spline(net(), kw.MarsRegressor().fit(X, Y), freeze=np.ones(3)),
            "freeze must be True or False",
        ),
        (lambda: kw.init_(net(), X, Y, threshold=None), "threshold must be a finite number, got None"),
    ],
)
def test_functions_refuse_by_name(call, message):
    with pytest.raises(ParameterError, match=message) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)


def test_a_refusal_leaves_a_network_as_it_was():
    one = net()
    before = {name: value.clone() for name, value in one.state_dict().items()}
    for call in (lambda: kw.train(one, X, Y, l1=-1.0), lambda: kw.init_(one, X, Y, threshold="a")):
        with pytest.raises(ParameterError):
            call()
    assert all(torch.equal(value, before[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kw.train(net(), X, Y, validation=(X,)), "a loader must yield batches .*, got ndarray"),
        (lambda: kw.train(net(), X, Y, validation=2.0), "validation must be a share between 0 and 1"),
        (lambda: kw.train(net(), None, Y), "X must have shape"),
        (lambda: kw.train(net(), X, X + 1j), "y must hold numbers or labels, got complex128"),
        (lambda: kw.fold(net().to("meta")), "a Linear must have its weights"),
        (lambda: kw.init_head_(kw.MarsRegressor(), "2", (X, Y)), "init_head_ takes a torch network, got MarsRegressor"),
        (lambda: kw.reshape(net(), (10**6, 10**6)), "at most 1e.09 weights"),
        (lambda: kw.Spline("ab", [1.0], [[1.0]], ("x",)), "terms must be a tuple, got 'ab'"),
        (lambda: kw.Spline((1,), [1.0], [[1.0]], ("x",)), "terms must be Linear, Hinge, Min or Product"),
        (lambda: kw.Spline.from_dict({}), "rebuilt from the record that to_dict returns"),
        (lambda: kw.Hinge(0, 0.0, 1)([[]]), "takes rows with at least 1 columns"),
        (lambda: kw.Hinge(2, 0.0, 1).describe(["a"]), "names must be those of the features, at least 3"),
        (lambda: kw.Min((1, 2), (1.0, 1.0)), "Min takes a tuple of Hinge terms"),
        (lambda: kw.LatticePWL.stack([]), "stack takes a list of LatticePWL"),
        (lambda: kw.LatticePWL([["a"]], [(0,)]), "theta must hold numbers"),
        (lambda: kw.MaxSum([[0.0, 1.0]], 3, [[1.0]], [[0.0, 0.0]]), "groups must be a sequence"),
        (lambda: kw.Piece.hull([[0.0, 0.0], [1.0, 1.0]], [0.0, 1.0, 1.0]), "points must span 2 dimensions"),
        (lambda: kw.Piece([[1.0]], [1.0], [0.0, 1.0])(np.zeros((3, 2))), r"takes rows of shape \(N, 1\)"),
        (lambda: kw.Pieces(3), "pieces must be a tuple of Piece"),
        (lambda: kw.Scaling(["a"], [1.0]), "centre must hold numbers"),
        (
            lambda: kw.MarsRegressor().fit(pd.DataFrame(index=range(9)), np.arange(9.0)),
            "at least one column, got a table",
        ),
        (lambda: kw.init_(torch.device("cpu"), X, Y), "init_ takes a torch module, got device"),
        (lambda: kw.reshape(net(), [10**400]), "a network may have at most 1e.09 weights"),
        (lambda: kw.train(net(), X, pd.DataFrame(), epochs=1), "y must have a value for every row"),
        (lambda: kw.with_spline(net(), kw.MarsRegressor().fit(X, Y), reduce=torch.zeros(2, 3)), r"got Tensor of shape"),
        (lambda: kw.LatticePWL([[0.0, 1.0]], np.array(3)), "sets must be a sequence of sets"),
        (lambda: kw.LatticePWL([[0.0, 1.0]], Broken()), "sets must be a sequence of sets"),
        (
            lambda: kw.explain(kw.MarsRegressor().fit(X, Y), X).contributions(np.full((2, 3), 10**400)),
            "range of floats",
        ),
    ],
)
def test_what_is_given_is_refused_by_name(call, message):
    with pytest.raises(KnotworkError, match=message) as caught:
        call()
    assert isinstance(caught.value, (DataError, NetworkError))


def test_rules():
    assert all(whole(1).fits(value) for value in (1, np.int8(5), 10**19))
    assert not any(whole(1).fits(value) for value in (0, True, 1.0, "1", None))
    assert all(number(0, 1).fits(value) for value in (0, 0.5, np.float32(0.25)))
    assert not any(number(0, 1).fits(value) for value in (1, -1, float("nan"), float("inf"), True, 10**400))
    assert not any(positive().fits(value) for value in (0, 10**400, None, np.ones(1)))
    assert positive().optional.fits(None)
    assert seed().fits(np.random.default_rng(0))
    assert not seed().fits(-1)
    assert switch().fits(np.bool_(False))
    assert not any(place().fits(value) for value in (b"x", 3, "", "a\0"))


def test_values_in_messages_are_short():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    assert len(shown("x" * 10_000)) < 100
    assert shown(np.ones((3, 4))) == "ndarray of shape (3, 4)"
    assert shown(Broken()) == "a Broken"
    assert shown(10**5000) == "a int"
    assert "\n" not in shown("a\nb")


def test_columns_too_fine_or_too_wide_for_bins_are_explained():
    model = kw.MarsRegressor().fit(X, Y)
    rows = X.copy()
    rows[:, 0] = [0.0, 5e-324] * 15
    effect = next(iter(kw.explain(model, rows).effects.values()))
    assert effect.counts.tolist() == [30]
    assert _histogram(np.array([-1e308, 1e308]))[0].tolist() == [2]
    assert len(_histogram(X[:, 0])[0]) > 1


def test_lengths_of_time_are_no_whole_numbers():
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ParameterError, match="draws must be a whole number of at least 2"):
        kw.MarsRegressor().fit(X, X[:, 0]).stability(X, X[:, 0], draws=np.timedelta64(5, "D"))


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (kw.MarsRegressor, "max_terms"),
        (kw.MarsClassifier, "max_degree"),
        (kw.MaxAffineRegressor, "n_pieces"),
        (kw.DCMaxAffineRegressor, "max_rounds"),
        (kw.HingingHyperplanesRegressor, "n_hinges"),
        (kw.SplineNetRegressor, "epochs"),
        (kw.SplineNetClassifier, "random_state"),
    ],
)
def test_a_length_of_time_is_no_number_of_anything(cls, name):
    X = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ParameterError, match=f"{name} must be no length of time, got np.timedelta64"):
        cls(**{name: np.timedelta64(1, "D")}).fit(X, X[:, 0] > 0)
