"""Ensembles as one network: the average of chains, and networks trained side by side."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from knotwork.network.activations import activation_rule
from knotwork.network.blocks import BlockLinear
from knotwork.network.chain import Blocks, Chain, Layer, build, evaluate, read_chain
from knotwork.network.members import Stacked, joined
from knotwork.network.train.loop import TrainOptions, fit_network
from knotwork.network.train.losses import LogLoss, SquaredError
from knotwork.network.train.rows import Folds, Part

CPU = torch.device("cpu")


def chain(rng: np.random.Generator, widths: tuple[int, ...], activation: str = "relu") -> Chain:
    layers = [
        Layer(torch.from_numpy(rng.normal(size=(b, a))), torch.from_numpy(rng.normal(size=b)))
        for a, b in itertools.pairwise(widths)
    ]
    return Chain.of(layers, activation_rule(activation))


@settings(max_examples=25, deadline=None)
@given(
    members=st.integers(1, 5),
    widths=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    activation=st.sampled_from(["relu", "leaky_relu", "prelu", "silu"]),
    seed=st.integers(0, 2**31),
)
def test_the_joined_chain_is_the_average(members: int, widths: list[int], activation: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chains = [chain(rng, tuple(widths), activation) for _ in range(members)]
    X = rng.normal(size=(7, widths[0]))
    mean = np.mean([evaluate(own, X) for own in chains], axis=0)
    whole = joined(chains)
    size = np.abs([evaluate(own, X) for own in chains]).max() + 1
    np.testing.assert_allclose(evaluate(whole, X), mean, atol=1e-12 * size)
    for batched in (False, True):  # with all zeros and without them
        net = build(whole, torch.float64, batched=batched)
        np.testing.assert_allclose(net(torch.from_numpy(X)).detach().numpy(), mean, atol=1e-12 * size)
        np.testing.assert_allclose(evaluate(read_chain(net), X), mean, atol=1e-12 * size)
    stacked = Stacked(chains, torch.float64, CPU)
    again = stacked.chains(activation_rule(activation))
    for own, other in zip(chains, again, strict=True):
        np.testing.assert_array_equal(evaluate(own, X), evaluate(other, X))
    rows = torch.from_numpy(X).expand(members, -1, -1)
    np.testing.assert_allclose(stacked(rows).detach().mean(0).numpy(), mean, atol=1e-12 * size)


def test_layers_behind_the_first_are_blocks() -> None:
    rng = np.random.default_rng(0)
    net = build(joined([chain(rng, (2, 3, 4, 5, 1)) for _ in range(3)]), batched=True)
    kinds = [type(layer).__name__ for layer in net if not isinstance(layer, nn.ReLU)]
    assert kinds == ["Linear", "BlockLinear", "BlockLinear", "Linear"]
    assert sum(p.numel() for p in net.parameters()) == 3 * (9 + 16 + 25 + 6) - 2  # one bias of the output for all
    plain = build(joined([chain(rng, (2, 3, 4, 5, 1)) for _ in range(3)]))
    assert plain[2].weight.shape == (12, 9)
    assert (plain[2].weight != 0).sum() == 3 * 4 * 3
    assert isinstance(read_chain(net).hidden[1], Blocks)


def test_a_block_layer_needs_groups() -> None:
    with pytest.raises(ValueError, match="needs a group, an input and an output at least, got 0, 1 and 1"):
        BlockLinear(0, 1, 1)


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("l1", [0.0, 1e-3])
def test_networks_trained_together_are_networks_trained_alone(classes: bool, l1: float) -> None:
    """With whole-table batches the order of the rows is nothing, and each member must go the way it goes alone."""
    rng = np.random.default_rng(1)
    chains = [chain(rng, (3, 8, 8, 1)) for _ in range(3)]
    x = torch.from_numpy(rng.normal(size=(40, 3)))
    loss = LogLoss(1) if classes else SquaredError()
    y = (x[:, 0] > 0).long() if classes else 10 * x[:, :1].abs()  # gradients long enough to be clipped
    table = Part(x, y, torch.from_numpy(rng.random(40)))
    folds = np.arange(40) % 4
    splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(3)]
    options = TrainOptions(epochs=15, batch_size=1000, patience=None, setback=None, l1=l1, clip=0.1)
    stacked = Stacked(chains, torch.float64, CPU)
    both = [Folds.of(table, [split[side] for split in splits]) for side in (0, 1)]
    together = fit_network(stacked, *both, options, seed=0, loss=loss)
    assert len(together.members) == 3
    for own, split, history in zip(chains, splits, together.members, strict=True):
        net = build(own, torch.float64)
        alone = fit_network(net, *(table.at(torch.from_numpy(s)) for s in split), options, seed=0, loss=loss).history
        np.testing.assert_allclose(history.validation_loss, alone.validation_loss, rtol=1e-9)
        np.testing.assert_allclose(history.train_loss, alone.train_loss, rtol=1e-9)
    mean = np.mean([h.validation_loss for h in together.members], axis=0)
    np.testing.assert_allclose(together.history.validation_loss, mean, rtol=1e-12)
    assert together.history.best_epoch == mean.argmin() == together.members[1].best_epoch


def test_an_epoch_takes_every_row_of_every_member_once() -> None:
    table = Part(torch.arange(30.0)[:, None], torch.zeros(30, 1), torch.ones(30))
    own = [np.arange(0, 17), np.arange(10, 30), np.arange(5)]
    folds = Folds.of(table, own)
    batches = list(folds.shuffled(8, torch.Generator().manual_seed(0)))
    assert [tuple(batch.weight.shape) for batch in batches] == [(3, 8), (3, 8), (3, 4)]
    assert len(batches) == folds.steps(8)
    for rows, values, weights in zip(
        own,
        torch.cat([batch.x for batch in batches], dim=1)[..., 0],
        torch.cat([batch.weight for batch in batches], dim=1),
        strict=True,
    ):
        assert sorted(values[weights > 0].tolist()) == rows.tolist()
    weights = torch.cat([part.weight for part in folds.chunks()], dim=1)
    assert weights.sum(1).tolist() == [17, 20, 5]
    sampled = Folds.of(table, own, looked_at=7)
    assert sum(part.x.shape[1] for part in sampled.chunks()) == 10


def test_networks_without_a_row_in_a_batch_do_not_move() -> None:
    rng = np.random.default_rng(0)
    stacked = Stacked([chain(rng, (1, 4, 1)) for _ in range(2)], torch.float64, CPU)
    x = torch.from_numpy(rng.normal(size=(6, 1)))
    folds = Folds.of(Part(x, x.abs(), torch.ones(6, dtype=torch.float64)), [np.arange(6), np.arange(3)])
    batch = folds.at(folds.orders(3, torch.Generator().manual_seed(0))[1])
    cost = batch.mean(batch.costs(stacked, SquaredError().rows))
    gradients = torch.autograd.grad(cost, list(stacked.weights))
    assert all(bool((g[1] == 0).all()) for g in gradients)
    assert bool((gradients[0][0] != 0).any())
