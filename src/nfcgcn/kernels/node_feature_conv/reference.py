"""Node-feature convolution as the paper writes it: build every node's map, drop cells, convolve, flatten.

It costs ``2 N n D' k c`` operations and the memory of the whole ``[N, n, D]`` map: the specification, not the fast way.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.kernels.masks.reference import kept

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"none": lambda h: h, "tanh": torch.tanh, "relu": torch.relu}


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
    """Return ``h(0) @ matrix``, ``[N, H]``; with ``hidden_dropout`` cells of ``h(0)`` are dropped before.

    With ``needed``, node numbers, the rows of all other nodes mean nothing: a variant may leave them 0.
    """
    h = node_feature_conv(x, neighbours, weight, stride=stride, activation=activation, dropout=dropout, seed=seed)
    if hidden_dropout:
        nodes = torch.arange(len(h), device=h.device)
        h = h * hidden_mask(nodes, neighbours, weight, h.shape[1], dropout=hidden_dropout, seed=seed)
    return h @ matrix


def hidden_mask(nodes: Tensor, neighbours: Tensor, weight: Tensor, size: int, *, dropout: float, seed: int) -> Tensor:
    """Return the mask of some nodes' ``h(0)``, ``[len(nodes), size]``.

    The rows come after those of the map; in a row the cells are counted with the filters last.
    """
    rows = neighbours.numel() + nodes
    mask = kept(rows[:, None], torch.arange(size, device=rows.device), dropout, seed, weight.dtype)
    steps, filters = neighbours.shape[1] - weight.shape[1] + 1, len(weight)
    return mask.view(len(rows), steps, -1, filters).mT.flatten(1)


def feature_map(x: Tensor, neighbours: Tensor, *, dropout: float = 0.0, seed: int = 0) -> Tensor:
    """Lay the features of each node's neighbours side by side: ``X'[i, j] = x[neighbours[i, j]]``, ``[N, n, D]``.

    ``x`` is ``[N, D]``, dense or CSR. With ``dropout`` each cell of the map is dropped on its own, so that two copies
    of one node lose different features; for a CSR ``x`` only the nonzeros are drawn. The draw is a hash of seed, node,
    slot and the cell's place in its row (the column, or the number of the nonzero): nothing needs to be remembered.
    """
    num_nodes, bandwidth = neighbours.shape
    if x.layout != torch.sparse_csr:
        maps = x.index_select(0, neighbours.flatten()).view(num_nodes, bandwidth, x.shape[1])
        if dropout:
            cells = torch.arange(num_nodes * bandwidth, device=x.device).view(num_nodes, bandwidth, 1)
            maps = maps * kept(cells, torch.arange(x.shape[1], device=x.device), dropout, seed, x.dtype)
        return maps
    starts, rows = x.crow_indices().long(), neighbours.flatten()
    counts = starts.diff()[rows]
    total = int(counts.sum())
    cell_row = torch.repeat_interleave(torch.arange(len(rows), device=x.device), counts, output_size=total)
    place = torch.arange(total, device=x.device) - (counts.cumsum(0) - counts)[cell_row]
    entry = starts[rows][cell_row] + place
    values = x.values()[entry]
    if dropout:
        values = values * kept(cell_row, place, dropout, seed, x.dtype)
    maps = x.values().new_zeros(len(rows), x.shape[1])
    maps[cell_row, x.col_indices().long()[entry]] = values
    return maps.view(num_nodes, bandwidth, x.shape[1])


def convolve(maps: Tensor, weight: Tensor, *, stride: int) -> Tensor:
    """Slide ``weight [c, w, k]`` over maps ``[N, n, D]``: ``w`` slots at a time by one, ``k`` features by ``stride``.

    Returns ``[N, n - w + 1, c, D']`` with ``D' = (D - k) // stride + 1``. With ``w = n`` this is the 1D convolution,
    whose channels are the slots; with a smaller ``w`` the 2D one.
    """
    num_nodes, bandwidth, num_features = maps.shape
    filters, width, _ = weight.shape
    if width < bandwidth:
        maps = maps.unfold(1, width, 1).transpose(2, 3).reshape(-1, width, num_features)
    return F.conv1d(maps, weight, stride=stride).view(num_nodes, bandwidth - width + 1, filters, -1)


def compose(weight: Tensor, matrix: Tensor, *, bandwidth: int, num_features: int, stride: int) -> Tensor:
    """Return ``M [n, D, H]`` such that, without an activation, ``h(0) @ matrix`` is the sum of ``x_j M_j`` over slots.

    It is the gradient of one map's outcome, which is the same for every map.
    """
    maps = matrix.new_zeros(matrix.shape[1], bandwidth, num_features).requires_grad_()
    h = convolve(maps, weight, stride=stride).flatten(1)
    (slopes,) = torch.autograd.grad(h, maps, matrix.mT)
    return slopes.permute(1, 2, 0)
