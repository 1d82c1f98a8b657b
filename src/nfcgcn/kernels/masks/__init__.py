"""Dropout masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.kernels import numba_refusal, opaque


@opaque
def dropout(h: Tensor, rate: float, training: bool) -> Tensor:
    """Drop cells of ``h [N, H]`` in training, as ``torch.nn.functional.dropout`` does.

    On the CPU the mask is a hash: torch draws one number after the other, a tenth of a Cora step in a profile.
    """
    if not training or rate == 0:
        return h
    if h.device.type != "cpu" or h.dtype not in (torch.float32, torch.float64) or numba_refusal():
        return F.dropout(h, rate)
    from nfcgcn.kernels.masks import cpu

    seed = int(torch.randint(2**62, ()))
    return h * cpu.mask(h.shape[0], h.shape[1], dropout=rate, seed=seed, dtype=h.dtype)
