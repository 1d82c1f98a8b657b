"""Sums over rows, and what has one for a gradient: a row added to or multiplied by all, rows read by a table.

======================  ===========================================================================================
variant                 runs
======================  ===========================================================================================
``reference``           anywhere, any float type
``cpu``                 CPU, float32 and float64; needs Numba. The same bits for any number of threads
======================  ===========================================================================================
"""

from __future__ import annotations

from functools import reduce
from types import ModuleType

import torch
from torch import Tensor

from nfcgcn.kernels import opaque
from nfcgcn.kernels.product import has_kernel
from nfcgcn.kernels.rows import reference


def column_sums(h: Tensor) -> Tensor:
    """Return the sum of the rows, ``[H]`` for ``h [N, H]``."""
    return _column_sums(h) if has_kernel(h) else reference.column_sums(h)


def shifted(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h + row`` for ``h [N, H]`` and ``row [H]``."""
    return _shifted(h, row) if has_kernel(h, row) else reference.shifted(h, row)


def scaled(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h * row`` for ``h [N, H]`` and ``row [H]``."""
    return _scaled(h, row) if has_kernel(h, row) else reference.scaled(h, row)


def gathered(h: Tensor, table: Tensor) -> Tensor:
    """Return the rows that a table of row numbers names: ``[N, n, H]`` for ``h [M, H]`` and ``table [N, n]``."""
    return _gathered(h, table) if has_kernel(h) else reference.gathered(h, table)


def add_slots(h: Tensor) -> Tensor:
    """Return the sum over the slots, ``[N, H]`` for ``h [N, n, H]``: one after the other, whatever the threads."""
    return reduce(torch.add, h.unbind(1))


def _cpu() -> ModuleType:
    from nfcgcn.kernels.rows import cpu

    return cpu


@opaque
def _column_sums(h: Tensor) -> Tensor:
    return _cpu().column_sums(h)  # type: ignore[no-any-return]


@opaque
def _gathered(h: Tensor, table: Tensor) -> Tensor:
    return _cpu().gathered(h, table)  # type: ignore[no-any-return]


@opaque
def _shifted(h: Tensor, row: Tensor) -> Tensor:
    return _cpu().shifted(h, row)  # type: ignore[no-any-return]


@opaque
def _scaled(h: Tensor, row: Tensor) -> Tensor:
    return _cpu().scaled(h, row)  # type: ignore[no-any-return]
