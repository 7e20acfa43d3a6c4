import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import knotwork as kw
from knotwork.network.compile.interpolants import interpolate, smooth_curve
from tests import reference

SMOOTH = [nn.Sigmoid, nn.Tanh, nn.Softplus, lambda: nn.Softplus(beta=3), nn.GELU, lambda: nn.GELU("tanh"), nn.SiLU]


@pytest.mark.parametrize("make", SMOOTH)
def test_slopes_and_curvatures_are_never_more_than_said(make):
    curve = smooth_curve(make())
    x = np.linspace(-12, 12, 200_001)
    y, h = curve(x), x[1] - x[0]
    assert np.abs(np.diff(y) / h).max() <= curve.slope * (1 + 1e-9)  # rounding of the differences
    assert np.abs(np.diff(y, 2) / h**2).max() <= curve.curvature * 1.001
    assert np.abs(np.diff(y, 2) / h**2).max() >= curve.curvature * 0.95
    if curve.tail is not None:
        coarse = np.linspace(-12, 12, 2401)
        bends = np.abs(np.diff(curve(coarse), 2)) / (coarse[1] - coarse[0]) ** 2
        distance = np.maximum(np.abs(coarse[1:-1]) - (coarse[1] - coarse[0]), 0)
        assert (bends <= curve.tail(distance) + 1e-9 + 4 * curve.slack / (coarse[1] - coarse[0]) ** 2).all()
        assert (np.diff(curve.tail(np.linspace(0, 12, 1000))) <= 0).all()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SMOOTH), st.floats(-8, 8), st.floats(0.01, 15), st.floats(1e-4, 0.3))
def test_interpolants_keep_their_tolerance_with_few_pieces(make, low, width, tolerance):
    curve = smooth_curve(make())
    found = interpolate(curve, low, low + width, tolerance)
    assert found.knots[0] == low
    assert found.knots[-1] == low + width
    assert reference.chord_error(curve, low, low + width, found.knots) <= found.error <= tolerance
    # No two neighbours could be one: every chord but the last is as long as it may be.
    for a, b in zip(found.knots, found.knots[2:], strict=False):
        assert reference.chord_error(curve, a, b, np.array([a, b])) > 0.95 * tolerance


def trained(activation, seed, widths=(12, 8)):
    """A network that has learnt something."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(2, widths[0]), activation(), nn.Linear(widths[0], widths[1]), activation(), nn.Linear(widths[1], 2)
    ).double()
    X = torch.rand(400, 2, dtype=torch.float64) * 4 - 2
    y = torch.stack([torch.sin(2 * X[:, 0]) + X[:, 1], X.prod(dim=1)], dim=1)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        loss = (net(X) - y).square().mean()
        loss.backward()
        optimiser.step()
    return net


TRAINED = {make: trained(make, 0) for make in (nn.Sigmoid, nn.Tanh, nn.Softplus, nn.GELU, nn.SiLU)}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(TRAINED)), st.floats(0.05, 1.0), st.integers(0, 2**31))
def test_the_observed_error_is_below_the_bound(make, tolerance, seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 0, 2)
    box = (low, low + rng.uniform(0.1, 2, 2))
    report = kw.to_relu(TRAINED[make], box, tolerance, samples=2000, random_state=seed)
    assert report.observed <= report.bound <= tolerance
    assert report.network.conversion.bound == report.bound
    modules = list(report.network)
    assert all(isinstance(m, (nn.Linear, nn.ReLU)) for m in modules)
    assert len(modules) == 5
    corners = torch.tensor(np.array([[box[i][0], box[j][1]] for i in (0, 1) for j in (0, 1)]))
    with torch.no_grad():
        assert (report.network(corners) - TRAINED[make](corners)).abs().max() <= report.bound


def test_fewer_pieces_for_a_smaller_box_or_a_larger_tolerance():
    net = TRAINED[nn.Tanh]
    sizes = [sum(kw.to_relu(net, box, t).pieces) for box, t in (((-2, 2), 0.1), ((-1, 1), 0.1), ((-1, 1), 1.0))]
    assert sizes[0] > sizes[1] > sizes[2]
    # Pieces grow like one over the square root of the tolerance.
    fine, coarse = (sum(kw.to_relu(net, (-1, 1), t).pieces) for t in (0.01, 1.0))
    assert 5 < fine / coarse < 15


def test_relu_layers_stay_and_the_result_has_pieces():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(1, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)
    ).train()
    report = kw.to_relu(net, (-1, 1), 0.05)
    assert net.training
    assert report.pieces[0] == 0
    assert report.network[0].out_features == 4
    assert next(report.network.parameters()).dtype == torch.float32
    assert len(kw.from_network(report.network, (-1, 1))) > 2


@pytest.mark.parametrize(
    ("net", "box", "tolerance", "message"),
    [
        (nn.Sequential(nn.Linear(1, 2), nn.Hardswish(), nn.Linear(2, 1)), (0, 1), 0.1, "got Hardswish"),
        (nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1)), (0, 1), 0.0, "tolerance must be positive, got 0"),
        (nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1)), (0, np.inf), 0.1, "finite sides"),
        (nn.Sequential(nn.Linear(1, 2)), (0, 1), 0.1, "an activation to replace, got none"),
        (nn.Sequential(nn.Linear(1, 2), nn.Softplus(threshold=2), nn.Linear(2, 1)), (0, 1), 1e-3, "raise it"),
    ],
)
def test_what_cannot_be_replaced_is_refused(net, box, tolerance, message):
    with pytest.raises(ValueError, match=message):
        kw.to_relu(net, box, tolerance)
