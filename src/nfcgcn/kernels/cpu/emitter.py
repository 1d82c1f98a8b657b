"""A small language over LLVM instructions for the vector primitives: tiles, loops, sums that stay in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

BYTES = 64
"""Size of a vector; if the machine's vectors are shorter, LLVM uses several."""


def intrinsic(emit: Callable[..., None], *arguments: Any) -> Any:
    """Return the result of an intrinsic: its types, and a code generator that passes pointers and numbers to `emit`."""
    item = next(a.dtype for a in arguments if isinstance(a, types.Array))
    takes = [
        types.int64 if isinstance(a, types.Integer) else item if isinstance(a, types.Float) else a for a in arguments
    ]

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        loops = Emitter(builder, context.get_value_type(item), item.bitwidth // 8)
        parts = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, given, strict=True)
        ]
        emit(loops, *parts)
        return context.get_dummy_value()

    return types.void(*takes), generate


class Emitter:
    """Writes LLVM instructions for numbers of one type."""

    def __init__(self, builder: Any, number: Any, size: int) -> None:
        self.builder, self.number, self.size = builder, number, size

    def tiles(self, length: Any, *, widest: int = 4, longest: int = BYTES) -> Iterator[tuple[Any, Any, int]]:
        """Cover ``range(length)``: yield where a tile starts, its vector type and how many vectors it has.

        The code emitted between two yields runs for every tile of that kind, of `widest` vectors at most, each of
        `longest` numbers at most.
        """
        lanes = min(BYTES // self.size, longest)
        kinds = [(width, lanes) for width in (4, 2, 1) if width <= widest] + [(1, count) for count in (8, 4, 1)]
        for start, (width, count) in self._cover(length, {width * count: (width, count) for width, count in kinds}):
            yield start, ir.VectorType(self.number, count), width

    def strips(self, rows: Any, *, tallest: int = 8) -> Iterator[tuple[Any, int]]:
        """Cover ``range(rows)`` in the same way: yield where a strip starts and how many rows it has."""
        yield from self._cover(rows, {height: height for height in (8, 4, 2, 1) if height <= tallest})

    def _cover(self, length: Any, kinds: dict[int, Any]) -> Iterator[tuple[Any, Any]]:
        start = self._int(0)
        for reach, kind in kinds.items():
            size = self._int(reach)
            rest = self.builder.sub(length, start)
            stop = self.builder.add(start, self.builder.mul(self.builder.sdiv(rest, size), size))
            with cgutils.for_range_slice(self.builder, start, stop, size, start.type) as (place, _):
                yield place, kind
            start = stop

    @contextmanager
    def each(self, count: Any) -> Iterator[Any]:
        """Loop over ``range(count)``."""
        with cgutils.for_range(self.builder, count) as loop:
            yield loop.index

    def unless_zero(self, value: Any) -> Any:
        """Run the code that follows only if a number of the vector is not 0."""
        differs = self.builder.fcmp_unordered("!=", value, self._constant(0.0, value.type))
        bits = self.builder.bitcast(differs, ir.IntType(value.type.count))
        return self.builder.if_then(self.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)))

    @contextmanager
    def each_bit(self, bits: Any) -> Iterator[Any]:
        """Loop over the places of the ones among `bits`, the lowest first."""
        builder = self.builder
        left = self.variable(bits)
        check, body, end = (builder.append_basic_block(name) for name in ("check", "body", "end"))
        builder.branch(check)
        builder.position_at_end(check)
        now = self.get(left)
        builder.cbranch(builder.icmp_unsigned("!=", now, self._int(0)), body, end)
        builder.position_at_end(body)
        self.set(left, builder.and_(now, self.shift(now, -1)))
        yield builder.cttz(now, ir.Constant(ir.IntType(1), 1))
        builder.branch(check)
        builder.position_at_end(end)

    def where(self, bits: Any, first: int, value: Any) -> Any:
        """Return the numbers of a vector for which there is a 1 among `bits` from `first` on, and 0 for the others."""
        count = value.type.count
        part = self.builder.trunc(self.builder.lshr(bits, self._int(first)), ir.IntType(count))
        chosen = self.builder.bitcast(part, ir.VectorType(ir.IntType(1), count))
        return self.builder.select(chosen, value, self._constant(0.0, value.type))

    def variable(self, value: Any) -> Any:
        """Make a variable and set its first value."""
        place = cgutils.alloca_once(self.builder, value.type)  # type: ignore[no-untyped-call]
        self.builder.store(value, place)
        return place

    def get(self, variable: Any) -> Any:
        """Read a variable."""
        return self.builder.load(variable)

    def set(self, variable: Any, value: Any) -> None:
        """Write a variable."""
        self.builder.store(value, variable)

    def add(self, first: Any, *others: Any) -> Any:
        """Add whole numbers."""
        for other in others:
            first = self.builder.add(first, other)
        return first

    def times(self, a: Any, b: Any) -> Any:
        """Multiply two whole numbers."""
        return self.builder.mul(a, b)

    def scale(self, a: Any, by: int) -> Any:
        """Multiply a whole number by a constant."""
        return self.builder.mul(a, self._int(by))

    def shift(self, place: Any, by: int) -> Any:
        """Add a constant to a whole number."""
        return self.builder.add(place, self._int(by))

    def read(self, array: Any, index: Any) -> Any:
        """Read one item."""
        return self.builder.load(self.builder.gep(array, [index]))

    def write(self, value: Any, array: Any, index: Any) -> None:
        """Write one item."""
        self.builder.store(value, self.builder.gep(array, [index]))

    def interleave(self, vectors: list[Any]) -> Any:
        """Return the first numbers of all vectors, then the second ones and so on; the vectors are a power of two."""
        while (half := len(vectors) // 2) > 0:
            count = vectors[0].type.count
            order = [place for i in range(count) for place in (i, count + i)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), 2 * count), order)
            vectors = [self.builder.shuffle_vector(vectors[i], vectors[half + i], mask) for i in range(half)]
        return vectors[0]

    def load(self, array: Any, index: Any, vector: Any) -> Any:
        """Read a vector."""
        return self.builder.load(self._pointer(array, index, vector), align=self.size)

    def store(self, value: Any, array: Any, index: Any) -> None:
        """Write a vector."""
        self.builder.store(value, self._pointer(array, index, value.type), align=self.size)

    def spread(self, value: Any, vector: Any) -> Any:
        """Return a vector of one number."""
        one = self.builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None))

    def mul(self, a: Any, b: Any) -> Any:
        """Multiply two vectors."""
        return self.builder.fmul(a, b)

    def plus(self, a: Any, b: Any) -> Any:
        """Add two vectors."""
        return self.builder.fadd(a, b)

    def scaled(self, a: Any, factor: float) -> Any:
        """Multiply a vector by a constant."""
        return self.builder.fmul(a, self._constant(factor, a.type))

    def clamped(self, a: Any, limit: float) -> Any:
        """Clamp to between ``-limit`` and ``limit``; NaN stays NaN."""
        for order, bound in ((">", limit), ("<", -limit)):
            end = self._constant(bound, a.type)
            a = self.builder.select(self.builder.fcmp_ordered(order, a, end), end, a)
        return a

    def polynomial(self, coefficients: list[float], a: Any) -> Any:
        """Return ``sum_i coefficients[i] a^i``."""
        total = self._constant(coefficients[-1], a.type)
        for c in reversed(coefficients[:-1]):
            total = self.fused(total, a, self._constant(c, a.type))
        return total

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """Return ``a * b + c``, rounded once if the machine can."""
        flags = ("contract",)
        return self.builder.fadd(self.builder.fmul(a, b, flags=flags), c, flags=flags)

    def _pointer(self, array: Any, index: Any, vector: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(array, [index]), vector.as_pointer())

    def _constant(self, value: float, vector: Any) -> Any:
        return ir.Constant(vector, [value] * vector.count)

    def _int(self, value: int) -> Any:
        return ir.Constant(ir.IntType(64), value)
