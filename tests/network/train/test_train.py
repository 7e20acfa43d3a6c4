"""What people hand to ``train``: losses, optimisers, callbacks, loaders, frames and modules of their own."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import knotwork as kw
from knotwork.errors import KnotworkError, NetworkError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(401, 4)) * [1.0, 100.0, 0.01, 1.0] + [0.0, 1e3, 0.0, 5.0]
Z = (X - X.mean(axis=0)) / X.std(axis=0)
PRICE = 1e5 * (np.sin(2 * Z[:, 0]) + Z[:, 1] * Z[:, 2] + 0.1 * RNG.normal(size=401)) + 3e5
FRESH = (X[:100], PRICE[:100])
SETTINGS = {"validation": FRESH, "random_state": 0, "epochs": 10}


def mlp(outputs=1, norm=False, dtype=torch.float64):
    torch.manual_seed(0)
    between = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(4, 16), *between, nn.ReLU(), nn.Linear(16, outputs)).to(dtype)


def start():
    net = kw.to_network(kw.MarsRegressor().fit(X[100:], PRICE[100:]), dtype=torch.float64)
    return kw.reshape(net, (32, 16), X=X[100:], random_state=0)


def run(net, rows=X):
    with torch.no_grad():
        return net.eval()(torch.from_numpy(rows).to(next(net.parameters()).dtype)).numpy()


def loss_of(net, rows=X[:100], y=PRICE[:100]):
    return float(np.mean((run(net, rows)[:, 0] - y) ** 2))


# ------------------------------------------------------------- what judges a start


def test_a_start_that_has_not_seen_the_validation_rows_loses_little_of_what_it_knows():
    histories = {}
    for setback in ("auto", None):
        options = {**SETTINGS, "learning_rate": 0.3, "warmup": 0.0, "setback": setback, "epochs": 20}
        histories[setback] = kw.train(start(), X[100:], PRICE[100:], **options)
    kept, plain = histories["auto"], histories[None]
    assert kept.validation_unseen
    assert max(plain.validation_loss) > 1.5 * plain.validation_loss[0]
    assert kept.undone
    assert (kept.validation_loss <= 1.05 * np.minimum.accumulate(kept.validation_loss)).all()


def test_rows_that_the_start_may_have_seen_undo_nothing_and_that_is_said(capsys):
    history = kw.train(start(), X, PRICE, epochs=5, learning_rate=0.3, warmup=0.0, random_state=0, verbose=1)
    assert not history.validation_unseen
    assert not history.undone
    assert capsys.readouterr().out.count("which the network may have seen before") == 1
    kw.train(start(), X[100:], PRICE[100:], **{**SETTINGS, "epochs": 1}, verbose=1)
    assert "may have seen" not in capsys.readouterr().out


# ------------------------------------------------------------- losses


def test_a_loss_of_ones_own_sees_raw_predictions_and_is_in_the_history():
    seen = []

    def absolute(prediction, target):
        seen.append((prediction.detach().clone(), target.clone()))
        return (prediction - target).abs()

    net = start()
    before = np.abs(run(net, X[:100])[:, 0] - PRICE[:100]).mean()
    history = kw.train(net, X[100:], PRICE[100:], loss=absolute, **{**SETTINGS, "epochs": 30})
    assert history.validation_loss[0] == pytest.approx(before, rel=1e-9)
    after = np.abs(run(net, X[:100])[:, 0] - PRICE[:100]).mean()
    assert after == pytest.approx(min(history.validation_loss), rel=1e-9)
    assert after < 0.9 * before
    prediction, target = seen[0]
    assert prediction.shape == target.shape == (100, 1)
    np.testing.assert_array_equal(target[:, 0], PRICE[:100])


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_unit_of_a_loss_does_not_matter(unit):
    net = start()
    options = {**SETTINGS, "loss": lambda p, t: unit * ((p - t) / 1e5).square(), "epochs": 5}
    history = kw.train(net, X[100:], PRICE[100:], **options)
    expected = kw.train(start(), X[100:], PRICE[100:], **{**options, "loss": lambda p, t: ((p - t) / 1e5).square()})
    np.testing.assert_allclose(np.array(history.validation_loss) / unit, expected.validation_loss, rtol=1e-6)


def test_a_loss_may_give_a_cost_per_row_or_their_mean_but_weights_need_rows():
    losses = [
        kw.train(mlp(), Z, PRICE / 1e5, loss=nn.MSELoss(reduction=reduction), epochs=3, random_state=0).train_loss
        for reduction in ("none", "mean")
    ]
    np.testing.assert_allclose(*losses, rtol=1e-9)
    weight = np.linspace(0, 1, 401)
    with pytest.raises(NetworkError, match=r"one cost per row, \(N,\), where rows have weights, got one number"):
        kw.train(mlp(), Z, PRICE, loss=nn.MSELoss(), sample_weight=weight, epochs=1)
    history = kw.train(mlp(), Z, PRICE, loss=nn.MSELoss(reduction="none"), sample_weight=weight, epochs=1)
    assert len(history) == 2


def test_codes_and_other_columns_reach_a_loss_as_they_are():
    classes = np.digitize(Z[:, 0], [-0.5, 0.5])
    kw.train(mlp(3), Z, classes, loss=nn.CrossEntropyLoss(reduction="none"), epochs=1, random_state=0)
    kw.train(mlp(), Z, (Z[:, 0] > 0).astype(int), loss=nn.BCEWithLogitsLoss(reduction="none"), epochs=1)

    def likelihood(prediction, target):
        assert prediction.shape[1] == 2
        return nn.functional.gaussian_nll_loss(prediction[:, :1], target, prediction[:, 1:].exp(), reduction="none")

    history = kw.train(mlp(2), Z, PRICE / 1e5, loss=likelihood, epochs=20, random_state=0)
    assert min(history.validation_loss) < history.validation_loss[0]


@pytest.mark.parametrize(("loss", "message"), [
    (lambda p, t: 1.0, "must return a tensor of costs, got float"),
    (lambda p, t: (p - t).detach(), "from the prediction in torch, got a constant"),
    (lambda p, t: (p - t)[:3], r"one cost per row, here \(\d+,\), or their mean, got shape \(3, 1\)"),
    (lambda p, t: p @ t, r"predictions of shape \(60, 1\) and torch.float64 and targets .* raised RuntimeError: mat"),
    (lambda p, t: nn.functional.binary_cross_entropy(p, t[:3]), "it raised ValueError: Using a target size"),
    ("mse", "loss must be one of 'squared_error', .*, got 'mse'"),
])  # fmt: skip
def test_losses_that_cannot_be_trained_with_are_refused(loss, message):
    net = mlp()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(KnotworkError, match=message):
        kw.train(net, Z, PRICE, loss=loss, epochs=1)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


# ------------------------------------------------------------- optimisers and callbacks


def test_an_optimiser_of_ones_own_has_its_own_rates_and_our_schedule():
    made = []

    def factory(parameters):
        made.append(torch.optim.SGD(parameters, lr=0.5, momentum=0.9, nesterov=True))
        return made[0]

    history = kw.train(mlp(), Z, PRICE, optimizer=factory, epochs=20, warmup=0.5, batch_size=1000, random_state=0)
    np.testing.assert_allclose(history.learning_rate[:11], np.arange(11) / 20, atol=1e-12)
    assert min(history.validation_loss) < 0.5 * history.validation_loss[0]
    undone = kw.train(mlp(), Z, PRICE, optimizer=lambda p: torch.optim.SGD(p, lr=50.0, momentum=0.9), warmup=0.0,
                      setback=0.0, epochs=5, batch_size=1000, random_state=0).undone  # fmt: skip
    assert undone


@pytest.mark.parametrize(("factory", "message"), [
    (torch.optim.SGD, None),
    (lambda p: "sgd", "got str from it"),
    (lambda p: torch.optim.LBFGS(p), "got LBFGS"),
    (lambda p: torch.optim.SGD(mlp().parameters(), lr=0.1), "parameters that it was given"),
    ("sgd", "optimizer must be a function"),
])  # fmt: skip
def test_what_makes_no_optimiser_is_refused(factory, message):
    if message is None:
        assert len(kw.train(mlp(), Z, PRICE, optimizer=factory, epochs=1)) == 2
        return
    with pytest.raises(KnotworkError, match=message):
        kw.train(mlp(), Z, PRICE, optimizer=factory, epochs=1)


@pytest.mark.parametrize("make", [start, mlp, lambda: mlp(norm=True)])
def test_callbacks_see_every_epoch_and_may_end_the_training(make):
    told = []

    def callback(now):
        with torch.no_grad():
            prediction = now.network()(torch.from_numpy(X[:100]))[:, 0].numpy()
        told.append((now.epoch, now.history.validation_loss[-1], np.mean((prediction - PRICE[:100]) ** 2)))
        now.history.validation_loss.clear()  # a copy: nothing happens
        return now.epoch == 4

    history = kw.train(make(), X[100:], PRICE[100:], callbacks=[callback], **SETTINGS, dropout=0.1, setback=None)
    assert [epoch for epoch, *_ in told] == [0, 1, 2, 3, 4]
    assert len(history) == 5
    np.testing.assert_allclose([b for *_, b in told], [a for _, a, _ in told], rtol=1e-9)


def test_callbacks_must_be_a_list_of_functions():
    for wrong in (print, [3]):
        with pytest.raises(KnotworkError, match="callbacks must be a list of functions"):
            kw.train(mlp(), Z, PRICE, callbacks=wrong)


# ------------------------------------------------------------- loaders and frames


def test_a_loader_takes_the_place_of_arrays():
    net = mlp(dtype=torch.float32)
    data = TensorDataset(torch.from_numpy(X[100:]), torch.from_numpy(PRICE[100:]))
    results = []
    for _ in range(2):
        net = mlp(dtype=torch.float32)
        torch.manual_seed(len(results))
        expected = torch.rand(2)
        torch.manual_seed(len(results))
        loader = DataLoader(data, batch_size=64, shuffle=True)
        history = kw.train(net, loader, **{**SETTINGS, "epochs": 30})
        assert torch.equal(torch.rand(2), expected)
        results.append((history.validation_loss, net[0].weight.tolist()))
    assert results[0] == results[1]  # the order of the rows comes from the seed
    assert history.validation_loss[history.best_epoch] < 0.7 * history.validation_loss[0]
    assert loss_of(net) == pytest.approx(min(history.validation_loss), rel=1e-4)
    judges = DataLoader(TensorDataset(torch.from_numpy(X[:100]), torch.from_numpy(PRICE[:100])), batch_size=30)
    again = kw.train(mlp(dtype=torch.float32), loader, **{**SETTINGS, "epochs": 2, "validation": judges})
    assert again.validation_loss[0] == pytest.approx(history.validation_loss[0], rel=1e-6)


def test_batches_may_be_any_list_have_weights_and_labels():
    labels = np.where(Z[:, 0] > 0, "up", "down")
    zero = (Z[:50], labels[:50], np.zeros(50))  # a batch that does not count
    batches = [zero, (Z[50:200], labels[50:200], np.ones(150)), (Z[200:], labels[200:], np.ones(201))]
    history = kw.train(mlp(), batches, validation=(Z[:100], labels[:100]), epochs=60, random_state=0)
    assert np.isfinite(history.train_loss).all()
    assert history.validation_loss[history.best_epoch] < 0.6 * history.validation_loss[0]


@pytest.mark.parametrize(("change", "message"), [
    ({"X": iter([(Z, PRICE)])}, "again for every epoch, got an iterator"),
    ({"X": []}, "at least 2 rows, got 0"),
    ({"X": [Z]}, r"must yield batches \(rows, targets\)"),
    ({"validation": 0.2}, "a loader cannot be split, got validation=0.2"),
    ({"y": PRICE, "X": DataLoader([1])}, "leave y out"),
    ({"sample_weight": PRICE}, "batches carry their own weights"),
    ({"X": Z}, "train needs targets, got y=None"),
])  # fmt: skip
def test_loaders_that_cannot_be_trained_on_are_refused(change, message):
    arguments = {"X": [(Z, PRICE)], "validation": (Z, PRICE), "epochs": 1, **change}
    with pytest.raises(NetworkError, match=message):
        kw.train(mlp(), **arguments)


def test_frames_go_through_the_encoder_that_the_network_remembers():
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["town"] = np.where(Z[:, 3] > 0, "Ulm", "Bonn")
    prices = PRICE + 1e5 * (Z[:, 3] > 0)
    net = kw.to_network(kw.MarsRegressor().fit(frame[100:], prices[100:]), dtype=torch.float64)
    shuffled = frame[["town", "d", "c", "b", "a"]]  # found by name
    history = kw.train(net, shuffled[100:], prices[100:], validation=(frame[:100], prices[:100]), epochs=2)
    rows = net.conversion.encoder.encode(frame)
    assert loss_of(net, rows[:100], prices[:100]) == pytest.approx(min(history.validation_loss), rel=1e-9)
    with pytest.raises(NetworkError, match="this network remembers no encoder"):
        kw.train(mlp(), frame, prices)


# ------------------------------------------------------------- modules of other people


class Foreign(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(4, 16), norm, nn.Tanh(), nn.Dropout(0.1))
        self.out = nn.Linear(16, 1, bias=False)

    def forward(self, x):
        return 3e5 + 1e5 * self.out(
            self.inside((x - x.new_tensor([0.0, 1e3, 0.0, 5.0])) / x.new_tensor([1, 100, 0.01, 1]))
        )


@pytest.mark.parametrize("make", [
    lambda: mlp(norm=True),
    lambda: Foreign(nn.BatchNorm1d(16)),
    lambda: Foreign(nn.LayerNorm(16)),
    lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 16, bias=False), nn.ReLU(), nn.Linear(16, 1)),
    lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1), kw.Scaling([-3.0], [1e-5])),
])  # fmt: skip
def test_any_network_learns_and_the_history_is_what_it_computes(make):
    torch.manual_seed(0)
    net = make().double()
    before = loss_of(net)
    history = kw.train(net, X[100:], PRICE[100:], **{**SETTINGS, "epochs": 100, "setback": None})
    assert history.validation_loss[0] == pytest.approx(before, rel=1e-9)
    assert loss_of(net) == pytest.approx(min(history.validation_loss), rel=1e-9)
    assert loss_of(net) < 0.7 * before


class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def test_a_module_that_scales_its_rows_gets_them_in_full():
    far = X[:, :1] * 10 + 1.7e9  # in float32 all of these are a few numbers
    y = np.abs(Z[:, 0])
    net = kw.to_network(kw.MarsRegressor().fit(far, y))
    direct = kw.train(copy.deepcopy(net), far, y, epochs=0, random_state=0)
    wrapped = kw.train(Wrapped(net), far, y, epochs=3, random_state=0)
    assert wrapped.validation_loss[0] == pytest.approx(direct.validation_loss[0], rel=1e-3)
    assert direct.validation_loss[0] < 0.1 * np.var(y)


def test_a_scaling_with_a_scale_per_output_counts_once():
    both = np.c_[PRICE, Z[:, 1] + 0.1 * Z[:, 0]]
    torch.manual_seed(0)
    centre, scale = both.mean(axis=0), both.std(axis=0)
    layers = [nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), kw.Scaling(-centre / scale, 1 / scale)]
    net = nn.Sequential(kw.Scaling(X.mean(axis=0), X.std(axis=0)), *layers).double()
    history = kw.train(net, X, both, validation=(X, both), epochs=5, random_state=0)
    # Responses count the same: errors over variances, times the mean variance.
    after = np.mean((run(net) - both) ** 2 / scale**2) * np.mean(scale**2)
    assert after == pytest.approx(min(history.validation_loss), rel=1e-9)


@pytest.mark.parametrize("rows", [129, 257, 201])
def test_a_last_batch_of_one_row_joins_the_one_before_it(rows):
    history = kw.train(mlp(norm=True), X[:rows], PRICE[:rows], validation=FRESH, epochs=2)
    assert len(history) == 3
    for options in ({"batch_size": 1}, {"X": [(X[:1], PRICE[:1]), (X[1:], PRICE[1:])], "y": None}):
        with pytest.raises(NetworkError, match="BatchNorm takes means over a batch and needs at least 2 rows"):
            kw.train(mlp(norm=True), **{"X": X, "y": PRICE, "validation": FRESH, "epochs": 1, **options})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_with_the_way_out(dtype):
    with pytest.raises(NetworkError, match=r"float32 or float64, .* train net.float\(\)"):
        kw.train(mlp(dtype=dtype), Z, PRICE)


def test_a_network_without_anything_to_train_is_refused():
    with pytest.raises(NetworkError, match="parameters that require gradients"):
        kw.train(mlp().requires_grad_(False), Z, PRICE)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_training_works_where_gradients_are_off(mode):
    net = mlp()
    with mode():
        history = kw.train(net, Z, PRICE, epochs=3, random_state=0)
        model = kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=2, random_state=0).fit(Z, PRICE)
    assert history.best_epoch > 0
    assert len(model.history_) == 3


def test_rows_of_weight_zero_are_not_there():
    weight = np.where(np.arange(401) < 300, 0.0, 1.0)  # most batches would have no weight at all
    nets = [mlp(), mlp()]
    first = kw.train(nets[0], Z, PRICE, sample_weight=weight, validation=FRESH, batch_size=16, epochs=3, random_state=0)
    second = kw.train(nets[1], Z[300:], PRICE[300:], validation=FRESH, batch_size=16, epochs=3, random_state=0)
    assert first.train_loss == second.train_loss
    assert torch.equal(nets[0][0].weight, nets[1][0].weight)
    tiny = np.where(np.arange(401) < 300, 1e-60, 1.0)
    history = kw.train(mlp(dtype=torch.float32), Z, PRICE, sample_weight=tiny, batch_size=4, epochs=3, random_state=0)
    assert np.isfinite(history.train_loss).all()


@pytest.mark.parametrize("change", [
    {"dropout": 1.0}, {"learning_rate": 0}, {"warmup": 1.0}, {"l1": -1}, {"patience": 0}, {"setback": -0.1},
    {"average": -1.0}, {"weight_decay": -1.0}, {"label_smoothing": 1.0},
])  # fmt: skip
def test_options_out_of_range_are_refused(change):
    with pytest.raises(KnotworkError, match=next(iter(change))):
        kw.train(mlp(), Z, PRICE, **change)


# ------------------------------------------------------------- equal seeds, equal bits


WITH_DROPOUT = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))


def dropped(seed):
    net = copy.deepcopy(WITH_DROPOUT)
    history = kw.train(net, Z, PRICE, dropout=0.2, epochs=4, batch_size=32, random_state=seed)
    model = kw.SplineNetRegressor(
        n_members=1, hidden=(16,), dropout=0.2, epochs=3, batch_size=32, random_state=seed
    ).fit(Z, PRICE)
    return history.train_loss, net[0].weight.tolist(), model.history_.train_loss, model.network_[1].weight.tolist()


def test_dropout_in_fits_of_several_threads_at_once_draws_numbers_of_its_own():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    alone = [dropped(seed) for seed in range(3)]
    torch.set_rng_state(state)
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(dropped, [0, 1, 2] * 2))
    assert together == alone * 2
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("count", [2, 3])
def test_bits_do_not_depend_on_the_number_of_threads(count):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = dropped(0)
        torch.set_num_threads(count)
        assert dropped(0) == expected
        assert torch.get_num_threads() == count  # and the setting is as it was
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------- Sequentials that are more than their layers


class Skipped(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def doubled():
    net = mlp()
    net.register_forward_hook(lambda module, args, output: 2 * output)
    return net


@pytest.mark.parametrize("net", [
    lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), Skipped(nn.Linear(16, 16)), nn.ReLU(), nn.Linear(16, 1)),
    lambda: nn.Sequential(Skipped(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), nn.Linear(4, 1)),
    lambda: nn.Sequential(kw.Scaling.of(X), Skipped(nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 1),
                          kw.Scaling.back_to(PRICE)),
    doubled,
])  # fmt: skip
def test_the_loss_is_that_of_the_network_s_own_forward(net):
    net = net().double()
    before = loss_of(net)
    history = kw.train(net, X[100:], PRICE[100:], **SETTINGS)
    assert history.validation_loss[0] == pytest.approx(before, rel=1e-9)
    assert min(history.validation_loss) == pytest.approx(loss_of(net), rel=1e-9)


@pytest.mark.parametrize("frozen", ["0.", "2.", "0.bias", "2.bias", "0.weight"])
def test_what_is_frozen_keeps_every_bit(frozen):
    net = mlp(dtype=torch.float32)
    held = {name: p for name, p in net.named_parameters() if name.startswith(frozen)}
    for p in held.values():
        p.requires_grad_(False)
    before = {name: p.clone() for name, p in held.items()}
    history = kw.train(net, X[100:], PRICE[100:], **SETTINGS)
    assert all(torch.equal(p, before[name]) for name, p in held.items())
    assert min(history.validation_loss) == pytest.approx(loss_of(net), rel=1e-4)


@pytest.mark.parametrize("change", [lambda net: kw.train(net, X, PRICE), lambda net: kw.init_(net, X, PRICE)])
def test_networks_of_inference_mode_are_refused(change):
    with torch.inference_mode():
        net = kw.to_network(kw.MarsRegressor().fit(X, PRICE))
    with pytest.raises(NetworkError, match=r"must be made outside torch.inference_mode\(\)"):
        change(net)
    kw.train(copy.deepcopy(net), X, PRICE, epochs=1)
