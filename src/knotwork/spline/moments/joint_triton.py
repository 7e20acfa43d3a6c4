"""Sums over the bins of features in one launch, alone or joint with another's, for CUDA devices."""

# triton is there where CUDA is, and what its compiler reads is not typed.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found, index"

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows that a program reads at a time, and how often it does.
ROWS, TURNS = 512, 16
# Where few bins are added to, each by many rows at once, there are copies of them to add to: about so many cells.
CELLS, MAX_COPIES = 1 << 14, 64
# What is summed beside the values of a feature: those of another feature, those of the rows, its own.
JOINT, OF_ROWS, ITSELF = 0, 1, 2


@triton.jit(do_not_specialize=["n", "feature", "bins", "size", "copies"])
def _bin_sums(
    codes, raw, factor, centre, values, weights, which, offsets, out, anchor, n, feature, bins, size, copies,
    beside: tl.constexpr, weighted: tl.constexpr, rows: tl.constexpr, turns: tl.constexpr,
):  # fmt: skip
    # One program adds some rows of one feature to its cells. The four sums of a cell are neighbours in memory, and
    # are added by neighbouring threads: the memory takes them together.
    other = tl.load(which + tl.program_id(1)).to(tl.int64)
    begin = tl.load(offsets + other)
    width = (tl.load(offsets + other + 1) - begin).to(tl.int32)
    cells = out + (size * (tl.program_id(0) % copies).to(tl.int64) + begin) * bins * 4
    own = tl.zeros((), tl.int64) + feature
    scale, middle = tl.load(factor + other), tl.load(centre + other)
    own_scale, own_middle = tl.load(factor + own), tl.load(centre + own)
    sums = tl.arange(0, 4)[None, :]
    for turn in range(turns):
        row = (tl.program_id(0) * turns + turn).to(tl.int64) * rows + tl.arange(0, rows)
        exists = row < n
        cell = tl.load(codes + other * n + row, mask=exists, other=0).to(tl.int32)
        z = tl.load(raw + other * n + row, mask=exists, other=0.0).to(tl.float64) * scale - middle
        if beside == 0:
            cell += tl.load(codes + own * n + row, mask=exists, other=0).to(tl.int32) * width
            x = tl.load(raw + own * n + row, mask=exists, other=0.0).to(tl.float64) * own_scale - own_middle
        elif beside == 1:
            x = tl.load(values + row, mask=exists, other=0.0)
        else:
            x = z
        v = tl.where(sums == 0, 1.0, tl.where(sums == 1, (x * z)[:, None], tl.where(sums == 2, x[:, None], z[:, None])))
        if weighted:
            v = v * tl.load(weights + row, mask=exists, other=0.0)[:, None]
        v = (v + anchor) - anchor  # rounded so that sums are exact, in any order
        tl.atomic_add(cells + cell[:, None] * 4 + sums, v, mask=exists[:, None], sem="relaxed")


def bin_sums(
    codes: Tensor, columns: tuple[Tensor, Tensor, Tensor], beside: int | Tensor | None, others: list[int],
    offsets: Tensor, size: int, weights: Tensor | None, anchor: float, bins: int,
) -> Tensor:  # fmt: skip
    """Sum w, w·x·z, w·x and w·z over the bins of features z, or over each pair of them with the bins of x.

    codes : (d, N) bins; columns : (d, N) raw values, (d,) factors and (d,) centres: z = raw·factor − centre
    beside : x: a feature, whose ``bins`` the sums are over too; (N,) values of the rows; None for z itself
    others : the features z; offsets : (d + 1,) the bins of feature g are ``offsets[g]`` to ``offsets[g + 1]``
    size : the bins of all features
    weights : (N,) or None for ones; anchor : what is added to it is rounded to a multiple of its last bit

    Return (bins · size, 4): the block of g begins at ``bins · offsets[g]``, in it the bins of z lie side by side.
    """
    raw, factor, centre = columns
    d, n = codes.shape
    copies = min(MAX_COPIES, max(1, CELLS * d // (bins * size)))
    out = torch.zeros((copies, bins * size, 4), dtype=torch.float64, device=raw.device)
    mode = ITSELF if beside is None else JOINT if isinstance(beside, int) else OF_ROWS
    which = torch.tensor(others, dtype=torch.int32, device=raw.device)
    if others:
        with torch.cuda.device_of(raw):
            _bin_sums[(triton.cdiv(n, ROWS * TURNS), len(others))](
                codes, raw, factor, centre, beside if isinstance(beside, Tensor) else factor,
                factor if weights is None else weights, which, offsets, out, anchor, n,
                beside if isinstance(beside, int) else 0, bins, size, copies, mode, weights is not None, ROWS, TURNS,
            )  # fmt: skip
    return out[0] if copies == 1 else out.sum(dim=0)
