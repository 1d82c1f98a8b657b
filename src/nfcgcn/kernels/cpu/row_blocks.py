"""Products of a block of eight vectors with rows that lie anywhere in an array, for the Numba loops.

A block is eight vectors ``[8, length]``; a table of values has eight numbers for each of `count` rows, ``[count, 8]``.
Row ``r`` starts at ``pitch * places[r]``. As in `vectors`, nothing may overlap: no two rows are the same, and the block
is none of them. Every sum is added up in the order of its formula, for any width of the machine's vectors.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nfcgcn.kernels.cpu.compiler import primitive
from nfcgcn.kernels.cpu.emitter import Emitter, intrinsic

BLOCK = 8
"""Vectors of a block."""
TALL = 4
"""Sums of a vector each that stay in registers, where the machine has sixteen that hold half of a vector each."""


@primitive
def transpose(_: Any, out: Any, block: Any, scale: Any, length: Any) -> Any:
    """``out[l, b] = scale * block[b, l]`` for the eight vectors of a block."""

    def emit(loops: Emitter, out: Any, block: Any, scale: Any, length: Any) -> None:
        for lane, vector, _ in loops.tiles(length, widest=1, longest=BLOCK):
            factor = loops.spread(scale, vector)
            places = [loops.add(lane, loops.scale(length, b)) for b in range(BLOCK)]
            scaled = [loops.mul(loops.load(block, place, vector), factor) for place in places]
            loops.store(loops.interleave(scaled), out, loops.scale(lane, BLOCK))

    return intrinsic(emit, out, block, scale, length)


@primitive
def score_rows(_: Any, out: Any, rows: Any, pitch: Any, places: Any, count: Any, turned: Any, length: Any) -> Any:
    """``out[r, b] = sum_l rows[pitch * places[r] + l] * turned[l, b]``, where `turned` is a transposed block."""

    def emit(
        loops: Emitter, out: Any, rows: Any, pitch: Any, places: Any, count: Any, turned: Any, length: Any
    ) -> None:
        vector = ir.VectorType(loops.number, BLOCK)
        for row, height in loops.strips(count):
            starts = [loops.times(pitch, loops.read(places, loops.shift(row, i))) for i in range(height)]
            sums = [loops.variable(ir.Constant(vector, None)) for _ in range(height)]
            with loops.each(length) as step:
                term = loops.load(turned, loops.scale(step, BLOCK), vector)
                for start, total in zip(starts, sums, strict=True):
                    value = loops.spread(loops.read(rows, loops.add(start, step)), vector)
                    loops.set(total, loops.fused(value, term, loops.get(total)))
            for i, total in enumerate(sums):
                loops.store(loops.get(total), out, loops.scale(loops.shift(row, i), BLOCK))

    return intrinsic(emit, out, rows, pitch, places, count, turned, length)


@primitive
def combine_rows(_: Any, out: Any, rows: Any, pitch: Any, places: Any, values: Any, count: Any, length: Any) -> Any:
    """``out[b, l] = sum_r values[r, b] * rows[pitch * places[r] + l]`` for the eight vectors of a block."""

    def emit(
        loops: Emitter, out: Any, rows: Any, pitch: Any, places: Any, values: Any, count: Any, length: Any
    ) -> None:
        for lane, vector, _ in loops.tiles(length, widest=1):
            for first in range(0, BLOCK, TALL):
                sums = [loops.variable(ir.Constant(vector, None)) for _ in range(TALL)]
                with loops.each(count) as row:
                    start = loops.times(pitch, loops.read(places, row))
                    term = loops.load(rows, loops.add(start, lane), vector)
                    for i, total in enumerate(sums):
                        value = loops.read(values, loops.shift(loops.scale(row, BLOCK), first + i))
                        loops.set(total, loops.fused(loops.spread(value, vector), term, loops.get(total)))
                for i, total in enumerate(sums):
                    place = loops.add(lane, loops.scale(length, first + i))
                    loops.store(loops.get(total), out, place)

    return intrinsic(emit, out, rows, pitch, places, values, count, length)


@primitive
def add_to_rows(_: Any, rows: Any, pitch: Any, places: Any, values: Any, count: Any, block: Any, length: Any) -> Any:
    """``rows[pitch * places[r] + l] += sum_b values[r, b] * block[b, l]``."""

    def emit(
        loops: Emitter, rows: Any, pitch: Any, places: Any, values: Any, count: Any, block: Any, length: Any
    ) -> None:
        for row, height in loops.strips(count, tallest=TALL):
            starts = [loops.times(pitch, loops.read(places, loops.shift(row, i))) for i in range(height)]
            for lane, vector, _ in loops.tiles(length, widest=1):
                sums = [loops.variable(loops.load(rows, loops.add(start, lane), vector)) for start in starts]
                for b in range(BLOCK):
                    term = loops.load(block, loops.add(lane, loops.scale(length, b)), vector)
                    for i, total in enumerate(sums):
                        value = loops.read(values, loops.shift(loops.scale(loops.shift(row, i), BLOCK), b))
                        loops.set(total, loops.fused(loops.spread(value, vector), term, loops.get(total)))
                for start, total in zip(starts, sums, strict=True):
                    loops.store(loops.get(total), rows, loops.add(start, lane))

    return intrinsic(emit, rows, pitch, places, values, count, block, length)
