"""The bins of all values of a table in one launch, for CUDA devices."""

# triton is there where CUDA is, and what its compiler reads is not typed.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found, index"

import torch
import triton
import triton.language as tl
from torch import Tensor

# Values that a program looks up.
ROWS = 1024


@triton.jit(do_not_specialize=["n"])
def _encode(raw, factor, centre, knots, out, n, steps: tl.constexpr, rows: tl.constexpr):
    # A binary search: all values of a program take a step before any takes the next.
    feature = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    exists = row < n
    z = tl.load(raw + feature * n + row, mask=exists, other=0.0).to(tl.float64)
    z = z * tl.load(factor + feature) - tl.load(centre + feature)
    own = knots + feature * ((1 << steps) - 1)
    code = tl.zeros([rows], tl.int32)
    for k in tl.static_range(steps):
        step = 1 << (steps - 1 - k)
        code += tl.where(tl.load(own + code + (step - 1)) < z, step, 0)
    tl.store(out + feature * n + row, code.to(out.dtype.element_ty), mask=exists)


def encode(columns: tuple[Tensor, Tensor, Tensor], knots: Tensor, out: Tensor) -> None:
    """Write the bin of every value, the number of knots below it: (d, N).

    columns : (d, N) raw values, (d,) factors and (d,) centres: z = raw·factor − centre
    knots : (d, 2^k − 1) rising, with infinity behind them
    """
    raw, factor, centre = columns
    steps = int(knots.shape[1]).bit_length()
    grid = (triton.cdiv(raw.shape[1], ROWS), len(raw))
    with torch.cuda.device_of(raw):
        _encode[grid](raw, factor, centre, knots, out, raw.shape[1], steps, ROWS)
