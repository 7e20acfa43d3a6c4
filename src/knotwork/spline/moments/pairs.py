"""Neighbouring sums at once: fewer loads and stores for a histogram that keeps Σv and Σvx side by side, or four sums.

LLVM would find these groups by itself, but numba leaves that part of it (the SLP vectoriser) off.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

# Numbers to a cell of a joint histogram.
SUMS = 4


def _addition(table: Any, numbers: tuple[Any, ...]) -> Any:
    """Return the signature and the code that adds numbers to a cell of a flat array of floats; bounds are unchecked."""
    size = len(numbers)
    signature = types.void(table, types.uint64, *[types.float64] * size)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        index = ir.IntType(32)
        values = ir.Constant(ir.VectorType(ir.DoubleType(), size), ir.Undefined)
        for k in range(size):
            values = builder.insert_element(values, arguments[2 + k], index(k))
        return _add_vector(context, builder, signature, arguments, values)

    return signature, generate


def _add_vector(context: Any, builder: Any, signature: Any, arguments: Any, values: Any) -> Any:
    """Add a vector to the cell of the first two arguments, an array and a number."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    place = builder.gep(data, [builder.mul(arguments[1], arguments[1].type(values.type.count))])
    place = builder.bitcast(place, values.type.as_pointer())
    builder.store(builder.fadd(builder.load(place, align=8), values), place, align=8)
    return context.get_dummy_value()


@intrinsic
def _add_pair(typing: Any, table: Any, cell: Any, first: Any, second: Any) -> Any:
    """Add two numbers to ``table[2 * cell : 2 * cell + 2]``."""
    return _addition(table, (first, second))


@intrinsic
def _add_four(typing: Any, table: Any, cell: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """Add four numbers to ``table[4 * cell : 4 * cell + 4]``."""
    return _addition(table, (first, second, third, fourth))


@intrinsic
def _add_outer(typing: Any, table: Any, cell: Any, w: Any, u: Any, z: Any) -> Any:
    """Add w, wu, wz and wuz to ``table[4 * cell : 4 * cell + 4]``, given w and u times w.

    As a product of (w, wu, w, wu) and (1, 1, z, z): each number comes from memory as often as it is needed, where four
    products would be put together one by one.
    """
    signature = types.void(table, types.uint64, types.float64, types.float64, types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, index = ir.VectorType(ir.DoubleType(), SUMS), ir.IntType(32)
        undefined = ir.Constant(vector, ir.Undefined)

        def shuffled(one: Any, other: Any, places: list[int]) -> Any:
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(index, SUMS), places))

        w, u, z = (
            shuffled(builder.insert_element(undefined, number, index(0)), undefined, [0] * SUMS)
            for number in arguments[2:]
        )
        ones = ir.Constant(vector, [1.0] * SUMS)
        values = builder.fmul(shuffled(w, u, [0, 5, 2, 7]), shuffled(ones, z, [0, 1, 6, 7]))
        return _add_vector(context, builder, signature, arguments, values)

    return signature, generate


# numba calls them without the first argument.
add_pair: Any = _add_pair
add_four: Any = _add_four
add_outer: Any = _add_outer
