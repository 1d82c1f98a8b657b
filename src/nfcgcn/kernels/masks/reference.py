"""Dropout masks as a hash of what they are drawn for: the same on every device and for any number of threads."""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 32
"""Bits of a number, and cells that share one where a bit each is enough."""
HALF = 2**31
"""The threshold that one bit decides."""


def threshold(dropout: float) -> int:
    """Return the 32-bit number below which a draw is dropped."""
    return min(round(dropout * 2**32), 2**32 - 1)


def kept(cell_row: Tensor, place: Tensor, dropout: float, seed: int, dtype: torch.dtype) -> Tensor:
    """Return 0 for a dropped cell and ``1 / (1 - dropout)`` for a kept one.

    splitmix64 of seed and map row (``node * bandwidth + slot``) gives a key a row, murmur3's finaliser of key and place
    a number a cell (both in the public domain). At a rate of one half a number serves 32 cells, a bit each. Products
    wrap at 64 bits; 32-bit ones are cut from them.
    """
    below = threshold(dropout)
    if below == HALF:
        bits = _numbers(cell_row, place // WORD, seed) >> place % WORD
        return (bits & 1).to(dtype) / (1 - dropout)
    return (_numbers(cell_row, place, seed) >= below).to(dtype) / (1 - dropout)


def _numbers(cell_row: Tensor, place: Tensor, seed: int) -> Tensor:
    z = (cell_row + 1) * -0x61C8864680B583EB + seed  # 0x9E3779B97F4A7C15, as int64 writes it
    z = (z ^ (z >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
    h = ((z ^ (z >> 31 & 0x1FFFFFFFF)) + place * 0x9E3779B9) & 0xFFFFFFFF
    h = (h ^ (h >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ (h >> 16)


def mask(num_rows: int, num_columns: int, *, dropout: float, seed: int, dtype: torch.dtype) -> Tensor:
    """Return a mask ``[num_rows, num_columns]`` on the CPU, to multiply by."""
    rows, columns = torch.arange(num_rows)[:, None], torch.arange(num_columns)
    return kept(rows, columns, dropout, seed, dtype)
