"""Sums over rows, and what has one for a gradient: a row added to or multiplied by every row."""

from __future__ import annotations

from functools import reduce
from types import ModuleType

import torch
from torch import Tensor

from nfcgcn.kernels.products import has_kernel
from nfcgcn.method.acceleration import opaque


def column_sums(h: Tensor) -> Tensor:
    """Return the sum of the rows, ``[H]`` for ``h [N, H]``."""
    return _column_sums(h) if has_kernel(h) else h.sum(0)


def shifted(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h + row`` for ``h [N, H]`` and ``row [H]``."""
    return _shifted(h, row) if has_kernel(h, row) else h + row


def scaled(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h * row`` for ``h [N, H]`` and ``row [H]``."""
    return _scaled(h, row) if has_kernel(h, row) else h * row


def add_slots(h: Tensor) -> Tensor:
    """Return the sum over the slots, ``[N, H]`` for ``h [N, n, H]``: one after the other, whatever the threads."""
    return reduce(torch.add, h.unbind(1))


def _cpu() -> ModuleType:
    from nfcgcn.kernels.cpu import rows as cpu

    return cpu


@opaque
def _column_sums(h: Tensor) -> Tensor:
    return _cpu().column_sums(h)  # type: ignore[no-any-return]


@opaque
def _shifted(h: Tensor, row: Tensor) -> Tensor:
    return _cpu().shifted(h, row)  # type: ignore[no-any-return]


@opaque
def _scaled(h: Tensor, row: Tensor) -> Tensor:
    return _cpu().scaled(h, row)  # type: ignore[no-any-return]
