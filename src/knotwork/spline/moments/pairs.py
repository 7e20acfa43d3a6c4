"""Neighbouring sums at once: fewer loads and stores for a histogram that keeps Σv and Σvx side by side, or four sums.

LLVM would find these groups by itself, but numba leaves that part of it (the SLP vectoriser) off.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


def _addition(table: Any, numbers: tuple[Any, ...]) -> Any:
    """Return the signature and the code that adds numbers to a cell of a flat array of floats; bounds are unchecked."""
    size = len(numbers)
    signature = types.void(table, types.uint64, *[types.float64] * size)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        vector, index = ir.VectorType(ir.DoubleType(), size), ir.IntType(32)
        place = builder.gep(data, [builder.mul(arguments[1], arguments[1].type(size))])
        place = builder.bitcast(place, vector.as_pointer())
        values = ir.Constant(vector, ir.Undefined)
        for k in range(size):
            values = builder.insert_element(values, arguments[2 + k], index(k))
        builder.store(builder.fadd(builder.load(place, align=8), values), place, align=8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _add_pair(typing: Any, table: Any, cell: Any, first: Any, second: Any) -> Any:
    """Add two numbers to ``table[2 * cell : 2 * cell + 2]``."""
    return _addition(table, (first, second))


@intrinsic
def _add_four(typing: Any, table: Any, cell: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """Add four numbers to ``table[4 * cell : 4 * cell + 4]``."""
    return _addition(table, (first, second, third, fourth))


# numba calls them without the first argument.
add_pair: Any = _add_pair
add_four: Any = _add_four
