"""Sums over rows, and operations whose gradient is one: adding or multiplying by a row, and reading rows by a table.

On the CPU they are our own loops, whose bits do not depend on the number of threads.
"""

from __future__ import annotations

from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.kernels.products import has_kernel
from nfcgcn.method.acceleration import opaque


def column_sums(h: Tensor) -> Tensor:
    """Return the sum of the rows, ``[H]`` for ``h [N, H]``."""
    sums = _on_cpu("column_sums", h)
    return h.sum(0) if sums is None else sums


def shifted(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h + row`` for ``h [N, H]`` and ``row [H]``."""
    rows = _on_cpu("shifted", h, row)
    return h + row if rows is None else rows


def scaled(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h * row`` for ``h [N, H]`` and ``row [H]``."""
    rows = _on_cpu("scaled", h, row)
    return h * row if rows is None else rows


def gathered(h: Tensor, table: Tensor) -> Tensor:
    """Return the rows that a table of row numbers names: ``[N, n, H]`` for ``h [M, H]`` and ``table [N, n]``."""
    rows = _on_cpu("gathered", h, table)
    return F.embedding(table, h) if rows is None else rows


def add_slots(h: Tensor) -> Tensor:
    """Return the sum over the slots, ``[N, H]`` for ``h [N, n, H]``: one after the other, for any number of threads."""
    return reduce(torch.add, h.unbind(1))


@opaque
def _on_cpu(operation: str, *inputs: Tensor) -> Tensor | None:
    """Compute an operation by our own loops; return None if they cannot."""
    if not has_kernel(*(t for t in inputs if t.is_floating_point())):
        return None
    from nfcgcn.kernels.cpu import rows

    return getattr(rows, operation)(*inputs)  # type: ignore[no-any-return]
