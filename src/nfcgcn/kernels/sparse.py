"""Sparse matrices that a graph gives rise to, each made once per graph."""

from __future__ import annotations

import torch
from torch import Tensor

from nfcgcn.kernels.product.reference import Sparse
from nfcgcn.method.acceleration import remembered
from nfcgcn.method.sampling import check_range


@remembered
def normalised_adjacency(edge_index: Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> Sparse:
    r"""Return :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}`, where each node has one loop.

    Edges run from ``edge_index[0]`` to ``edge_index[1]``, as in PyTorch Geometric; degrees count what arrives.
    """
    check_range(edge_index, num_nodes)
    loops = torch.arange(num_nodes, device=edge_index.device)
    source, target = torch.cat([edge_index[:, edge_index[0] != edge_index[1]], loops.expand(2, -1)], dim=1)
    scale = torch.bincount(target, minlength=num_nodes).to(dtype).rsqrt()
    return Sparse.from_entries(target, source, scale[source] * scale[target], size=(num_nodes, num_nodes))


def with_transpose(matrix: Tensor) -> Sparse:
    """Pair a torch CSR matrix with its transpose, which is computed once."""
    return Sparse(matrix, *_transpose(matrix))


@remembered
def _transpose(matrix: Tensor) -> tuple[Tensor, Tensor]:
    _, transpose, order = Sparse.from_csr(matrix)
    return transpose, order
