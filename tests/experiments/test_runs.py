from dataclasses import replace

import numpy as np
import pytest
import torch

from knotwork.data.coordinates import Coordinates
from knotwork.experiments.protocol import FULL, STARTS, split
from knotwork.experiments.runs import (
    fit_start_spline,
    gradient_norm,
    inward,
    options_of,
    run,
    squared_errors,
    start_network,
    tensors,
    train_through,
)

TINY = replace(FULL, epochs=2, widths=(32, 8))


@pytest.fixture(scope="module")
def rows():
    return split("abalone", 0)


@pytest.mark.parametrize("start", STARTS)
def test_every_start_has_the_same_shape(rows, start):
    net, _ = start_network(start, rows, TINY, 0)
    assert [tuple(p.shape) for p in net.parameters()] == [(32, 10), (32,), (8, 32), (8,), (1, 8), (1,)]


@pytest.mark.parametrize("start", ["converted", "hinge fill", "zero fill"])
def test_every_fill_starts_as_the_spline(rows, start):
    net, spline = start_network(start, rows, TINY, 0)
    with torch.no_grad():
        values = net(torch.from_numpy(rows.test.x).float())[:, 0].numpy()
    np.testing.assert_allclose(values, spline(rows.test.x), atol=2e-5)


def test_the_zero_fill_is_dead_and_stays_so(rows):
    net, _ = start_network("zero fill", rows, TINY, 0)
    trained = train_through(net, rows, options_of(TINY, 1e-2, 2), 0)
    own = int((trained.before[0].weight != 0).any(dim=1).sum())
    assert own < 32
    assert (trained.after[0].weight[own:] == 0).all()


@pytest.mark.parametrize("start", ["converted", "random"])
def test_standardised_coordinates_change_no_start(rows, start):
    net, _ = start_network(start, rows, TINY, 0)
    c = Coordinates.of(rows.train.x, rows.train.y)
    inner = inward(net, c)
    with torch.no_grad():
        z = torch.from_numpy(c.features(rows.test.x)).float()
        values = inner(z)[:, 0].numpy() * c.y_scale + c.y_centre[0]
        expected = net(torch.from_numpy(rows.test.x).float())[:, 0].numpy()
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_a_run_records_every_epoch_and_begins_with_the_start(rows):
    record = run(TINY, "abalone", "minmax", "converted", 1e-3, 0)
    assert [len(record[k]) for k in ("train", "validation", "test")] == [3, 3, 3]
    spline = fit_start_spline(rows.train, rows.names, 32)
    expected = np.mean((spline(rows.test.x) - rows.test.y[:, 0]) ** 2)
    assert record["test"][0] == pytest.approx(expected, rel=1e-4)
    assert record["terms"] == len(spline.terms)


def test_the_last_error_is_that_of_the_network_handed_back(rows):
    net, _ = start_network("random", rows, TINY, 0)
    trained = train_through(net, rows, options_of(TINY, 1e-3, 2), 0)
    assert trained.test[-1] == pytest.approx(trained.errors.mean(), rel=1e-5)


def test_the_gradient_norm_is_the_slope_downhill(rows):
    net, _ = start_network("random", rows, TINY, 0)
    norm = gradient_norm(net, rows.train)
    part = tensors(rows.train)
    before = float(squared_errors(net, part).mean())
    (net(part.x) - part.y).square().mean().backward()
    step = 1e-4
    with torch.no_grad():
        for p in net.parameters():
            p -= step / norm * p.grad
    fall = before - float(squared_errors(net, part).mean())
    assert fall == pytest.approx(step * norm, rel=0.02)
