"""Dropout masks in Numba: bit for bit those of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import uint32, uint64
from torch import Tensor

from nfcgcn.kernels.cpu.compiler import compiled, inlined, take
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.reference.masks import HALF, WORD, threshold

TASKS = 64
"""Pieces that rows are divided into."""


@inlined
def key_of(seed: Any, row: Any) -> Any:
    """Return the 32-bit key of a row."""
    z = seed + uint64(row + 1) * uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return uint32((z ^ (z >> uint64(31))) & uint64(0xFFFFFFFF))


@inlined
def number(key: Any, place: Any) -> Any:
    """Return the 32-bit number of a cell in the row with this key."""
    h = uint32(key + uint32(uint32(place) * uint32(0x9E3779B9)))
    h = uint32(uint32(h ^ (h >> uint32(16))) * uint32(0x85EBCA6B))
    h = uint32(uint32(h ^ (h >> uint32(13))) * uint32(0xC2B2AE35))
    return uint32(h ^ (h >> uint32(16)))


@inlined
def kept_bits(key: Any, first: Any, count: Any, below: Any) -> Any:
    """Return a bit for each of up to 32 cells of a row from `first`, a multiple of 32, on: 1 where the cell stays."""
    if below == uint32(0):
        bits = uint32(0xFFFFFFFF)
    elif below == uint32(HALF):
        bits = number(key, first // WORD)
    else:
        bits = uint32(0)
        for bit in range(min(count, WORD)):
            bits |= uint32(number(key, first + bit) >= below) << uint32(bit)
    return bits if count >= WORD else uint32(bits & uint32((uint64(1) << uint64(count)) - uint64(1)))


@compiled
def _mask(turn: Any, below: Any, scale: Any, seed: Any, out: Any) -> None:
    num_rows, num_columns = out.shape
    task = take(turn)
    while task < TASKS:
        for row in range(num_rows * task // TASKS, num_rows * (task + 1) // TASKS):
            key = key_of(seed, row)
            for first in range(0, num_columns, WORD):
                bits = kept_bits(key, first, num_columns - first, below)
                for column in range(first, min(first + WORD, num_columns)):
                    out[row, column] = scale if bits >> uint32(column - first) & uint32(1) else 0
        task = take(turn)


def mask(num_rows: int, num_columns: int, *, dropout: float, seed: int, dtype: torch.dtype) -> Tensor:
    """See the reference."""
    out = torch.empty(num_rows, num_columns, dtype=dtype)
    array = out.numpy()
    rate = np.uint32(threshold(dropout)), array.dtype.type(1 / (1 - dropout))
    run(_mask, 0.3 * array.size, *rate, np.uint64(seed), array)
    return out
