"""An ensemble as one network: the average of networks of one shape is a network whose layers hold theirs as blocks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from knotwork.network.activations import Activation
from knotwork.network.chain import Blocks, Chain, Layer


def joined(chains: Sequence[Chain]) -> Chain:
    """Return the average of chains of one shape, in the same coordinates and of one conversion, as one chain.

    All members read the features, so their first layers lie on top of one another; the layers behind them are
    block-diagonal; the output layer averages. One chain is returned as it is.

    >>> from knotwork.network.activations import activation_rule
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> chains = [Chain.of([Layer(w * one, one[0]), Layer(one, one[0])], activation_rule("relu")) for w in (1.0, 3.0)]
    >>> average = joined(chains)                        # (R(x + 1) + 1 + R(3x + 1) + 1)/2
    >>> average.widths, average.output(average.modules[0](average.hidden[0](one))).item()
    ((2,), 4.0)
    """
    first = chains[0]
    if len(chains) == 1:
        return first
    if not first.hidden:
        weight, bias = (torch.stack(parts).mean(dim=0) for parts in zip(*map(_parts, chains), strict=True))
        return replace(first, output=Layer(weight, bias))
    layers = list(zip(*(chain.layers for chain in chains), strict=True))
    wide = Layer(torch.cat([own.weight for own in layers[0]]), torch.cat([own.bias for own in layers[0]]))
    deep = [
        Blocks(torch.stack([layer.weight for layer in own]), torch.cat([layer.bias for layer in own]))
        for own in layers[1:-1]
    ]
    share = 1 / len(chains)
    output = Layer(
        torch.cat([layer.weight for layer in layers[-1]], dim=1) * share,
        torch.stack([layer.bias for layer in layers[-1]]).mean(dim=0),
    )
    modules = tuple(_activation(own, chains) for own in zip(*(chain.modules for chain in chains), strict=True))
    return replace(first, hidden=(wide, *deep), output=output, modules=modules)


def alike(chains: Sequence[Chain]) -> list[Chain]:
    """Return the chains with the scaling of the first around all of them."""
    c = chains[0].coordinates
    return [own if own.scaling is chains[0].scaling else own.in_coordinates(c).with_scaling(c) for own in chains]


def _parts(chain: Chain) -> tuple[Tensor, Tensor]:
    return chain.output.weight, chain.output.bias


def _activation(own: tuple[nn.Module, ...], chains: Sequence[Chain]) -> nn.Module:
    """Return the activation of a joined layer; slopes that were trained become one per unit."""
    if not isinstance(own[0], nn.PReLU):
        return own[0]
    widths = [chain.widths[chain.modules.index(module)] for chain, module in zip(chains, own, strict=True)]
    slopes = [m.weight.detach().expand(w) for m, w in zip(own, widths, strict=True) if isinstance(m, nn.PReLU)]
    joint = nn.PReLU(sum(widths)).to(own[0].weight.device, own[0].weight.dtype)
    with torch.no_grad():
        joint.weight.copy_(torch.cat(slopes))
    return joint


class Stacked(nn.Module):
    """Networks of one shape that are trained together, each on rows of its own: (M, N, d) → (M, N, outputs).

    A layer of all of them is one batched product. weights : (M, out, in) of each layer; biases : (M·out,)
    """

    def __init__(self, chains: Sequence[Chain], dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.members = len(chains)
        layers = list(zip(*(chain.layers for chain in chains), strict=True))

        def parameter(values: Tensor) -> nn.Parameter:
            return nn.Parameter(values.to(device, dtype, memory_format=torch.contiguous_format))

        self.weights = nn.ParameterList([parameter(torch.stack([layer.weight for layer in own])) for own in layers])
        # As vectors: an optimiser's weight decay leaves vectors alone.
        self.biases = nn.ParameterList([parameter(torch.cat([layer.bias for layer in own])) for own in layers])
        self.activations = nn.ModuleList([_stacked_activation(m, self.members, dtype) for m in chains[0].modules])
        self.activations.to(device)

    def forward(self, x: Tensor) -> Tensor:
        """Run every network on its own rows."""
        last = len(self.activations)
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias.view(self.members, 1, -1), x, weight.transpose(1, 2))
            if k < last:
                x = self._activated(x, self.activations[k])
        return x

    @staticmethod
    def _activated(x: Tensor, activation: nn.Module) -> Tensor:
        if not isinstance(activation, nn.PReLU):
            return activation(x)
        sloped: Tensor = activation(x.transpose(0, 1))  # a slope a network, which torch looks for in the second axis
        return sloped.transpose(0, 1)

    def layers(self, member: int) -> list[Layer]:
        """Return the layers of one network."""
        found = []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            own = bias.view(self.members, -1)[member]
            found.append(Layer(*(part.detach().to("cpu", torch.float64).clone() for part in (weight[member], own))))
        return found

    def chains(self, rule: Activation) -> list[Chain]:
        """Take the networks apart."""
        chains = [Chain.of(self.layers(member), rule) for member in range(self.members)]
        return [
            replace(chain, modules=tuple(_own_activation(m, member) for m in self.activations))
            for member, chain in enumerate(chains)
        ]


def _stacked_activation(module: nn.Module, members: int, dtype: torch.dtype) -> nn.Module:
    if not isinstance(module, nn.PReLU):
        return copy.deepcopy(module).to(dtype)
    return nn.PReLU(members, float(module.weight.detach().mean())).to(dtype)


def _own_activation(module: nn.Module, member: int) -> nn.Module:
    if not isinstance(module, nn.PReLU):
        return copy.deepcopy(module).to("cpu", torch.float64)
    return nn.PReLU(1, float(module.weight[member].detach())).double()
