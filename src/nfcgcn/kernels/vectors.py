"""Short runs of numbers multiplied and added, for the Numba loops: vector instructions without a check beforehand.

For a loop over a run LLVM first asks whether source and target overlap, and what remains beyond the last whole vector;
for runs of 16 numbers that is most of the time. These primitives say it in advance: source and target must not overlap.
Each number of a run goes through the same operations in the same order whatever the width of the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from nfcgcn.kernels.masks.cpu import primitive

BYTES = 64
"""Of a vector; where the machine's are shorter, LLVM takes several."""


@primitive
def combine(
    _: Any, out: Any, at: Any, source: Any, base: Any, pitch: Any, indices: Any, values: Any, first: Any, kept: Any,
    length: Any,
) -> Any:  # fmt: skip
    """``out[at + l] += sum_e values[e] * source[base + pitch * indices[e] + l]`` for ``l < length``.

    The sum is over the entries ``e`` from `first` on that have a 1 among the bits of `kept`, the lowest bit first.
    """

    def emit(
        loops: _Emitter, out: Any, at: Any, source: Any, base: Any, pitch: Any, indices: Any, values: Any, first: Any,
        kept: Any, length: Any,
    ) -> None:  # fmt: skip
        for lane, vector, width in loops.tiles(length):
            places = [loops.shift(loops.add(at, lane), i * vector.count) for i in range(width)]
            sums = [loops.variable(loops.load(out, place, vector)) for place in places]
            with loops.each_bit(kept) as bit:
                entry = loops.add(first, bit)
                value = loops.spread(loops.read(values, entry), vector)
                row = loops.add(base, loops.times(pitch, loops.read(indices, entry)), lane)
                for i, total in enumerate(sums):
                    term = loops.load(source, loops.shift(row, i * vector.count), vector)
                    loops.set(total, loops.fused(value, term, loops.get(total)))
            for place, total in zip(places, sums, strict=True):
                loops.store(loops.get(total), out, place)

    return _signature(emit, out, at, source, base, pitch, indices, values, first, kept, length)


@primitive
def scatter(
    _: Any, out: Any, base: Any, pitch: Any, indices: Any, values: Any, first: Any, kept: Any, source: Any, at: Any,
    length: Any,
) -> Any:  # fmt: skip
    """``out[base + pitch * indices[e] + l] += values[e] * source[at + l]`` for ``l < length``, as `combine` has it."""

    def emit(
        loops: _Emitter, out: Any, base: Any, pitch: Any, indices: Any, values: Any, first: Any, kept: Any, source: Any,
        at: Any, length: Any,
    ) -> None:  # fmt: skip
        for lane, vector, width in loops.tiles(length):
            start = loops.add(at, lane)
            terms = [loops.load(source, loops.shift(start, i * vector.count), vector) for i in range(width)]
            with loops.each_bit(kept) as bit:
                entry = loops.add(first, bit)
                value = loops.spread(loops.read(values, entry), vector)
                row = loops.add(base, loops.times(pitch, loops.read(indices, entry)), lane)
                for i, term in enumerate(terms):
                    place = loops.shift(row, i * vector.count)
                    loops.store(loops.fused(value, term, loops.load(out, place, vector)), out, place)

    return _signature(emit, out, base, pitch, indices, values, first, kept, source, at, length)


@primitive
def add_runs(
    _: Any, out: Any, to: Any, out_run: Any, source: Any, at: Any, source_run: Any, spans: Any, indices: Any,
    values: Any, scale: Any, first: Any, kept: Any,
) -> Any:  # fmt: skip
    """``out[to + span[out_run] + l] += scale * values[e] * source[at + span[source_run] + l]`` for ``l < span[2]``.

    Each entry ``e``, as `combine` has them, has the ``span = spans[indices[e]]`` of three numbers.
    """

    def emit(
        loops: _Emitter, out: Any, to: Any, out_run: Any, source: Any, at: Any, source_run: Any, spans: Any,
        indices: Any, values: Any, scale: Any, first: Any, kept: Any,
    ) -> None:  # fmt: skip
        with loops.each_bit(kept) as bit:
            entry = loops.add(first, bit)
            column = loops.read(indices, entry)
            span = loops.add(column, column, column)
            value = loops.mul(loops.read(values, entry), scale)
            target = loops.add(to, loops.read(spans, loops.add(span, out_run)))
            origin = loops.add(at, loops.read(spans, loops.add(span, source_run)))
            for lane, vector, width in loops.tiles(loops.read(spans, loops.shift(span, 2))):
                factor = loops.spread(value, vector)
                for i in range(width):
                    place = loops.shift(loops.add(target, lane), i * vector.count)
                    term = loops.load(source, loops.shift(loops.add(origin, lane), i * vector.count), vector)
                    loops.store(loops.fused(factor, term, loops.load(out, place, vector)), out, place)

    return _signature(emit, out, to, out_run, source, at, source_run, spans, indices, values, scale, first, kept)


@primitive
def add_weighted(
    _: Any, out: Any, at: Any, weights: Any, first: Any, source: Any, base: Any, steps: Any, length: Any
) -> Any:
    """``out[at + k length + l] += weights[first + l] * source[base + k length + l]``, ``k < steps``, ``l < length``."""

    def emit(
        loops: _Emitter, out: Any, at: Any, weights: Any, first: Any, source: Any, base: Any, steps: Any, length: Any
    ) -> None:
        for lane, vector, _ in loops.tiles(length, wide=False):
            weight = loops.load(weights, loops.add(first, lane), vector)
            with loops.each(steps) as step:
                here = loops.add(lane, loops.times(step, length))
                term, place = loops.load(source, loops.add(base, here), vector), loops.add(at, here)
                loops.store(loops.fused(weight, term, loops.load(out, place, vector)), out, place)

    return _signature(emit, out, at, weights, first, source, base, steps, length)


@primitive
def add_inner(_: Any, out: Any, at: Any, a: Any, a_at: Any, b: Any, b_at: Any, steps: Any, length: Any) -> Any:
    """``out[at + l] += sum_k a[a_at + k length + l] * b[b_at + k length + l]`` for ``k < steps`` and ``l < length``."""

    def emit(loops: _Emitter, out: Any, at: Any, a: Any, a_at: Any, b: Any, b_at: Any, steps: Any, length: Any) -> None:
        for lane, vector, _ in loops.tiles(length, wide=False):
            place = loops.add(at, lane)
            total = loops.variable(loops.load(out, place, vector))
            with loops.each(steps) as step:
                here = loops.add(lane, loops.times(step, length))
                one, other = (loops.load(array, loops.add(at, here), vector) for array, at in ((a, a_at), (b, b_at)))
                loops.set(total, loops.fused(one, other, loops.get(total)))
            loops.store(loops.get(total), out, place)

    return _signature(emit, out, at, a, a_at, b, b_at, steps, length)


@primitive
def multiply(
    _: Any, c: Any, c_at: Any, c_row: Any, rows: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any,
    b_step: Any, steps: Any, length: Any,
) -> Any:  # fmt: skip
    """``c[r, l] = sum_k a[r, k] * b[k, l]`` for ``r < rows``, ``k < steps`` and ``l < length``.

    A matrix starts at ``_at`` of its array; ``_row`` and ``_step`` tell how far apart its rows and items along k are.
    """
    emit = _product(add=False)
    return _signature(emit, c, c_at, c_row, rows, a, a_at, a_row, a_step, b, b_at, b_step, steps, length)


@primitive
def add_product(
    _: Any, c: Any, c_at: Any, c_row: Any, rows: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any,
    b_step: Any, steps: Any, length: Any,
) -> Any:  # fmt: skip
    """Add what `multiply` would write."""
    emit = _product(add=True)
    return _signature(emit, c, c_at, c_row, rows, a, a_at, a_row, a_step, b, b_at, b_step, steps, length)


def _product(*, add: bool) -> Callable[..., None]:
    def emit(
        loops: _Emitter, c: Any, c_at: Any, c_row: Any, rows: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any,
        b_at: Any, b_step: Any, steps: Any, length: Any,
    ) -> None:  # fmt: skip
        for row, height in loops.strips(rows):
            for lane, vector, _ in loops.tiles(length, wide=False):
                sums = [loops.variable(ir.Constant(vector, None)) for _ in range(height)]
                with loops.each(steps) as step:
                    term = loops.load(b, loops.add(b_at, loops.times(step, b_step), lane), vector)
                    for i, total in enumerate(sums):
                        place = loops.add(a_at, loops.times(loops.shift(row, i), a_row), loops.times(step, a_step))
                        value = loops.spread(loops.read(a, place), vector)
                        loops.set(total, loops.fused(value, term, loops.get(total)))
                for i, total in enumerate(sums):
                    place = loops.add(c_at, loops.times(loops.shift(row, i), c_row), lane)
                    value = loops.get(total)
                    loops.store(loops.plus(value, loops.load(c, place, vector)) if add else value, c, place)

    return emit


@primitive
def keep(_: Any, out: Any, at: Any, scale: Any, kept: Any) -> Any:
    """Multiply 32 numbers from ``out[at]`` on by `scale`, or by 0 where `kept` has no bit for them."""

    def emit(loops: _Emitter, out: Any, at: Any, scale: Any, kept: Any) -> None:
        vector = ir.VectorType(loops.number, BYTES // loops.size)
        factor = loops.spread(scale, vector)
        for first in range(0, 32, vector.count):
            place = loops.shift(at, first)
            value = loops.mul(loops.load(out, place, vector), factor)
            loops.store(loops.where(kept, first, value), out, place)

    return _signature(emit, out, at, scale, kept)


@primitive
def tanh(_: Any, out: Any, at: Any, length: Any) -> Any:
    r"""``out[at + l] = tanh(out[at + l])`` for ``l < length``, to a few units in the last place.

    Lambert's continued fraction :math:`\tanh z = z / (1 + z^2 / (3 + z^2 / (5 + \ldots)))`, cut off where the type's
    precision ends, for half the argument; then :math:`\tanh 2z = 2 t / (1 + t^2)`.
    """

    def emit(loops: _Emitter, out: Any, at: Any, length: Any) -> None:
        above, below = _tanh_polynomials(7 if loops.size == 4 else 14)
        limit = 9.2 if loops.size == 4 else 20.0  # where tanh is 1 to the last place
        for lane, vector, _ in loops.tiles(length, wide=False):
            place = loops.add(at, lane)
            value = loops.load(out, place, vector)
            with loops.unless_zero(value):  # many are, where no nonzero falls into a window
                z = loops.scaled(loops.clamped(value, limit), 0.5)
                square = loops.mul(z, z)
                top, bottom = loops.mul(loops.polynomial(above, square), z), loops.polynomial(below, square)
                whole = loops.fused(top, top, loops.mul(bottom, bottom))
                ratio = loops.builder.fdiv(loops.scaled(loops.mul(top, bottom), 2.0), whole)
                loops.store(loops.clamped(ratio, 1.0), out, place)

    return _signature(emit, out, at, length)


def _tanh_polynomials(terms: int) -> tuple[list[float], list[float]]:
    """Return ``P`` and ``Q`` with ``tanh z`` about ``z P(z^2) / Q(z^2)``, lowest power first, ``Q[0] = 1``."""
    top, bottom = [1], [2 * terms - 1]
    for odd in range(2 * terms - 3, 0, -2):
        raised = [0, *top]
        longer = max(len(bottom), len(raised))
        pad = [p + [0] * (longer - len(p)) for p in (bottom, raised)]
        top, bottom = bottom, [odd * b + r for b, r in zip(*pad, strict=True)]
    return [c / bottom[0] for c in top], [c / bottom[0] for c in bottom]


def _signature(emit: Callable[..., None], *arguments: Any) -> Any:
    """Return what an intrinsic returns: its types, and a code generator that hands pointers and numbers to `emit`."""
    item = next(a.dtype for a in arguments if isinstance(a, types.Array))
    takes = [
        types.int64 if isinstance(a, types.Integer) else item if isinstance(a, types.Float) else a for a in arguments
    ]

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        loops = _Emitter(builder, context.get_value_type(item), item.bitwidth // 8)
        parts = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, given, strict=True)
        ]
        emit(loops, *parts)
        return context.get_dummy_value()

    return types.void(*takes), generate


class _Emitter:
    """Writes LLVM instructions for numbers of one type."""

    def __init__(self, builder: Any, number: Any, size: int) -> None:
        self.builder, self.number, self.size = builder, number, size

    def tiles(self, length: Any, *, wide: bool = True) -> Iterator[tuple[Any, Any, int]]:
        """Cover ``range(length)``: yield where a tile starts, its vector type and how many vectors it has.

        The code emitted between two yields runs for every tile of that kind. Only where `wide` are there several.
        """
        lanes = BYTES // self.size
        kinds = [(4, lanes), (2, lanes)] * wide + [(1, lanes), (1, 4), (1, 1)]
        for start, (width, count) in self._cover(length, {width * count: (width, count) for width, count in kinds}):
            yield start, ir.VectorType(self.number, count), width

    def strips(self, rows: Any) -> Iterator[tuple[Any, int]]:
        """Cover ``range(rows)`` likewise: yield where a strip starts and how many rows it has."""
        yield from self._cover(rows, {8: 8, 1: 1})

    def _cover(self, length: Any, kinds: dict[int, Any]) -> Iterator[tuple[Any, Any]]:
        start = self._int(0)
        for reach, kind in kinds.items():
            size = self._int(reach)
            rest = self.builder.sub(length, start)
            stop = self.builder.add(start, self.builder.mul(self.builder.sdiv(rest, size), size))
            with cgutils.for_range_slice(self.builder, start, stop, size, start.type) as (place, _):
                yield place, kind
            start = stop

    def each(self, count: Any) -> Any:
        """Loop over ``range(count)``."""
        return _Index(cgutils.for_range(self.builder, count))

    def unless_zero(self, value: Any) -> Any:
        """Run what follows only where a number of the vector is not 0."""
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
        """Make what can be set, and set it."""
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

    def shift(self, place: Any, by: int) -> Any:
        """Go on by a constant."""
        return self.builder.add(place, self._int(by))

    def read(self, array: Any, index: Any) -> Any:
        """Read one item."""
        return self.builder.load(self.builder.gep(array, [index]))

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
        """Cut off beyond ``-limit`` and ``limit``; what is no number stays so."""
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
        """Return ``a * b + c``, rounded once where the machine can."""
        flags = ("contract",)
        return self.builder.fadd(self.builder.fmul(a, b, flags=flags), c, flags=flags)

    def _pointer(self, array: Any, index: Any, vector: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(array, [index]), vector.as_pointer())

    def _constant(self, value: float, vector: Any) -> Any:
        return ir.Constant(vector, [value] * vector.count)

    def _int(self, value: int) -> Any:
        return ir.Constant(ir.IntType(64), value)


class _Index:
    """``with`` a loop of Numba's, as its index alone."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop

    def __enter__(self) -> Any:
        return self.loop.__enter__().index

    def __exit__(self, *error: Any) -> Any:
        return self.loop.__exit__(*error)
