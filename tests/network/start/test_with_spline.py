"""with_spline: any module plus a spline."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import knotwork as kw
from knotwork.errors import DataError, NetworkError
from knotwork.network.start.with_spline import WithSpline
from tests.network.start.architectures import Block, ResNet

FEATURES = 5


class Transformer(nn.Module):
    """A token for every column, and one more that answers."""

    def __init__(self, outputs, width=16):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(FEATURES, width) / 4)
        self.bias = nn.Parameter(torch.randn(FEATURES, width) / 4)
        self.answer = nn.Parameter(torch.randn(1, 1, width) / 4)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        tokens = torch.cat([x[:, :, None] * self.weight + self.bias, self.answer.expand(x.shape[0], 1, -1)], dim=1)
        return self.head(self.encoder(tokens)[:, -1])


class Members(nn.Module):
    """An ensemble in one module: (N, d) → (N, members, outputs)."""

    def __init__(self, outputs, members=4):
        super().__init__()
        self.members = nn.ModuleList([nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, outputs))
                                      for _ in range(members)])  # fmt: skip

    def forward(self, x):
        return torch.stack([member(x) for member in self.members], dim=1)


def tabm(outputs):
    package = pytest.importorskip("tabm", reason="needs the package tabm")
    return package.TabM.make(n_num_features=FEATURES, cat_cardinalities=[], d_out=outputs, k=4, n_blocks=2, d_block=16)


def layer_norm(outputs):
    return nn.Sequential(nn.Linear(FEATURES, 32), Block(32, nn.LayerNorm), Block(32, nn.LayerNorm), nn.LayerNorm(32),
                         nn.GELU(), nn.Linear(32, outputs))  # fmt: skip


def flat(outputs):
    last = nn.Flatten(0) if outputs == 1 else nn.Identity()
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Sigmoid(), nn.Linear(16, outputs), last)


# What makes a module for so many outputs, and what reduces its output to (N, outputs).
MODULES = {
    "layer norm and residual blocks": (layer_norm, None),
    "batch norm and residual blocks": (lambda p: ResNet(FEATURES, p), None),
    "transformer over columns": (Transformer, None),
    "members": (Members, 1),
    "members by a function": (Members, lambda out: out.mean(dim=1)),
    "tabm": (tabm, 1),
    "one number a row": (flat, None),
}
EVERY = pytest.mark.parametrize("name", MODULES)


def data(rows=1200, seed=0):
    """Columns and a response in raw units: dollars, counts, 1e-6 concentrations."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, FEATURES))
    z[0, 0] = 40.0  # an outlier
    y = 1e5 * (np.abs(z[:, 1]) + np.maximum(z[:, 2], 0) - 0.5 * z[:, 3] + 0.5 * z[:, 3] * z[:, 4]) + 3e5
    X = z * [1.0, 1e4, 1e-6, 30.0, 2.0] + [0.0, 5e4, 0.0, 2000.0, -3.0]
    return X, y + 1e4 * rng.normal(size=rows)


@pytest.fixture(scope="module")
def fitted():
    X, y = data()
    return kw.MarsRegressor().fit(X[:900], y[:900])


def made(name, model, outputs=1, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    make, reduce = MODULES[name]
    return kw.with_spline(make(outputs).to(dtype), model, reduce=reduce, **options)


def values(net, X):
    training = net.training
    with torch.no_grad():
        out = net.eval()(torch.from_numpy(X)).double().numpy()
    net.train(training)
    return out


def parts(spline, X):
    return np.abs(spline.intercept) + np.abs(spline.basis(X)) @ np.abs(spline.coef)


def require_exact(out, spline, X, precision=1e-12):
    assert out.shape == (len(X), spline.intercept.size)
    difference = np.abs(out - spline(X).reshape(out.shape))
    # The spline takes raw rows: a column's mean of 2000/30 stds takes as many digits off lines and hinges.
    assert (difference <= 100 * precision * parts(spline, X)).all(), (difference / parts(spline, X)).max()


@EVERY
def test_it_begins_as_the_spline_inside_and_far_outside_the_data(name, fitted):
    X, _ = data()
    net = made(name, fitted)
    far = X.mean(axis=0) + 1e3 * (X - X.mean(axis=0))
    for rows in (X, far):
        require_exact(values(net, rows), fitted.spline_, rows)
        same = kw.to_network(fitted, dtype=torch.float64)
        assert np.array_equal(values(net, rows), values(same, rows))
    assert np.array_equal(values(made(name, fitted, dtype=torch.float32), X), values(kw.to_network(fitted), X))


def exported(name, net, X):
    """Export for any number of rows, and run the program on these; tabm's own forward fixes the number."""
    rows = torch.from_numpy(X)
    if name == "tabm":
        program = torch.export.export(net, (rows,))
    else:
        program = torch.export.export(net, (rows[:8],), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},))
    with torch.no_grad():
        return program.module()(rows).numpy()


@EVERY
def test_it_stays_the_spline_through_state_dicts_compilation_and_export(name, fitted):
    X, _ = data()
    net = made(name, fitted).eval()
    other = kw.MarsRegressor(max_terms=3).fit(*data(seed=1))
    again = made(name, fitted, seed=1).eval()
    again.load_state_dict(net.state_dict())
    require_exact(values(again, X), fitted.spline_, X)
    with pytest.raises(RuntimeError, match="size mismatch"):
        made(name, other).load_state_dict(net.state_dict())
    compiled = torch.compile(net, backend="aot_eager")
    require_exact(values(compiled, X), fitted.spline_, X)
    torch._dynamo.reset()
    require_exact(exported(name, net, X), fitted.spline_, X)


@EVERY
def test_the_trained_sum_survives_the_same(name, fitted):
    X, y = data()
    net = made(name, fitted)
    loop(net, X[:900], y[:900], epochs=1)
    net.eval()
    expected = values(net, X)
    assert np.abs(expected - fitted.spline_(X)[:, None]).max() > 1
    again = made(name, fitted, seed=1)
    again.load_state_dict(net.state_dict())
    np.testing.assert_allclose(values(again, X), expected, rtol=1e-12)
    np.testing.assert_allclose(exported(name, net, X), expected, rtol=1e-9)
    np.testing.assert_allclose(values(torch.compile(net, backend="aot_eager"), X), expected, rtol=1e-9)
    torch._dynamo.reset()


def loop(net, X, y, epochs, learning_rate=1e-3):
    """The plainest loop there is; returns the errors on other rows, epoch 0 first."""
    other, truth = data(seed=2)
    dtype = net(torch.from_numpy(X[:2])).dtype
    rows, target = torch.from_numpy(X), torch.from_numpy(y)[:, None].to(dtype)
    optimiser = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=learning_rate)
    order = torch.Generator().manual_seed(0)

    def error():
        return float(np.sqrt(np.mean((values(net, other)[1:, 0] - truth[1:]) ** 2)))

    errors = [error()]
    for _ in range(epochs):
        for batch in torch.randperm(len(X), generator=order).split(100):
            optimiser.zero_grad()
            functional.mse_loss(net.train()(rows[batch]), target[batch]).backward()
            optimiser.step()
        errors.append(error())
    return errors


@EVERY
@pytest.mark.parametrize("freeze", [False, True])
def test_a_plain_loop_on_raw_units_keeps_the_start_and_learns(name, freeze, fitted):
    X, y = data()
    net = made(name, fitted, dtype=torch.float32, freeze=freeze)
    errors = loop(net, X[:900], y[:900], epochs=25)
    assert max(errors[1:11]) <= 1.02 * errors[0]
    assert errors[-1] < errors[0]
    assert np.array_equal(values(net.spline, X), values(kw.to_network(fitted), X)) == freeze


def test_both_parts_train_and_a_frozen_spline_does_not(fitted):
    X, y = data()
    for freeze in (False, True):
        net = made("layer norm and residual blocks", fitted, freeze=freeze)
        before = copy.deepcopy(net.state_dict())
        loop(net, X[:900], y[:900], epochs=1)
        moved = {
            key.partition(".")[0] for key, value in net.state_dict().items() if not torch.equal(value, before[key])
        }
        assert moved == ({"gate", "module"} if freeze else {"gate", "module", "spline"})


def test_the_module_is_copied_and_everything_about_it_stays(fitted):
    module = layer_norm(1).eval()
    module[0].weight.requires_grad_(False)
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    net = kw.with_spline(module, fitted)
    assert torch.equal(torch.get_rng_state(), state)
    assert not net.training
    assert not net.module.training
    assert not net.module[0].weight.requires_grad
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_the_module_sees_standardised_rows_and_counts_in_stds_of_the_response(fitted):
    X, y = data()
    seen = []

    class Ones(nn.Module):
        def forward(self, x):
            seen.append(x)
            return torch.ones(len(x), 1, dtype=x.dtype)

    net = kw.with_spline(Ones(), fitted)
    start = values(net, X)
    rows = seen[-1].double()[1:]
    c = fitted.fit_.coordinates
    assert (rows[1:].mean(dim=0).abs() < 0.2).all()
    assert (rows.std(dim=0)[1:] - 1).abs().max() < 0.15
    assert seen[-1].abs().max() < 3 + np.log1p(40)
    with torch.no_grad():
        net.gate.fill_(0.5)
    np.testing.assert_allclose(values(net, X) - start, np.full((len(X), 1), 0.5 * c.y_scale[0]), rtol=1e-4)
    assert c.y_scale[0] == pytest.approx(y[:900].std(), rel=1e-6)


def test_several_outputs_have_a_gate_each():
    X, y = data()
    model = kw.MarsRegressor().fit(X, np.stack([y, -2 * y], axis=1))
    net = made("members", model, outputs=2)
    assert net.gate.shape == (2,)
    require_exact(values(net, X), model.spline_, X)


def test_logits_of_classifiers_are_added_to():
    X, y = data()
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    model = kw.MarsClassifier().fit(X, labels)
    net = made("transformer over columns", model, outputs=3)
    np.testing.assert_allclose(values(net, X), model.decision_function(X), atol=1e-9)
    assert net.unit.tolist() == [1.0, 1.0, 1.0]
    optimiser, rows, target = torch.optim.Adam(net.parameters(), lr=1e-3), torch.from_numpy(X), torch.tensor(labels)
    losses = []
    for _ in range(20):
        loss = functional.cross_entropy(net(rows), target)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < losses[0]
    assert max(losses) <= 1.01 * losses[0]


def test_frames_networks_and_splines_work_as_models(fitted):
    X, y = kw.datasets.load_abalone()
    model = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=1, random_state=0).fit(X, y)
    net = kw.with_spline(nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1)), model)
    rows = net.conversion.encoder.encode(X)
    np.testing.assert_allclose(values(net, rows)[:, 0], model.predict(X), rtol=1e-5)
    raw, _ = data()
    for source in (fitted.spline_, kw.to_network(fitted)):
        require_exact(values(kw.with_spline(layer_norm(1).double(), source), raw), fitted.spline_, raw, 1e-6)


def test_distributed_training_takes_it(fitted, tmp_path):
    X, y = data()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        for freeze in (False, True):
            net = nn.parallel.DistributedDataParallel(made("layer norm and residual blocks", fitted, freeze=freeze))
            require_exact(values(net, X), fitted.spline_, X)
            errors = loop(net, X[:900], y[:900], epochs=3)
            assert max(errors) <= 1.01 * errors[0]
    finally:
        torch.distributed.destroy_process_group()


def test_train_takes_it_and_is_never_worse_on_its_validation_rows(fitted):
    X, y = data()
    net = made("layer norm and residual blocks", fitted, dtype=torch.float32)
    history = kw.train(net, X[:900], y[:900], validation=(X[900:], y[900:]), epochs=5, random_state=0)
    assert min(history.validation_loss) <= history.validation_loss[0]


def test_what_does_not_take_it_says_so_in_one_sentence(fitted, tmp_path):
    X, y = data()
    net = made("layer norm and residual blocks", fitted)
    with pytest.raises(DataError, match=r"got WithSpline; .*torch.save\(net.state_dict\(\)"):
        kw.save(net, tmp_path / "net")
    for function in (kw.explain, kw.reshape, kw.fold):
        with pytest.raises(
            NetworkError, match=r"an nn.Sequential of Linear and activation, got WithSpline; .*net\.spline"
        ):
            function(net)
    assert kw.explain(net.spline, X, y).importances is not None


def test_what_is_not_finite_at_first_does_no_harm(fitted):
    X, _ = data()
    net = made("layer norm and residual blocks", fitted, dtype=torch.float32)
    with torch.no_grad():
        net.module[-1].weight.fill_(1e30)
    assert np.isfinite(values(net, X)).all()


def test_values_far_outside_are_limited_in_order_and_smoothly():
    from knotwork.network.start.with_spline import limited

    z = torch.linspace(-50, 50, 2001, dtype=torch.float64, requires_grad=True)
    out = limited(z)
    out.sum().backward()
    inside = z.abs() <= 3
    assert torch.equal(out[inside], z[inside])
    assert (out.diff() > 0).all()
    assert out.abs().max() < 7
    assert (z.grad[inside] == 1).all()
    assert (z.grad.diff().abs() < 0.05).all()


class Two(nn.Linear):
    def __init__(self):
        super().__init__(5, 1)

    def forward(self, x):
        out = super().forward(x)
        return out, x


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (lambda: "net", {}, "module must be an nn.Module, got str"),
        (lambda: nn.Linear(4, 1), {}, r"must take rows of shape \(N, 5\).* it failed with RuntimeError"),
        (lambda: nn.Linear(5, 2), {}, r"must give \(N, 1\), one column per output .* got \(2, 2\) for 2 rows; reduce="),
        (lambda: Members(1), {}, r"must give \(N, 1\).* got \(2, 4, 1\) for 2 rows; reduce= takes the axes"),
        (lambda: Members(1), {"reduce": 0}, "reduce must be an axis behind the rows.* got 0; reduce=1 averages"),
        (lambda: Members(1), {"reduce": "mean"}, "reduce must be an axis behind the rows.* got 'mean'"),
        (lambda: Members(1), {"reduce": 3}, "reduce must name axes behind the rows.*, here 2 of them, got 3"),
        (lambda: Members(2), {"reduce": (1, -3)}, "reduce must name axes behind the rows.*, here 2 of them, got 1, -3"),
        (lambda: Members(1), {"reduce": torch.argmax}, r"must give \(N, 1\).* got \(\)"),
        (lambda: Members(1), {"reduce": lambda out: out @ out}, r"reduce must make \(N, 1\).* it failed with Runtime"),
        (lambda: Two(), {}, "must give one tensor, got tuple; reduce= takes a function"),
        (lambda: nn.Linear(5, 1, device="meta"), {}, "must hold its weights, got some on the meta device"),
    ],
)
def test_what_does_not_fit_is_refused(module, options, message, fitted):
    with pytest.raises(NetworkError, match=message):
        kw.with_spline(module(), fitted, **options)


def test_a_function_takes_the_tensor_out_of_what_a_module_gives(fitted):
    X, _ = data()
    net = kw.with_spline(Two(), fitted, reduce=lambda parts: parts[0])
    np.testing.assert_array_equal(values(net, X), values(kw.to_network(fitted), X))


def test_a_folded_network_works_as_a_model(fitted):
    X, _ = data()
    bare = kw.to_network(fitted, fold=True)
    net = kw.with_spline(layer_norm(1), bare)
    rows = torch.from_numpy(X).float()
    assert torch.equal(net(rows), bare(rows))


def test_responses_far_from_zero_are_resolved_beside_a_module_of_single_precision():
    X, y = data()
    model = kw.MarsRegressor().fit(X, y / y.std() + 1e7)
    net = kw.with_spline(layer_norm(1), model)
    assert {p.dtype for p in net.module.parameters()} == {torch.float32}
    np.testing.assert_array_equal(values(net, X), values(kw.to_network(model), X))
    assert np.abs(values(net, X)[:, 0] - model.predict(X)).max() < 1e-6
    history = kw.train(net, X, y / y.std() + 1e7, epochs=2, random_state=0)
    assert min(history.validation_loss) <= history.validation_loss[0]


def test_models_that_are_no_network_are_refused():
    with pytest.raises(NetworkError, match="is not fitted; fit it first"):
        kw.with_spline(nn.Linear(5, 1), kw.MarsRegressor())
    product = kw.Product((kw.Hinge(0, 0.0, 1), kw.Hinge(1, 0.0, 1)))
    with pytest.raises(NetworkError, match="product"):
        kw.with_spline(nn.Linear(2, 1), kw.Spline((product,), [0.0], [[1.0]], ("a", "b")))


def test_it_is_one_module_with_readable_parts(fitted):
    net = made("members", fitted)
    assert isinstance(net, WithSpline)
    assert {name for name, _ in net.named_children()} == {"spline", "scaling", "module"}
    assert net.conversion.encoder is not None
    torch.manual_seed(0)
    moved = copy.deepcopy(net).float()
    assert moved.scaling.centre.dtype == torch.float64
    assert moved.gate.dtype == moved.unit.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_module_of_half_precision_has_a_precise_spline_beside_it(dtype, fitted):
    X, y = data()
    net = made("layer norm and residual blocks", fitted, dtype=dtype)
    assert np.array_equal(values(net, X), values(kw.to_network(fitted), X))
    assert {p.dtype for p in net.module.parameters()} == {dtype}
    errors = loop(net, X[:900], y[:900], epochs=2)
    assert max(errors) <= 1.01 * errors[0]
