"""Sums over rows and their kin in plain PyTorch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def column_sums(h: Tensor) -> Tensor:
    """Return the sum of the rows."""
    return h.sum(0)


def shifted(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h + row``."""
    return h + row


def scaled(h: Tensor, row: Tensor) -> Tensor:
    """Return ``h * row``."""
    return h * row


def gathered(h: Tensor, table: Tensor) -> Tensor:
    """Return ``h[table]``."""
    return F.embedding(table, h)
