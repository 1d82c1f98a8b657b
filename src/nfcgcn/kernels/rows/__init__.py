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

import torch
from torch import Tensor

from nfcgcn.kernels import opaque
from nfcgcn.kernels.product import has_kernel
from nfcgcn.kernels.rows import reference


def column_sums(h: Tensor) -> Tensor:
    """Return the sum of the rows, ``[H]`` for ``h [N, H]``."""
    return _on_cpu("column_sums", h) if h.device.type == "cpu" else reference.column_sums(h)


def shifted(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h + row`` for ``h [N, H]`` and ``row [H]``."""
    return _on_cpu("shifted", h, row) if h.device.type == "cpu" else reference.shifted(h, row)


def scaled(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h * row`` for ``h [N, H]`` and ``row [H]``."""
    return _on_cpu("scaled", h, row) if h.device.type == "cpu" else reference.scaled(h, row)


def gathered(h: Tensor, table: Tensor) -> Tensor:
    """Return the rows that a table of row numbers names: ``[N, n, H]`` for ``h [M, H]`` and ``table [N, n]``."""
    return _on_cpu("gathered", h, table) if h.device.type == "cpu" else reference.gathered(h, table)


def add_slots(h: Tensor) -> Tensor:
    """Return the sum over the slots, ``[N, H]`` for ``h [N, n, H]``: one after the other, whatever the threads."""
    return reduce(torch.add, h.unbind(1))


@opaque
def _on_cpu(operation: str, *inputs: Tensor) -> Tensor:
    if not has_kernel(*(t for t in inputs if t.is_floating_point())):
        return getattr(reference, operation)(*inputs)  # type: ignore[no-any-return]
    from nfcgcn.kernels.rows import cpu

    return getattr(cpu, operation)(*inputs)  # type: ignore[no-any-return]
