"""The loop that adds rows to the targets that a table names, compiled by Numba."""

from __future__ import annotations

from typing import Any

from nfcgcn.kernels.cpu.compiler import compiled, take

PIECES = 8
"""Ranges of target rows, one task per range; each task reads the whole table."""


@compiled
def add_rows(turn: Any, table: Any, rows: Any, out: Any) -> None:
    """``out[table[e]] += rows[e]`` for each e, in this order."""
    num_targets, width = out.shape
    piece = take(turn)
    while piece < PIECES:
        first, stop = num_targets * piece // PIECES, num_targets * (piece + 1) // PIECES
        for entry in range(len(table)):
            target = table[entry]
            if first <= target < stop:
                for column in range(width):
                    out[target, column] += rows[entry, column]
        piece = take(turn)
