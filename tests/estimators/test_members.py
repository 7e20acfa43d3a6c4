"""n_members: folds, out-of-fold predictions, one exact network."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import KFold

import knotwork as kw
from knotwork.errors import DataError, MembersWarning
from knotwork.estimators.members import average_spline, out_of_fold
from knotwork.network.chain import evaluate, read_chain
from knotwork.network.train.checkpoint import Checkpoint

SMALL: dict[str, Any] = {"hidden": (16, 16), "epochs": 5, "n_members": 4, "random_state": 0}


def data(rows: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    return X, np.abs(X[:, 0]) + np.maximum(X[:, 1], X[:, 2]) + 0.1 * rng.normal(size=rows)


@pytest.fixture(scope="module")
def fitted() -> kw.SplineNetRegressor:
    return kw.SplineNetRegressor(**SMALL).fit(*data())


def test_every_row_is_left_out_once(fitted: kw.SplineNetRegressor) -> None:
    held = np.concatenate([member.held_out for member in fitted.members_])
    assert sorted(held) == list(range(240))
    assert {len(member.held_out) for member in fitted.members_} == {60}
    assert fitted.oof_prediction_.shape == (240,)
    assert np.isfinite(fitted.oof_prediction_).all()


def test_the_network_is_the_mean_of_the_members(fitted: kw.SplineNetRegressor) -> None:
    X, _ = data()
    layers = read_chain(fitted.network_)
    width = 16
    for member, record in enumerate(fitted.members_):
        own = slice(member * width, (member + 1) * width)
        first = replace(layers.hidden[0], weight=layers.hidden[0].weight[own], bias=layers.hidden[0].bias[own])
        second = replace(first, weight=layers.hidden[1].weight[own, own], bias=layers.hidden[1].bias[own])
        # What the other members add is constant: none of the other units is read.
        out = replace(first, weight=4 * layers.output.weight[:, own], bias=layers.output.bias)
        alone = evaluate(replace(layers, hidden=(first, second), output=out), X[record.held_out])[:, 0]
        difference = fitted.oof_prediction_[record.held_out] - alone
        assert np.ptp(difference) < 1e-6


def test_epoch_0_is_the_splines(fitted: kw.SplineNetRegressor) -> None:
    X, y = data()
    for member in fitted.members_:
        assert member.spline is not None
        start = evaluate(read_chain(member.start_network), X)[:, 0]
        np.testing.assert_allclose(start, member.spline(X), atol=1e-5)
        loss = np.mean((member.spline(X[member.held_out]) - y[member.held_out]) ** 2)
        assert member.history.validation_loss[0] == pytest.approx(loss, rel=1e-4)
    mean = np.mean([member.spline(X) for member in fitted.members_], axis=0)  # type: ignore[misc]
    assert fitted.spline_ is not None
    np.testing.assert_allclose(fitted.spline_(X), mean, atol=1e-12)
    np.testing.assert_allclose(evaluate(read_chain(fitted.start_network_), X)[:, 0], mean, atol=1e-5)


def test_one_epoch_for_all_by_the_mean_of_the_curves(fitted: kw.SplineNetRegressor) -> None:
    curves = np.array([member.history.validation_loss for member in fitted.members_])
    np.testing.assert_allclose(fitted.history_.validation_loss, curves.mean(axis=0), rtol=1e-12)
    assert {member.history.best_epoch for member in fitted.members_} == {int(curves.mean(axis=0).argmin())}


def test_a_left_out_fold_says_nothing_about_its_member() -> None:
    """At epoch 0 a member is its spline, which must not change with the responses it leaves out."""
    X, y = data()
    model = kw.SplineNetRegressor(**{**SMALL, "epochs": 0}).fit(X, y)
    held = model.members_[1].held_out
    other = y.copy()
    other[held] += np.sin(7 * X[held, 0])
    again = kw.SplineNetRegressor(**{**SMALL, "epochs": 0}).fit(X, other)
    np.testing.assert_array_equal(again.members_[1].held_out, held)
    np.testing.assert_allclose(again.oof_prediction_[held], model.oof_prediction_[held], atol=1e-5)
    assert np.abs(again.oof_prediction_ - model.oof_prediction_).max() > 0.01


def test_the_order_of_the_rows_does_not_choose_the_folds(fitted: kw.SplineNetRegressor) -> None:
    X, y = data()
    order = np.random.default_rng(3).permutation(len(X))
    again = kw.SplineNetRegressor(**{**SMALL, "epochs": 0}).fit(X[order], y[order])
    for one, other in zip(fitted.members_, again.members_, strict=True):
        assert set(order[other.held_out]) == set(one.held_out)


def test_rows_of_weight_zero_have_no_prediction_and_copies_stay_together() -> None:
    X, y = data(120)
    X, y = np.vstack([X, X[:20]]), np.concatenate([y, y[:20]])
    weight = np.ones(140)
    weight[5:9] = 0
    model = kw.SplineNetRegressor(**SMALL).fit(X, y, sample_weight=weight)
    assert np.flatnonzero(np.isnan(model.oof_prediction_)).tolist() == [5, 6, 7, 8]
    fold = {int(row): k for k, member in enumerate(model.members_) for row in member.held_out}
    assert all(fold[row] == fold[120 + row] for row in range(5))
    assert 5 not in fold
    assert 125 in fold  # the copy of a row that does not count does


def test_to_network_is_one_plain_chain(fitted: kw.SplineNetRegressor) -> None:
    X, _ = data()
    rows = np.vstack([X, 100 * X[:5]])
    net = kw.to_network(fitted, dtype=torch.float64)
    assert [type(layer).__name__ for layer in net] == [
        "Scaling",
        "Linear",
        "ReLU",
        "Linear",
        "ReLU",
        "Linear",
        "Scaling",
    ]
    np.testing.assert_allclose(net(torch.from_numpy(rows)).detach().numpy()[:, 0], fitted.predict(rows), rtol=1e-12)
    bare = kw.fold(net)
    np.testing.assert_allclose(bare(torch.from_numpy(X)).detach().numpy()[:, 0], fitted.predict(X), atol=1e-12)
    single = fitted.network_(torch.from_numpy(X).float()).detach().numpy()[:, 0]
    np.testing.assert_allclose(single, fitted.predict(X), atol=1e-5)


def test_it_comes_back_the_same(fitted: kw.SplineNetRegressor, tmp_path: Path) -> None:
    X, y = data()
    kw.save(fitted, tmp_path / "model")
    for again in (kw.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
        np.testing.assert_array_equal(again.oof_prediction_, fitted.oof_prediction_)
        for one, other in zip(again.members_, fitted.members_, strict=True):
            assert one.spline == other.spline
            assert one.history == other.history
            np.testing.assert_array_equal(one.held_out, other.held_out)
    refit = clone(fitted).fit(X, y)
    np.testing.assert_array_equal(refit.predict(X), fitted.predict(X))


@pytest.mark.parametrize("change", ["members", "held_out", "oof", "start"])
def test_a_changed_file_is_refused(fitted: kw.SplineNetRegressor, tmp_path: Path, change: str) -> None:
    model = pickle.loads(pickle.dumps(fitted))
    first, *rest = model.members_
    if change == "members":
        model.members_ = (1, *rest)
    elif change == "held_out":
        model.members_ = (replace(first, held_out=first.held_out[::-1].copy()), *rest)
    elif change == "oof":
        model.oof_prediction_ = model.oof_prediction_[:, None]
    else:
        model.members_ = (replace(first, start_network=torch.nn.Sequential(torch.nn.Linear(2, 1))), *rest)
    with pytest.raises(DataError, match="must be able to predict"):
        kw.save(model, tmp_path / "model")


def test_threads_do_not_change_a_bit() -> None:
    X, y = data()
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(kw.SplineNetRegressor(**SMALL).fit(X, y).predict(X))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*found)


class Stop(Exception):
    pass


def test_a_checkpoint_is_gone_on_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, y = data()
    whole = kw.SplineNetRegressor(**SMALL).fit(X, y)
    file = tmp_path / "training"
    write, written = Checkpoint.write, []

    def stop(self: Checkpoint, *state: Any) -> None:
        write(self, *state)
        written.append(1)
        if len(written) == 3:
            raise Stop

    monkeypatch.setattr(Checkpoint, "is_due", lambda self: True)
    monkeypatch.setattr(Checkpoint, "write", stop)
    with pytest.raises(Stop):
        kw.SplineNetRegressor(**SMALL, checkpoint=file).fit(X, y)
    monkeypatch.setattr(Checkpoint, "write", write)
    again = kw.SplineNetRegressor(**SMALL, checkpoint=file).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert not file.exists()
    for one, other in zip(again.members_, whole.members_, strict=True):
        assert one.history.validation_loss == other.history.validation_loss


def test_classes_are_in_all_training_rows_and_probabilities_out_of_fold() -> None:
    X, y = data(150)
    labels = np.array(["a", "b", "c"], dtype=object)[np.digitize(y, [0.5, 1.5])]
    labels[:5] = "rare"
    model = kw.SplineNetClassifier(**SMALL).fit(X, labels)
    assert model.oof_prediction_.shape == (150, 4)
    np.testing.assert_allclose(model.oof_prediction_.sum(axis=1), 1)
    for member in model.members_:
        assert set(np.delete(labels, member.held_out)) == {"a", "b", "c", "rare"}
    assert np.mean(model.classes_[model.oof_prediction_.argmax(axis=1)] == labels) > 0.6
    two = kw.SplineNetClassifier(**SMALL).fit(X, y > 1)
    assert two.oof_prediction_.shape == (150, 2)


def test_several_responses_and_a_raw_table() -> None:
    X, y = data(200)
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    table["kind"] = np.array(["x", "y"])[np.arange(200) % 2]
    table.loc[::17, "a"] = np.nan
    table["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(200), unit="D")
    model = kw.SplineNetRegressor(**{**SMALL, "epochs": 2}).fit(table, np.column_stack([y, 1000 * y]))
    assert model.oof_prediction_.shape == (200, 2)
    assert model.score(table, np.column_stack([y, 1000 * y])) > 0.8
    parts = kw.explain(model, table, np.column_stack([y, 1000 * y]))
    assert set(parts.importances.index) == {*table.columns, "day: weekday"}


def test_it_is_explained_and_exported(fitted: kw.SplineNetRegressor, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = data()
    explanation = kw.explain(fitted, X, y)
    assert len(explanation.drift.units) == 2 * 4 * 16
    explanation.to_html(tmp_path / "report.html")
    kw.export_onnx(fitted, tmp_path / "model.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    feed = {entry.name: X[:, [k]] for k, entry in enumerate(session.get_inputs())}
    if len(feed) == 1:
        feed = {session.get_inputs()[0].name: X}
    np.testing.assert_allclose(session.run(None, feed)[0].ravel(), fitted.predict(X), atol=1e-9)


def test_few_rows_make_few_members_with_one_warning() -> None:
    X, y = data(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = kw.SplineNetRegressor(**SMALL).fit(X, y)
    assert [w.category for w in caught] == [MembersWarning]
    assert "no more than 3 distinct rows: n_members=4 becomes 3" in str(caught[0].message)
    assert len(model.members_) == 3
    X, y = data(60)
    labels = np.zeros(60, dtype=int)
    labels[:2] = 1
    with pytest.warns(MembersWarning, match="no more than 2 distinct rows of the rarest class"):
        assert len(kw.SplineNetClassifier(**SMALL).fit(X, labels).members_) == 2
    labels[0] = 0
    with pytest.warns(MembersWarning, match="becomes 1"):
        one = kw.SplineNetClassifier(**SMALL).fit(X, labels)
    assert len(one.members_) == 1
    assert np.isnan(one.oof_prediction_).any(axis=1).sum() == 60 - len(one.members_[0].held_out)


def test_one_member_has_predictions_for_its_validation_rows() -> None:
    X, y = data(100)
    model = kw.SplineNetRegressor(**{**SMALL, "n_members": 1}).fit(X, y)
    (member,) = model.members_
    assert np.flatnonzero(np.isfinite(model.oof_prediction_)).tolist() == member.held_out.tolist()
    np.testing.assert_array_equal(model.oof_prediction_[member.held_out], model.predict(X[member.held_out]))
    assert member.history is model.history_


@pytest.mark.parametrize("given", [{"validation": KFold(4)}, {"groups": np.arange(240)}])
def test_splitters_are_for_one_network(given: dict[str, Any]) -> None:
    X, y = data()
    model = kw.SplineNetRegressor(**SMALL, validation=given.pop("validation", None))
    with pytest.raises(DataError, match=r"validation and groups are for a single network, got .* and n_members=4"):
        model.fit(X, y, **given)


def test_random_starts_have_no_spline() -> None:
    model = kw.SplineNetRegressor(**{**SMALL, "start": "random", "hidden": (4,)}).fit(*data())
    assert model.spline_ is None
    assert {member.spline for member in model.members_} == {None}


def test_the_average_of_splines_has_the_union_of_their_terms() -> None:
    one, other = kw.Hinge(0, 1.0, 1), kw.Linear(1)
    first = kw.Spline((one, other), [1.0], [[2.0], [4.0]], ("a", "b"))
    second = kw.Spline((one,), [3.0], [[4.0]], ("a", "b"))
    assert average_spline([first, second]) == kw.Spline((one, other), [2.0], [[3.0], [2.0]], ("a", "b"))
    assert average_spline([first, None]) is None


def test_rows_that_several_members_leave_out_get_their_mean() -> None:
    from knotwork.estimators.validation import ValidationSplit
    from knotwork.network.chain import Chain, Layer

    chains = [
        Chain((), Layer(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([v], dtype=torch.float64)), ())
        for v in (1.0, 3.0)
    ]
    splits = [ValidationSplit(np.array([0]), np.array([1, 2])), ValidationSplit(np.array([0, 1]), np.array([2]))]
    np.testing.assert_array_equal(out_of_fold(chains, splits, np.zeros((3, 1)))[:, 0], [np.nan, 1.0, 2.0])


def test_auto_is_as_many_members_as_the_rows_allow_without_a_word() -> None:
    X, y = data(40)
    small = {**SMALL, "n_members": "auto", "epochs": 0, "hidden": (8,)}
    assert len(kw.SplineNetRegressor(**small).fit(X, y).members_) == 8
    assert len(kw.SplineNetRegressor(**small).fit(X[:5], y[:5]).members_) == 5
    assert len(kw.SplineNetRegressor(**small, validation=KFold(4)).fit(X, y).members_) == 1
    assert len(kw.SplineNetClassifier(**small).fit(X, np.arange(40) < 3).members_) == 3


def test_every_second_member_sees_long_tails_in_other_units() -> None:
    X, y = data(300)
    X[:, 1] = np.exp(2 * X[:, 1])
    model = kw.SplineNetRegressor(**SMALL, extrapolate="linear").fit(X, y)
    scales = np.array([member.coordinates.x_scale for member in model.members_])
    np.testing.assert_array_equal(scales[::2], np.tile(model.coordinates_.x_scale, (2, 1)))
    assert (scales[1::2, 1] < 0.5 * scales[0, 1]).all()
    np.testing.assert_array_equal(scales[:, [0, 2]], np.tile(scales[0, [0, 2]], (4, 1)))
    for member in model.members_:
        assert member.spline is not None
        start = evaluate(read_chain(member.start_network), X)[:, 0]
        np.testing.assert_allclose(start, member.spline(X), atol=1e-4)
        loss = np.mean((member.spline(X[member.held_out]) - y[member.held_out]) ** 2)
        assert member.history.validation_loss[0] == pytest.approx(loss, rel=1e-4)
    assert model.spline_ is not None
    np.testing.assert_allclose(evaluate(read_chain(model.start_network_), X)[:, 0], model.spline_(X), atol=1e-4)
    net = kw.to_network(model, dtype=torch.float64)
    np.testing.assert_allclose(net(torch.from_numpy(X)).detach().numpy()[:, 0], model.predict(X), rtol=1e-10)


def test_a_member_is_shown_in_one_line(fitted: kw.SplineNetRegressor) -> None:
    member = fitted.members_[0]
    assert member.spline is not None
    best = member.history.best_epoch
    assert repr(member) == (
        f"Member(from a spline of {len(member.spline.terms)} terms, {len(member.held_out)} rows held out, "
        f"History(best of 5 epochs: {best}, validation loss {member.history.validation_loss[best]:.4g}, "
        f"{member.history.validation_loss[0]:.4g} at the start))"
    )


@pytest.mark.parametrize("distinct", [1, 2])
@pytest.mark.parametrize("share", [None, 0.5])
def test_few_different_rows_are_enough(distinct: int, share: float | None) -> None:
    """Rows that are all equal cannot be parted: the spline is fitted to them and chosen by them."""
    X = np.repeat(np.eye(3)[:distinct], 10, axis=0)
    y = X[:, 0] + np.tile([0.1, -0.1], 5 * distinct)
    options = {**SMALL, "n_members": 2, "epochs": 1, "spline_fraction": share}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MembersWarning)
        for labels, cls in ((y, kw.SplineNetRegressor), (np.arange(len(X)) % 2, kw.SplineNetClassifier)):
            assert np.isfinite(cls(**options).fit(X, labels).predict(X)).all()
