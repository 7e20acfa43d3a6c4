from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from torch import nn

import knotwork as kw
from knotwork import Hinge, Linear, Spline
from knotwork.errors import DataError, NetworkError
from knotwork.network.chain import read_chain
from knotwork.network.compile.units import count_units

# What the layers of a network hold is easiest to say of a folded one; tests of the scaling say fold=False.
to_network = partial(kw.to_network, fold=True)

DOUBLE, SINGLE = 1e-12, 1e-6

# Activation and slope of its negative side.
EXACT = [
    ("relu", 0.0),
    ("leaky_relu", 0.01),
    ("prelu", 0.25),
    (nn.LeakyReLU(0.9), 0.9),
    (nn.LeakyReLU(3.0), 3.0),
    (nn.LeakyReLU(-0.5), -0.5),
    (nn.LeakyReLU(-20.0), -20.0),
    (nn.PReLU(init=-0.125), -0.125),
    (nn.ELU(alpha=0.0), 0.0),
]
SMOOTH = [
    "softplus", nn.Softplus(beta=3, threshold=5), "silu", "gelu", nn.GELU(approximate="tanh"),
    "elu", nn.ELU(alpha=2.5), nn.ELU(alpha=-0.5),
]  # fmt: skip
BOXED = ["relu6", "hardtanh", nn.Hardtanh(0.0, 1.0), nn.Hardtanh(-3.0, 0.5)]


class Case:
    """A spline and points for it: inside and far outside the data, and at the knots."""

    def __init__(self, seed, terms, features, outputs):
        self.rng = rng = np.random.default_rng(seed)
        self.scale = 10 ** rng.uniform(-6, 6, features)
        self.centre = self.scale * rng.choice([0.0, 1.0, 100.0], features) * rng.normal(size=features)
        feature = rng.integers(features, size=terms)
        knot = self.centre[feature] + self.scale[feature] * rng.normal(size=terms)
        knot[rng.random(terms) < 0.1] = 0.0
        again = rng.random(terms) < 0.2
        feature[again], knot[again] = feature[0], knot[0]
        kind = rng.choice([-1, 0, 1], terms)
        size = 10 ** rng.uniform(-6, 6, (terms, outputs)) * rng.choice([-1, 1], (terms, outputs))
        size[rng.random(terms) < 0.05] = 0.0
        places = [v.tolist() for v in (feature, knot, kind)]
        self.spline = Spline(
            tuple(Hinge(f, t, s) if s else Linear(f) for f, t, s in zip(*places, strict=True)),
            rng.normal(size=outputs) * 10 ** rng.uniform(-6, 6),
            size,
            tuple(f"x{k}" for k in range(features)),
        )
        self.inside = self.centre + self.scale * rng.uniform(-2, 2, (20, features))
        self.inside[rng.integers(20, size=terms), feature] = knot
        far = rng.normal(size=(10, features)) * 10 ** rng.uniform(2, 6, (10, 1))
        self.X = np.concatenate([self.inside, self.centre + self.scale * far])

    def values(self, X):
        return self.spline(X).reshape(len(X), -1)

    def parts(self, X, hinge, line):
        """|β₀| + Σ|β|·size, the sizes of a hinge being hinge(z, |x| + |t|) and of a line line(x)."""
        total = np.abs(self.spline.intercept) + np.zeros((len(X), 1))
        for term, beta in zip(self.spline.terms, self.spline.coef, strict=True):
            x = X[:, term.feature]
            if isinstance(term, Hinge):
                size = hinge(term.sign * (x - term.knot), np.abs(x) + abs(term.knot))
            else:
                size = line(x)
            total = total + size[:, None] * np.abs(beta)
        return total

    def far_parts(self, X, centre=0.0):
        """|β₀| + Σ|β|(|x| + |t|), with the centre that is taken off x."""
        shift = np.broadcast_to(np.abs(centre), X.shape[1:])
        total = self.parts(X, lambda _, far: far, np.abs)
        for term, beta in zip(self.spline.terms, self.spline.coef, strict=True):
            total = total + shift[term.feature] * np.abs(beta)
        return total


@st.composite
def cases(draw, terms=60, features=40, outputs=5):
    sizes = [draw(st.integers(1, maximum)) for maximum in (terms, features, outputs)]
    return Case(draw(st.integers(0, 2**32 - 1)), *sizes)


def run(net, X):
    dtype = next(net.parameters()).dtype
    with torch.no_grad():
        return net(torch.tensor(X, dtype=dtype)).double().numpy()


def run_raw(net, X):
    """Run on float64 rows, whatever the network's dtype: its Scaling takes them."""
    with torch.no_grad():
        return net(torch.tensor(X)).double().numpy()


def x_centre(net):
    """What a network takes off its features: 0 if it is folded."""
    return net[0].centre.numpy() if isinstance(net[0], kw.Scaling) else 0.0


def leaky(slope):
    """Sizes of the units that make a hinge and a line."""

    def unit(z):
        return np.where(z > 0, z, slope * z)

    def hinge(z, _=None):
        return (np.abs(unit(z)) + np.abs(slope * unit(-z))) / abs(1 - slope**2)

    def line(x):
        return (np.abs(unit(x)) + np.abs(unit(-x))) / abs(1 + slope)

    return hinge, line


@settings(max_examples=250)
@given(cases(), st.sampled_from(EXACT))
def test_the_network_is_the_spline(case, exact):
    activation, slope = exact
    net = to_network(case.spline, activation=activation, dtype=torch.float64)
    error = np.abs(run(net, case.X) - case.values(case.X))
    assert (error <= DOUBLE * case.parts(case.X, *leaky(slope))).all()
    assert net.conversion.bound == 0
    assert net.conversion.box is None


@settings(max_examples=250)
@given(cases(), st.sampled_from(EXACT))
def test_the_network_is_the_spline_in_single_precision(case, exact):
    activation, slope = exact
    X = case.X.astype(np.float32).astype(np.float64)
    net = to_network(case.spline, activation=activation, dtype=torch.float32)
    error = np.abs(run(net, X) - case.values(X))
    loss = (1 + abs(slope)) * max(1, abs(slope)) / abs(1 - slope**2)
    assert (error <= SINGLE * loss * case.far_parts(X)).all()


@settings(max_examples=250)
@given(cases(), st.sampled_from(EXACT))
def test_the_network_is_the_spline_between_its_scalings(case, exact):
    activation, slope = exact
    net = to_network(case.spline, activation=activation, fold=False, dtype=torch.float64)
    assert [type(m) for m in net[::4]] == [kw.Scaling, kw.Scaling]
    assert not list(net[0].parameters()) + list(net[-1].parameters())
    assert all(p.requires_grad for p in net.parameters())
    assert len(list(net[1:-1].parameters())) == len(list(net.parameters()))
    error = np.abs(run(net, case.X) - case.values(case.X))
    loss = (1 + abs(slope)) * max(1, abs(slope)) / abs(1 - slope**2)
    assert (error <= DOUBLE * loss * case.far_parts(case.X, x_centre(net))).all()
    assert net.conversion.bound == 0
    assert net.conversion.box is None


@settings(max_examples=250)
@given(cases(), st.sampled_from(EXACT))
def test_single_precision_between_scalings_rounds_what_is_left_when_the_centre_is_off(case, exact):
    activation, slope = exact
    net = to_network(case.spline, activation=activation, fold=False, dtype=torch.float32)
    c = read_chain(net).scaling
    size = np.abs(c.y_centre) + c.y_scale + np.zeros((len(case.X), 1))
    for term, beta in zip(case.spline.terms, case.spline.coef, strict=True):
        centre = c.x_centre[term.feature]
        knot = abs(term.knot - centre) if isinstance(term, Hinge) else 0.0
        size = size + (np.abs(case.X[:, term.feature] - centre) + knot)[:, None] * np.abs(beta)
    error = np.abs(run_raw(net, case.X) - case.values(case.X))
    loss = (1 + abs(slope)) * max(1, abs(slope)) / abs(1 - slope**2)
    assert (error <= SINGLE * loss * size).all()


@settings(max_examples=250)
@given(cases(terms=20, features=10, outputs=3), st.sampled_from(SMOOTH), st.booleans(), st.floats(-6, 0))
def test_smooth_activations_stay_within_the_tolerance(case, activation, fold, share):
    tolerance = float(10**share * case.parts(case.inside, *leaky(0)).max())
    net = to_network(case.spline, activation=activation, tolerance=tolerance, fold=fold, dtype=torch.float64)
    assert net.conversion.bound <= tolerance
    error = np.abs(run(net, case.X) - case.values(case.X))
    assert (error <= net.conversion.bound + DOUBLE * case.far_parts(case.X, x_centre(net))).all()


@pytest.mark.parametrize("activation", SMOOTH)
def test_a_tolerance_is_used_up_and_not_more(activation):
    spline = Spline((Hinge(0, 2.0, 1),), [1.0], [[3.0]], ("x",))
    for tolerance in (1.0, 1e-4):
        net = to_network(spline, activation=activation, tolerance=tolerance, dtype=torch.float64)
        X = (2 + tolerance * np.linspace(-20, 20, 4001))[:, None]
        error = np.abs(run(net, X)[:, 0] - spline(X)).max()
        assert 0.99 * tolerance < error <= tolerance
        assert net.conversion.bound == tolerance


@given(cases(terms=20, features=10, outputs=3), st.sampled_from(SMOOTH))
def test_without_a_tolerance_the_bound_still_holds(case, activation):
    net = to_network(case.spline, activation=activation, dtype=torch.float64)
    error = np.abs(run(net, case.X) - case.values(case.X))
    assert (error <= net.conversion.bound + DOUBLE * case.far_parts(case.X)).all()
    assert np.isfinite(net.conversion.bound)


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_lines_are_exact_with_activations_that_are_odd_up_to_a_line(activation):
    spline = Spline((Linear(0),), [1.0], [[3.0]], ("x",))
    net = to_network(spline, activation=activation, dtype=torch.float64)
    X = np.linspace(-1e3, 1e3, 999)[:, None]
    assert net.conversion.bound == 0
    np.testing.assert_allclose(run(net, X)[:, 0], spline(X), rtol=1e-14)


@settings(max_examples=250)
@given(cases(terms=30, features=10, outputs=3), st.sampled_from(BOXED), st.booleans())
def test_boxed_activations_are_exact_inside_the_box(case, activation, fold):
    box = minimum, maximum = np.quantile(case.inside, [0.1, 0.9], axis=0)
    net = to_network(case.spline, activation=activation, box=box, fold=fold, dtype=torch.float64)
    X = np.concatenate([box, case.rng.uniform(minimum, maximum, (20, len(minimum)))])
    error = np.abs(run(net, X) - case.values(X))
    corner = np.maximum(np.abs(minimum), np.abs(maximum))[None]
    assert (error <= DOUBLE * case.far_parts(corner, x_centre(net))).all()
    assert net.conversion.bound == 0
    np.testing.assert_array_equal(net.conversion.box, box)


def test_a_box_has_sides_of_numbers_or_of_one_per_feature():
    spline = Spline((Hinge(0, 1.0, 1), Hinge(1, 5.0, -1)), [2.0], [[3.0], [1.0]], ("x", "z"))
    X = np.array([[-3.0, -3.0], [7.0, 7.0], [0.0, 6.0]])
    for fold in (True, False):
        for box in ((-3, 7), (-3.0, [7, 7]), ([-3, -3], 7), np.array([[-3, -3], [7, 7]])):
            net = to_network(spline, activation="relu6", box=box, fold=fold, dtype=torch.float64)
            np.testing.assert_allclose(run(net, X)[:, 0], spline(X), rtol=1e-14)
            assert net.conversion.box.tolist() == [[-3, -3], [7, 7]]


@pytest.mark.parametrize("box", [None, (1, 0), (0, np.nan), (0, np.inf), 3, (0, 1, 2), ([0, 0, 0], 1), ("a", "b")])
@pytest.mark.parametrize("fold", [True, False])
def test_a_boxed_activation_needs_a_proper_box(box, fold):
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x", "z"))
    with pytest.raises(NetworkError if box is None else DataError, match="box"):
        to_network(spline, activation="hardtanh", box=box, fold=fold)


@given(cases())
def test_weights_are_powers_of_two_and_biases_are_minus_weight_times_knot(case):
    net = to_network(case.spline, dtype=torch.float64)
    weight, bias, out = (v.detach().numpy() for v in (net[0].weight, net[0].bias, net[2].weight))
    assert (np.count_nonzero(weight, axis=1) == 1).all()
    feature = np.abs(weight).argmax(axis=1)
    s = np.abs(weight).max(axis=1)
    direction = np.sign(weight[np.arange(len(s)), feature])
    assert (np.frexp(s)[0] == 0.5).all()
    units = zip(feature, direction, -bias * direction / s, strict=True)
    found = {unit: m for m, unit in enumerate(units)}
    wanted = {}
    for term, beta in zip(case.spline.terms, case.spline.coef, strict=True):
        hinges = [(term.knot, term.sign, beta)] if isinstance(term, Hinge) else [(0.0, 1, beta), (0.0, -1, -beta)]
        for knot, sign, coef in hinges:
            key = (term.feature, sign, knot)
            wanted[key] = wanted.get(key, 0) + coef
    assert found.keys() == wanted.keys()
    for (f, sign, knot), coef in wanted.items():
        m = found[f, sign, knot]
        assert bias[m] == -sign * knot * s[m]
        np.testing.assert_array_equal(out[:, m] * s[m], coef)


@given(cases())
def test_units_have_inputs_and_outputs_of_one_size(case):
    net = to_network(case.spline, dtype=torch.float64)
    inward = net[0].weight.detach().abs().amax(dim=1)
    outward = net[2].weight.detach().abs().amax(dim=0)
    ratio = (inward / outward)[outward > 0]
    assert ((ratio >= 0.49) & (ratio <= 2.01)).all()


@pytest.mark.parametrize(
    ("terms", "activation", "width"),
    [
        ([Hinge(0, 1.0, 1)], "relu", 1),
        ([Hinge(0, 1.0, 1), Hinge(0, 1.0, -1)], "relu", 2),
        ([Linear(0)], "relu", 2),
        ([Hinge(0, 1.0, 1), Hinge(0, 1.0, -1), Linear(0)], "relu", 4),
        ([Hinge(0, 0.0, 1), Hinge(0, -0.0, -1), Linear(0)], "relu", 2),
        ([Hinge(0, 1.0, 1), Hinge(1, 1.0, 1), Hinge(0, 1.0, 1)], "relu", 2),
        ([Hinge(0, 1.0, 1)], "leaky_relu", 2),
        ([Hinge(0, 1.0, 1), Hinge(0, 1.0, -1)], "prelu", 2),
        ([Hinge(0, 1.0, 1), Hinge(0, 2.0, -1), Linear(1)], "leaky_relu", 6),
        ([Hinge(0, 1.0, 1), Hinge(0, 1.0, -1), Linear(0)], "silu", 4),
        ([Hinge(0, 1.0, 1), Linear(1)], nn.LeakyReLU(0.0), 3),
        ([], "relu", 1),
        ([], "silu", 1),
    ],
)
def test_units_are_shared(terms, activation, width):
    spline = Spline(tuple(terms), [1.0], np.arange(1.0, len(terms) + 1)[:, None], ("x", "z"))
    net = to_network(spline, activation=activation)
    assert net[0].out_features == width
    assert count_units(spline, activation) == ((width,) if terms else (0,))


def test_hinges_have_the_sign_of_their_side():
    spline = Spline((Hinge(0, 3.0, 1), Hinge(1, 5.0, -1)), [0.0], [[1.0], [1.0]], ("x", "z"))
    net = to_network(spline)
    assert net[0].weight.tolist() == [[1, 0], [0, -1]]
    assert net[0].bias.tolist() == [-3, 5]
    assert net[2].weight.tolist() == [[1, 1]]


@pytest.mark.parametrize("activation", ["relu", "prelu", "silu", "elu"])
def test_a_constant_and_coefficients_of_zero_make_finite_networks(activation):
    X = np.array([[-1.0], [0.0], [5.0]])
    for terms, coef in (((), []), ((Hinge(0, 1.0, 1), Linear(0)), [[0.0, 0.0]] * 2)):
        spline = Spline(terms, [2.0, -1.0], coef, ("x",))
        for tolerance in (None, 1e-30, 1e30):
            net = to_network(spline, activation=activation, tolerance=tolerance, dtype=torch.float64)
            assert run(net, X).tolist() == [[2, -1]] * 3


def test_a_network_is_plain_and_takes_the_default_dtype():
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",))
    before = torch.get_rng_state()
    net = to_network(spline)
    assert torch.equal(torch.get_rng_state(), before)
    assert type(net) is nn.Sequential
    assert [type(m) for m in net] == [nn.Linear, nn.ReLU, nn.Linear]
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert all(p.requires_grad for p in net.parameters())


def test_networks_with_parameters_in_the_activation_do_not_share_them():
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",))
    mine = nn.PReLU()
    nets = [to_network(spline, activation=mine, dtype=torch.float64) for _ in range(2)]
    assert mine.weight.dtype == torch.float32
    assert len({id(p) for p in [mine.weight, nets[0][1].weight, nets[1][1].weight]}) == 3


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (nn.Tanh(), "cannot be held by Tanh"),
        (nn.Sigmoid(), "cannot be held by Sigmoid"),
        (nn.LeakyReLU(1.0), "must not be ±1, got 1"),
        (nn.LeakyReLU(-1.0), "must not be ±1, got -1"),
        (nn.PReLU(init=1.0), "must not be ±1"),
        (nn.PReLU(3), "one slope for all units, got 3"),
        ("tanh", "got 'tanh'"),
    ],
)
def test_activations_that_cannot_hold_a_hinge_are_refused_with_those_that_can(activation, message):
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",))
    with pytest.raises(NetworkError, match=message) as error:
        to_network(spline, activation=activation)
    for name in ("relu", "leaky_relu", "prelu", "softplus", "silu", "gelu", "elu", "relu6", "hardtanh"):
        assert name in str(error.value)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (nn.LeakyReLU(float("nan")), "finite"),
        (nn.LeakyReLU(float("inf")), "finite"),
        (nn.Softplus(beta=-1.0), "beta > 0"),
        (nn.Softplus(threshold=-1.0), "threshold >= 0"),
    ],
)
def test_activations_with_impossible_settings_are_refused(activation, message):
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",))
    with pytest.raises(NetworkError, match=message):
        to_network(spline, activation=activation)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan"), float("inf")])
def test_a_tolerance_must_be_positive(tolerance):
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",))
    with pytest.raises(NetworkError, match="tolerance must be positive"):
        to_network(spline, activation="silu", tolerance=tolerance)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (kw.MarsRegressor(), "a model must be fitted, this MarsRegressor is not fitted; fit it first"),
        (LinearRegression(), "LinearRegression that is not fitted; fit it first"),
        (None, "only a Spline or an estimator fitted to one.*got NoneType"),
        ("spline", "only a Spline or an estimator fitted to one.*got str"),
    ],
)
def test_what_has_no_spline_is_refused(model, message):
    with pytest.raises(NetworkError, match=message):
        to_network(model)


@pytest.fixture(scope="module")
def abalone():
    table, y = kw.datasets.load_abalone()
    return table, y, kw.MarsRegressor().fit(table, y)


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "prelu"])
def test_abalone_from_the_frame_to_the_network(abalone, activation, fold):
    table, _, model = abalone
    encoded = np.asarray(model.encoder_.encode(table), dtype=np.float64)
    expected = model.predict(table)
    size = 1 + np.abs(model.spline_.coef[:, 0]).sum() + np.abs(expected).max()  # features are about one
    net = to_network(model, activation=activation, fold=fold, dtype=torch.float64)
    np.testing.assert_allclose(run(net, encoded)[:, 0], expected, atol=1e-13 * size, rtol=0)
    net = to_network(model, activation=activation, fold=fold)
    np.testing.assert_allclose(run(net, encoded)[:, 0], expected, atol=1e-6 * size, rtol=0)


def test_the_scalings_of_an_estimator_standardise_its_training_rows(abalone):
    table, y, model = abalone
    encoded = np.asarray(model.encoder_.encode(table), dtype=np.float64)
    net = to_network(model, fold=False, dtype=torch.float64)
    standard = net[0](torch.from_numpy(encoded)).numpy()
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(standard.std(axis=0), 1, atol=1e-9)
    back = net[-1](torch.tensor([[0.0], [1.0]], dtype=torch.float64)).numpy()[:, 0]
    np.testing.assert_allclose(back, [np.mean(y), np.mean(y) + np.std(y)], rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_is_not_folded(abalone, dtype):
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",))
    for model in (spline, abalone[2]):
        net = kw.to_network(model, dtype=dtype)
        assert type(net) is nn.Sequential
        assert [type(m) for m in net] == [kw.Scaling, nn.Linear, nn.ReLU, nn.Linear, kw.Scaling]
        assert {p.dtype for p in net.parameters()} == {dtype}
        assert all(p.requires_grad for p in net.parameters())


def test_several_responses_of_an_estimator(abalone):
    table, y, _ = abalone
    rows = np.asarray(table.select_dtypes("number"), dtype=np.float64)
    responses = np.stack([np.asarray(y, dtype=float), rows[:, 0], -rows[:, 3]], axis=1)
    model = kw.MarsRegressor().fit(rows[:, 1:3], responses)
    net = to_network(model, dtype=torch.float64)
    size = 1 + np.abs(model.spline_.coef).sum()
    np.testing.assert_allclose(run(net, rows[:, 1:3]), model.predict(rows[:, 1:3]), atol=1e-13 * size, rtol=0)


@pytest.mark.parametrize("activation", SMOOTH[:1] + SMOOTH[2:4])
def test_the_bound_of_responses_of_several_scales_is_in_proportion_to_the_largest(activation):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=300)
    model = kw.MarsRegressor().fit(X, np.column_stack([1e6 * y, y, 1e-6 * y]))
    alone = kw.MarsRegressor().fit(X, 1e6 * y)
    bounds = [kw.to_network(m, activation=activation, dtype=torch.float64).conversion.bound for m in (model, alone)]
    assert bounds[0] == pytest.approx(bounds[1], rel=0.01)


@pytest.mark.parametrize(("offset", "unit"), [(1e9, 1.0), (0.0, 1e306), (0.0, 1e-100)])
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.filterwarnings("error")
def test_responses_beyond_single_precision_take_float64(offset, unit, fold):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = (np.abs(X[:, 0]) + offset) * unit
    model = kw.MarsRegressor().fit(X, y)
    net = to_network(model, fold=fold)
    assert {p.dtype for p in net.parameters()} == {torch.float64}
    found = net(torch.from_numpy(X)).detach().numpy()[:, 0]
    np.testing.assert_allclose(found / unit, model.predict(X) / unit, atol=1e-6)
