"""Layers of several networks side by side: a block-diagonal matrix, stored and multiplied as its blocks.

The hidden units of M networks are M groups of units; between two hidden layers each group reads its own. Eight networks
of 128 units a layer have 8 · 128² weights there, and the matrix has 1024²: seven eighths are zeros.
"""

# Annotations stay objects: torch.jit.script reads them.
import torch
from torch import Tensor, nn

from knotwork.errors import NetworkError


class BlockLinear(nn.Module):
    """A linear layer in which each of M groups of outputs reads a group of inputs of its own: (N, M·in) → (N, M·out).

    Parameters
    ----------
    members : M, the groups
    in_features, out_features : of one group

    Attributes
    ----------
    weight : (M, out, in); bias : (M·out,)

    Examples
    --------
    >>> layer = BlockLinear(2, 1, 1)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[[2.0]], [[3.0]]])), layer.bias.zero_()
    >>> layer(torch.tensor([[1.0, 10.0]])).tolist()
    [[2.0, 30.0]]
    """

    def __init__(self, members: int, in_features: int, out_features: int) -> None:
        super().__init__()
        if min(members, in_features, out_features) < 1:
            raise NetworkError(
                f"a BlockLinear needs a group, an input and an output at least, got {members}, {in_features} and "
                f"{out_features}"
            )
        self.members, self.in_features, self.out_features = members, in_features, out_features
        self.weight = nn.Parameter(torch.empty(members, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(members * out_features))
        bound = in_features**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Apply each block to its group."""
        return apply_blocks(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Say the shape."""
        return f"members={self.members}, in_features={self.in_features}, out_features={self.out_features}"


def apply_blocks(x: Tensor, blocks: Tensor, bias: Tensor) -> Tensor:
    """Multiply groups by their blocks: (N, M·in), (M, out, in), (M·out,) → (N, M·out)."""
    members, _, inputs = blocks.shape
    groups = x.reshape(x.shape[0], members, inputs).transpose(0, 1)
    return torch.bmm(groups, blocks.transpose(1, 2)).transpose(0, 1).reshape(x.shape[0], -1) + bias
