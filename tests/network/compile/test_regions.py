import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import knotwork as kw
from knotwork.errors import DataError, NetworkError

ACTIVATIONS = [nn.ReLU, nn.LeakyReLU, lambda: nn.PReLU(init=-0.3), nn.ReLU6, nn.Hardtanh]


def network(seed, inputs, widths, outputs, activation):
    torch.manual_seed(seed)
    modules = []
    for width in widths:
        modules += [nn.Linear(inputs, width), activation(), nn.Dropout(0.1)]
        inputs = width
    return nn.Sequential(*modules, nn.Linear(inputs, outputs)).double().eval()


def run(net, X):
    with torch.no_grad():
        return net(torch.tensor(X, dtype=next(net.parameters()).dtype)).double().numpy()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31), st.integers(1, 2), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 2),
    st.sampled_from(ACTIVATIONS),
)  # fmt: skip
def test_network_to_pieces_to_lattice_to_network(seed, inputs, widths, outputs, activation):
    net = network(seed, inputs, widths, outputs, activation)
    pieces = kw.from_network(net, (-2.0, 3.0))
    assert pieces.exact
    assert pieces.coverage == 1.0
    X = np.random.default_rng(seed).uniform(-2, 3, (200, inputs))
    expected = run(net, X)
    size = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(pieces(X).reshape(len(X), -1), expected, atol=1e-9 * size)
    assert pieces.check_continuity() <= 1e-9 * size
    lattice = pieces.to_lattice()
    again = kw.to_network(lattice, dtype=torch.float64)
    np.testing.assert_allclose(run(again, X).reshape(len(X), -1), expected, atol=1e-9 * size)


def test_a_trained_network_goes_the_whole_way_round():
    X, y = kw.datasets.load_wine_quality("red")
    table = X[["alcohol", "volatile acidity"]].to_numpy()
    model = kw.SplineNetRegressor(n_members=1, hidden=(12, 6), epochs=5, random_state=0).fit(table, y)
    box = (table.min(axis=0), table.max(axis=0))
    net = model.network_.double()
    pieces = kw.from_network(net, box)
    back = kw.to_network(kw.as_pwl(pieces), dtype=torch.float64)
    size = np.abs(run(net, table)).max()
    np.testing.assert_allclose(run(back, table), run(net, table), atol=1e-9 * size)
    areas = [0.5 * abs(np.cross(np.column_stack([p.points, 0 * p.points[:, :1]]),
                                np.roll(np.column_stack([p.points, 0 * p.points[:, :1]]), -1, axis=0))[:, 2].sum())
             for p in pieces.pieces]  # fmt: skip
    assert sum(areas) == pytest.approx(np.prod(box[1] - box[0]))


def test_a_spline_network_has_the_pieces_of_its_spline():
    f = kw.as_pwl(([0.0, 1.0, 3.0], [0.0, 2.0, 1.0]))
    pieces = kw.from_network(kw.to_network(f, dtype=torch.float64), (-1, 4))
    assert sorted(p.points.ravel().round(12).tolist() for p in pieces.pieces) == [[-1, 0], [0, 1], [1, 3], [3, 4]]


def test_many_inputs_are_sampled_and_say_so():
    net = network(0, 5, (10, 6), 2, nn.LeakyReLU)
    pieces = kw.from_network(net, (-1, 1), samples=300, random_state=0)
    assert not pieces.exact
    assert 0.1 < pieces.coverage < 1
    X = np.random.default_rng(1).uniform(-1, 1, (300, 5))
    values = pieces(X)
    inside = ~np.isnan(values[:, 0])
    assert inside.mean() == pytest.approx(pieces.coverage, abs=0.15)
    np.testing.assert_allclose(values[inside], run(net, X)[inside], atol=1e-12)
    with pytest.raises(DataError, match=r"needs all pieces, these were found by sampling and cover \d+"):
        pieces.to_lattice()


@pytest.mark.parametrize(
    ("net", "box", "message"),
    [
        (nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1)), (0, 1), "got Tanh; kw.to_relu"),
        (nn.Sequential(nn.Linear(1, 2), nn.PReLU(2), nn.Linear(2, 1)), (0, 1), "one slope for all units, got 2"),
        (nn.Sequential(nn.Linear(1, 2), nn.ReLU()), (0, 1), "end with a Linear, got Linear → ReLU"),
        (nn.Sequential(nn.ReLU(), nn.Linear(1, 2)), (0, 1), "must alternate"),
        (nn.Linear(1, 2), (0, 1), "must be an nn.Sequential"),
        (nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)), (1, 0), "each minimum first"),
        (nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)), 3, r"box must be \(minimum, maximum\)"),
    ],
)
def test_what_cannot_be_taken_apart_is_refused(net, box, message):
    with pytest.raises((NetworkError, DataError), match=message):
        kw.from_network(net, box)
