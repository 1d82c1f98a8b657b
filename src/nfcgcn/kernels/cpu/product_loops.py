"""The loops of the products, compiled by Numba.

Which numbers a sum adds in which order depends only on the shapes. Tasks only divide independent work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nfcgcn.kernels.cpu.compiler import compiled, take
from nfcgcn.kernels.cpu.vectors import add_product, multiply, sum_rows

TASKS = 64
"""Pieces that independent rows are divided into."""
STRIP = 8
"""Rows that the vector primitive multiplies at a time."""
CHUNK = 256
"""Terms of a long sum over rows that are added up on their own: so many rows of a wide matrix stay in a core's cache,
and the sum of sums rounds less."""
BLOCKS = 8
"""Pieces that a sum over rows is divided into, one task per piece."""
ROOM = 2**20
"""Most numbers in the results of all pieces; with larger results there are fewer pieces."""


def blocks_of(num_rows: int, size: int) -> int:
    """Return how many pieces a sum over rows with `size` results is cut into."""
    return max(1, min(BLOCKS, num_rows // CHUNK, ROOM // max(1, size)))


@compiled
def multiply_rows(turn: Any, a: Any, a_row: Any, a_step: Any, b: Any, out: Any) -> None:
    """``out[i, l] = sum_k a[i a_row + k a_step] * b[k, l]``, k rising; ``b`` may be wider than ``out``."""
    (num_rows, width), (num_terms, wide) = out.shape, b.shape
    strips = -(-num_rows // STRIP)
    task = take(turn)
    while task < TASKS:
        first, stop = strips * task // TASKS * STRIP, min(num_rows, strips * (task + 1) // TASKS * STRIP)
        count, at = max(0, stop - first), first * a_row
        if wide == width:
            multiply(out, first * wide, wide, count, a, at, a_row, a_step, b, 0, wide, num_terms, wide)
        else:
            rows = np.empty((count, wide), out.dtype)
            multiply(rows, 0, wide, count, a, at, a_row, a_step, b, 0, wide, num_terms, wide)
            for i in range(count):
                for column in range(width):
                    out[first + i, column] = rows[i, column]
        task = take(turn)


@compiled
def multiply_transposed(turn: Any, a: Any, b: Any, out: Any) -> None:
    """``out[block] = a.T @ b`` over the block's rows: chunk after chunk, in each the rows one after the other."""
    num_rows, (blocks, columns, width) = len(a), out.shape
    strips = -(-columns // STRIP)
    groups = -(-TASKS // blocks)
    task = take(turn)
    while task < blocks * groups:
        block, group = task // groups, task % groups
        left, right = strips * group // groups * STRIP, min(columns, strips * (group + 1) // groups * STRIP)
        to, count = (block * columns + left) * width, max(0, right - left)
        start, stop = num_rows * block // blocks, num_rows * (block + 1) // blocks
        steps = min(CHUNK, stop - start)
        multiply(out, to, width, count, a, start * columns + left, 1, columns, b, start * width, width, steps, width)
        for row in range(start + CHUNK, stop, CHUNK):
            steps = min(CHUNK, stop - row)
            add_product(out, to, width, count, a, row * columns + left, 1, columns, b, row * width, width, steps, width)
        task = take(turn)


@compiled
def multiply_sparse(turn: Any, starts: Any, columns: Any, values: Any, dense: Any, out: Any) -> None:
    """``out = matrix @ dense``, a row's entries one after the other; ``dense`` may be wider than ``out``."""
    (num_rows, width), wide = out.shape, dense.shape[1]
    total = np.empty(wide, out.dtype)
    task = take(turn)
    while task < TASKS:
        for row in range(num_rows * task // TASKS, num_rows * (task + 1) // TASKS):
            first, count = starts[row], starts[row + 1] - starts[row]
            if wide == width:
                sum_rows(out, row * wide, dense, wide, columns, values, first, count, wide)
            else:
                sum_rows(total, 0, dense, wide, columns, values, first, count, wide)
                for column in range(width):
                    out[row, column] = total[column]
        task = take(turn)


@compiled
def widen(turn: Any, rows: Any, out: Any) -> None:
    """Append zeros to each row."""
    num_rows, width = rows.shape
    task = take(turn)
    while task < TASKS:
        for row in range(num_rows * task // TASKS, num_rows * (task + 1) // TASKS):
            for column in range(out.shape[1]):
                out[row, column] = rows[row, column] if column < width else 0
        task = take(turn)


@compiled
def add_up(turn: Any, parts: Any, scale: Any, out: Any) -> None:
    """``out[i] = scale * sum_p parts[p, i]``, p rising; there is one part at least."""
    num_parts, size = parts.shape
    task = take(turn)
    while task < TASKS:
        first, stop = size * task // TASKS, size * (task + 1) // TASKS
        for i in range(first, stop):
            out[i] = parts[0, i]
        for part in range(1, num_parts):
            for i in range(first, stop):
                out[i] += parts[part, i]
        if scale != 1:
            for i in range(first, stop):
                out[i] *= scale
        task = take(turn)
