import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import nn

import knotwork as kw
from knotwork.errors import NetworkError
from knotwork.network.train.targets import read_target


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, np.digitize(np.abs(X[:, 0]) + 0.3 * X[:, 1], [0.4, 0.9])


def net(outputs, dtype=torch.float64):
    return nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, outputs)).to(dtype)


@pytest.mark.parametrize(
    ("y", "outputs", "task"),
    [
        ([0, 1, 1], 1, "classification"),
        ([0, 1, 2], 1, "regression"),
        ([0, 1, 2], 3, "classification"),
        ([True, False], 1, "classification"),
        (["a", "b"], 2, "classification"),
        (np.array(["a", "b"], dtype=object), 1, "classification"),
        ([0.0, 1.0], 1, "regression"),
        ([[0, 1], [1, 0]], 2, "regression"),
        (torch.tensor([2, 0, 1]), 3, "classification"),
    ],
)
def test_the_task_is_recognised(y, outputs, task):
    assert read_target(y, outputs).task == task


def test_numbers_name_outputs_and_other_labels_are_sorted():
    assert read_target([0, 2, 0], 4).values.tolist() == [0, 2, 0]
    assert read_target([10, 30, 20], 3).values.tolist() == [0, 2, 1]
    assert read_target([10, 30, 20], 3).classes == (10, 20, 30)


@pytest.mark.parametrize(
    ("y", "outputs", "message"),
    [
        (["a", "b", "c"], 1, "a network with 1 output distinguishes 2 classes, y has 3; give its last layer 3 outputs"),
        ([5, 6], 3, "a network with 3 outputs distinguishes 3 classes, y has 2; give its last layer 1 or 2 outputs"),
        ([0.5, 1.5], 2, "got fractions; pass task='regression'"),
        ([0.0, np.nan], 2, "must not be missing"),
        (np.array(["a", None], dtype=object), 2, "must not be missing"),
        (np.zeros((3, 2)), 2, r"shape \(N,\), got \(3, 2\)"),
    ],
)
def test_labels_that_make_no_sense_are_refused(y, outputs, message):
    with pytest.raises(NetworkError, match=message):
        read_target(y, outputs, "classification")


def test_text_is_no_regression():
    with pytest.raises(NetworkError, match="must be numbers, got text"):
        read_target(["a", "b"], 1, "regression")


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_init_sets_logits(data, outputs):
    X, y = data
    y = y if outputs == 3 else (y > 0).astype(int)
    module = net(outputs)
    report = kw.init_(module, X, y, ridge=0.1, random_state=0)
    assert report.task == "classification"
    assert report.classes == tuple(range(max(2, outputs)))
    assert report.max_difference < 1e-9
    with torch.no_grad():
        logits = module(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(logits, report.spline(X).reshape(logits.shape), atol=1e-9)
    logits = np.concatenate([np.zeros_like(logits), logits], axis=1) if outputs == 1 else logits
    assert -log_softmax(logits, axis=1)[np.arange(300), y].mean() < 0.3


def test_init_with_one_class_leaves_the_module_alone(data):
    module = net(3)
    before = module[0].weight.clone()
    with pytest.raises(NetworkError, match="at least 2 classes"):
        kw.init_(module, data[0], np.ones(300, dtype=int))
    assert torch.equal(module[0].weight, before)


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_training_lowers_the_log_loss_and_keeps_the_start(data, outputs):
    X, y = data
    y = y if outputs == 3 else (y > 0).astype(int)
    torch.manual_seed(0)
    module = net(outputs)
    history = kw.train(module, X, y, epochs=40, batch_size=32, random_state=0)
    assert history.validation_loss[0] == pytest.approx(np.log(max(2, outputs)), abs=0.5)
    assert min(history.validation_loss) < 0.7 * history.validation_loss[0]
    start = kw.reshape(kw.to_network(kw.MarsClassifier().fit(X, y)), (32,), X=X, random_state=0)
    again = kw.train(start, X, y, task="classification", epochs=2, random_state=0)
    assert min(again.validation_loss) <= again.validation_loss[0] < 0.4


def test_validation_rows_of_its_own_have_the_labels_of_the_training_rows(data):
    X, y = data
    names = np.array(["a", "b", "c"])[y]
    history = kw.train(net(3), X[:200], names[:200], validation=(X[200:], names[200:]), epochs=1, random_state=0)
    assert len(history) == 2
    with pytest.raises(NetworkError, match="labels of the validation rows must be those of y"):
        kw.train(net(3), X[:200], names[:200], validation=(X[200:], np.full(100, "z")), epochs=1)
