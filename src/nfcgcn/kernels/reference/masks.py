"""Dropout masks as a hash of seed, row and cell: the same on every device and for any number of threads."""

from __future__ import annotations

import torch
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.randomness import hashed

WORD = 32
"""Bits of a number, and so the cells that can share one if each needs a single bit."""
HALF = 2**31
"""The threshold that one bit decides."""


def threshold(dropout: float) -> int:
    """Return the 32-bit number below which a draw is dropped."""
    return min(round(dropout * 2**32), 2**32 - 1)


def kept(cell_row: Tensor, place: Tensor, dropout: float, seed: int, dtype: torch.dtype) -> Tensor:
    """Return 0 for a dropped cell and ``1 / (1 - dropout)`` for a kept one.

    The row of a map's cell is ``node * bandwidth + slot``. At a rate of one half, one number serves 32 cells, with one
    bit per cell.
    """
    below = threshold(dropout)
    if below == HALF:
        bits = hashed(seed, cell_row, place // WORD) >> place % WORD
        return (bits & 1).to(dtype) / (1 - dropout)
    return (hashed(seed, cell_row, place) >= below).to(dtype) / (1 - dropout)


def mask(num_rows: int, num_columns: int, *, dropout: float, seed: int, dtype: torch.dtype) -> Tensor:
    """Return a mask ``[num_rows, num_columns]`` on the CPU, to multiply by."""
    rows, columns = torch.arange(num_rows)[:, None], torch.arange(num_columns)
    return kept(rows, columns, dropout, seed, dtype)


def drop_entries(x: Tensor, *, dropout: float, seed: int) -> Tensor:
    """Return CSR ``x`` with entries dropped, the others scaled up: the p-th of row i is the mask's cell ``(i, p)``."""
    starts = x.crow_indices().long()
    rows = torch.repeat_interleave(torch.arange(x.shape[0], device=x.device), starts.diff())
    places = torch.arange(len(rows), device=x.device) - starts[rows]
    values = x.values() * kept(rows, places, dropout, seed, x.dtype)
    return csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape)
