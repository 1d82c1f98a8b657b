"""Attention over the neighbours in plain PyTorch, with one row of ``[E, heads, channels]`` per edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.sparse import Sparse, sparse_product

SLOPE = 0.2
"""Slope of the LeakyReLU below 0."""


class Edges(NamedTuple):
    """The edges and one loop per node, sorted by target. Gathers and sums are products with constant matrices, whose
    values and gradients have the same bits for any number of threads."""

    starts: Tensor
    """``[N + 1]``: where each target's edges begin."""
    from_source: Sparse
    """``[E, N]``: gives each edge the row of its source."""
    from_target: Sparse
    """``[E, N]``: gives each edge the row of its target."""
    to_target: Sparse
    """``[N, E]``: adds up the edges of each target."""

    @classmethod
    def of(cls, adjacency: Sparse) -> Edges:
        """Read the edges from an adjacency matrix with loops and one row per target."""
        starts, sources = adjacency.matrix.crow_indices(), adjacency.matrix.col_indices()
        num_nodes, num_edges = len(starts) - 1, len(sources)
        targets = torch.repeat_interleave(
            torch.arange(num_nodes, device=starts.device), starts.diff(), output_size=num_edges
        )
        ones = adjacency.matrix.values().new_ones(num_edges)
        rows = torch.arange(num_edges + 1, device=starts.device)
        from_source, from_target = (
            Sparse.from_csr(csr_tensor(rows, nodes, ones, (num_edges, num_nodes))) for nodes in (sources, targets)
        )
        # Sorted by target, the edges have the same order in both.
        return cls(
            starts, from_source, from_target, Sparse(from_target.transpose, from_target.matrix, from_target.order)
        )


def attention(h: Tensor, source: Tensor, target: Tensor, edges: Edges, drop: Callable[[Tensor], Tensor]) -> Tensor:
    r"""Return :math:`\sum_j \mathrm{drop}(\alpha_{ij}) h_j` for each node and head, ``[N, heads * channels]``.

    .. math:: \alpha_{ij} = \mathrm{softmax}_j(\mathrm{LeakyReLU}(a_1^\top h_i + a_2^\top h_j))

    ``h`` is ``[N, heads * channels]``; ``source`` (:math:`a_2`) and ``target`` (:math:`a_1`) are ``[heads, channels]``.
    ``drop`` gets numbers ``[E, heads]`` in proportion to the weights and returns them with some set to 0.
    """
    split = h.view(len(h), *source.shape)
    scores = sparse_product(edges.from_source, (split * source).sum(2))
    scores = F.leaky_relu(scores + sparse_product(edges.from_target, (split * target).sum(2)), SLOPE)
    with torch.no_grad():  # subtracting a constant does not change a softmax; the largest score keeps exp in range
        largest = torch.segment_reduce(scores, "max", offsets=edges.starts, axis=0, unsafe=True)
        largest = sparse_product(edges.from_target, largest)
    weights = (scores - largest).exp()
    total = sparse_product(edges.to_target, weights)
    messages = sparse_product(edges.from_source, h).view(-1, *source.shape) * drop(weights)[:, :, None]
    out = sparse_product(edges.to_target, messages.flatten(1)).view_as(split) / total[:, :, None]
    return out.flatten(1)
