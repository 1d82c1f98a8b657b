"""Node-feature convolution as the paper writes it: build every node's map, drop cells, convolve, flatten.

It costs ``2 N n D' k c`` operations and the memory of the whole ``[N, n, D]`` map: the specification, not the fast way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.masks.reference import kept
from nfcgcn.kernels.product.reference import product, row_product, transposed_product

CHUNK = 2**18
"""Numbers unfolded at a time: about what a core's cache holds, and no function of the threads."""

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
    return product(h, matrix)


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
        # Not `x[neighbours]`, whose gradient adds up in an order that depends on the number of threads.
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


class _Convolve(torch.autograd.Function):
    """``conv1d``, chunk by chunk as a matrix product, with the same bits for any number of threads.

    PyTorch's own is not: its filter gradient, a sum over all nodes, is shared out among the threads.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(maps, weight)
        ctx.stride = stride
        matrix = weight.flatten(1).mT.contiguous()
        chunks = [
            row_product(w.flatten(0, 1), matrix).view(*w.shape[:2], -1).mT for w in _windows(maps, weight, stride)
        ]
        return torch.cat(chunks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        maps, weight = ctx.saved_tensors
        matrix = weight.flatten(1).contiguous()
        grad_matrix, grad_maps = torch.zeros_like(matrix), []
        start = 0
        for windows in _windows(maps, weight, ctx.stride):
            part = grad[start : start + len(windows)].mT.reshape(-1, len(weight))
            start += len(windows)
            if ctx.needs_input_grad[0]:
                cells = row_product(part, matrix).view_as(windows).mT
                grad_maps.append(_fold(cells, maps.shape[1:], weight.shape[2], ctx.stride))
            if ctx.needs_input_grad[1]:
                grad_matrix += transposed_product(part, windows.flatten(0, 1))
        return torch.cat(grad_maps) if grad_maps else None, grad_matrix.view_as(weight), None


def _windows(maps: Tensor, weight: Tensor, stride: int) -> Iterator[Tensor]:
    """Yield what the filters see, ``[nodes, D', w k]``, a chunk of nodes at a time."""
    _, width, size = weight.shape
    places = (maps.shape[2] - size) // stride + 1
    for part in torch.split(maps, max(1, CHUNK // (places * width * size))):
        yield part.unfold(2, size, stride).transpose(1, 2).reshape(len(part), places, width * size)


def _fold(cells: Tensor, shape: torch.Size, size: int, stride: int) -> Tensor:
    """Add ``cells [nodes, w k, D']`` up where the windows they come from overlap: ``[nodes, w, D]``."""
    covered = (cells.shape[2] - 1) * stride + size
    folded = F.fold(cells, (1, covered), (1, size), stride=(1, stride)).squeeze(2)
    return F.pad(folded, (0, shape[1] - covered))


def convolve(maps: Tensor, weight: Tensor, *, stride: int) -> Tensor:
    """Slide ``weight [c, w, k]`` over maps ``[N, n, D]``: ``w`` slots at a time by one, ``k`` features by ``stride``.

    Returns ``[N, n - w + 1, c, D']`` with ``D' = (D - k) // stride + 1``. With ``w = n`` this is the 1D convolution,
    whose channels are the slots; with a smaller ``w`` the 2D one.
    """
    num_nodes, bandwidth, num_features = maps.shape
    filters, width, _ = weight.shape
    if width < bandwidth:
        maps = maps.unfold(1, width, 1).transpose(2, 3).reshape(-1, width, num_features)
    out = F.conv1d(maps, weight, stride=stride) if maps.is_cuda else _Convolve.apply(maps, weight, stride)  # type: ignore[no-untyped-call]
    return out.view(num_nodes, bandwidth - width + 1, filters, -1)


def compose(weight: Tensor, matrix: Tensor, *, bandwidth: int, num_features: int, stride: int) -> Tensor:
    """Return ``M [n, D, H]`` such that, without an activation, ``h(0) @ matrix`` is the sum of ``x_j M_j`` over slots.

    It is the gradient of one map's outcome, which is the same for every map.
    """
    maps = matrix.new_zeros(matrix.shape[1], bandwidth, num_features).requires_grad_()
    h = convolve(maps, weight, stride=stride).flatten(1)
    (slopes,) = torch.autograd.grad(h, maps, matrix.mT)
    return slopes.permute(1, 2, 0)
