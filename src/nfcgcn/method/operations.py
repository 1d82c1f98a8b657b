"""The formulas that the layers are made of: dropout, products, and propagation along edges."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.graph import Edges, WeightedEdges, csr_tensor, edge_parts
from nfcgcn.method.acceleration import accelerated
from nfcgcn.randomness import hashed

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
def gather_rows(h: Tensor, table: Tensor) -> Tensor:
    """Return the rows that a table of row numbers names: ``[N, n, H]`` for ``h [M, H]`` and ``table [N, n]``."""
    return F.embedding(table, h)


@accelerated
def propagate(h: Tensor, edges: Edges, self_weight: float = 1.0) -> Tensor:
    r"""Return :math:`\hat A h` with :math:`\hat A = \tilde D^{-1/2} (A + w I) \tilde D^{-1/2}`.

    Edges run from ``edge_index[0]`` to ``edge_index[1]``, as in PyTorch Geometric; degrees add up the weights of
    arriving edges, which are 1 unless the edges have weights. Every node has exactly one loop, of weight ``w``
    (`self_weight`), whether or not there are loops among the edges. A CSR matrix in place of edges is taken as it is.
    """
    if isinstance(edges, Tensor) and edges.layout == torch.sparse_csr:
        return edges @ h
    edge_index, given = edge_parts(edges)
    source, target = edge_index[0], edge_index[1]
    weight = (source != target).to(h.dtype)
    if given is not None:
        weight = weight * given.to(h.dtype)
    scale = torch.full_like(h[:, 0], self_weight).index_add(0, target, weight).rsqrt()
    weight = weight * scale[source] * scale[target]
    own = self_weight * scale.square()
    return (h * own[:, None]).index_add(0, target, h[source] * weight[:, None])


def drop_edges(edges: Edges, rate: float, training: bool) -> Edges:
    """In training, leave out edges with probability `rate`, both directions of an edge together."""
    if not training or rate == 0:
        return edges
    seed = int(torch.randint(2**62, ()))
    edge_index, weight = edge_parts(edges)
    kept = hashed(seed, edge_index.amin(0), edge_index.amax(0)) >= round(rate * 2**32)
    return edge_index[:, kept] if weight is None else WeightedEdges(edge_index[:, kept], weight[kept])
