"""Joint histograms of a feature with several others in one launch, for CUDA devices."""

# triton is there where CUDA is, and what its compiler reads is not typed.
# mypy: disable-error-code="no-untyped-def, import-not-found, index"

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows that a program reads at a time, and how often it does.
ROWS, TURNS = 512, 16


@triton.jit
def _joint_sums(
    own_codes, codes, own, raw, factor, centre, weights, anchor, out, n, width,
    weighted: tl.constexpr, rows: tl.constexpr, turns: tl.constexpr,
):  # fmt: skip
    # One program adds some rows of one pair to its histogram. The four sums of a cell are neighbours in memory, and
    # are added by neighbouring threads: the memory takes them together.
    other = tl.program_id(1).to(tl.int64)
    cells = out + other * width * width * 4
    sums = tl.arange(0, 4)[None, :]
    scale, middle = tl.load(factor + other), tl.load(centre + other)
    for turn in range(turns):
        row = (tl.program_id(0) * turns + turn).to(tl.int64) * rows + tl.arange(0, rows)
        exists = row < n
        cell = tl.load(own_codes + row, mask=exists, other=0).to(tl.int32) * width
        cell += tl.load(codes + other * n + row, mask=exists, other=0).to(tl.int32)
        x = tl.load(own + row, mask=exists, other=0.0)
        z = tl.load(raw + other * n + row, mask=exists, other=0.0).to(tl.float64) * scale - middle
        w = tl.load(weights + row, mask=exists, other=0.0) if weighted else 1.0
        v = tl.where(sums == 0, 1.0, tl.where(sums == 1, x[:, None], tl.where(sums == 2, (x * z)[:, None], z[:, None])))
        if weighted:
            v = v * w[:, None]
        v = (v + anchor) - anchor  # rounded so that sums are exact, in any order
        tl.atomic_add(cells + cell[:, None] * 4 + sums, v, mask=exists[:, None], sem="relaxed")


def joint_sums(
    own_codes: Tensor, codes: Tensor, own: Tensor, others: tuple[Tensor, Tensor, Tensor], weights: Tensor | None,
    anchor: float, width: int,
) -> Tensor:  # fmt: skip
    """Sum w, w·x, w·x·z and w·z over each pair of bins of one feature x and others z: (G, width, width, 4).

    own_codes, own : (N,) bins and values of x; codes : (G, N) of the others
    others : (G, N) raw values, (G,) factors and (G,) centres: z = raw·factor − centre
    weights : (N,) or None for ones; anchor : what is added to it is rounded to a multiple of its last bit
    """
    count, n = codes.shape
    out = torch.zeros((count, width, width, 4), dtype=torch.float64, device=own.device)
    _joint_sums[(triton.cdiv(n, ROWS * TURNS), count)](
        own_codes, codes, own, *others, own if weights is None else weights, anchor, out, n, width,
        weights is not None, ROWS, TURNS,
    )  # fmt: skip
    return out
