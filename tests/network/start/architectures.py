"""Networks that people start: BatchNorm, residual blocks, wrappers and ModuleLists, as their authors write them."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """h + f(h), normalised first; ``post`` puts a ReLU behind the sum."""

    def __init__(self, width, norm=nn.BatchNorm1d, post=False):
        super().__init__()
        self.norm, self.dropout, self.post = norm(width), nn.Dropout(0.1), post
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        out = x + self.dropout(self.second(functional.relu(self.first(self.norm(x)))))
        return torch.relu(out) if self.post else out


class ResNet(nn.Module):
    """Stem, blocks, then BatchNorm, ReLU and Linear: the tabular ResNet of the literature."""

    def __init__(self, features, outputs, norm=nn.BatchNorm1d, last=nn.BatchNorm1d):
        super().__init__()
        self.stem = nn.Linear(features, 32)
        self.blocks = nn.ModuleList([Block(32, norm) for _ in range(2)])
        self.head = nn.Sequential(last(32), nn.ReLU(), nn.Linear(32, outputs))

    def forward(self, x):
        x = self.stem(x.flatten(1))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class BentInside(nn.Module):
    """Activations in the blocks alone; the first bends for all."""

    def __init__(self, features, outputs, norm=nn.BatchNorm1d):
        super().__init__()
        self.stem, self.head = nn.Linear(features, 32), nn.Linear(32, outputs)
        self.blocks = nn.ModuleList([Block(32, norm) for _ in range(2)])

    def forward(self, x):
        x = self.stem(x.view(x.shape[0], -1))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class PostActivation(nn.Module):
    """ReLU behind every sum, as in the first ResNets; no bias in front of a BatchNorm."""

    def __init__(self, features, outputs):
        super().__init__()
        self.stem, self.norm = nn.Linear(features, 32, bias=False), nn.BatchNorm1d(32)
        self.blocks = nn.Sequential(Block(32, post=True), Block(32, nn.LayerNorm, post=True))
        self.head = nn.Linear(32, outputs)

    def forward(self, x):
        return self.head(self.blocks(torch.relu(self.norm(self.stem(x)))))


class Projected(nn.Module):
    """A skip that changes the width, and a branch that ends with a BatchNorm."""

    def __init__(self, features, outputs):
        super().__init__()
        self.stem, self.skip = nn.Linear(features, 32), nn.Linear(32, 16)
        self.branch = nn.Sequential(
            nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16)
        )
        self.head = nn.Linear(16, outputs)

    def forward(self, x):
        h = functional.leaky_relu(self.stem(x), 0.1)
        return self.head(functional.leaky_relu(self.skip(h) + self.branch(h), negative_slope=0.1))


class Wrapper(nn.Module):
    """Calls what it wraps, between others that change nothing, and answers (N,) to one output."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, scale=None):
        out = functional.dropout(self.inner(x), 0.0, self.training)
        return out.squeeze(-1)


class Listed(nn.Module):
    """Layers in ModuleLists, defined in another order than they run."""

    def __init__(self, features, outputs):
        super().__init__()
        self.last = nn.Linear(8, outputs)
        self.norms = nn.ModuleList([nn.BatchNorm1d(32), nn.BatchNorm1d(8)])
        self.linears = nn.ModuleList([nn.Linear(features, 32, bias=False), nn.Linear(32, 8, bias=False)])
        self.dropout = nn.Dropout(0.05)

    def forward(self, x):
        for linear, norm in zip(self.linears, self.norms, strict=True):
            x = self.dropout(functional.relu(norm(linear(x))))
        return self.last(x)


def batch_norm_first(features, outputs):
    return nn.Sequential(
        nn.BatchNorm1d(features, affine=False), nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU(),
        nn.Linear(8, outputs),
    )  # fmt: skip


def batch_norm_before(features, outputs):
    return nn.Sequential(
        nn.Linear(features, 32, bias=False), nn.BatchNorm1d(32), nn.PReLU(),
        nn.Linear(32, 8, bias=False), nn.BatchNorm1d(8, momentum=None), nn.PReLU(), nn.Linear(8, outputs),
    )  # fmt: skip


def batch_norm_behind(features, outputs):
    return nn.Sequential(
        nn.BatchNorm1d(features), nn.Linear(features, 32), nn.LeakyReLU(), nn.BatchNorm1d(32), nn.Dropout(0.1),
        nn.Linear(32, 8), nn.LeakyReLU(), nn.BatchNorm1d(8), nn.Linear(8, outputs),
    )  # fmt: skip


ARCHITECTURES = {
    "batch norm first": batch_norm_first,
    "batch norm before the activation": batch_norm_before,
    "batch norm behind the activation": batch_norm_behind,
    "resnet": ResNet,
    "resnet with layer norm in its branches": lambda d, p: ResNet(d, p, norm=nn.LayerNorm),
    "bent inside": BentInside,
    "post-activation": PostActivation,
    "projected": Projected,
    "wrapper": lambda d, p: Wrapper(nn.Sequential(Wrapper(ResNet(d, p)), nn.Identity()) if p > 1 else ResNet(d, p)),
    "listed": Listed,
}
