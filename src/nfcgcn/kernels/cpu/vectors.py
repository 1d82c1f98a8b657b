"""Short runs of numbers multiplied and added, for the Numba loops: vector instructions without a check beforehand.

In a loop over a run, LLVM first checks whether source and target overlap, and how many numbers remain after the last
whole vector; for runs of 16 numbers that takes most of the time. These primitives need no check: source and target must
not overlap. Each number of a run goes through the same operations in the same order for any width of the vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from nfcgcn.kernels.cpu.compiler import primitive
from nfcgcn.kernels.cpu.emitter import BYTES, Emitter, intrinsic


@primitive
def combine(
    _: Any, out: Any, at: Any, source: Any, base: Any, pitch: Any, indices: Any, values: Any, first: Any, kept: Any,
    length: Any,
) -> Any:  # fmt: skip
    """``out[at + l] += sum_e values[e] * source[base + pitch * indices[e] + l]`` for ``l < length``.

    The sum is over the entries ``e`` from `first` on that have a 1 among the bits of `kept`, the lowest bit first.
    """

    def emit(
        loops: Emitter, out: Any, at: Any, source: Any, base: Any, pitch: Any, indices: Any, values: Any, first: Any,
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

    return intrinsic(emit, out, at, source, base, pitch, indices, values, first, kept, length)


@primitive
def sum_rows(
    _: Any, out: Any, at: Any, source: Any, pitch: Any, indices: Any, values: Any, first: Any, count: Any, length: Any
) -> Any:
    """``out[at + l] = sum_e values[e] * source[pitch * indices[e] + l]``, `count` entries ``e`` from `first` on."""

    def emit(
        loops: Emitter, out: Any, at: Any, source: Any, pitch: Any, indices: Any, values: Any, first: Any, count: Any,
        length: Any,
    ) -> None:  # fmt: skip
        for lane, vector, width in loops.tiles(length):
            sums = [loops.variable(ir.Constant(vector, None)) for _ in range(width)]
            with loops.each(count) as step:
                entry = loops.add(first, step)
                value = loops.spread(loops.read(values, entry), vector)
                row = loops.add(loops.times(pitch, loops.read(indices, entry)), lane)
                for i, total in enumerate(sums):
                    term = loops.load(source, loops.shift(row, i * vector.count), vector)
                    loops.set(total, loops.fused(value, term, loops.get(total)))
            for i, total in enumerate(sums):
                loops.store(loops.get(total), out, loops.shift(loops.add(at, lane), i * vector.count))

    return intrinsic(emit, out, at, source, pitch, indices, values, first, count, length)


@primitive
def scatter(
    _: Any, out: Any, base: Any, pitch: Any, indices: Any, values: Any, first: Any, kept: Any, source: Any, at: Any,
    length: Any,
) -> Any:  # fmt: skip
    """``out[base + pitch * indices[e] + l] += values[e] * source[at + l]`` for ``l < length``, as `combine` has it."""

    def emit(
        loops: Emitter, out: Any, base: Any, pitch: Any, indices: Any, values: Any, first: Any, kept: Any, source: Any,
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

    return intrinsic(emit, out, base, pitch, indices, values, first, kept, source, at, length)


@primitive
def add_runs(
    _: Any, out: Any, to: Any, out_run: Any, source: Any, at: Any, source_run: Any, spans: Any, indices: Any,
    values: Any, scale: Any, first: Any, kept: Any,
) -> Any:  # fmt: skip
    """``out[to + span[out_run] + l] += scale * values[e] * source[at + span[source_run] + l]`` for ``l < span[2]``.

    Each entry ``e``, as `combine` has them, has the ``span = spans[indices[e]]`` of three numbers.
    """

    def emit(
        loops: Emitter, out: Any, to: Any, out_run: Any, source: Any, at: Any, source_run: Any, spans: Any,
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

    return intrinsic(emit, out, to, out_run, source, at, source_run, spans, indices, values, scale, first, kept)


@primitive
def add_weighted(
    _: Any, out: Any, at: Any, weights: Any, first: Any, source: Any, base: Any, steps: Any, length: Any
) -> Any:
    """``out[at + k length + l] += weights[first + l] * source[base + k length + l]``, ``k < steps``, ``l < length``."""

    def emit(
        loops: Emitter, out: Any, at: Any, weights: Any, first: Any, source: Any, base: Any, steps: Any, length: Any
    ) -> None:
        for lane, vector, _ in loops.tiles(length, widest=1):
            weight = loops.load(weights, loops.add(first, lane), vector)
            with loops.each(steps) as step:
                here = loops.add(lane, loops.times(step, length))
                term, place = loops.load(source, loops.add(base, here), vector), loops.add(at, here)
                loops.store(loops.fused(weight, term, loops.load(out, place, vector)), out, place)

    return intrinsic(emit, out, at, weights, first, source, base, steps, length)


@primitive
def add_inner(_: Any, out: Any, at: Any, a: Any, a_at: Any, b: Any, b_at: Any, steps: Any, length: Any) -> Any:
    """``out[at + l] += sum_k a[a_at + k length + l] * b[b_at + k length + l]`` for ``k < steps`` and ``l < length``."""

    def emit(loops: Emitter, out: Any, at: Any, a: Any, a_at: Any, b: Any, b_at: Any, steps: Any, length: Any) -> None:
        for lane, vector, _ in loops.tiles(length, widest=1):
            place = loops.add(at, lane)
            total = loops.variable(loops.load(out, place, vector))
            with loops.each(steps) as step:
                here = loops.add(lane, loops.times(step, length))
                one, other = (loops.load(array, loops.add(at, here), vector) for array, at in ((a, a_at), (b, b_at)))
                loops.set(total, loops.fused(one, other, loops.get(total)))
            loops.store(loops.get(total), out, place)

    return intrinsic(emit, out, at, a, a_at, b, b_at, steps, length)


@primitive
def multiply(
    _: Any, c: Any, c_at: Any, c_row: Any, rows: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any,
    b_step: Any, steps: Any, length: Any,
) -> Any:  # fmt: skip
    """``c[r, l] = sum_k a[r, k] * b[k, l]`` for ``r < rows``, ``k < steps`` and ``l < length``.

    A matrix starts at ``_at`` of its array; ``_row`` and ``_step`` tell how far apart its rows and items along k are.
    """
    emit = _product(add=False)
    return intrinsic(emit, c, c_at, c_row, rows, a, a_at, a_row, a_step, b, b_at, b_step, steps, length)


@primitive
def add_product(
    _: Any, c: Any, c_at: Any, c_row: Any, rows: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any,
    b_step: Any, steps: Any, length: Any,
) -> Any:  # fmt: skip
    """Add what `multiply` would write."""
    emit = _product(add=True)
    return intrinsic(emit, c, c_at, c_row, rows, a, a_at, a_row, a_step, b, b_at, b_step, steps, length)


def _product(*, add: bool) -> Callable[..., None]:
    def emit(
        loops: Emitter, c: Any, c_at: Any, c_row: Any, rows: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any,
        b_at: Any, b_step: Any, steps: Any, length: Any,
    ) -> None:  # fmt: skip
        for lane, vector, width in loops.tiles(length, widest=2):
            for row, height in loops.strips(rows):
                sums = [[loops.variable(ir.Constant(vector, None)) for _ in range(width)] for _ in range(height)]
                with loops.each(steps) as step:
                    here = loops.add(b_at, loops.times(step, b_step), lane)
                    terms = [loops.load(b, loops.shift(here, j * vector.count), vector) for j in range(width)]
                    for i, totals in enumerate(sums):
                        place = loops.add(a_at, loops.times(loops.shift(row, i), a_row), loops.times(step, a_step))
                        value = loops.spread(loops.read(a, place), vector)
                        for total, term in zip(totals, terms, strict=True):
                            loops.set(total, loops.fused(value, term, loops.get(total)))
                for i, totals in enumerate(sums):
                    for j, total in enumerate(totals):
                        first = loops.add(c_at, loops.times(loops.shift(row, i), c_row), lane)
                        place, value = loops.shift(first, j * vector.count), loops.get(total)
                        loops.store(loops.plus(value, loops.load(c, place, vector)) if add else value, c, place)

    return emit


@primitive
def keep(_: Any, out: Any, at: Any, scale: Any, kept: Any) -> Any:
    """Multiply 32 numbers from ``out[at]`` on by `scale`, or by 0 where `kept` has no bit for them."""

    def emit(loops: Emitter, out: Any, at: Any, scale: Any, kept: Any) -> None:
        vector = ir.VectorType(loops.number, BYTES // loops.size)
        factor = loops.spread(scale, vector)
        for first in range(0, 32, vector.count):
            place = loops.shift(at, first)
            value = loops.mul(loops.load(out, place, vector), factor)
            loops.store(loops.where(kept, first, value), out, place)

    return intrinsic(emit, out, at, scale, kept)


@primitive
def tanh(_: Any, out: Any, at: Any, length: Any) -> Any:
    r"""``out[at + l] = tanh(out[at + l])`` for ``l < length``, to a few units in the last place.

    Lambert's continued fraction :math:`\tanh z = z / (1 + z^2 / (3 + z^2 / (5 + \ldots)))`, cut off where the type's
    precision ends, for half the argument; then :math:`\tanh 2z = 2 t / (1 + t^2)`.
    """

    def emit(loops: Emitter, out: Any, at: Any, length: Any) -> None:
        above, below = _tanh_polynomials(7 if loops.size == 4 else 14)
        limit = 9.2 if loops.size == 4 else 20.0  # where tanh is 1 to the last place
        for lane, vector, _ in loops.tiles(length, widest=1):
            place = loops.add(at, lane)
            value = loops.load(out, place, vector)
            with loops.unless_zero(value):  # many are, where no nonzero falls into a window
                z = loops.scaled(loops.clamped(value, limit), 0.5)
                square = loops.mul(z, z)
                top, bottom = loops.mul(loops.polynomial(above, square), z), loops.polynomial(below, square)
                whole = loops.fused(top, top, loops.mul(bottom, bottom))
                ratio = loops.builder.fdiv(loops.scaled(loops.mul(top, bottom), 2.0), whole)
                loops.store(loops.clamped(ratio, 1.0), out, place)

    return intrinsic(emit, out, at, length)


def _tanh_polynomials(terms: int) -> tuple[list[float], list[float]]:
    """Return ``P`` and ``Q`` with ``tanh z`` about ``z P(z^2) / Q(z^2)``, lowest power first, ``Q[0] = 1``."""
    top, bottom = [1], [2 * terms - 1]
    for odd in range(2 * terms - 3, 0, -2):
        raised = [0, *top]
        longer = max(len(bottom), len(raised))
        pad = [p + [0] * (longer - len(p)) for p in (bottom, raised)]
        top, bottom = bottom, [odd * b + r for b, r in zip(*pad, strict=True)]
    return [c / bottom[0] for c in top], [c / bottom[0] for c in bottom]
