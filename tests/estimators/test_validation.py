"""validation=: which rows a network is trained on and which choose its start and its epoch."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    PredefinedSplit,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)

import knotwork as kw
from knotwork.errors import DataError
from knotwork.estimators.validation import choose_split

ROWS = 200


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3))
    y = np.abs(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=ROWS)
    return X, y


def settings(**changes):
    return {"hidden": (16,), "epochs": 2, "max_degree": 1, "random_state": 0, **changes}


def losses_of(model, X, y, rows):
    """Mean squared error of the start on some rows: what the history begins with, for rows that training validated."""
    return np.mean((model.spline_(X[rows]) - y[rows]) ** 2)


GROUPS = np.arange(ROWS) % 20
SPLITTERS = {
    "groups": GroupShuffleSplit(1, test_size=0.25, random_state=3),
    "group folds": GroupKFold(5),
    "time": TimeSeriesSplit(4),
    "time with a window": TimeSeriesSplit(4, max_train_size=60, gap=5),
    "folds": KFold(5, shuffle=True, random_state=0),
    "predefined": PredefinedSplit(np.where(np.arange(ROWS) < 150, -1, 0)),
    "pairs": [(np.arange(100), np.arange(120, 180))],
}


@pytest.mark.parametrize("name", SPLITTERS)
def test_the_rows_are_those_of_the_last_split(data, name):
    X, y = data
    splitter = SPLITTERS[name]
    groups = GROUPS if "group" in name else None
    pairs = splitter if isinstance(splitter, list) else list(splitter.split(X, y, groups))
    training, validation = pairs[-1]
    model = kw.SplineNetRegressor(n_members=1, **settings(validation=splitter)).fit(X, y, groups=groups)
    assert model.history_.validation_loss[0] == pytest.approx(losses_of(model, X, y, validation), rel=1e-9)
    assert model.history_.train_loss[0] == pytest.approx(losses_of(model, X, y, training), rel=1e-9)
    # Responses outside the training rows do not enter the spline but for the choice among few of them.
    others = np.setdiff1d(np.arange(ROWS), np.concatenate([training, validation]))
    changed = y.copy()
    changed[others] += 100
    again = kw.SplineNetRegressor(n_members=1, **settings(validation=splitter)).fit(X, changed, groups=groups)
    assert again.spline_ == model.spline_
    assert np.array_equal(again.predict(X), model.predict(X))


def test_time_validates_on_the_latest_rows():
    split = choose_split(TimeSeriesSplit(5), np.zeros((60, 1)), np.zeros(60), None, 60)
    assert split.training.tolist() == list(range(50))
    assert split.validation.tolist() == list(range(50, 60))


def test_no_group_is_on_both_sides_and_an_effect_of_groups_is_not_taken_for_skill():
    """Rows of a group share features and a level of y: a split by rows lets the network learn the groups by heart."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    X = rng.normal(size=(40, 6))[groups] + 1e-3 * rng.normal(size=(400, 6))
    y = rng.normal(size=40)[groups] + 0.1 * rng.normal(size=400)
    split = choose_split(GroupShuffleSplit(1, test_size=0.2, random_state=0), X, y, groups, 400)
    assert not set(groups[split.training]) & set(groups[split.validation])
    by_rows = kw.SplineNetRegressor(n_members=1, **settings(hidden=(64,), epochs=20)).fit(X, y).history_
    by_groups = kw.SplineNetRegressor(
        n_members=1,
        **settings(hidden=(64,), epochs=20, validation=GroupShuffleSplit(1, test_size=0.2, random_state=0))
    ).fit(X, y, groups=groups).history_  # fmt: skip
    assert min(by_rows.validation_loss) < 0.5 * min(by_groups.validation_loss)


def test_rows_of_weight_zero_are_on_neither_side(data):
    X, y = data
    weight = np.where(np.arange(ROWS) % 3 == 0, 0.0, 1.0)
    pair = (np.arange(150), np.arange(150, ROWS))
    weighted = kw.SplineNetRegressor(n_members=1, **settings(validation=[pair])).fit(X, y, sample_weight=weight)
    kept = np.flatnonzero(weight)
    inner = [(np.flatnonzero(kept < 150), np.flatnonzero(kept >= 150))]
    without = kw.SplineNetRegressor(n_members=1, **settings(validation=inner)).fit(
        X[kept], y[kept], sample_weight=weight[kept]
    )
    assert np.array_equal(weighted.predict(X), without.predict(X))


def test_masks_and_frames_of_any_library(data):
    X, y = data
    mask = np.arange(ROWS) < 150
    expected = kw.SplineNetRegressor(n_members=1, **settings(validation=[(np.arange(150), np.arange(150, ROWS))])).fit(
        X, y
    )
    for table in (pd.DataFrame(X), pl.DataFrame(X)):
        model = kw.SplineNetRegressor(n_members=1, **settings(validation=[(mask, ~mask)])).fit(table, y)
        assert np.array_equal(model.predict(table), expected.predict(X))
        model = kw.SplineNetRegressor(n_members=1, **settings(validation=GroupKFold(4))).fit(
            table, y, groups=pl.Series(GROUPS)
        )
        assert len(model.history_) == 3


def test_classes(data):
    X, y = data
    labels = np.where(y > 1, "high", np.where(y > 0, "middle", "low"))
    splitter = StratifiedShuffleSplit(1, test_size=0.3, random_state=0)
    model = kw.SplineNetClassifier(n_members=1, **settings(validation=splitter)).fit(X, labels)
    _, validation = next(splitter.split(X, labels))
    shares = model.spline_(X[validation])
    codes = np.searchsorted(model.classes_, labels[validation])
    likelihood = np.log(np.exp(shares).sum(axis=1)) - shares[np.arange(len(codes)), codes]
    assert model.history_.validation_loss[0] == pytest.approx(likelihood.mean(), rel=1e-6)
    last = np.argsort(labels == "low", kind="stable")  # all of one class at the end
    with pytest.raises(DataError, match="training rows of every class, class 'low' has none"):
        kw.SplineNetClassifier(n_members=1, **settings(validation=[(last[:100], last[100:])])).fit(X, labels)


@pytest.mark.parametrize(
    ("validation", "groups", "message"),
    [
        (GroupKFold(3), None, r"'groups' parameter should not be None; pass them: fit\(X, y, groups=…\)"),
        (None, GROUPS, "groups are for a splitter, got groups and validation=None"),
        (KFold(3), GROUPS[:7], r"a label for each of 200 rows, got an array of shape \(7,\)"),
        ([], None, "at least one split, list gave none"),
        ([(np.arange(200), np.arange(100, 110))], None, "has 10 of 200 rows on both sides, first 100"),
        ([(np.arange(100), np.arange(100, 201))], None, "numbered from 0 to 199, validation=list has row 200"),
        ([(np.arange(-1, 100), np.arange(100, 150))], None, "has row -1"),
        ([(np.arange(100), [])], None, "to train on and to validate on, got 100 and 0 of 200"),
        ([([0.5, 1.0], [2.0])], None, "pairs of row numbers, got list"),
        ([3], None, "pairs of row numbers, got list"),
        ("kfold", None, "pairs of row numbers, got str"),
        (KFold(500), None, "validation=KFold must split the rows, it refused them: .*500"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(data, validation, groups, message):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, **settings(validation=validation))
    with pytest.raises(DataError, match=message):
        model.fit(X, y, groups=groups)
    assert vars(model) == vars(kw.SplineNetRegressor(n_members=1, **settings(validation=validation)))


@pytest.mark.parametrize("validation", [5, 0.2])
def test_numbers_are_no_splitters(data, validation):
    with pytest.raises(ValueError, match="'validation' parameter of SplineNetRegressor must be"):
        kw.SplineNetRegressor(n_members=1, validation=validation).fit(*data)


@pytest.mark.parametrize("name", SPLITTERS)
def test_a_model_with_a_splitter_is_saved_and_fits_again_alike(data, name, tmp_path):
    X, y = data
    groups = GROUPS if "group" in name else None
    model = kw.SplineNetRegressor(n_members=1, **settings(validation=SPLITTERS[name])).fit(X, y, groups=groups)
    kw.save(model, tmp_path / "model")
    loaded = kw.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert np.array_equal(clone(loaded).fit(X, y, groups=groups).predict(X), model.predict(X))


def test_an_own_splitter_is_used_but_not_saved(data, tmp_path):
    class Halves:
        def get_n_splits(self):
            return 1

        def split(self, X, y=None, groups=None):
            yield np.arange(len(X) // 2), np.arange(len(X) // 2, len(X))

    model = kw.SplineNetRegressor(n_members=1, **settings(validation=Halves())).fit(*data)
    with pytest.raises(DataError, match="'validation' is Halves"):
        kw.save(model, tmp_path / "model")


def test_a_checkpoint_belongs_to_its_split(data, tmp_path, monkeypatch):
    from knotwork.network.train.checkpoint import Checkpoint

    X, y = data
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)  # as if the process had been killed at the end
    first = settings(validation=KFold(4), checkpoint=tmp_path / "c")
    expected = kw.SplineNetRegressor(n_members=1, **first).fit(X, y)
    with pytest.raises(DataError, match="has other data"):
        kw.SplineNetRegressor(n_members=1, **{**first, "validation": KFold(5)}).fit(X, y)
    assert np.array_equal(kw.SplineNetRegressor(n_members=1, **first).fit(X, y).predict(X), expected.predict(X))
