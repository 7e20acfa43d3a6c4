"""Units of a network that weigh the same on both sides, so that an optimiser's steps suit them."""

from __future__ import annotations

import torch
from torch import nn

# Rescaling a layer changes what its neighbours weigh; the sweeps end when nothing moves, or here.
MOST_SWEEPS = 50


def balance_(net: nn.Module) -> None:
    """Rescale hidden units in place, by powers of two, so that what goes in and what comes out weigh the same.

    ReLU and its leaky kin are positively homogeneous: a unit with s times the input weights and 1/s times the output
    weights is the same unit. A converted network may carry values of the data's own size inside, far from those that an
    optimiser's step is made for. Networks that are not such a chain are left alone.
    """
    modules = [m for m in net.children() if not isinstance(m, (nn.Dropout, nn.Identity))]
    if not isinstance(net, nn.Sequential) or not all(
        isinstance(m, (nn.Linear, nn.ReLU, nn.LeakyReLU, nn.PReLU)) for m in modules
    ):
        return
    triples = list(zip(modules, modules[1:], modules[2:], strict=False))
    pairs = [(a, b) for a, _, b in triples if isinstance(a, nn.Linear) and isinstance(b, nn.Linear)]
    for _ in range(MOST_SWEEPS):
        changed = [_balance_pair_(first, second) for first, second in reversed(pairs)]
        if not any(changed):
            return


def _balance_pair_(first: nn.Linear, second: nn.Linear) -> bool:
    """Balance the units between two layers; return whether any changed."""
    with torch.no_grad():
        inward = torch.sqrt(first.weight.square().sum(dim=1) + first.bias.square())
        outward = torch.linalg.vector_norm(second.weight, dim=0)
        # A unit that adds nothing yet only has its inputs brought to size one.
        target = torch.where(outward > 0, outward, 1 / inward)
        scale = torch.exp2(torch.round(torch.log2(target / inward) / 2))
        scale = torch.where((inward > 0) & torch.isfinite(scale), scale, torch.ones_like(scale))
        first.weight.mul_(scale[:, None])
        first.bias.mul_(scale)
        second.weight.div_(scale)
        return bool((scale != 1).any())
