import copy
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

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
    net = start(X[100:], y[100:])
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
    kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=1, start="random").fit(X, y)
    for always in (False, True):
        kw.train(Noisy(X.shape[1], always), X, y, epochs=1, random_state=0)
    kw.train(Noisy(X.shape[1], True), [(X[:100], y[:100])], validation=(X[100:], y[100:]), epochs=1, random_state=0)
    with pytest.raises(NetworkError, match="one column per output"):
        kw.train(Noisy(X.shape[1], True), X, np.column_stack([y, y]), random_state=0)
    assert torch.equal(torch.rand(3), expected)


class Noisy(torch.nn.Module):
    """A network that draws from the global generator by itself: while it is trained, or always."""

    def __init__(self, inputs, always):
        super().__init__()
        self.always = always
        with torch.random.fork_rng(devices=[]):
            self.inner = torch.nn.Linear(inputs, 1)

    def forward(self, x):
        return self.inner(x + 0.1 * torch.randn_like(x) if self.training or self.always else x)


def test_what_lies_between_the_scalings_is_trained_and_they_stay(data):
    X, y = data
    net = kw.reshape(kw.to_network(kw.MarsRegressor().fit(X, y), dtype=torch.float64), (32,), X=X)
    before = copy.deepcopy(net.state_dict())
    ends = net[0], net[-1]
    history = kw.train(net, X, y, epochs=30, random_state=0)
    assert (net[0], net[-1]) == ends
    for name, value in net.state_dict().items():
        scaling = name.endswith(("centre", "scale", "lower", "upper"))
        assert torch.equal(value, before[name]) == scaling, name
    assert history.validation_loss[history.best_epoch] < history.validation_loss[0]


@pytest.mark.parametrize("standardise", [True, False])
def test_losses_of_a_network_with_scaling_are_in_the_units_of_the_response(data, standardise):
    X, y = data
    y = 1e4 * y + 1e6
    net = kw.to_network(kw.MarsRegressor().fit(X, y), dtype=torch.float64)
    before = net(torch.from_numpy(X))[:, 0].detach().numpy()
    history = kw.train(net, X, y, validation=(X, y), epochs=2, random_state=0, standardise=standardise)
    assert history.validation_loss[0] == pytest.approx(np.mean((before - y) ** 2), rel=1e-9)
    after = net(torch.from_numpy(X))[:, 0].detach().numpy()
    assert history.validation_loss[history.best_epoch] == pytest.approx(np.mean((after - y) ** 2), rel=1e-9)


@pytest.mark.parametrize("far", [0.0, 1e8])
def test_a_network_with_scaling_trains_wherever_the_columns_lie(data, far):
    X, y = data
    moved = np.round(X * 2**20) / 2**20 + far  # the same bits far from zero, as far as float64 goes
    X = moved - far
    losses = []
    for rows in (X, moved):
        net = kw.to_network(kw.MarsRegressor().fit(rows, y))
        history = kw.train(net, rows, y, validation=(rows, y), epochs=3, random_state=0)
        losses.append(history.validation_loss)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("twice", ["activation", "middle", "first"])
def test_layers_that_stand_in_two_places_train_as_they_run(data, scaled, twice):
    X, y = data
    torch.manual_seed(0)
    act, again = nn.ReLU(), nn.Linear(4, 4)
    layers = {
        "activation": [nn.Linear(4, 6), act, nn.Linear(6, 5), act, nn.Linear(5, 1)],
        "middle": [nn.Linear(4, 4), act, again, act, again, act, nn.Linear(4, 1)],
        "first": [again, act, again, act, nn.Linear(4, 1)],
    }[twice]
    ends = kw.Scaling(X.mean(axis=0), X.std(axis=0)), kw.Scaling([-y.mean() / y.std()], [1 / y.std()])
    net = nn.Sequential(*([ends[0], *layers, ends[1]] if scaled else layers)).double()
    before = net(torch.from_numpy(X))[:, 0].detach().numpy()
    history = kw.train(net, X, y, validation=(X, y), epochs=2, random_state=0)
    assert history.validation_loss[0] == pytest.approx(np.mean((before - y) ** 2), rel=1e-9)
    after = net(torch.from_numpy(X))[:, 0].detach().numpy()
    assert history.validation_loss[history.best_epoch] == pytest.approx(np.mean((after - y) ** 2), rel=1e-9)


@pytest.mark.parametrize("fold", [True, False])
def test_training_leaves_the_flags_of_a_network_as_they_were_and_no_gradients(data, fold):
    X, y = data
    for flag in (True, False):
        net = kw.to_network(kw.MarsRegressor().fit(X, y), fold=fold).train(flag)
        kw.train(net, X, y, epochs=0, random_state=0)
        assert {m.training for m in net.modules()} == {flag}
        kw.train(net, X, y, epochs=1, dropout=0.1, random_state=0)
        assert {m.training for m in net.modules()} == {flag}
        assert all(p.grad is None for p in net.parameters())


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
    kw.train(plain, X, y, epochs=60, random_state=0, patience=None)
    kw.train(sparse, X, y, epochs=60, random_state=0, patience=None, l1=1e-3)
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


@contextmanager
def watched_steps(look, after=False):
    """Call ``look(optimiser)`` before (or after) every step of any optimiser."""
    register = register_optimizer_step_post_hook if after else register_optimizer_step_pre_hook
    handle = register(lambda optimiser, _args, _kwargs: look(optimiser))
    try:
        yield
    finally:
        handle.remove()


def after_steps(count, error):
    """A context in which a step of any optimiser after so many raises an error."""
    left = iter(range(count))

    def look(_):
        if next(left, None) is None:
            raise error

    return watched_steps(look)


@pytest.mark.parametrize("fold", [True, False])
def test_a_training_that_fails_leaves_the_network_as_it_was(data, fold):
    X, y = data
    net = kw.to_network(kw.MarsRegressor().fit(X, y), fold=fold)
    before = copy.deepcopy(net.state_dict())
    with after_steps(20, RuntimeError("the disk is on fire")), pytest.raises(RuntimeError, match="on fire"):
        kw.train(net, X, y, epochs=50, random_state=0)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("fold", [True, False])
def test_ctrl_c_puts_the_best_weights_so_far_into_the_network_and_says_so(data, fold):
    X, y = data
    seen = []
    settings = {"validation": (X[:100], y[:100]), "learning_rate": 3e-3, "random_state": 0, "batch_size": 50}
    net = kw.to_network(kw.MarsRegressor().fit(X[100:], y[100:]), fold=fold, dtype=torch.float64)
    untouched = copy.deepcopy(net)
    with after_steps(6 * 12 + 3, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt) as caught:
        kw.train(net, X[100:], y[100:], epochs=50, callbacks=[lambda e: seen.append(e.history)], **settings)
    history = seen[-1]
    assert len(history) == 13
    assert history.best_epoch > 0
    assert caught.value.__notes__ == [
        f"training was interrupted in epoch 13; the network has its best weights so far, those of epoch "
        f"{history.best_epoch}"
    ]
    after = np.mean((outputs(net, X[:100])[:, 0] - y[:100]) ** 2)
    assert after == pytest.approx(history.validation_loss[history.best_epoch], rel=1e-9)
    assert after < np.mean((outputs(untouched, X[:100])[:, 0] - y[:100]) ** 2)


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


# ------------------------------------------------------------- what a step does
#
# These tests watch the optimiser from outside, through torch's own hook, or train networks whose steps are known.


def parameters_of(optimiser):
    return [p for group in optimiser.param_groups for p in group["params"]]


def copies_of(optimiser):
    return [p.detach().clone() for p in parameters_of(optimiser)]


def small_net(inputs=4, width=8, out=1):
    """Eight live units and a dead one: it is active on no row, so that no gradient of the loss reaches it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(inputs, width + 1), nn.ReLU(), nn.Linear(width + 1, out)).double()
    with torch.no_grad():
        net[0].weight[-1], net[0].bias[-1], net[2].weight[:, -1] = 0.5, -100.0, 2.0
    return net


AS_IT_IS = {"standardise": False, "random_state": 0, "patience": None}
ONE_STEP = {"batch_size": 10_000, **AS_IT_IS}  # one step per epoch


def test_the_rate_warms_up_in_a_line_and_falls_to_a_fiftieth(data):
    X, y = data
    history = kw.train(small_net(), X, y, epochs=20, learning_rate=0.1, warmup=0.25, **ONE_STEP)
    rates = np.array(history.learning_rate)
    np.testing.assert_allclose(rates[:6], [0.0, 0.02, 0.04, 0.06, 0.08, 0.1])
    assert (np.diff(rates[5:]) < 0).all()
    # A half cosine: halfway down in the middle, flat at both ends.
    assert rates[-1] == pytest.approx(0.1 / 50)
    falling = rates[5:]
    np.testing.assert_allclose(falling + falling[::-1], 0.1 + 0.1 / 50)
    assert np.diff(falling)[0] > 0.2 * np.diff(falling).min()


@pytest.mark.parametrize("warmup", [0.0, 0.5])
def test_the_first_steps_are_as_small_as_the_warm_up_says(data, warmup):
    X, y = data
    weights, rates = [], []

    def look(optimiser):
        weights.append(torch.cat([p.flatten() for p in copies_of(optimiser)]))
        rates.append({group["lr"] for group in optimiser.param_groups})

    settings = {**AS_IT_IS, "epochs": 10, "batch_size": 100, "learning_rate": 0.05, "weight_decay": 0.0}
    with watched_steps(look):
        history = kw.train(small_net(), X, y, validation=(X, y), warmup=warmup, **settings)
    # Adam's first step is as large as the rate wherever there is a gradient: of 40 steps, 20 are the warm-up.
    assert (weights[1] - weights[0]).abs().max() == pytest.approx(0.05 / 20 if warmup else 0.05, rel=0.01)
    assert [{rate} for rate in history.learning_rate[1:]] == rates[3::4]


def test_gradients_are_those_of_the_weighted_rows_clipped_to_a_norm_of_one(data):
    X, _ = data
    net = small_net()
    fitted = outputs(net, X)[:, 0]
    weight = np.random.default_rng(1).uniform(0.1, 5.0, size=len(X))
    for size, clipped in ((1e-3, False), (1e6, True)):
        y = fitted + size * np.where(np.arange(len(X)) == 7, 20.0, 1.0)  # one row is an outlier
        plain = copy.deepcopy(net)
        costs = (plain(torch.from_numpy(X))[:, 0] - torch.from_numpy(y)).square()
        (costs @ torch.from_numpy(weight) / weight.sum()).backward()
        expected = torch.cat([p.grad.flatten() for p in plain.parameters()])
        norm = torch.linalg.vector_norm(expected)
        assert (norm > 1) == clipped
        seen = []
        with watched_steps(
            lambda optimiser, seen=seen: seen.append([p.grad.clone() for p in parameters_of(optimiser)])
        ):
            kw.train(copy.deepcopy(net), X, y, sample_weight=weight, validation=(X, y), epochs=3, **ONE_STEP)
        norms = [float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads]))) for grads in seen]
        assert max(norms) <= 1 + 1e-6
        assert norms[0] == pytest.approx(min(1.0, float(norm)), rel=1e-5)
        found = sorted(torch.cat([g.flatten() for g in seen[0]]).tolist())
        np.testing.assert_allclose(found, sorted((expected / max(1.0, float(norm))).tolist()), rtol=1e-5, atol=1e-15)


@pytest.mark.parametrize("setback", [None, 0.0])
@pytest.mark.parametrize("patience", [1, 2, 7])
def test_training_that_cannot_improve_ends_after_as_many_epochs_as_patience_says(data, patience, setback):
    X, y = data
    net = small_net()
    right = (X[:50], outputs(net, X[:50]))  # nothing beats a loss of zero
    settings = {**ONE_STEP, "patience": patience, "setback": setback}
    history = kw.train(net, X[50:], y[50:] + 3, validation=right, epochs=12, **settings)
    assert history.validation_loss[0] == 0.0
    assert len(history) == len(history.to_frame()) == patience + 1
    # An undone epoch is as good as the best one, and not better.
    assert history.best_epoch == 0
    assert history.undone == ([] if setback is None else list(range(1, patience + 1)))


def test_patience_counts_from_the_best_epoch(data):
    X, y = data
    settings = {**AS_IT_IS, "epochs": 40, "batch_size": 40, "learning_rate": 0.1, "average": 0.0, "warmup": 0.0}
    settings |= {"validation": (X[:60], y[:60]), "random_state": 1, "setback": None}
    full = kw.train(small_net(), X[60:], y[60:], **settings)
    assert len(full) == 41
    losses, lengths = np.array(full.validation_loss), []
    for patience in (2, 3, 5):
        part = kw.train(small_net(), X[60:], y[60:], **{**settings, "patience": patience})
        assert part.validation_loss == full.validation_loss[: len(part)]
        waits = np.arange(len(part)) - [losses[: k + 1].argmin() for k in range(len(part))]
        assert waits[-1] == patience
        assert waits[:-1].max() < patience
        lengths.append(len(part))
    assert 6 < lengths[-1] < 41  # there was something to wait for


def test_only_weights_decay(data):
    X, y = data
    net = small_net()
    settings = {**ONE_STEP, "epochs": 20, "learning_rate": 0.05, "average": 0.0}
    history = kw.train(net, X, y + 3, validation=(X, y + 3), weight_decay=0.5, **settings)
    assert history.best_epoch > 10
    # Nothing but decay moves the weights of a dead unit, by the rate times the decay in each step.
    left = np.prod(1 - 0.5 * np.array(history.learning_rate[1 : history.best_epoch + 1]))
    assert left < 0.9
    np.testing.assert_allclose(net[0].weight[-1].detach(), 0.5 * left)
    np.testing.assert_allclose(net[2].weight[:, -1].detach(), 2.0 * left)
    assert net[0].bias[-1] == -100.0


def test_l1_draws_weights_alone_to_zero(data):
    X, y = data
    net = small_net()
    settings = {**ONE_STEP, "epochs": 20, "learning_rate": 0.01, "average": 0.0, "weight_decay": 0.0}
    history = kw.train(net, X, y + 3, l1=1e-2, validation=(X, y + 3), **settings)
    # Gradients of one sign make full steps of Adam.
    steps = sum(history.learning_rate[1 : history.best_epoch + 1])
    assert steps > 0.05
    np.testing.assert_allclose(net[0].weight[-1].detach(), 0.5 - steps, rtol=0.01)
    np.testing.assert_allclose(net[2].weight[:, -1].detach(), 2.0 - steps, rtol=0.01)
    assert net[0].bias[-1] == -100.0


def test_after_a_setback_steps_begin_anew_from_the_best_weights(data):
    X, y = data
    net, seen = small_net(), []

    def look(optimiser):
        momentum = [float(state["exp_avg"].abs().max()) for state in optimiser.state.values()]
        seen.append((copies_of(optimiser), max(momentum, default=0.0)))

    settings = {**AS_IT_IS, "epochs": 25, "batch_size": 100, "learning_rate": 0.3, "warmup": 0.0, "average": 0.0}
    with watched_steps(look):
        history = kw.train(net, X[100:], y[100:], validation=(X[:100], y[:100]), setback=0.01, **settings)
    steps = 3  # per epoch
    assert len(seen) == 25 * steps
    assert any(history.best_epoch > epoch for epoch in history.undone)
    firsts = {epoch * steps for epoch in history.undone if epoch < 25}
    assert firsts
    for step, (weights, momentum) in enumerate(seen):
        assert (momentum == 0.0) == (step == 0 or step in firsts)
        if step in firsts:
            best = int(np.argmin(history.validation_loss[: step // steps + 1]))
            # Without averaging, the best weights are those that the next epoch began with.
            assert all(torch.equal(a, b) for a, b in zip(weights, seen[best * steps][0], strict=True))


@pytest.mark.parametrize(("average", "shares"), [
    (0.0, lambda ages: ages == 0),
    (2.5, lambda ages: 0.9**ages),  # 2.5 epochs are ten steps
    (100.0, lambda ages: ages.max() - ages),
])  # fmt: skip
def test_the_result_is_a_mean_over_epochs_or_over_later_steps_while_there_are_few(data, average, shares):
    X, y = data
    net, way = small_net(), []
    settings = {**AS_IT_IS, "epochs": 30, "batch_size": 100, "learning_rate": 3e-3, "average": average}
    with watched_steps(lambda optimiser: way.append(copies_of(optimiser)[0]), after=True):
        history = kw.train(net, X, y + 3, validation=(X, y + 3), **settings)
    assert len(way) == 120
    assert history.best_epoch > 25
    way = torch.stack(way[: 4 * history.best_epoch]).flatten(1).numpy()
    share = shares(np.arange(len(way))[::-1]).astype(float)
    expected = np.average(way, axis=0, weights=share)
    size = np.abs(way[-1] - way[0]).max()
    np.testing.assert_allclose(net[0].weight.detach().flatten(), expected, atol=1e-3 * size)


@contextmanager
def watched_rows(net):
    """Collect the batches that a network is trained on."""
    batches = []
    handle = net[0].register_forward_hook(
        lambda _module, args, _out: batches.append(args[0].numpy().copy()) if torch.is_grad_enabled() else None
    )
    try:
        yield batches
    finally:
        handle.remove()


def test_rows_are_visited_once_per_epoch_in_changing_order():
    X = np.arange(1.0, 65.0)[:, None]
    net = small_net(inputs=1)
    with watched_rows(net) as batches:
        kw.train(net, X, np.cos(X[:, 0]), validation=(X, X), epochs=3, batch_size=16, **AS_IT_IS)
    assert [len(batch) for batch in batches] == [16] * 12
    epochs = np.concatenate(batches).reshape(3, 64)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(X[:, 0], (3, 1)))
    assert len({tuple(rows) for rows in [*epochs, X[:, 0]]}) == 4


def test_dropout_acts_on_hidden_units_in_training_alone_and_is_gone_afterwards(data):
    X, y = data
    net = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 1)).double()
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in net.modules()]
    shares = []

    def look(module, args):
        if torch.is_grad_enabled():
            # A unit that is zero on a row where it would be active was dropped.
            shares.append(float((args[0] == 0).double().mean()))

    handle = net[2].register_forward_pre_hook(look)
    for share in (0.0, 0.2):
        kw.train(net, X, y, dropout=share, epochs=2, **ONE_STEP)
    handle.remove()
    # About half of the units are zero by themselves.
    idle, dropped = np.mean(shares[:2]), np.mean(shares[2:])
    assert (1 - dropped) / (1 - idle) == pytest.approx(0.8, abs=0.03)
    assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in net.modules()] == hooks
    net.train()
    x = torch.from_numpy(X)
    assert torch.equal(net(x), net(x))


def test_the_share_held_out_is_not_trained_on_and_counts_by_its_weights(data):
    X, y = data
    weight = np.random.default_rng(1).uniform(0.1, 5.0, size=len(X))
    net = small_net()
    before = np.square(outputs(net, X)[:, 0] - y)
    with watched_rows(net) as batches:
        history = kw.train(net, X, y, validation=0.25, sample_weight=weight, epochs=2, **ONE_STEP)
    trained = {tuple(row) for row in batches[0].tolist()}
    held = np.array([tuple(row) not in trained for row in X.tolist()])
    assert held.sum() == 100
    assert history.validation_loss[0] == pytest.approx(np.average(before[held], weights=weight[held]), rel=1e-9)
    assert history.train_loss[0] == pytest.approx(np.average(before[~held], weights=weight[~held]), rel=1e-9)


def test_rows_are_standardised_by_the_weighted_training_rows(data):
    X, y = data
    weight = np.exp(X[:, 0] + X[:, 1])
    seen = []
    for standardise in (False, True):  # equal seeds hold out the same rows and visit the others in the same order
        net = small_net()
        with watched_rows(net) as batches:
            settings = {**ONE_STEP, "standardise": standardise}
            kw.train(net, X, y, sample_weight=weight, validation=0.5, epochs=1, **settings)
        seen.append(batches[0])
    raw, standardised = seen
    assert len(raw) == 200
    share = np.exp(raw[:, 0] + raw[:, 1])
    share /= share.sum()
    np.testing.assert_allclose(share @ standardised, 0.0, atol=1e-12)
    np.testing.assert_allclose(share @ np.square(standardised), 1.0)


@pytest.mark.parametrize("classes", [False, True])
def test_every_parameter_of_training_is_heard(data, classes):
    X, y = data
    y = y > 0 if classes else y

    def losses(**changes):
        settings = {"epochs": 5, "learning_rate": 0.1, "patience": None, "average": 1.0, "random_state": 0, **changes}
        return kw.train(small_net(), X, y, **settings).train_loss

    plain = losses()
    assert losses() == plain
    changes = [
        {"batch_size": 50}, {"learning_rate": 0.2}, {"weight_decay": 1.0}, {"warmup": 0.5}, {"l1": 0.01},
        {"dropout": 0.2}, {"average": 5.0}, {"validation": 0.3}, {"standardise": False}, {"random_state": 1},
        {"sample_weight": np.exp(X[:, 0])},
    ]  # fmt: skip
    if classes:
        changes.append({"label_smoothing": 0.2})
    for change in changes:
        assert losses(**change)[1:] != plain[1:], change


def test_rows_that_are_told_apart_already_hardly_move_the_network():
    """Steps of Adam would be of full size however small the gradient is."""
    X = np.linspace(-1, 1, 40)[:, None]
    X = X[np.abs(X[:, 0]) > 0.4]
    moves = []
    for task, y in (("classification", (X[:, 0] > 0).astype(int)), ("regression", 30 * X[:, 0] + 1e-4)):
        net, way = small_net(inputs=1), []
        with torch.no_grad():
            for p in net.parameters():
                p.zero_()
            net[0].weight[:2, 0], net[2].weight[0, :2] = torch.tensor([1.0, -1.0]), torch.tensor([30.0, -30.0])
        with watched_steps(lambda optimiser, way=way: way.append(copies_of(optimiser))):
            settings = {"epochs": 2, "weight_decay": 0.0, "warmup": 0.0, "setback": None, **ONE_STEP}
            kw.train(net, X, y, task=task, validation=(X, y), **settings)
        moves.append(max(float((b - a).abs().max()) for a, b in zip(*way, strict=True)))
    assert moves[0] < 0.05 * moves[1]


def test_a_first_layer_without_bias_is_trained_for_the_rows_that_it_will_see(data):
    X, y = data
    rows = X * [100.0, 1.0, 0.01, 1.0] + [1000.0, 0.0, 0.0, 5.0]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16, bias=False), nn.ReLU(), nn.Linear(16, 1)).double()
    history = kw.train(net, rows, y, validation=(rows, y), epochs=3, random_state=0)
    assert history.validation_loss[history.best_epoch] == pytest.approx(np.mean((outputs(net, rows)[:, 0] - y) ** 2))


@pytest.mark.parametrize("wrap", [lambda net: nn.Sequential(net), lambda net: nn.Sequential(*net, nn.Identity())])
def test_scalings_are_found_inside_wrappers(data, wrap):
    X, y = data
    rows = X * 60 + 1.7e9  # in float32 all of these are the same number
    model = kw.MarsRegressor().fit(rows, y)
    histories = []
    for change in (lambda net: net, wrap):
        net = change(kw.reshape(kw.to_network(model), (16,), X=rows, random_state=0))
        histories.append(kw.train(net, rows, y, epochs=3, random_state=0))
    assert histories[1].validation_loss == histories[0].validation_loss
    assert histories[0].validation_loss[0] < 0.9 * np.var(y)


def test_responses_are_standardised_behind_a_scaling_of_the_features_alone(data):
    X, y = data
    rows, prices = X * 50 + 1000, 1e5 * y + 3e5
    torch.manual_seed(0)
    layers = [nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1)]
    net = nn.Sequential(kw.Scaling(rows.mean(axis=0), rows.std(axis=0)), *layers)
    history = kw.train(net, rows, prices, epochs=80, validation=(rows, prices), random_state=0)
    assert min(history.validation_loss) < 0.7 * np.var(prices)
    after = np.mean((outputs(net, rows)[:, 0] - prices) ** 2)
    assert after == pytest.approx(min(history.validation_loss), rel=1e-3)


def test_what_scales_logits_is_part_of_the_network(data):
    X, _ = data
    labels = (np.abs(X[:, 0]) + X[:, 1] > 0.8).astype(int)
    model = kw.MarsClassifier().fit(X, labels)
    net = kw.to_network(model.spline_, dtype=torch.float64)
    assert isinstance(net[-1], kw.Scaling)

    def log_loss():
        return float(nn.functional.binary_cross_entropy_with_logits(
            torch.from_numpy(outputs(net, X)[:, 0]), torch.from_numpy(labels).double()))  # fmt: skip

    before = log_loss()
    history = kw.train(net, X, labels, validation=(X, labels), epochs=5, random_state=0)
    assert history.validation_loss[0] == pytest.approx(before, rel=1e-6)
    assert log_loss() == pytest.approx(min(history.validation_loss), rel=1e-6)


@pytest.mark.parametrize("prepare", [
    lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    torch.nn.utils.parametrizations.weight_norm,
    torch.nn.utils.parametrizations.spectral_norm,
])  # fmt: skip
def test_weights_that_are_computed_are_trained_as_they_are(data, prepare):
    X, y = data
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    prepare(net[0])
    history = kw.train(net, X * 10 + 50, y, validation=(X * 10 + 50, y), epochs=3, random_state=0)
    after = np.mean((outputs(net.eval(), X * 10 + 50)[:, 0] - y) ** 2)
    assert after == pytest.approx(min(history.validation_loss), rel=1e-2)


@pytest.mark.parametrize(("change", "message"), [
    (lambda X, y: {"X": X[:, :1]}, "4 features got rows of shape"),
    (lambda X, y: {"y": np.c_[y, -y]}, "one column per output, here 1, got 2"),
    (lambda X, y: {"validation": [X[:, :1], y]}, r"shape \(N, 4\) like X, got \(400, 1\)"),
    (lambda X, y: {"validation": (X, np.c_[y, -y])}, "as many columns as y"),
    (lambda X, y: {"sample_weight": np.zeros(len(y))}, "not all zero"),
    (lambda X, y: {"epochs": -1}, "epochs must be a whole number of at least 0, got -1"),
    (lambda X, y: {"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
])  # fmt: skip
def test_rows_and_options_that_do_not_fit_are_refused(data, change, message):
    X, y = data
    net = start(X, y)
    with pytest.raises(ValueError, match=message):
        kw.train(net, **{"X": X, "y": y, "epochs": 1, **change(X, y)})


def test_an_estimator_is_no_network(data):
    with pytest.raises(NetworkError, match=r"takes a torch network, got MarsRegressor; kw.to_network"):
        kw.train(kw.MarsRegressor().fit(*data), *data)
