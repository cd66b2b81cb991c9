"""N whole numbers side by side, one for each cell of a group: a value of compiled code.

A *lane* is one of N 32-bit integers that are added or compared with one instruction, or a few where
the machine's registers are narrower: LLVM cuts them as it must, so the code is the same everywhere.
A *mask* is a uint64 with a bit for each lane. What depends on the cell is computed for all cells
and kept, by `where`, in those whose bit is set.

N belongs to the type, so code is compiled for each N that it is called with; what makes new lanes
takes others of that type as an example. Lanes overflow silently: whoever uses them sees to it that
sums stay below 2**31.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

__all__ = ["add_where", "equal", "in_lanes", "larger", "load", "minus", "more", "plus", "splat"]
__all__ += ["store", "where"]

_I32: Final = ir.IntType(32)
_I64: Final = ir.IntType(64)


class Lanes(types.Type):
    """The type of N lanes."""

    def __init__(self, n: int) -> None:
        self.n = n
        super().__init__(name=f"Lanes({n})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    """LLVM's vectors have what is needed."""

    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, _vector(lanes.n))


def _vector(n: int) -> ir.VectorType:
    return ir.VectorType(_I32, n)


# --- from and to memory --------------------------------------------------------------------------


@intrinsic
def in_lanes(typing_context: Any, numbers: Any) -> Any:
    """The numbers of a tuple, one in each lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = ir.Constant(_vector(numbers.count), ir.Undefined)
        for i in range(numbers.count):
            number = builder.extract_value(args[0], i)
            number = context.cast(builder, number, numbers.dtype, types.int32)
            lanes = builder.insert_element(lanes, number, ir.Constant(_I32, i))
        return lanes

    return Lanes(numbers.count)(numbers), codegen


@intrinsic
def splat(typing_context: Any, like: Any, value: Any) -> Any:
    """The same number in each lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = context.cast(builder, args[1], signature.args[1], types.int32)
        nothing = ir.Constant(_vector(like.n), ir.Undefined)
        one = builder.insert_element(nothing, number, ir.Constant(_I32, 0))
        zeros = ir.Constant(_vector(like.n), [0] * like.n)
        return builder.shuffle_vector(one, nothing, zeros)

    return like(like, types.unliteral(value)), codegen


@intrinsic
def load(typing_context: Any, like: Any, array: Any, start: Any) -> Any:
    """Lanes from an array of int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = builder.load(_place(context, builder, array, args[1:], like.n))
        lanes.align = 4
        return lanes

    return like(like, array, types.int64), codegen


@intrinsic
def store(typing_context: Any, array: Any, start: Any, lanes: Any) -> Any:
    """Lanes into an array of int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, array, args, lanes.n)
        builder.store(args[2], place).align = 4
        return context.get_dummy_value()

    return types.none(array, types.int64, lanes), codegen


def _place(context: Any, builder: Any, kind: Any, args: Any, n: int) -> Any:
    array = cgutils.create_struct_proxy(kind)(context, builder, args[0])
    start = builder.gep(array.data, [args[1]])
    return builder.bitcast(start, _vector(n).as_pointer())


# --- between lanes -------------------------------------------------------------------------------


def _of_two(operation: Any) -> Any:
    """Make a function of two lanes that gives lanes."""

    def typed(typing_context: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return operation(builder, *args)

        return a(a, b), codegen

    return intrinsic(typed)


def _compared(how: str) -> Any:
    """Make a function of two lanes that gives the mask in which they compare so."""

    def typed(typing_context: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            bits = builder.bitcast(builder.icmp_signed(how, *args), ir.IntType(a.n))
            return bits if a.n == 64 else builder.zext(bits, _I64)

        return types.uint64(a, b), codegen

    return intrinsic(typed)


def _chosen(builder: Any, mask: Any, n: int, yes: Any, no: Any) -> Any:
    bits = mask if n == 64 else builder.trunc(mask, ir.IntType(n))
    return builder.select(builder.bitcast(bits, ir.VectorType(ir.IntType(1), n)), yes, no)


plus = _of_two(lambda builder, a, b: builder.add(a, b))
minus = _of_two(lambda builder, a, b: builder.sub(a, b))
larger = _of_two(lambda builder, a, b: builder.select(builder.icmp_signed(">", a, b), a, b))
more = _compared(">")
equal = _compared("==")


@intrinsic
def where(typing_context: Any, mask: Any, yes: Any, no: Any) -> Any:
    """The lanes of `yes` whose bit is set in the mask, the others of `no`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _chosen(builder, args[0], yes.n, args[1], args[2])

    return yes(types.uint64, yes, no), codegen


@intrinsic
def add_where(typing_context: Any, mask: Any, a: Any, b: Any) -> Any:
    """The sum where the bit is set, the others of `a`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _chosen(builder, args[0], a.n, builder.add(args[1], args[2]), args[1])

    return a(types.uint64, a, b), codegen
