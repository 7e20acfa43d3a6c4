"""init_ on networks with BatchNorm, residual blocks, wrappers and ModuleLists."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import knotwork as kw
from knotwork.errors import NetworkError
from knotwork.network.start.trace import trace
from tests.network.start.architectures import ARCHITECTURES, BentInside, Block, Listed, ResNet, Wrapper

EVERY = pytest.mark.parametrize("name", ARCHITECTURES)


def data(rows=600, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    y = np.stack([np.abs(X[:, 0] - 0.3 * k) + np.maximum(X[:, 1], 0) - X[:, 2] for k in range(outputs)], axis=1)
    return X, y + 0.1 * rng.normal(size=y.shape)


def made(name, outputs=1, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return ARCHITECTURES[name](4, outputs).to(dtype)


def values(net, X):
    training = net.training
    with torch.no_grad():
        out = net.eval()(torch.tensor(X, dtype=next(net.parameters()).dtype))
    net.train(training)
    return out.double().numpy().reshape(len(X), -1)


def parts(spline, X):
    """What the documented bound is relative to: |β₀| + Σ|β_m|·h_m(x)."""
    return np.abs(spline.intercept) + np.abs(spline.basis(X)) @ np.abs(spline.coef)


def require_exact(net, spline, X, precision=1e-12):
    difference = np.abs(values(net, X) - spline(X).reshape(len(X), -1))
    assert (difference <= precision * (1 + parts(spline, X))).all(), difference.max()


@EVERY
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_module_is_the_spline_in_use(name, outputs):
    X, y = data(outputs=outputs)
    net = made(name, outputs)
    report = kw.init_(net, X, y, random_state=0)
    assert 1 - (y - report.spline(X).reshape(y.shape)).var() / y.var() > 0.9
    far = 100 * np.random.default_rng(1).normal(size=(200, 4))
    for rows in (X, far):
        require_exact(net, report.spline, rows)
    single = made(name, outputs, torch.float32)
    require_exact(single, kw.init_(single, X, y, random_state=0).spline, X, 2e-6)
    assert {p.dtype for p in single.parameters()} == {torch.float32}


@EVERY
def test_it_stays_the_spline_through_state_dicts_compilation_and_export(name):
    X, y = data()
    net = made(name)
    spline = kw.init_(net, X, y, random_state=0).spline
    net.eval()
    again = made(name, seed=1).eval()
    again.load_state_dict(net.state_dict())
    require_exact(again, spline, X)
    compiled = torch.compile(net, backend="aot_eager")
    require_exact(compiled, spline, X)
    torch._dynamo.reset()
    rows = torch.tensor(X[:8])
    dynamic = ({0: torch.export.Dim("rows", min=2)},) + ((None,) if name == "wrapper" else ())
    inputs = (rows, None) if name == "wrapper" else (rows,)
    exported = torch.export.export(net, inputs, dynamic_shapes=dynamic).module()
    with torch.no_grad():
        out = exported(torch.tensor(X), *inputs[1:]).numpy().reshape(len(X), -1)
    assert (np.abs(out - spline(X)[:, None]) <= 1e-12 * (1 + parts(spline, X))).all()


class Watch(TorchFunctionMode):
    """Counts the units that come to an activation, and those that are below zero on every row."""

    def __init__(self):
        super().__init__()
        self.units = self.dead = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("relu", "leaky_relu", "prelu"):
            self.units += args[0].shape[1]
            self.dead += int((args[0] <= 0).all(dim=0).sum())
        return func(*args, **(kwargs or {}))


@EVERY
def test_units_are_alive_and_all_weights_but_those_of_silent_branches_learn_at_once(name):
    X, y = data()
    net = made(name, dtype=torch.float32)
    kw.init_(net, X, y, random_state=0)
    with Watch() as watch:
        values(net, X)
    assert watch.units > 32
    assert watch.dead == 0
    # After a step the silent layers speak, and whatever stands before them has a gradient.
    rows, target = torch.tensor(X).float(), torch.tensor(y).float()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(2):
        optimiser.zero_grad()
        functional.mse_loss(net(rows).reshape(target.shape), target).backward()
        optimiser.step()
    for key, parameter in net.named_parameters():
        if "bias" not in key or "norm" not in key:  # what a BatchNorm takes off again
            assert parameter.grad.abs().sum() > 0, key


@EVERY
def test_a_plain_loop_keeps_the_start_and_learns(name):
    X, y = data(rows=1500)
    y = y + 0.7 * X[:, :1] * X[:, 1:2]  # more than an additive spline holds
    rows, target = torch.tensor(X).float(), torch.tensor(y).float()
    net = made(name, dtype=torch.float32)
    kw.init_(net, X[:1000], y[:1000], random_state=0)
    errors = []
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    order = torch.Generator().manual_seed(0)
    for _ in range(13):
        errors.append(float(np.sqrt(np.mean((values(net, X[1000:]) - y[1000:]) ** 2))))
        for batch in torch.randperm(1000, generator=order).split(125):
            optimiser.zero_grad()
            functional.mse_loss(net.train()(rows[batch]).reshape(-1, 1), target[batch]).backward()
            optimiser.step()
    assert max(errors[1:]) < 1.05 * errors[0]
    assert errors[-1] < errors[0]


@pytest.mark.parametrize("name", ["batch norm before the activation", "resnet", "listed"])
def test_batches_are_near_the_start_in_training(name):
    X, y = data(rows=2560)
    net = made(name)
    kw.init_(net, X, y, random_state=0)
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    start = values(net, X)[:, 0]
    with torch.no_grad():
        batches = torch.cat([net.train()(rows).reshape(-1) for rows in torch.tensor(X).split(128)]).numpy()
    # Means of 128 rows are off by 1/√128 = 0.09 stds, and no layer that normalises by them can do better.
    assert np.std(batches - start) < 2 * y.std() / np.sqrt(128)
    # 20 batches later the running statistics are those of the batches, and the module is still the spline, nearly.
    assert np.std(values(net, X)[:, 0] - start) < 0.05 * y.std()


@pytest.mark.parametrize("functional_dropout", [False, True])
def test_dropout_takes_parts_of_the_function_and_not_all_or_nothing(functional_dropout):
    X, y = data()

    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.linears = nn.ModuleList([nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, 1)])
            self.dropout = nn.Identity() if functional_dropout else nn.Dropout(0.2)

        def forward(self, x):
            for linear in self.linears[:-1]:
                x = self.dropout(torch.relu(linear(x)))
                x = functional.dropout(x, 0.2, self.training) if functional_dropout else x
            return self.linears[-1](x)

    net = Dropped().double()
    report = kw.init_(net, X, y, random_state=0)
    require_exact(net, report.spline, X)
    second = report.units[1]
    # Half of the spare units carry a share each; the others are new.
    assert (net.linears[-1].weight[0] != 0).sum() == second * (1 + (64 - second) // 2 // second)
    torch.manual_seed(0)
    with torch.no_grad():
        noise = (net.train()(torch.tensor(X)).numpy() - values(net, X)).std()
    # Each value dropped at once, as in two units that carry all of it, would be a noise of half of the values' size.
    assert noise < 0.35 * np.sqrt(np.mean(report.spline(X) ** 2))


def test_a_batch_norm_in_front_does_the_scaling():
    X, y = data()
    X = X * [1e-2, 1.0, 1e5, 30.0] + [0.0, 500.0, 1e5, -20.0]
    net = made("batch norm behind the activation", dtype=torch.float32)
    report = kw.init_(net, X, y, random_state=0)
    assert report.max_difference < 1e-3
    assert (net[1].weight.abs().amax(dim=0) < 10).all()
    torch.testing.assert_close(net[0].running_mean.double(), torch.tensor(X.mean(axis=0)), rtol=1e-6, atol=0)
    assert net[0].weight.eq(1).all()


def test_a_layer_that_averages_over_all_batches_does_not_forget_the_data_at_the_first():
    X, y = data(rows=1280)
    net = made("batch norm before the activation")
    kw.init_(net, X, y, random_state=0)
    before = net[4].running_mean.clone()
    net.train()(torch.tensor(X[:20]))
    assert net[4].num_batches_tracked == 11
    assert ((net[4].running_mean - before).abs() <= 0.1 * (net[4].running_var.sqrt() + before.abs())).all()


def test_classes_go_through_residual_blocks_too():
    X, _ = data()
    labels = np.where(X[:, 0] + np.abs(X[:, 1]) > 0.7, "high", "low")
    net = made("resnet", outputs=2)
    report = kw.init_(net, X, labels, random_state=0)
    assert report.classes == ("high", "low")
    require_exact(net, report.spline, X)
    assert (np.array(report.classes)[values(net, X).argmax(axis=1)] == labels).mean() > 0.9


class Derived(nn.Sequential):
    """A Sequential that does more than run its layers."""

    def forward(self, x):
        return 2 * super().forward(x)


def tied():
    net = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)
    )
    net[4].weight = net[2].weight
    return net


def twice():
    middle = nn.Linear(8, 8)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), middle, nn.ReLU(), middle, nn.ReLU(), nn.Linear(8, 1))


def hooked():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    net[1].register_forward_hook(lambda module, inputs, out: out + 1)
    return net


class EndsWithActivation(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.inner, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = torch.relu(self.stem(x))
        return self.head(h + torch.relu(self.inner(h)))


class Concatenated(EndsWithActivation):
    def forward(self, x):
        h = torch.relu(self.stem(x))
        return self.head(torch.cat([h[:, :4], torch.relu(self.inner(h))[:, :4]], dim=1))


REFUSED = {
    "a derived Sequential": (lambda: Derived(*hooked()[:0], nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), "off by"),
    "a hook": (hooked, "off by"),
    "tied weights": (tied, "'2' is used twice or shares them; kw.with_spline"),
    "a layer in two places": (twice, "'2' is used twice or shares them; kw.with_spline"),
    "half precision": (lambda: made("resnet", dtype=torch.float16), "float32 or float64, got torch.float16; init"),
    "bfloat16": (lambda: made("listed", dtype=torch.bfloat16), "float32 or float64, got torch.bfloat16; init"),
    "layer norm on the way": (lambda: ResNet(4, 1, last=nn.LayerNorm), "got LayerNorm at 'head.0'; kw.with_spline"),
    "layer norm where the spline must bend": (
        lambda: BentInside(4, 1, nn.LayerNorm), "got LayerNorm at 'blocks.0.norm'; kw.with_spline"),
    "a branch that ends with ReLU": (EndsWithActivation, "must end with a Linear or a BatchNorm1d.* got relu; kw.with"),
    "a concatenation": (Concatenated, r"got cat\(\) of several in its forward; kw.with_spline"),
    "lazy layers": (lambda: nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 1)), "'0.weight' without data"),
    "no bias and no norm": (
        lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 1)), "'0' must have a bias"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_hold_a_spline_is_refused_and_left_alone(name):
    make, message = REFUSED[name]
    net = make()
    X, y = data()
    before = {} if name == "lazy layers" else copy.deepcopy(net.state_dict())
    with pytest.raises(NetworkError, match=message):
        kw.init_(net, X, y)
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in before.items())
    assert net.training


def test_a_hook_that_only_looks_is_no_obstacle():
    X, y = data()
    net, seen = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).double(), []
    net[1].register_forward_hook(lambda module, inputs, out: seen.append(out.shape))
    require_exact(net, kw.init_(net, X, y).spline, X)
    assert seen


def test_a_stream_too_narrow_for_features_and_outputs_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 32))
    with pytest.raises(NetworkError, match=r"as wide as .* 32 \+ 1, got 32; make it wider, or kw.with_spline"):
        kw.init_(BentInside(32, 1), X, X[:, 0])


def test_a_forward_that_fx_cannot_read_is_run_instead():
    class Choosy(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 16), nn.Linear(16, 1)

        def forward(self, x):
            if x.dim() > 2:
                x = x.flatten(1)
            return self.second(torch.relu(self.first(x)))

    X, y = data()
    net = Choosy().double()
    assert trace(net) is None
    require_exact(net, kw.init_(net, X, y).spline, X)


@pytest.mark.parametrize("name", ["resnet", "listed"])
def test_a_compiled_module_is_set_through_its_wrapper(name):
    X, y = data()
    net = made(name)
    compiled = torch.compile(net, backend="eager")
    if name == "resnet":  # what it wraps cannot be read through it, and BatchNorms are out of reach
        with pytest.raises(NetworkError, match="BatchNorm1d"):
            kw.init_(compiled, X, y)
    spline = kw.init_(net, X, y, random_state=0).spline
    require_exact(compiled, spline, X)
    torch._dynamo.reset()


def test_units_of_a_branch_that_no_row_reaches_are_turned_over():
    X, y = data()
    net = made("resnet")
    with torch.no_grad():
        net.blocks[0].first.bias.fill_(-1e3)
    kw.init_(net, X, y, random_state=0)
    assert (net.blocks[0].first.bias == 1e3).all()


def test_frozen_layers_inside_a_branch_stay_as_they_are():
    X, y = data()
    net = made("resnet")
    net.blocks[0].first.requires_grad_(False)
    with torch.no_grad():
        net.blocks[0].first.bias.fill_(-1e3)
    kw.init_(net, X, y, random_state=0)
    assert (net.blocks[0].first.bias == -1e3).all()


@pytest.mark.parametrize("library", [pd, pl])
def test_data_frames_are_encoded_as_the_estimators_do(library):
    X, y = kw.datasets.load_abalone()
    frame = X if library is pd else pl.from_pandas(X)
    net = nn.Sequential(kw.Scaling.of(frame), Listed(10, 1), kw.Scaling.back_to(y)).double()
    report = kw.init_(net, frame, y, random_state=0)
    model = kw.MarsRegressor().fit(X, y)
    for ours, theirs in zip(report.encoder.columns, model.encoder_.columns, strict=True):
        if hasattr(ours, "fill"):  # a mean of held values; the order of summation may differ
            assert ours.fill == pytest.approx(theirs.fill, rel=1e-14)
            ours = replace(ours, fill=theirs.fill)
        assert ours == theirs
    assert report.spline.limits == model.limits_
    assert report.spline.feature_names == report.encoder.feature_names
    require_exact(net, report.spline, report.encoder.encode(frame))
    with pytest.raises(NetworkError, match=r"takes 4 features, got X of shape \(4177, 10\) once .* \(Sex=F, Sex=I"):
        kw.init_(Listed(4, 1), frame, y)


def test_arrays_have_no_encoder():
    X, y = data()
    assert kw.init_(Wrapper(ResNet(4, 1)), X, y).encoder is None


def test_a_block_alone_is_traced_along_its_skip():
    steps = trace(nn.Sequential(nn.Linear(4, 8), Block(8), nn.ReLU(), nn.Linear(8, 1))).steps
    assert [step.kind.value for step in steps] == ["linear", "sum", "activation", "linear"]
    assert [step.name for step in steps[1].branch] == ["1.norm", "1.first", "relu", "1.second"]
