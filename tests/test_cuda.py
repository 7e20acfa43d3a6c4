"""Networks on a GPU: the same results as on the CPU, up to single precision. Skipped where there is none."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn

import knotwork as kw
from knotwork.compute.workers import Workers
from knotwork.network.train import loop
from knotwork.spline.device import DeviceTable
from knotwork.spline.knots import default_spans
from knotwork.spline.moments import torch_histograms
from tests.estimators import test_torch_backend as torch_backend

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")


def test_a_regressor_trains_on_the_gpu_as_on_the_cpu():
    X, y = kw.datasets.load_wine_quality("red")
    models = {
        device: kw.SplineNetRegressor(n_members=1, hidden=(64, 64), epochs=10, device=device, random_state=0).fit(X, y)
        for device in ("cpu", "cuda")
    }
    assert {p.device.type for p in models["cuda"].network_.parameters()} == {"cuda"}
    losses = {device: model.history_.validation_loss for device, model in models.items()}
    np.testing.assert_allclose(losses["cuda"][0], losses["cpu"][0], rtol=1e-4)
    np.testing.assert_allclose(losses["cuda"][5], losses["cpu"][5], rtol=2e-2)
    assert models["cuda"].predict(X).shape == (len(X),)


def test_a_saved_network_of_the_gpu_loads_anywhere(tmp_path):
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=2, device="cuda", random_state=0).fit(X, y)
    kw.save(model, tmp_path / "model")
    np.testing.assert_allclose(kw.load(tmp_path / "model").predict(X), model.predict(X), rtol=1e-6)


def test_a_classifier_trains_on_the_gpu():
    X, y = load_breast_cancer(return_X_y=True)
    model = kw.SplineNetClassifier(n_members=1, hidden=(64, 64), epochs=5, device="cuda", random_state=0).fit(X, y)
    losses = model.history_.validation_loss
    assert losses[model.history_.best_epoch] <= losses[0]
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_init_keeps_device_and_dtype(dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = np.abs(X[:, 0]) + np.maximum(X[:, 1], 0)
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)).to("cuda", dtype)
    report = kw.init_(net, torch.from_numpy(X).to("cuda", dtype), torch.from_numpy(y).to("cuda"), random_state=0)
    assert {(p.device.type, p.dtype) for p in net.parameters()} == {("cuda", dtype)}
    assert report.max_difference < (1e-9 if dtype == torch.float64 else 1e-3)


def test_train_works_where_the_network_is():
    X, y = kw.datasets.load_wine_quality("red")
    net = kw.reshape(kw.to_network(kw.MarsRegressor().fit(X, y), fold=False), (64, 64), random_state=0).to("cuda")
    history = kw.train(net, X.to_numpy(), y.to_numpy(), epochs=5, random_state=0)
    assert history.validation_loss[history.best_epoch] <= history.validation_loss[0]
    assert {p.device.type for p in net.parameters()} == {"cuda"}


def test_scaling_goes_where_the_network_goes_and_stays_in_double_precision():
    X = 1e8 + np.random.default_rng(0).normal(size=(300, 3))
    model = kw.MarsRegressor().fit(X, np.abs(X[:, 0] - 1e8))
    net = kw.to_network(model)
    expected = net(torch.tensor(X)).detach()
    net = net.to("cuda").half().float()
    for layer in (net[0], net[-1]):
        assert {(b.device.type, b.dtype) for b in (layer.centre, layer.scale)} == {("cuda", torch.float64)}
    net.load_state_dict(kw.to_network(model).state_dict())  # half() rounded the weights
    torch.testing.assert_close(net(torch.tensor(X, device="cuda")).cpu().detach(), expected, atol=1e-5, rtol=0)
    assert {p.device.type for p in kw.fold(net).parameters()} == {"cuda"}
    torch.testing.assert_close(net.cpu()(torch.tensor(X)).detach(), expected, atol=0, rtol=0)


def test_a_head_is_set_where_the_model_is():
    X, y = load_digits(return_X_y=True)
    images, labels = torch.tensor(X).float().reshape(-1, 1, 8, 8) / 16, torch.tensor(y)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
        nn.Sequential(nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10)),
    ).to("cuda")  # fmt: skip
    before = {name: value.clone() for name, value in model.state_dict().items() if not name.startswith("4.")}
    report = kw.init_head_(model, "4", (images, labels), random_state=0)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    model.eval()
    assert (model(images.to("cuda")).argmax(1).cpu() == labels).float().mean() > 0.95
    assert report.max_difference < 1e-2


@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_recorded_steps_are_the_steps_one_by_one(monkeypatch, kind):
    X, y = kw.datasets.load_wine_quality("red")
    estimator = kw.SplineNetRegressor if kind == "regression" else kw.SplineNetClassifier
    settings = {"hidden": (32, 32), "epochs": 4, "device": "cuda", "random_state": 0}
    recorded = estimator(**settings).fit(X, y).history_
    monkeypatch.setattr(loop, "draws", lambda net: True)  # such networks are never recorded
    one_by_one = estimator(**settings).fit(X, y).history_
    assert recorded.validation_loss != [recorded.validation_loss[0]] * 5
    np.testing.assert_allclose(recorded.validation_loss, one_by_one.validation_loss, rtol=1e-3)
    np.testing.assert_allclose(recorded.train_loss, one_by_one.train_loss, rtol=1e-3)


def test_a_network_with_batch_norm_is_recorded_with_its_statistics(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4))
    y = np.abs(X[:, 0]) + np.maximum(X[:, 1], 0)

    def trained():
        torch.manual_seed(0)
        layers = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
        net = nn.Sequential(*layers).to("cuda")
        kw.train(net, X, y, epochs=3, random_state=0)
        return net.state_dict()

    recorded = trained()
    monkeypatch.setattr(loop, "draws", lambda net: True)
    for name, value in trained().items():
        torch.testing.assert_close(recorded[name], value, rtol=1e-3, atol=1e-4, msg=name)


def test_a_spline_of_tensors_on_the_gpu_equals_that_of_arrays():
    X, y = torch_backend.rows()
    expected = kw.MarsRegressor().fit(X, y)
    table = torch.from_numpy(X).cuda()
    model = kw.MarsRegressor().fit(table, torch.from_numpy(y).cuda())
    assert model.spline_.terms == expected.spline_.terms
    found = model.predict(table)
    assert found.device.type == "cuda"
    np.testing.assert_allclose(found.cpu().numpy(), expected.predict(X), atol=1e-9)
    again = kw.MarsRegressor().fit(table, torch.from_numpy(y).cuda())
    assert again.spline_ == model.spline_  # bit for bit
    torch_backend.check_refusals(X, y, lambda values: torch.from_numpy(values).cuda())


def test_weights_count_on_the_gpu():
    X, y = torch_backend.rows()
    weight = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    expected = kw.MarsRegressor().fit(X, y, sample_weight=weight)
    model = kw.MarsRegressor().fit(*(torch.from_numpy(v).cuda() for v in (X, y, weight)))
    assert model.spline_.terms == expected.spline_.terms
    np.testing.assert_allclose(model.predict(X), expected.predict(X), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_kernels_give_what_plain_torch_gives(monkeypatch, dtype, weighted):
    X, y = torch_backend.rows(n=20_000)
    table, responses = torch.from_numpy(X).to("cuda", dtype), np.column_stack([y, X[:, 3] ** 0.5])
    weights = np.random.default_rng(2).random(len(X)) if weighted else None
    models = []
    for kernels in (True, False):
        monkeypatch.setattr(torch_histograms, "KERNELS", kernels)
        models.append(kw.MarsRegressor().fit(table, torch.from_numpy(responses).cuda(), sample_weight=weights))
    one, other = models
    assert one.spline_.terms == other.spline_.terms
    found, expected = (model.predict(table).cpu().numpy() for model in models)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert one.rss_ == pytest.approx(other.rss_, rel=1e-12)
    for a, b in zip(one.knots_, other.knots_, strict=True):
        assert (a.feature, a.value, a.count) == (b.feature, b.value, b.count)
        np.testing.assert_array_equal(a.rows, b.rows)


@pytest.mark.parametrize("max_knots", [3, 255, 1000])
def test_kernels_sum_every_row_once(max_knots):
    """Bins and sums of a table on the GPU against those of the same table in memory, few bins and many."""
    X, y = torch_backend.rows(n=20_000)
    X = np.column_stack([X, np.full(len(X), 7.0)])  # a constant has one bin
    weights = np.random.default_rng(2).random(len(X))
    parts = []
    for place in ("cpu", "cuda"):
        given = (torch.from_numpy(v).to(place) for v in (X, y[:, None], weights))
        with Workers(1) as workers:
            table = DeviceTable(*given, workers)
            grid = table.candidates(default_spans(len(X), X.shape[1], None, None), max_knots, clip=True)
            parts.append(table.sums(grid, 21, "auto"))
    cpu, gpu = parts
    assert gpu._histograms.kernels
    assert torch.equal(cpu._histograms.codes, gpu._histograms.codes.cpu())
    for feature in (3, 0, 1, 2, 4):
        torch.testing.assert_close(gpu._strip(feature).cpu(), cpu._strip(feature), rtol=0, atol=1e-6)
    for name in ("mass", "sums", "norms", "cross", "responses"):
        np.testing.assert_allclose(getattr(gpu.opening(), name), getattr(cpu.opening(), name), rtol=1e-9, atol=1e-6)
