"""Heads: scores and screening beside slow obvious versions, and init_head_ on small networks trained on the spot."""

import copy
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import knotwork as kw
from knotwork.errors import NetworkError
from knotwork.spline.scores import RIDGES, fit_scores
from knotwork.spline.screening import explained, strongest_features
from tests.reference import ridge_without_each_row


class Net(nn.Module):
    """A small CNN with BatchNorm and Dropout."""

    def __init__(self, head=None, dtype=None):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, dtype=dtype), nn.BatchNorm2d(16, dtype=dtype), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 8, 3, padding=1, dtype=dtype), nn.BatchNorm2d(8, dtype=dtype), nn.ReLU(),
        )  # fmt: skip
        self.drop = nn.Dropout(0.2)
        self.head = head or nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))

    def forward(self, x):
        return self.head(self.drop(self.conv(x).flatten(1)))


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    images = torch.tensor(X[order]).float().reshape(-1, 1, 8, 8) / 16
    return images, torch.tensor(y[order])


@pytest.fixture(scope="module")
def trained(digits):
    """A CNN that has seen 1000 digits three times, and how often it is right on others."""
    images, labels = digits
    torch.manual_seed(0)
    net = Net()
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(3):
        for batch in torch.randperm(1000).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimiser.step()
    return net, accuracy(net, images[1200:], labels[1200:])


def accuracy(net, images, labels):
    return (outputs(net, images).argmax(dim=1) == labels).float().mean().item()


def outputs(net, images):
    net = copy.deepcopy(net).eval()
    with torch.no_grad():
        return net(images)


def fresh(net, head):
    """The same backbone with another head."""
    net = copy.deepcopy(net)
    net.head = head
    return net


def state(net):
    """Everything about a network that must not change, but for its head."""
    values = {k: v.clone() for k, v in net.state_dict().items() if not k.startswith("head")}
    flags = [m.training for name, m in net.named_modules() if not name.startswith("head")]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in net.modules()]
    return values, flags, hooks


def same(a, b):
    return a[0].keys() == b[0].keys() and all(torch.equal(a[0][k], b[0][k]) for k in a[0]) and a[1] == b[1]


def two_layers(inputs=128, width=64, out=10, **options):
    return nn.Sequential(nn.Linear(inputs, width, **options), nn.ReLU(), nn.Linear(width, out, **options))


# ---------------------------------------------------------------------- scores


@settings(max_examples=25, deadline=None)
@given(n=st.integers(5, 40), d=st.integers(1, 50), p=st.integers(1, 3), noise=st.floats(0, 3), seed=st.integers(0, 999))
def test_scores_are_those_of_fits_without_the_row(n, d, p, noise, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.exp2(rng.integers(-3, 4, d)) + 5
    X[:, 1:2] = 3.0  # a constant
    y = X @ rng.normal(size=(d, p)) + noise * rng.normal(size=(n, p))
    found = fit_scores(X, y)
    close = {"rtol": 1e-6, "atol": 1e-6 * np.abs(y).max()}
    np.testing.assert_allclose(found.held_out, ridge_without_each_row(X, y, found.ridge), **close)
    errors = [np.square((y - ridge_without_each_row(X, y, ridge)) / y.std(axis=0)).sum() for ridge in RIDGES]
    assert errors[RIDGES.tolist().index(found.ridge)] <= min(errors) * (1 + 1e-6)
    Z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    slopes = np.linalg.solve(Z.T @ Z + found.ridge * n * np.eye(d), Z.T @ (y - y.mean(axis=0)))
    np.testing.assert_allclose(X @ found.weight + found.offset, y.mean(axis=0) + Z @ slopes, **close)


def test_scores_of_single_precision_rows_in_several_chunks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 5)).astype(np.float32)
    y = X[:, :1] + rng.normal(size=(9000, 1))
    single, double = fit_scores(X, y), fit_scores(X.astype(np.float64), y)
    np.testing.assert_allclose(single.held_out, double.held_out, rtol=1e-6, atol=1e-6)


def test_screening_counts_what_three_columns_explain():
    rng = np.random.default_rng(0)
    X = np.maximum(rng.normal(size=(5000, 6)), 0)  # two of three quantiles coincide at zero
    X[:, 5] = 1.0
    y = np.stack([np.abs(X[:, 2] - 0.5), X[:, 4] + rng.normal(size=5000)], axis=1)
    found = explained(X, y)
    for f in range(6):
        bends = np.quantile(X[::2, f], [1 / 3, 2 / 3])
        columns = np.column_stack([np.ones(len(X)), X[:, f], *(np.maximum(X[:, f] - t, 0) for t in bends)])
        left = y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
        drop = np.square(y - y.mean(axis=0)).sum() - np.square(left).sum()
        assert found[f] == pytest.approx(drop, rel=1e-3, abs=1e-6)
    assert strongest_features(X, y, 2).tolist() == [2, 4]
    assert strongest_features(X, y, 6).tolist() == [0, 1, 2, 3, 4, 5]


# ---------------------------------------------------------------------- heads


def test_the_head_is_the_spline_and_nearly_as_good_as_the_trained_one(digits, trained):
    images, labels = digits
    net, reached = trained
    model = fresh(net, two_layers())
    model.train()
    model.conv[1].eval()  # flags of a user's own
    before = state(model)
    report = kw.init_head_(model, "head", (images[:1200], labels[:1200]), random_state=0)
    assert same(state(model), before)
    assert state(model)[2] == before[2]

    features = outputs(fresh(model, nn.Identity()), images[1200:]).double().numpy()
    expected = report.spline(report.projection(features))
    found = outputs(model, images[1200:]).double().numpy()
    assert np.abs(found - expected).max() < 1e-4
    right = (expected.argmax(axis=1) == labels[1200:].numpy()).mean()
    assert right == pytest.approx(accuracy(model, images[1200:], labels[1200:]))
    assert right > reached - 0.02
    assert right > 0.93
    assert report.task == "classification"
    assert report.classes == tuple(range(10))
    assert (report.rows, report.features, report.screened, report.note) == (1200, 128, 128, "")
    assert 2 <= report.units[0] <= 64
    assert report.max_difference < 1e-4
    assert min(report.feature_seconds, report.fit_seconds) > 0


def test_nothing_random_is_used_up(digits, trained):
    images, labels = digits
    model = fresh(trained[0], two_layers())
    loader = DataLoader(TensorDataset(images[:300], labels[:300]), batch_size=64, shuffle=True)
    torch.manual_seed(3), np.random.seed(3), random.seed(3)  # noqa: NPY002
    expected = torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002
    torch.manual_seed(3), np.random.seed(3), random.seed(3)  # noqa: NPY002
    kw.init_head_(model, "head", loader, random_state=0)
    assert expected == (torch.rand(1), np.random.rand(), random.random())  # noqa: NPY002


@pytest.mark.parametrize("batch", [64, 1000])
def test_a_loader_and_tensors_give_the_same_head(digits, trained, batch):
    images, labels = digits
    one, two = fresh(trained[0], two_layers()), fresh(trained[0], two_layers())
    kw.init_head_(one, "head", (images[:400], labels[:400]), random_state=0, batch_size=64)
    loader = DataLoader(TensorDataset(images[:400], labels[:400]), batch_size=batch)
    kw.init_head_(two, "head", loader, random_state=0)
    assert torch.allclose(outputs(one, images), outputs(two, images), atol=1e-3)
    if batch == 64:
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize("head", [nn.Linear(128, 10), nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(128, 10))])
def test_a_single_linear_gets_a_linear_start(digits, trained, head):
    images, labels = digits
    model = fresh(trained[0], copy.deepcopy(head))
    report = kw.init_head_(model, "head", (images[:1200], labels[:1200]))
    assert "hinges need a hidden layer" in report.note
    assert report.units == ()
    assert all(isinstance(term, kw.Linear) for term in report.spline.terms)
    assert accuracy(model, images[1200:], labels[1200:]) > 0.93


def test_a_single_linear_learns_numbers_as_ridge_regression_does():
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(500, 6)))
    y = X @ torch.tensor(rng.normal(size=(6, 2))) + 3
    model = nn.Sequential(nn.Identity(), nn.Linear(6, 2, dtype=torch.float64))
    report = kw.init_head_(model, "1", (X, y))
    assert report.task == "regression"
    assert (model(X) - y).abs().max() < 2e-3 * y.abs().max()
    assert report.max_difference < 1e-12


def test_a_regression_head_finds_bends(digits, trained):
    images, _ = digits
    net = trained[0]
    features = outputs(fresh(net, nn.Identity()), images).double()
    z = (features[:, :2] - features[:, :2].mean(0)) / features[:, :2].std(0)
    y = z[:, 0].abs() + 0.5 * z[:, 1] + 40
    linear = fresh(net, nn.Linear(128, 1))
    bent = fresh(net, two_layers(out=1))
    for model in (linear, bent):
        kw.init_head_(model, "head", (images[:1200], y[:1200]), random_state=0)
    errors = [(outputs(model, images[1200:])[:, 0] - y[1200:]).square().mean().item() for model in (linear, bent)]
    assert errors[1] < 0.25 * errors[0]
    assert errors[1] < 0.1 * y.var().item()


@pytest.mark.parametrize("out", [1, 2])
def test_two_classes_by_one_output_or_two(digits, trained, out):
    images, labels = digits
    even = (labels % 2 == 0).long()
    model = fresh(trained[0], two_layers(out=out))
    report = kw.init_head_(model, "head", (images[:1200], even[:1200]), random_state=0)
    logits = outputs(model, images[1200:])
    found = logits[:, 0] > 0 if out == 1 else logits.argmax(dim=1) == 1
    assert (found == (even[1200:] == 1)).float().mean() > 0.9
    assert report.classes == (0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [(48,), (64, 32)])
def test_any_module_is_replaced_by_layers_of_a_given_shape(digits, dtype, hidden):
    images, labels = digits
    torch.manual_seed(0)
    model = Net(nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 1000)), dtype=dtype).to(dtype).eval()
    before = state(model)
    kw.init_head_(model, "head", (images[:1200].to(dtype), labels[:1200]), hidden=hidden, random_state=0)
    assert same(state(model), before)
    kinds = [type(m) for m in model.head]
    assert kinds == [*[nn.Linear, nn.ReLU] * len(hidden), nn.Linear]
    assert [m.out_features for m in model.head[::2]] == [*hidden, 10]
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert all(p.requires_grad for p in model.head.parameters())
    assert not any(m.training for m in model.modules())
    assert accuracy(model, images[1200:].to(dtype), labels[1200:]) > 0.9


def test_a_new_head_has_as_many_outputs_as_the_targets_or_as_asked():
    X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    for y, options, expected in (
        (X[:, 0] > 0, {}, 2),
        ((X[:, 0] > 0).long(), {"outputs": 1}, 1),
        (X[:, :3], {}, 3),
        (X[:, 0].round().long() - 50, {"task": "regression"}, 1),
        (np.where(X[:, 0] > 0, "b", "a"), {}, 2),
    ):
        model = nn.Sequential(nn.Identity(), nn.Linear(4, 7))
        kw.init_head_(model, "1", (X, y), hidden=(16,), **options)
        assert model(X).shape == (200, expected)


def test_the_start_survives_training(digits, trained):
    """New units are live and the first steps do not wreck the function."""
    images, labels = digits
    model = fresh(trained[0], two_layers())
    kw.init_head_(model, "head", (images[:1200], labels[:1200]), random_state=0)
    start = accuracy(model, images[1200:], labels[1200:])
    units = model.head[2].weight.detach().clone()
    optimiser = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    torch.manual_seed(0)
    for _ in range(3):
        for batch in torch.randperm(1200).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
    assert accuracy(model, images[1200:], labels[1200:]) > start - 0.02
    idle = (units == 0).all(dim=0)
    assert idle.any()
    assert (model.head[2].weight[:, idle] != 0).any(dim=0).float().mean() > 0.9


def test_many_features_and_rows_are_cut_down():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 300)).astype(np.float32)
    y = np.abs(X[:, 7]) + X[:, 200]
    model = nn.Sequential(nn.Identity(), two_layers(300, 32, 1))
    report = kw.init_head_(model, "1", (torch.tensor(X), torch.tensor(y)), max_features=20, max_rows=500)
    assert (report.rows, report.features, report.screened) == (500, 300, 20)
    assert "x7" in report.projection.names
    assert "500 of 1000 rows" in report.note
    assert report.used >= 1
    residual = y - model(torch.tensor(X)).detach().numpy()[:, 0]
    assert residual.var() < 0.1 * y.var()


@pytest.mark.parametrize(("features", "degree", "penalty"), [(5, 1, 2.0), (5, 2, 3.0), (200, 1, 2 * np.log(200) - 2)])
def test_a_knot_costs_the_more_the_more_features_there_are(features, degree, penalty):
    """The best of many features is a good one by chance: most of those that a cheap knot lets in say nothing."""
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(400, features)))
    y = X[:, 0].abs() + torch.tensor(rng.normal(size=400))
    default, same, free = (
        kw.init_head_(
            nn.Sequential(nn.Identity(), nn.Linear(features, 1).double()), "1", (X, y), hidden=(64, 32), penalty=cost,
            max_degree=degree, random_state=0,
        )
        for cost in (None, penalty, 0.0)
    )  # fmt: skip
    assert default.spline == same.spline
    assert len(default.spline.terms) < 0.8 * len(free.spline.terms)
    if features > 100:
        assert default.used < 0.5 * free.used


def test_units_left_over_are_hinges_of_single_features_and_scores_unless_others_are_asked_for():
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(400, 20)))
    y = X[:, 0].abs() + X[:, 1]
    single = {}
    for fill in (None, "hinge", "random"):
        model = nn.Sequential(nn.Identity(), two_layers(20, 100, 1).double())
        report = kw.init_head_(model, "1", (X, y), random_state=0, **({} if fill is None else {"fill": fill}))
        assert report.units[0] < 50
        single[fill] = (np.count_nonzero(model[1][0].weight.detach()[report.units[0] :], axis=1) == 1).mean()
    # One of the 21 inputs of the spline is a score, which reads all features.
    assert single[None] == single["hinge"] > 0.9
    assert single["random"] == 0


def test_the_outputs_of_the_model_may_be_anything(digits, trained):
    images, labels = digits

    class Wrapped(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return {"logits": self.inner(x), "other": None}

    model = Wrapped(fresh(trained[0], two_layers()))
    kw.init_head_(model, "inner.head", (images[:500], labels[:500]), random_state=0)
    assert accuracy(model.inner, images[1200:], labels[1200:]) > 0.9


def test_progress_is_shown_on_request(digits, trained, capsys):
    images, labels = digits
    model = fresh(trained[0], nn.Linear(128, 10))
    kw.init_head_(model, "head", (images[:300], labels[:300]), verbose=1)
    assert "features: batch 2" in capsys.readouterr().out


# ---------------------------------------------------------------------- what cannot be


class Twice(Net):
    def forward(self, x):
        return super().forward(x) + super().forward(x)


class Never(Net):
    def forward(self, x):
        return self.conv(x)


class Images(Net):
    def forward(self, x):
        return self.head(self.conv(x).flatten(2))


class Dict(Net):
    def forward(self, x):
        return self.head({"features": self.conv(x).flatten(1)})


class Pooled(Net):
    """Mixes the rows."""

    def forward(self, x):
        return self.head(self.conv(x).flatten(1)[:1])


class DictHead(nn.Module):
    def forward(self, x):
        return x["features"]


def refuse(model, message, data, head="head", **options):
    before, full = state(model), copy.deepcopy(model.state_dict())
    modules = dict(model.named_modules())
    with pytest.raises(NetworkError, match=message) as caught:
        kw.init_head_(model, head, data, **options)
    assert "\n" not in str(caught.value)
    assert same(state(model), before)
    assert state(model)[2] == before[2]
    after = model.state_dict()
    assert after.keys() == full.keys()
    assert all(torch.equal(after[k], full[k]) for k in full if not full[k].is_meta)
    assert dict(model.named_modules()) == modules


@pytest.mark.parametrize(
    ("model", "message", "options"),
    [
        (Net, r"no submodule 'fc'; its heads may be 'head.3', 'head.0', 'head'", {"head": "fc"}),
        (Net, "no submodule ''", {"head": ""}),
        (Twice, "must run once each time the model runs in evaluation mode, got 2 times", {}),
        (Never, "got 0 times", {}),
        (lambda: Images(two_layers(16)), r"got shape \(100, 8, 16\); pool or flatten", {}),
        (lambda: Pooled(), r"for each of 100 targets, got shape \(1, 128\)", {}),
        (lambda: Dict(DictHead()), "must be fed a tensor, got a dict", {"hidden": (16,)}),
        (lambda: Net(nn.Sequential(nn.Linear(128, 30), nn.LayerNorm(30), nn.Linear(30, 10))), "LayerNorm", {}),
        (lambda: Net(nn.Sequential(nn.Flatten(), nn.Identity())), "at least one Linear layer", {}),
        (lambda: Net(nn.Linear(128, 10, bias=False)), "must have a bias", {}),
        (lambda: Net(nn.Linear(128, 10).requires_grad_(False)), "is frozen", {}),
        (lambda: Net(nn.Linear(128, 10, device="meta")), "'head.weight' without data", {}),
        (
            lambda: Net(nn.Sequential(nn.Linear(128, 30), nn.ReLU(), nn.Linear(30, 1), nn.ReLU(), nn.Linear(1, 10))),
            "hidden layer 1 needs a width of at least 2 to carry the outputs, got 1",
            {},
        ),
        (Net, "hidden must name at least one layer", {"hidden": ()}),
        (Net, "outputs is for a new head", {"outputs": 3}),
        (Net, "max_features must be at least 2, got 1", {"max_features": 1}),
        (Net, "fill must be one of", {"fill": "nothing"}),
    ],
)
def test_models_and_heads_that_cannot_be(digits, model, message, options):
    refuse(model(), message, (digits[0][:100], digits[1][:100]), **options)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda x, y: (x, y + 1), "labels must be 0 to 9, the outputs of the head, got 1 to 10"),
        (lambda x, y: (x, y - 1), "got -1 to 8"),
        (lambda x, y: (x, y * 0), "at least 2 classes, got one"),
        (lambda x, y: (x, y[:-1]), "as many inputs as targets, got 100 and 99"),
        (lambda x, y: (x, torch.where(y == 3, torch.nan, y.float())[:, None].expand(-1, 10)), "y must be finite"),
        (lambda x, y: (x, torch.randn(100, 4)), r"one column per output, here \(100, 10\), got \(100, 4\)"),
        (lambda x, y: (torch.where(x > 0.9, torch.nan, x), y), "features that enter 'head' must be finite"),
        (lambda x, y: DataLoader(TensorDataset(x[:0], y[:0])), "yields nothing"),
        (lambda x, y: (x[:0], y[:0]), "yields nothing"),
        (lambda x, y: DataLoader(TensorDataset(x), batch_size=50), "must yield pairs .* got 1 parts"),
        (lambda x, y: DataLoader(x, batch_size=50), "must yield pairs .* got Tensor"),
        (lambda x, y: 7, "tensors or a DataLoader of such pairs, got int"),
    ],
)
def test_data_that_cannot_be(digits, data, message):
    refuse(Net(), message, data(digits[0][:100], digits[1][:100]))


def test_errors_of_the_model_itself_come_through_and_leave_it_as_it_was(digits):
    model = Net()
    before = state(model)
    with pytest.raises(RuntimeError, match="channels"):
        kw.init_head_(model, "head", (torch.zeros(10, 3, 8, 8), digits[1][:10]))
    assert same(state(model), before)
    assert state(model)[2] == before[2]


def test_weights_that_the_model_uses_elsewhere_are_not_touched():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    with pytest.raises(NetworkError, match="must belong to the head alone"):
        kw.init_head_(model, "2", (torch.randn(50, 8), torch.randn(50, 8)))


def test_buffers_that_a_model_counts_in_are_put_back():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("runs", torch.zeros(()))
            self.head = nn.Linear(3, 1)

        def forward(self, x):
            self.runs = self.runs + 1
            return self.head(x)

    model = Counting()
    X = torch.randn(20, 3)
    kw.init_head_(model, "head", (X, X[:, 0]))
    assert model.runs == 0
