"""What users hand over by mistake: one sentence that names it, and an estimator that is as it was."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch import nn

import knotwork as kw
from knotwork.errors import DataError, NetworkError, ParameterError

N = 60
X = np.random.default_rng(0).normal(size=(N, 3))
Y = X.sum(axis=1)
HUGE = 10**400


def pair(first):
    return pd.DataFrame({"a": first, "b": X[:, 0]})


TABLES = {
    "columns of one name": (pd.DataFrame(X, columns=["a", "a", "b"]), "column names must differ .* 'a' 2 times"),
    "pyarrow columns of one name": (
        pa.Table.from_arrays([pa.array(X[:, 0])] * 2, names=["a", "a"]), "column names must differ"
    ),
    "integers of 400 digits": (pair(pd.Series([HUGE] * N, dtype=object)), "column 'a' holds larger integers"),
    "an array of such integers": ([[HUGE, 1]] * N, "X must hold numbers within the range of floats"),
    "one name for two": (
        pd.DataFrame({"a": ["b", "c"] * (N // 2), "a=b": X[:, 0]}), "columns 'a' and 'a=b' both give 'a=b'"
    ),
    "a lazy frame": (pl.DataFrame({"b": X[:, 0]}).lazy(), r"got a LazyFrame; pass what its collect\(\) returns"),
    "complex numbers": (X + 1j, "X cannot be used: Complex data not supported"),
}  # fmt: skip


@pytest.mark.parametrize(("table", "message"), TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(
    "model", [kw.MarsRegressor(), kw.HingingHyperplanesRegressor(n_hinges=1)], ids=["mars", "hinge"]
)
def test_tables(model, table, message):
    model.fit(X, Y)
    before = model.__dict__.copy()
    with pytest.raises(DataError, match=message) as caught:
        model.fit(table, Y)
    assert "\n" not in str(caught.value)
    assert model.__dict__ == before


def test_the_same_tables_when_predicting():
    model = kw.MarsRegressor().fit(pd.DataFrame(X[:, :2], columns=["a", "b"]), Y)
    with pytest.raises(DataError, match="larger integers"):
        model.predict(TABLES["integers of 400 digits"][0])
    with pytest.raises(DataError, match="column names must differ"):
        model.predict(TABLES["columns of one name"][0])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, "a"] * (N // 2), "labels must be of one kind, y mixes numbers and text"),
        (np.array([1, "a"] * (N // 2), dtype=object), "y mixes numbers and text"),
        (pd.Series([1, "a"] * (N // 2)), "y mixes numbers and text"),
        ([HUGE, 1] * (N // 2), "numbers of at most 64 bits"),
        ([(1, 2), (3, 4)] * (N // 2), "y cannot be used"),
    ],
)
@pytest.mark.parametrize(
    "model", [kw.MarsClassifier(), kw.SplineNetClassifier(n_members=1, epochs=1)], ids=["mars", "net"]
)
def test_labels(model, labels, message):
    with pytest.raises(DataError, match=message):
        model.fit(X, labels)
    assert not hasattr(model, "classes_")


def test_labels_that_were_fine_still_are():
    for labels in (["a", "b"], [True, False], [1.0, 2.0], [np.int8(3), np.int8(4)], ["a", np.str_("b")]):
        for y in (labels * (N // 2), np.array(labels * (N // 2), dtype=object), np.array(labels * (N // 2))):
            model = kw.MarsClassifier(max_terms=3).fit(X, y)
            assert model.classes_.tolist() == sorted(labels)
            assert set(model.predict(X).tolist()) <= set(labels)


def test_responses_and_weights_of_huge_integers():
    with pytest.raises(DataError, match="y must hold numbers within the range of floats"):
        kw.MarsRegressor().fit(X, [HUGE] * N)
    with pytest.raises(DataError, match="sample_weight must hold numbers within"):
        kw.MarsRegressor().fit(X, Y, sample_weight=[HUGE] * N)


@pytest.mark.parametrize(
    "name", ["max_knots", "max_terms", "minspan", "endspan", "max_degree", "max_parents", "n_jobs"]
)
def test_parameters_beyond_64_bits_mean_no_limit(name):
    options = {"max_degree": 2} if name == "max_parents" else {}
    beyond = kw.MarsRegressor(**options, **{name: 10**19}).fit(X, Y)
    far = kw.MarsRegressor(**options, **{name: 10**6 if name != "n_jobs" else 8}).fit(X, Y)
    assert str(beyond.spline_) == str(far.spline_)


@pytest.mark.parametrize("large", [10**12, 10**30])
def test_epochs_and_batches_without_limit(large):
    """What a training never reaches takes no memory, and no number is too large to ask for."""
    options = {"hidden": (4,), "patience": 1, "epochs": 3, "average": 0.0, "random_state": 0}
    model = kw.SplineNetRegressor(n_members=1, **{**options, "epochs": large, "learning_rate": 1e-300}).fit(X, Y)
    assert len(model.history_) < 5
    one_batch = kw.SplineNetRegressor(n_members=1, **options, batch_size=len(X)).fit(X, Y)
    many = kw.SplineNetRegressor(n_members=1, **options, batch_size=large).fit(X, Y)
    assert many.history_.train_loss == one_batch.history_.train_loss


def test_devices_that_are_not_there():
    for device in ("banana", "meta", "cuda:99" if torch.cuda.is_available() else "cuda"):
        with pytest.raises(NetworkError, match="device must name a device of this machine"):
            kw.SplineNetRegressor(n_members=1, device=device, epochs=1).fit(X, Y)


def test_networks_that_do_not_take_the_rows():
    net = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 1))
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(NetworkError, match=r"must take rows like X's, of shape .N, 3.: "):
        kw.train(net, X, Y, epochs=1)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kw.Hinge(-5, 0.0, 1), "number of a column, counted from 0, got -5"),
        (lambda: kw.Hinge("a", 0.0, 1), "got 'a'"),
        (lambda: kw.Hinge(0, float("nan"), 1), "must be a finite number, got nan"),
        (lambda: kw.Hinge(0, None, 1), "must be a finite number, got None"),
        (lambda: kw.Hinge(0, 0.0, 7), "must be 1 or -1, got 7"),
        (lambda: kw.Linear(-1), "got -1"),
        (lambda: kw.Linear(1.5), "got 1.5"),
    ],
)
def test_terms(make, message):
    with pytest.raises(DataError, match=message):
        make()


def test_masked_values_are_not_taken_for_numbers():
    masked = np.ma.masked_less(X, -1.0)
    for call in (
        lambda: kw.MarsRegressor().fit(X, masked[:, 0]),
        lambda: kw.MarsRegressor().fit(X, Y, sample_weight=np.ma.masked_less(np.abs(Y), 0.5)),
        lambda: kw.MarsClassifier().fit(X, np.ma.masked_equal(X[:, 0] > 0, True)),
        lambda: kw.MarsRegressor().fit(X, Y).spline_(masked),
    ):
        with pytest.raises(DataError, match="masked"):
            call()


def test_dates_are_not_taken_for_nanoseconds():
    days = pd.Series(pd.date_range("2020", periods=N))
    with pytest.raises(DataError, match="the target of a regression must be numeric"):
        kw.MarsRegressor().fit(X, days)
    with pytest.raises(DataError, match="sample_weight"):
        kw.MarsRegressor().fit(X, Y, sample_weight=days)


def test_matrices_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        response = np.asmatrix(X[:, :2])
    for model in (kw.MarsRegressor(), kw.HingingHyperplanesRegressor()):
        with pytest.raises(DataError, match=r"np\.matrix is not supported"):
            model.fit(X, response)


def test_parameters_beyond_the_range_of_floats_are_refused():
    with pytest.raises(ParameterError, match="ridge must be within the range of floats"):
        kw.MaxAffineRegressor(ridge=HUGE).fit(X, Y)
    with pytest.raises(ParameterError, match="penalty must be within the range of floats"):
        kw.MarsRegressor(penalty=HUGE).fit(X, Y)


def test_fractions_as_parameters_are_refused():
    with pytest.raises(ParameterError, match="a parameter of MaxAffineRegressor cannot be used"):
        kw.MaxAffineRegressor(ridge=Fraction(1, 3)).fit(X, Y)


@pytest.mark.parametrize("weight", [1e9, 1e13])
def test_great_weights_take_no_time_and_no_memory(weight):
    """The sum of the weights is the number of observations; positions within one row are not tried one by one."""
    model = kw.MarsRegressor().fit(X, Y, sample_weight=np.full(N, weight))
    assert model.score(X, Y) > 0.99


def test_weights_beyond_what_floats_count_are_refused():
    for weight in (1e16, 1e300, 1e308):
        with pytest.raises(DataError, match="sample weights must sum to at most"):
            kw.MarsRegressor().fit(X, Y, sample_weight=np.full(N, weight))


def test_starts_are_bounded():
    with pytest.raises(ValueError, match="n_init"):
        kw.MaxAffineRegressor(n_init=10**400).fit(X, Y)


def test_tensors_that_need_gradients_are_read():
    rows = torch.tensor(X, requires_grad=True)
    model = kw.MarsRegressor().fit(X, Y)
    np.testing.assert_array_equal(model.spline_(rows), model.predict(X))
    with pytest.raises(DataError, match=r"X cannot be used.*requires grad"):
        model.predict(rows)


@pytest.mark.parametrize("name", ["deviance_", "null_deviance_", "feature_importances_", "spline_", "knots_", "gcv_"])
def test_properties_of_an_unfitted_model(name):
    with pytest.raises(AttributeError, match=r"call fit\(X, y\) first"):
        getattr(kw.MarsClassifier(), name)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_responses_to_score_are_checked(loss):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    model = kw.MarsRegressor(loss=loss).fit(rows, rows[:, 0])
    with pytest.raises(DataError, match="the target of a regression must be numeric"):
        model.score(rows, ["a", "b"] * 20)
    with pytest.raises(DataError, match="sample_weight must hold numbers"):
        model.score(rows, rows[:, 0], ["a", "b"] * 20)
    weight = rows[:, 1] ** 2
    assert model.score(rows, rows[:, 0], weight) == pytest.approx(model.score(rows, list(rows[:, 0]), list(weight)))


def test_monotonic_cst_that_is_no_array_is_refused():
    class Stubborn:
        def __array__(self, *_, **__):
            raise RuntimeError("no array of me")

    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match="monotonic_cst must have one entry for each of the 2 columns"):
        kw.MarsRegressor(monotonic_cst=Stubborn()).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="monotonic_cst must hold -1, 0 or 1 for each column"):
        kw.MarsRegressor(monotonic_cst=[np.array([1, 2]), 0]).fit(X, X[:, 0])


def test_a_span_of_time_is_no_width():
    X = np.random.default_rng(0).normal(size=(30, 2))
    net = kw.to_network(kw.MarsRegressor().fit(X, X[:, 0]))
    with pytest.raises(TypeError, match="whole numbers"):
        kw.widen(net, (np.timedelta64(1, "D"),))
