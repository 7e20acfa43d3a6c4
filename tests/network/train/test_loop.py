import copy

import numpy as np
import pytest
import torch
from torch import nn

import knotwork as kw
from knotwork.errors import NetworkError
from knotwork.network.compile.balance import balance_


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=400)
    return X, y


def start(X, y, widths=(32, 16), dtype=torch.float64):
    net = kw.to_network(kw.MarsRegressor().fit(X, y), dtype=dtype)
    return kw.reshape(net, widths, X=X, random_state=0)


def outputs(net, X):
    with torch.no_grad():
        return net(torch.from_numpy(X).to(next(net.parameters()).dtype)).numpy()


def test_history_begins_with_the_network_as_it_came_and_never_ends_worse(data):
    X, y = data
    net = start(X, y)
    validation = (X[:100], y[:100])
    before = np.mean((outputs(net, X[:100])[:, 0] - y[:100]) ** 2)
    history = kw.train(net, X[100:], y[100:], validation=validation, epochs=20, random_state=0)
    assert history.validation_loss[0] == pytest.approx(before, rel=1e-9)
    after = np.mean((outputs(net, X[:100])[:, 0] - y[:100]) ** 2)
    assert after == pytest.approx(min(history.validation_loss), rel=1e-9)
    assert after < 0.8 * before
    assert history.validation_loss[history.best_epoch] == min(history.validation_loss)
    frame = history.to_frame()
    assert len(history) == len(frame) <= 21
    assert (np.diff(frame["seconds"]) > 0).all()


UNITS, Y_UNIT = np.array([2.0**20, 2.0**-20, 1.0, 2.0**10]), 2.0**30


def test_units_of_the_data_do_not_matter(data):
    X, y = data
    plain, scaled = (
        kw.to_network(kw.MarsRegressor().fit(A, b), dtype=torch.float64) for A, b in ((X, y), (X * UNITS, y * Y_UNIT))
    )
    first = kw.train(plain, X, y, epochs=20, random_state=0, validation=(X, y))
    second = kw.train(scaled, X * UNITS, y * Y_UNIT, epochs=20, random_state=0, validation=(X * UNITS, y * Y_UNIT))
    np.testing.assert_allclose(np.array(second.validation_loss) / Y_UNIT**2, first.validation_loss, rtol=1e-6)
    np.testing.assert_allclose(outputs(scaled, X * UNITS) / Y_UNIT, outputs(plain, X), atol=1e-6)
    assert min(first.validation_loss) < first.validation_loss[0]


def test_grown_networks_train_as_well_in_any_units(data):
    X, y = data
    plain, scaled = start(X, y), start(X * UNITS, y * Y_UNIT)
    first = kw.train(plain, X, y, epochs=60, random_state=0, validation=(X, y))
    second = kw.train(scaled, X * UNITS, y * Y_UNIT, epochs=60, random_state=0, validation=(X * UNITS, y * Y_UNIT))
    assert min(second.validation_loss) / Y_UNIT**2 < 1.3 * min(first.validation_loss)
    assert min(first.validation_loss) < 0.3 * first.validation_loss[0]


def test_balancing_changes_no_function(data):
    X, y = data
    net = start(X * [1e6, 1e-6, 1.0, 1e3], y * 1e9, widths=(32, 16, 8))
    before = outputs(net, X * [1e6, 1e-6, 1.0, 1e3])
    balance_(net)
    np.testing.assert_allclose(outputs(net, X * [1e6, 1e-6, 1.0, 1e3]), before, rtol=1e-12)


def test_equal_seeds_give_equal_bits(data):
    X, y = data
    nets = [start(X, y) for _ in range(2)]
    torch.manual_seed(1)
    histories = [kw.train(net, X, y, epochs=4, dropout=0.2, random_state=7) for net in nets]
    torch.manual_seed(2)
    assert histories[0].validation_loss == histories[1].validation_loss
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_global_generator_is_left_alone(data):
    X, y = data
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    net = start(X, y)
    kw.train(net, X, y, epochs=2, dropout=0.5, random_state=0)
    kw.SplineNetRegressor(hidden=(8,), epochs=1, start="random").fit(X, y)
    assert torch.equal(torch.rand(3), expected)


def test_a_frozen_first_layer_stays_frozen_and_in_its_units(data):
    X, y = data
    net = kw.reshape(kw.to_network(kw.MarsRegressor().fit(X, y), fold=False, dtype=torch.float64), (32,), X=X)
    before = copy.deepcopy(net[0].state_dict())
    kw.train(net, X, y, epochs=3, random_state=0)
    for name, value in net[0].state_dict().items():
        np.testing.assert_allclose(value, before[name], rtol=1e-12)
    assert not net[0].weight.requires_grad


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 8)
        self.outer = nn.Linear(8, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x))) + x[:, :1]


def test_any_module_can_be_trained(data):
    X, y = data
    torch.manual_seed(0)
    history = kw.train(Residual(), X, y, epochs=10, random_state=0)
    assert min(history.validation_loss) < history.validation_loss[0]


def test_l1_makes_weights_small(data):
    X, y = data
    plain, sparse = start(X, y), start(X, y)
    kw.train(plain, X, y, epochs=40, random_state=0, patience=None)
    kw.train(sparse, X, y, epochs=40, random_state=0, patience=None, l1=1e-3)
    size = [sum(float(p.detach().abs().sum()) for p in net.parameters() if p.ndim > 1) for net in (plain, sparse)]
    assert size[1] < 0.7 * size[0]


def test_weights_count_rows(data):
    X, y = data
    odd = y.copy()
    odd[:200] += 100
    weight = np.r_[np.full(200, 1e-9), np.ones(200)]
    net = start(X, y)
    kw.train(net, X, odd, sample_weight=weight, epochs=5, random_state=0, validation=(X[200:], y[200:]))
    assert np.mean((outputs(net, X[200:])[:, 0] - y[200:]) ** 2) < 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (np.where(X > 2, np.nan, X), y), "X must be finite"),
        (lambda X, y: (X, np.where(y > 1, np.inf, y)), "y must be finite"),
        (lambda X, y: (X, y[:-1]), "same number of rows"),
        (lambda X, y: (X[:1], y[:1]), "at least 2 rows"),
    ],
)
def test_bad_rows_are_refused_and_the_network_is_as_it_was(data, change, message):
    X, y = data
    net = start(X, y)
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(NetworkError, match=message):
        kw.train(net, *change(X, y), epochs=2)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def test_an_interrupted_training_leaves_the_network_as_it_was(data, monkeypatch):
    X, y = data
    net = start(X, y)
    before = copy.deepcopy(net.state_dict())
    steps = iter(range(5))
    real = torch.optim.AdamW.step

    def interrupted(self, *args, **kwargs):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kw.train(net, X, y, epochs=50, random_state=0)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def test_progress_is_shown(data, capsys):
    X, y = data
    kw.train(start(X, y), X, y, epochs=2, verbose=1)
    assert "validation loss" in capsys.readouterr().out


def test_epochs_that_set_the_validation_loss_back_are_undone(data):
    X, y = data
    settings = {"validation": (X[:100], y[:100]), "epochs": 40, "learning_rate": 0.2, "warmup": 0.0, "patience": None}
    plain, kept = (
        kw.train(start(X[100:], y[100:]), X[100:], y[100:], setback=setback, random_state=0, **settings)
        for setback in (None, 0.02)
    )
    # The rate is far too large, so the first epochs destroy the start.
    assert not plain.undone
    assert max(plain.validation_loss) > 1.5 * plain.validation_loss[0]
    assert len(kept) == len(plain)
    assert kept.undone
    best = np.minimum.accumulate(kept.validation_loss)
    assert (kept.validation_loss <= 1.02 * best).all()
    for epoch in kept.undone:
        at = int(np.argmin(kept.validation_loss[:epoch]))
        assert kept.validation_loss[epoch] == kept.validation_loss[at]
        assert kept.train_loss[epoch] == kept.train_loss[at]
    # Each time the rate is halved, on top of the schedule that both share.
    shares = np.array(kept.learning_rate[1:]) / plain.learning_rate[1:]
    np.testing.assert_allclose(shares, [0.5 ** sum(u < e for u in kept.undone) for e in range(1, len(kept))])
    assert min(kept.validation_loss) < kept.validation_loss[0]


def test_an_epoch_that_ends_in_no_number_is_undone(data):
    X, y = data
    net = start(X, y)
    history = kw.train(net, X, y, epochs=3, learning_rate=1e200, setback=0.05, random_state=0)
    assert history.undone
    assert np.isfinite(history.validation_loss).all()
    assert np.isfinite(outputs(net, X)).all()
