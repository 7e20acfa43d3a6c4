"""The residual of a sum of hinges and its products with them, in one pass over the rows, for CUDA devices."""

# triton is there where CUDA is, and what its compiler reads is not typed.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found, index"

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows of a program.
ROWS = 1024


@triton.jit
def _term(raw, factor, centre, feature, sign, shift, floor, m, n, row, exists):
    own = tl.load(feature + m)
    z = tl.load(raw + own * n + row, mask=exists, other=0.0).to(tl.float64) * tl.load(factor + own)
    return tl.maximum(tl.load(sign + m) * (z - tl.load(centre + own)) + tl.load(shift + m), tl.load(floor + m))


@triton.jit(do_not_specialize=["n", "terms"])
def _residual(
    raw, factor, centre, y, weights, feature, sign, shift, floor, beta, out, n, terms,
    weighted: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    # One program sums some rows; what programs find is added up later, always in the same order.
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    exists = row < n
    r = tl.load(y + row, mask=exists, other=0.0)
    for m in range(terms):
        r -= tl.load(beta + m) * _term(raw, factor, centre, feature, sign, shift, floor, m, n, row, exists)
    r = tl.where(exists, r, 0.0)
    wr = r
    if weighted:
        wr = r * tl.load(weights + row, mask=exists, other=0.0)
    at = out + tl.program_id(0).to(tl.int64) * (terms + 1)
    tl.store(at, tl.sum(r * wr, axis=0))
    for m in range(terms):
        b = _term(raw, factor, centre, feature, sign, shift, floor, m, n, row, exists)
        tl.store(at + 1 + m, tl.sum(b * wr, axis=0))


def residual_sums(
    columns: tuple[Tensor, Tensor, Tensor], y: Tensor, weights: Tensor | None,
    terms: tuple[Tensor, Tensor, Tensor, Tensor], beta: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return Σwr² (p,) and Σwrb (M, p) of the residuals r = y − Σ β_m b_m.

    columns : (d, N) raw values, (d,) factors and (d,) centres: z = raw·factor − centre
    y : (p, N); weights : (N,) or None for ones; beta : (M, p)
    terms : of each its feature, sign, shift and floor, (M,) each: b = max(sign·z + shift, floor)
    """
    raw, factor, centre = columns
    n, parts = raw.shape[1], triton.cdiv(raw.shape[1], ROWS)
    out = torch.empty((parts, 1 + len(beta)), dtype=torch.float64, device=raw.device)
    found = torch.empty((len(y), 1 + len(beta)), dtype=torch.float64, device=raw.device)
    for own, coef, sums in zip(y, beta.T.contiguous(), found, strict=True):
        with torch.cuda.device_of(raw):
            _residual[(parts,)](
                raw, factor, centre, own, factor if weights is None else weights, *terms, coef, out, n, len(beta),
                weights is not None, ROWS,
            )  # fmt: skip
        sums.copy_(out.sum(dim=0))
    return found[:, 0], found[:, 1:].T
