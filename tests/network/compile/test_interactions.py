"""Networks of splines whose terms are the least of several hinges."""

import copy
import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import knotwork as kw
from knotwork import Hinge, Linear, Min, Product, Spline, reshape
from knotwork.data.coordinates import Coordinates
from knotwork.errors import NetworkError
from knotwork.network.activations import activation_rule
from knotwork.network.chain import read_chain
from knotwork.network.compile.balance import balance_
from knotwork.network.compile.function import function_chain
from knotwork.network.compile.units import count_units, spline_units
from knotwork.pwl.through import in_coordinates
from tests.network.compile.test_convert import BOXED, DOUBLE, EXACT, SINGLE, SMOOTH, run, run_raw, x_centre
from tests.network.test_reshape import CARRYING, activity, added_units, hidden_layers, states_equal, train
from tests.test_io import assert_same

# Layers are found by their places in a folded network; tests of the scaling say fold=False.
to_network = partial(kw.to_network, fold=True)


class Case:
    """A spline of some degree, its parts often shared, and points: inside and far outside the data, at the knots."""

    def __init__(self, seed, terms, features, outputs, degree):
        self.rng = rng = np.random.default_rng(seed)
        self.scale = 10 ** rng.uniform(-6, 6, features)
        self.centre = self.scale * rng.choice([0.0, 1.0, 100.0], features) * rng.normal(size=features)
        self.degree = min(degree, features)
        found = []
        for _ in range(terms):
            found.append(self._term(found))
        size = 10 ** rng.uniform(-6, 6, (terms, outputs)) * rng.choice([-1, 1], (terms, outputs))
        size[rng.random(terms) < 0.05] = 0.0
        names = tuple(f"x{k}" for k in range(features))
        self.spline = Spline(tuple(found), rng.normal(size=outputs) * 10 ** rng.uniform(-6, 6), size, names)
        self.inside = self.centre + self.scale * rng.uniform(-2, 2, (20, features))
        for term in found:  # rows at the corners of the terms
            row = rng.integers(20)
            for hinge in getattr(term, "hinges", ()):
                self.inside[row, hinge.feature] = hinge.knot
        far = rng.normal(size=(10, features)) * 10 ** rng.uniform(2, 6, (10, 1))
        self.X = np.concatenate([self.inside, self.centre + self.scale * far])

    def _hinge(self, feature):
        knot = 0.0 if self.rng.random() < 0.1 else self.centre[feature] + self.scale[feature] * self.rng.normal()
        return Hinge(feature, float(knot), int(self.rng.choice([-1, 1])))

    def _term(self, found):
        rng = self.rng
        hinges, slopes = [], []
        before = [t for t in found if not isinstance(t, Linear)]
        if before and rng.random() < 0.5:  # a child, or the same again, or in another order
            parent = before[rng.integers(len(before))]
            hinges = list(getattr(parent, "hinges", (parent,)))
            slopes = list(getattr(parent, "slopes", (1.0,)))
            order = rng.permutation(len(hinges)) if rng.random() < 0.3 else range(len(hinges))
            hinges, slopes = [hinges[k] for k in order], [slopes[k] for k in order]
        wanted = rng.integers(0, self.degree + 1)
        if wanted == 0 and not hinges:
            return Linear(int(rng.integers(len(self.scale))))
        free = [f for f in rng.permutation(len(self.scale)).tolist() if f not in {h.feature for h in hinges}]
        for f in free[: max(0, max(1, wanted) - len(hinges))]:
            hinges.append(self._hinge(f))
            spread = 10 ** rng.uniform(-1, 1) if len(slopes) or rng.random() < 0.3 else 1.0
            slopes.append(float(self.scale[hinges[0].feature] / self.scale[f] * spread))
        return Min(tuple(hinges), tuple(slopes)) if len(hinges) > 1 else hinges[0]

    def values(self, X):
        return self.spline(X).reshape(len(X), -1)

    def parts(self, X, hinge, line=np.abs):
        """|β₀| + Σ|β|·size, the size of a Min being that of its largest part: hinge(z, |x| + |t|) times the slope."""
        total = np.abs(self.spline.intercept) + np.zeros((len(X), 1))
        for term, beta in zip(self.spline.terms, self.spline.coef, strict=True):
            if isinstance(term, Linear):
                size = line(X[:, term.feature])
            else:
                hinges, slopes = getattr(term, "hinges", (term,)), getattr(term, "slopes", (1.0,))
                places = [(h.sign * (X[:, h.feature] - h.knot), np.abs(X[:, h.feature]) + abs(h.knot)) for h in hinges]
                size = np.max([s * hinge(*place) for s, place in zip(slopes, places, strict=True)], axis=0)
            total = total + size[:, None] * np.abs(beta)
        return total

    def near_parts(self, X, slope=0.0):
        """Sizes by the values of the hinges; a leaky unit is not zero on the other side."""
        return self.parts(X, lambda z, _: np.maximum(z, 0.0) if slope == 0 else np.abs(z)) * loss(slope) ** self.layers

    def far_parts(self, X, slope=0.0, centre=0.0):
        """Sizes by |x| + |t|, with the centre that is taken off x."""
        reach = np.abs(X) + np.abs(centre)
        return self.parts(reach, lambda _, far: far) * loss(slope) ** self.layers

    @property
    def layers(self):
        return max(len(t.features) for t in self.spline.terms)


def loss(slope):
    """Sizes of the units that make up R(z) and z, for |z| = 1."""
    return max((1 + abs(slope)) * max(1, abs(slope)) / abs(1 - slope**2), (1 + abs(slope)) / abs(1 + slope))


@st.composite
def cases(draw, terms=40, features=20, outputs=5, degree=3):
    sizes = [draw(st.integers(1, maximum)) for maximum in (terms, features, outputs, degree)]
    return Case(draw(st.integers(0, 2**32 - 1)), *sizes)


@settings(max_examples=250)
@given(cases(), st.sampled_from(EXACT))
def test_the_network_is_the_spline(case, exact):
    activation, slope = exact
    net = to_network(case.spline, activation=activation, dtype=torch.float64)
    assert len(hidden_layers(net)) == case.layers
    error = np.abs(run(net, case.X) - case.values(case.X))
    assert (error <= DOUBLE * case.near_parts(case.X, slope)).all()
    assert net.conversion.bound == 0
    assert net.conversion.box is None


@settings(max_examples=250)
@given(cases(), st.sampled_from(EXACT))
def test_the_network_is_the_spline_in_single_precision(case, exact):
    activation, slope = exact
    X = case.X.astype(np.float32).astype(np.float64)
    net = to_network(case.spline, activation=activation, dtype=torch.float32)
    error = np.abs(run(net, X) - case.values(X))
    assert (error <= SINGLE * case.far_parts(X, slope)).all()


@settings(max_examples=150)
@given(cases(), st.sampled_from(EXACT))
def test_the_network_is_the_spline_between_its_scalings(case, exact):
    activation, slope = exact
    net = to_network(case.spline, activation=activation, fold=False, dtype=torch.float64)
    assert isinstance(net[0], kw.Scaling)
    assert isinstance(net[-1], kw.Scaling)
    assert all(p.requires_grad for p in net.parameters())
    error = np.abs(run(net, case.X) - case.values(case.X))
    assert (error <= DOUBLE * case.far_parts(case.X, slope, x_centre(net))).all()
    assert net.conversion.bound == 0


@settings(max_examples=150)
@given(cases(), st.sampled_from(EXACT))
def test_single_precision_between_scalings_rounds_what_is_left_when_the_centre_is_off(case, exact):
    activation, slope = exact
    net = to_network(case.spline, activation=activation, fold=False, dtype=torch.float32)
    c = read_chain(net).coordinates
    outputs = case.spline.intercept.size
    near = copy.copy(case)
    near.spline = replace(
        in_coordinates(case.spline, Coordinates.of_features(c.x_centre, np.ones_like(c.x_scale), outputs)),
        intercept=np.abs(c.y_centre) + c.y_scale,
    )
    error = np.abs(run_raw(net, case.X) - case.values(case.X))
    assert (error <= SINGLE * near.far_parts(case.X - c.x_centre, slope)).all()


@settings(max_examples=250)
@given(cases(terms=20, features=8, outputs=3), st.sampled_from(SMOOTH), st.booleans(), st.floats(-6, 0))
def test_smooth_activations_stay_within_the_tolerance(case, activation, fold, share):
    tolerance = float(10**share * case.near_parts(case.inside).max())
    net = to_network(case.spline, activation=activation, tolerance=tolerance, fold=fold, dtype=torch.float64)
    assert net.conversion.bound <= tolerance
    error = np.abs(run(net, case.X) - case.values(case.X))
    assert (error <= net.conversion.bound + DOUBLE * case.far_parts(case.X, centre=x_centre(net))).all()


@given(cases(terms=20, features=8, outputs=3), st.sampled_from(SMOOTH))
def test_without_a_tolerance_the_bound_still_holds(case, activation):
    net = to_network(case.spline, activation=activation, dtype=torch.float64)
    error = np.abs(run(net, case.X) - case.values(case.X))
    assert (error <= net.conversion.bound + DOUBLE * case.far_parts(case.X)).all()
    assert np.isfinite(net.conversion.bound)


@pytest.mark.parametrize("activation", SMOOTH)
def test_a_good_part_of_the_tolerance_is_used(activation):
    spline = Spline((Min((Hinge(0, 2.0, 1), Hinge(1, -1.0, -1)), (1.0, 3.0)),), [1.0], [[5.0]], ("x", "z"))
    for tolerance in (1.0, 1e-4):
        net = to_network(spline, activation=activation, tolerance=tolerance, dtype=torch.float64)
        steps = tolerance * np.linspace(-3, 3, 121)
        X = np.stack([2 + np.repeat(steps, 121), -1 + np.tile(steps, 121)], axis=1)
        error = np.abs(run(net, X)[:, 0] - spline(X)).max()
        assert 0.15 * tolerance < error <= tolerance == net.conversion.bound


@settings(max_examples=150)
@given(cases(terms=20, features=8, outputs=3, degree=4), st.sampled_from(["elu", "silu"]))
def test_gains_bound_what_errors_of_the_units_do_to_the_outputs(case, activation):
    ideal = spline_units(case.spline, activation_rule(activation))
    wrong = case.inside
    allowed = 0.0
    spread = case.near_parts(case.inside).max()
    for layer in ideal.hidden:
        own = layer.gain / sum(ideal.widths)  # each unit may use its share of a tolerance
        # Of any size and sign, such that each unit alone moves an output by up to the size of the function.
        size = 10 ** case.rng.uniform(-3, 0, len(own)) * spread / own
        error = size * case.rng.choice([-1.0, 1.0], (len(wrong), len(size)))
        wrong = np.maximum(wrong @ layer.weight.T + layer.bias, 0.0) + error
        allowed += float(own @ size)
    difference = np.abs(wrong @ ideal.weight.T + ideal.bias - case.values(case.inside))
    assert (difference <= allowed + DOUBLE * case.far_parts(case.inside)).all()


@settings(max_examples=250)
@given(cases(terms=30, features=8, outputs=3), st.sampled_from(BOXED), st.booleans())
def test_boxed_activations_are_exact_inside_the_box(case, activation, fold):
    box = minimum, maximum = np.quantile(case.inside, [0.1, 0.9], axis=0)
    net = to_network(case.spline, activation=activation, box=box, fold=fold, dtype=torch.float64)
    corners = np.where(case.rng.random((10, len(minimum))) < 0.5, minimum, maximum)
    X = np.concatenate([box, corners, case.rng.uniform(minimum, maximum, (20, len(minimum)))])
    error = np.abs(run(net, X) - case.values(X))
    corner = np.maximum(np.abs(minimum), np.abs(maximum))[None]
    assert (error <= DOUBLE * case.far_parts(corner, centre=x_centre(net))).all()
    assert net.conversion.bound == 0
    np.testing.assert_array_equal(net.conversion.box, box)


@given(cases(), st.sampled_from([activation for activation, _ in EXACT]), st.booleans())
def test_a_network_has_the_size_that_was_counted(case, activation, fold):
    net = to_network(case.spline, activation=activation, fold=fold)
    widths = tuple(layer.out_features for layer in hidden_layers(net))
    counted = kw.network_size(case.spline, activation, fold=fold).widths
    assert tuple(max(units, 1) for units in counted) == widths


@given(cases(), st.sampled_from([activation for activation, _ in EXACT]))
def test_units_are_scaled_by_powers_of_two_and_balanced(case, activation):
    rule = activation_rule(activation)
    ideal, layers = spline_units(case.spline, rule), function_chain(case.spline, rule).layers
    plain = [*((layer.weight, layer.bias) for layer in ideal.hidden), (ideal.weight, ideal.bias)]
    for layer, (weight, bias) in zip(layers, plain, strict=True):
        np.testing.assert_array_equal(np.frexp(layer.weight.numpy())[0], np.frexp(weight)[0])
        np.testing.assert_array_equal(np.frexp(layer.bias.numpy())[0], np.frexp(bias)[0])
    for first, second in itertools.pairwise(layers):
        inward, outward = first.weight.abs().amax(dim=1), second.weight.abs().amax(dim=0)
        ratio = (inward / outward)[(outward > 0) & (inward > 0)]
        assert ((ratio >= 0.49) & (ratio <= 2.01)).all()


def expected_widths(spline, away, smooth):
    """Count by the rule that the documentation gives."""
    mins = []
    for term in spline.terms:
        if isinstance(term, Min):
            parts = tuple(zip(term.hinges, term.slopes, strict=True))
            begins = [(k, m[:k]) for m in mins for k in range(2, len(m) + 1) if set(m[:k]) == set(parts[:k])]
            k, begun = max(begins, key=lambda begin: begin[0], default=(0, ()))
            mins.append(begun + parts[k:])
    hinges = set()
    for term in spline.terms:
        signs = (-1, 1)
        if isinstance(term, Linear):
            hinges |= {(term.feature, 0.0, s) for s in signs}
        for h in () if isinstance(term, Linear) else getattr(term, "hinges", (term,)):
            hinges |= {(h.feature, h.knot, s) for s in (signs if away else (h.sign,))}
    widths = [len(hinges)]
    for k in range(2, max(map(len, mins), default=1) + 1):
        bends = {frozenset(parts[:k]) for parts in mins if len(parts) >= k}
        kept = {parts[0][0] if k == 2 else frozenset(parts[: k - 1]) for parts in mins if len(parts) > k}
        kept |= {hinge for parts in mins if len(parts) > k for hinge, _ in parts[k:]}
        sums = 2 * spline.intercept.size * any(len(t.features) <= k for t in spline.terms)
        widths.append((1 + away) * len(bends) + (1 + smooth) * len(kept) + sums)
    return tuple(widths)


@settings(max_examples=150)
@given(cases(degree=5), st.sampled_from(["relu", "leaky_relu", "prelu", "silu", "elu"]))
def test_units_are_counted_as_documented(case, activation):
    widths = expected_widths(case.spline, "leaky" in activation or activation == "prelu", activation in ("silu", "elu"))
    assert count_units(case.spline, activation) == widths
    net = to_network(case.spline, activation=activation)
    assert tuple(layer.out_features for layer in hidden_layers(net)) == widths


A, B, C, D = (Hinge(f, 1.0 + f, (-1) ** f) for f in range(4))
AB, BA = Min((A, B), (1.0, 2.0)), Min((B, A), (2.0, 1.0))
ABC, BAD = Min((A, B, C), (1.0, 2.0, 3.0)), Min((B, A, D), (2.0, 1.0, 4.0))


@pytest.mark.parametrize(
    ("terms", "activation", "widths"),
    [
        ([AB], "relu", (2, 3)),
        ([AB], "leaky_relu", (4, 4)),
        ([AB, A, B], "relu", (2, 3)),
        ([AB, BA], "relu", (2, 3)),  # the same set
        ([AB, Min((A, B), (1.0, 3.0))], "relu", (2, 4)),
        ([AB, Linear(3)], "relu", (4, 3)),
        ([ABC], "relu", (3, 3, 3)),  # R(A − 2B), A and C, nothing summed yet
        ([ABC, AB], "relu", (3, 5, 3)),
        ([ABC, BAD, AB], "relu", (4, 6, 4)),  # A, C and D are kept; one unit for both pairs
        ([ABC], "gelu", (3, 5, 3)),
        ([ABC], "prelu", (6, 4, 4)),
    ],
)
def test_units_are_shared(terms, activation, widths):
    spline = Spline(tuple(terms), [1.0], np.arange(1.0, len(terms) + 1)[:, None], tuple("abcd"))
    assert count_units(spline, activation) == widths
    net = to_network(spline, activation=activation, tolerance=1e-9, dtype=torch.float64)
    X = np.random.default_rng(0).normal(size=(50, 4)) * 5
    np.testing.assert_allclose(run(net, X)[:, 0], spline(X), rtol=0, atol=2e-9 if activation == "gelu" else 1e-13)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "silu", "relu6"])
def test_products_are_refused_with_the_reason(activation):
    spline = Spline((A, Product((A, B))), [1.0], [[1.0], [2.0]], tuple("abcd"))
    for fold in (True, False):
        with pytest.raises(NetworkError, match=r"not piecewise linear, so no ReLU network .*h\(a - 1\).*'min'"):
            to_network(spline, activation=activation, box=(0, 1), fold=fold)
    with pytest.raises(NetworkError, match="not piecewise linear"):
        count_units(spline)


@given(cases(terms=15, features=6, outputs=2))
def test_other_units_of_the_data_make_the_same_function(case):
    centre = 2.0 ** case.rng.integers(-3, 4, len(case.scale)) * case.rng.integers(-4, 5, len(case.scale))
    scale = 2.0 ** case.rng.integers(-20, 20, len(case.scale))
    outputs = case.spline.intercept.size
    c = Coordinates(np.zeros_like(scale), scale, np.zeros(outputs), 4.0)
    inner = in_coordinates(case.spline, c)
    np.testing.assert_array_equal(inner(case.X / scale), case.spline(case.X) / 4)
    assert in_coordinates(inner, c.inverse) == case.spline
    shifted = in_coordinates(case.spline, Coordinates.of_features(centre, scale, outputs))
    error = np.abs(shifted((case.X - centre) / scale).reshape(len(case.X), -1) - case.values(case.X))
    assert (error <= DOUBLE * case.far_parts(case.X, centre=centre)).all()
    for old, new in zip(case.spline.terms, shifted.terms, strict=True):
        if isinstance(old, Min):
            assert new.slopes[0] == old.slopes[0]


def test_products_in_other_units_are_the_same_function():
    spline = Spline((Product((A, B)), Product((A, B, D))), [1.0], [[2.0], [3.0]], tuple("abcd"))
    centre, scale = np.array([1.0, -2, 0, 4]), np.array([2.0, 0.25, 1, 8])
    X = np.random.default_rng(0).normal(size=(50, 4)) * 5
    c = Coordinates.of_features(centre, scale, 1)
    np.testing.assert_allclose(in_coordinates(spline, c)(c.features(X)), spline(X), rtol=1e-12)


@st.composite
def growths(draw):
    case = draw(cases(terms=15, features=6, outputs=3))
    activation = draw(st.sampled_from(CARRYING))
    tolerance = 1e-3 * case.near_parts(case.inside).max()
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    net = to_network(case.spline, activation=activation, fold=draw(st.booleans()), tolerance=tolerance, dtype=dtype)
    minimum = [layer.out_features for layer in hidden_layers(net)]
    minimum += [2 * case.spline.intercept.size] * draw(st.integers(0, 2))
    widths = tuple(width + draw(st.one_of(st.just(0), st.integers(1, 30))) for width in minimum)
    fill = draw(st.sampled_from(["hinge", "random", "zero", None]))
    X = case.inside if fill == "hinge" or draw(st.booleans()) else None
    return case, net, widths, fill, X


@settings(max_examples=200)
@given(growths())
def test_growth_leaves_the_function_alone(growth):
    case, net, widths, fill, X = growth
    grown = reshape(net, widths, fill=fill, X=X, random_state=0)
    assert tuple(layer.out_features for layer in hidden_layers(grown)) == widths
    rule = activation_rule(next(m for m in net if not isinstance(m, (kw.Scaling, nn.Linear))))
    slope = rule.away / rule.towards
    double = next(net.parameters()).dtype == torch.float64
    points = case.X if double else case.X.astype(np.float32).astype(np.float64)
    size = case.far_parts(points, slope, x_centre(net)) * loss(slope) ** (len(widths) - case.layers)
    carried = isinstance(rule.module, nn.Softplus) * (len(widths) - case.layers)  # values that are not small cancel
    allowed = grown.conversion.bound + (DOUBLE if double else 4 * SINGLE) * (size + carried)
    assert (np.abs(run(grown, points) - case.values(points)) <= allowed).all()


@pytest.mark.parametrize(("widths", "message"), [
    ((64, 2), "hidden layer 1 needs a width of at least 3 .* got 2"),
    ((1, 64), "hidden layer 0 needs a width of at least 2 .* got 1"),
    ((64,), "the network has 2 hidden layers, got 1 widths"),
    ((64, 64, 1), "hidden layer 2 needs a width of at least 2 .* got 1"),
])  # fmt: skip
def test_a_shape_that_cannot_hold_the_spline_is_refused(widths, message):
    net = to_network(Spline((AB,), [1.0], [[1.0]], tuple("abcd")))
    with pytest.raises(NetworkError, match=message):
        reshape(net, widths)


@given(cases(terms=15, features=6, outputs=2), st.sampled_from(["relu", "leaky_relu", "prelu"]), st.booleans())
def test_balancing_for_training_changes_no_bit(case, activation, fold):
    net = to_network(case.spline, activation=activation, fold=fold, dtype=torch.float64)
    net = reshape(net, [layer.out_features + 2 for layer in hidden_layers(net)], X=case.inside, random_state=0)
    before = run(net, case.X)
    balance_(net)
    np.testing.assert_array_equal(run(net, case.X), before)
    for first, second in itertools.pairwise([m for m in net if isinstance(m, nn.Linear)]):
        inward, outward = first.weight.abs().amax(dim=1), second.weight.abs().amax(dim=0)
        ratio = (inward / outward)[(inward > 0) & (outward > 0)]
        assert ((ratio >= 0.49) & (ratio <= 2.01)).all()


@given(cases(terms=15, features=6, outputs=3))
def test_splines_and_networks_are_saved_bit_for_bit(tmp_path_factory, case):
    folder = tmp_path_factory.mktemp("saved")
    net = reshape(to_network(case.spline), [40] * case.layers + [20], X=case.inside, random_state=0)
    for k, model in enumerate((case.spline, net)):
        kw.save(model, folder / str(k))
        assert_same(kw.load(folder / str(k)), model)


@pytest.fixture(scope="module")
def table():
    """Standardised rows and a response with interactions, and a spline with some of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 5))
    terms = [Linear(3)]
    terms += [Hinge(f, t, s) for f in range(4) for t in (-0.5, 0.6) for s in (-1, 1)]
    terms += [Min((a, b), (1.0, 1.0)) for a in terms[1:5] for b in terms[5:9]]
    terms += [Min((*m.hinges, Hinge(4, 0.1, s)), (1.0, 1.0, 0.7)) for m in terms[-4:] for s in (-1, 1)]
    y = np.minimum(np.maximum(X[:, 0], 0), np.maximum(X[:, 1], 0)) + X[:, 3] + 0.1 * rng.normal(size=1000)
    basis = Spline(tuple(terms), [0.0], np.zeros((len(terms), 1)), tuple("abcde")).basis(X)
    columns = np.column_stack([np.ones(1000), basis])
    coef = np.linalg.solve(columns.T @ columns + 0.1 * np.eye(columns.shape[1]), columns.T @ y)
    return X, y, Spline(tuple(terms), coef[:1], coef[1:, None], tuple("abcde"))


@pytest.mark.parametrize(("fill", "with_rows"), [("random", False), ("random", True), ("hinge", True)])
@pytest.mark.parametrize(("widths", "fold"), [((64, 64, 32), True), ((64, 48, 40, 16), True), ((48, 64, 32), False)])
def test_every_added_unit_trains(table, widths, fold, fill, with_rows):
    X, y, spline = table
    net = to_network(spline, fold=fold)
    grown = reshape(net, widths, fill=fill, X=X if with_rows else None, random_state=0)
    start = copy.deepcopy(grown.state_dict())
    reached = train(grown, X, y)
    moved = {name: value != start[name] for name, value in grown.state_dict().items()}
    for changed in (reached, moved):
        for into, out in added_units(net, grown, changed):
            assert len(into) > 0
            assert into.any(dim=1).all()
            assert out.any(dim=1).all()


@pytest.mark.parametrize("fill", ["hinge", "random"])
def test_units_added_on_raw_features_bend_inside_the_data(table, fill):
    X, _, spline = table
    scale = 10.0 ** np.arange(-4, 1)
    raw = in_coordinates(spline, Coordinates.of_features(np.zeros(5), 1 / scale, spline.intercept.size))
    net = to_network(raw, dtype=torch.float64)
    old = [layer.out_features for layer in hidden_layers(net)]
    for seed in range(3):
        grown = reshape(net, [w + 60 for w in (*old, 2)], fill=fill, X=X * scale, random_state=seed)
        for layer, units in enumerate((*old, 2)):
            share = activity(grown, X * scale, layer)[units:]
            assert ((share > 0) & (share < 1)).all()


def test_units_of_the_spline_itself_train(table):
    X, y, spline = table
    net = to_network(spline)
    start = copy.deepcopy(net.state_dict())
    train(net, X, y)
    assert not states_equal(net.state_dict(), start)
    history = kw.train(to_network(spline), X, y, epochs=5, random_state=0)
    assert min(history.validation_loss) <= history.validation_loss[0]
