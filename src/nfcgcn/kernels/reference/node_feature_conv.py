"""The reference for the kernels of the node-feature convolution: the method's formulas, with the kernels' masks."""

from __future__ import annotations

import torch
from torch import Tensor

from nfcgcn.graph import csr_tensor
from nfcgcn.kernels.reference.masks import kept
from nfcgcn.method.node_feature_conv import ACTIVATIONS, convolve
from nfcgcn.method.node_feature_conv import feature_map as plain_map


def node_feature_conv(
    x: Tensor, neighbours: Tensor, weight: Tensor, *, stride: int, activation: str, dropout: float, seed: int
) -> Tensor:
    """Return ``h(0) = flatten(activation(Conv(dropout(X'))))``, ``[N, (n - w + 1) c D']``."""
    maps = feature_map(x, neighbours, dropout=dropout, seed=seed)
    return ACTIVATIONS[activation](convolve(maps, weight, stride=stride)).flatten(1)


def projected(
    x: Tensor,
    neighbours: Tensor,
    weight: Tensor,
    matrix: Tensor,
    *,
    stride: int,
    activation: str,
    dropout: float,
    seed: int,
    hidden_dropout: float = 0.0,
    needed: Tensor | None = None,  # noqa: ARG001  (to skip rows is for faster variants)
) -> Tensor:
    """Return ``h(0) @ matrix``, ``[N, H]``; with ``hidden_dropout``, cells of ``h(0)`` are dropped first.

    With ``needed``, node numbers, ignore the rows of all other nodes: a variant may leave them 0.
    """
    h = node_feature_conv(x, neighbours, weight, stride=stride, activation=activation, dropout=dropout, seed=seed)
    if hidden_dropout:
        nodes = torch.arange(len(h), device=h.device)
        h = h * hidden_mask(nodes, neighbours, weight, h.shape[1], dropout=hidden_dropout, seed=seed)
    return h @ matrix


def hidden_mask(nodes: Tensor, neighbours: Tensor, weight: Tensor, size: int, *, dropout: float, seed: int) -> Tensor:
    """Return the mask of some nodes' ``h(0)``, ``[len(nodes), size]``.

    Its rows are numbered after those of the map; within a row, filters vary fastest.
    """
    rows = neighbours.numel() + nodes
    mask = kept(rows[:, None], torch.arange(size, device=rows.device), dropout, seed, weight.dtype)
    steps, filters = neighbours.shape[1] - weight.shape[1] + 1, len(weight)
    return mask.view(len(rows), steps, -1, filters).mT.flatten(1)


def feature_map(x: Tensor, neighbours: Tensor, *, dropout: float = 0.0, seed: int = 0) -> Tensor:
    """Return the map ``[N, n, D]`` with cells dropped by a hash of seed, node, slot and the cell's place in its row.

    The place is the column; for a CSR ``x``, of which only nonzeros are dropped, it is the number of the nonzero.
    """
    maps = plain_map(x, neighbours)
    if not dropout:
        return maps
    num_nodes, bandwidth = neighbours.shape
    rows = torch.arange(num_nodes * bandwidth, device=x.device).view(num_nodes, bandwidth, 1)
    places = torch.arange(x.shape[1], device=x.device)
    if x.layout == torch.sparse_csr:
        starts = x.crow_indices().long()
        counts = torch.arange(len(x.values()), device=x.device) - torch.repeat_interleave(starts[:-1], starts.diff())
        number = csr_tensor(starts, x.col_indices().long(), counts, x.shape).to_dense()
        places = number[neighbours]
    return maps * kept(rows, places, dropout, seed, x.dtype)


@torch.enable_grad()
def compose(weight: Tensor, matrix: Tensor, *, bandwidth: int, num_features: int, stride: int) -> Tensor:
    """Return ``M [n, D, H]`` with ``h(0) @ matrix`` the sum of ``x_j M_j`` over the slots; holds without an activation.

    It is the gradient of one map's result, which is the same for every map.
    """
    maps = matrix.new_zeros(matrix.shape[1], bandwidth, num_features).requires_grad_()
    h = convolve(maps, weight, stride=stride).flatten(1)
    (slopes,) = torch.autograd.grad(h, maps, matrix.mT)
    return slopes.permute(1, 2, 0)
