"""Two neighbouring sums at once: half of the loads and stores of a histogram that keeps Σv and Σvx side by side.

LLVM would find these pairs by itself, but numba leaves that part of it (the SLP vectoriser) off.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


@intrinsic
def _add_pair(typing: Any, table: Any, pair: Any, first: Any, second: Any) -> Any:
    """Add two numbers to ``table[2 * pair : 2 * pair + 2]``, a flat array of floats; bounds are not checked."""
    signature = types.void(table, types.uint64, types.float64, types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        vector, index = ir.VectorType(ir.DoubleType(), 2), ir.IntType(32)
        place = builder.gep(data, [builder.shl(arguments[1], arguments[1].type(1))])
        place = builder.bitcast(place, vector.as_pointer())
        both = ir.Constant(vector, ir.Undefined)
        for k in range(2):
            both = builder.insert_element(both, arguments[2 + k], index(k))
        builder.store(builder.fadd(builder.load(place, align=8), both), place, align=8)
        return context.get_dummy_value()

    return signature, generate


add_pair: Any = _add_pair  # which numba calls without the first argument
