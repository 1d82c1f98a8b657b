"""The formulas that the layers are made of: dropout, products, and propagation along edges."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.method.acceleration import accelerated

Rows = Any
"""What a layer multiplies: a tensor ``[N, F]``, dense or CSR, or an object of the kernels that replaces one."""


@accelerated
def dropout(h: Rows, rate: float, training: bool) -> Rows:
    """In training, set cells to 0 with probability `rate` and scale up the others; of CSR rows only the nonzeros."""
    if not training or rate == 0:
        return h
    if h.layout != torch.sparse_csr:
        return F.dropout(h, rate)
    return csr_tensor(h.crow_indices(), h.col_indices(), F.dropout(h.values(), rate), h.shape)


@accelerated
def multiply(h: Rows, matrix: Tensor) -> Tensor:
    """Return ``h @ matrix``."""
    product: Tensor = h @ matrix
    return product


@accelerated
def add_bias(h: Tensor, bias: Tensor) -> Tensor:
    """Return ``h + bias``, one bias per column."""
    return h + bias


@accelerated
def propagate(h: Tensor, edge_index: Tensor) -> Tensor:
    r"""Return :math:`\hat A h` with :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}`.

    Edges run from ``edge_index[0]`` to ``edge_index[1]``, as in PyTorch Geometric; degrees count arriving edges.
    Every node has exactly one loop, whether or not `edge_index` has loops.
    """
    source, target = edge_index[0], edge_index[1]
    weight = (source != target).to(h.dtype)
    scale = torch.ones_like(h[:, 0]).index_add(0, target, weight).rsqrt()
    weight = weight * scale[source] * scale[target]
    return (h * scale.square()[:, None]).index_add(0, target, h[source] * weight[:, None])
