"""Attention over the neighbours, as in GAT.

======================  ===========================================================================================
variant                 runs
======================  ===========================================================================================
``reference``           anywhere, any float type
``cpu``                 CPU, float32 and float64; needs Numba
======================  ===========================================================================================
"""

from __future__ import annotations

import torch
from torch import Tensor

from nfcgcn.kernels.choice import numba_refusal
from nfcgcn.kernels.reference import attention as reference
from nfcgcn.kernels.reference.attention import Edges
from nfcgcn.method.acceleration import opaque
from nfcgcn.method.operations import dropout as drop


def attention(h: Tensor, source: Tensor, target: Tensor, edges: Edges, *, dropout: float, training: bool) -> Tensor:
    """Return the weighted average of each node's neighbours, in training with dropped weights; see the reference."""
    if h.device.type == "cpu":
        return _on_cpu(h, source, target, edges, dropout, training)
    return reference.attention(h, source, target, edges, lambda weights: drop(weights, dropout, training))


@opaque
def _on_cpu(h: Tensor, source: Tensor, target: Tensor, edges: Edges, dropout: float, training: bool) -> Tensor:
    if h.dtype not in (torch.float32, torch.float64) or numba_refusal():
        return reference.attention(h, source, target, edges, lambda weights: drop(weights, dropout, training))
    from nfcgcn.kernels.cpu import attention as cpu

    rate = dropout if training else 0.0
    seed = int(torch.randint(2**62, ())) if rate else 0
    return cpu.attention(h, source, target, edges, dropout=rate, seed=seed)
