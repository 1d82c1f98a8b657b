"""Node-feature convolution on the CPU without the map, and without ``h(0)`` unless it is asked for.

Work follows the nonzeros: one at column ``d`` of slot ``j`` touches the ``k / s`` places whose window covers ``d``,
each a run of ``c`` numbers. With an activation, ``h(0)`` exists for a chunk of nodes at a time; without one the
convolution and the matrix behind it collapse into one map a slot (:mod:`collapse`). Masks are computed again in the
backward pass. Sums over nodes are cut into a number of blocks that does not depend on the threads, so neither do their
bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.masks.cpu import follow_torch
from nfcgcn.kernels.masks.reference import threshold
from nfcgcn.kernels.node_feature_conv import loops
from nfcgcn.kernels.node_feature_conv.collapse import compose
from nfcgcn.kernels.node_feature_conv.reference import ACTIVATIONS, convolve
from nfcgcn.kernels.product.reference import BLOCKS, product, row_product, transposed_product

CHUNK = 2**19
"""Numbers of ``h(0)``, or of the map of dense features, at a time: 2 MiB of float32."""


class _Draw:
    """The features, the neighbour table and the mask, as the loops take them."""

    def __init__(self, x: Tensor, neighbours: Tensor, dropout: float, seed: int) -> None:
        self.is_sparse = x.layout == torch.sparse_csr
        parts = [x.crow_indices(), x.col_indices(), x.values()] if self.is_sparse else [x]
        self.x = tuple(part.detach().contiguous().numpy() for part in parts)
        self.table = neighbours.contiguous().numpy()
        scale = self.x[-1].dtype.type(1 / (1 - dropout))
        self.whole = dropout == 0
        self.mask = (np.uint32(threshold(dropout)), scale, np.uint64(seed))
        self.num_nodes, self.bandwidth = self.table.shape
        self.num_features = x.shape[1]
        follow_torch()

    def chunks(self, width: int) -> list[tuple[int, int]]:
        """Cut the nodes into ranges of about ``CHUNK / width``."""
        step = max(1, CHUNK // width)
        return [(start, min(start + step, self.num_nodes)) for start in range(0, self.num_nodes, step)]

    def dense_map(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Return the dropped-out map of some nodes, for dense features."""
        maps = torch.empty(stop - start, self.bandwidth, self.num_features, dtype=dtype)
        loops.dense_map(*self.x, self.table, *self.mask, start, maps.numpy())
        return maps


def node_feature_conv(
    x: Tensor, neighbours: Tensor, weight: Tensor, *, stride: int, activation: str, dropout: float, seed: int
) -> Tensor:
    """See the reference."""
    draw = _Draw(x, neighbours, dropout, seed)
    if draw.is_sparse:
        h = _apply(_SparseConv, draw, weight, stride)
    else:
        h = convolve(draw.dense_map(0, draw.num_nodes, weight.dtype), weight, stride=stride)
    return ACTIVATIONS[activation](h).flatten(1)


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
) -> Tensor:
    """See the reference."""
    draw = _Draw(x, neighbours, dropout, seed)
    if activation == "none":
        slots = compose(weight, matrix, bandwidth=draw.bandwidth, num_features=draw.num_features, stride=stride)
        return _apply(_SparseGather if draw.is_sparse else _DenseGather, draw, slots)
    return _apply(_SparseProject if draw.is_sparse else _DenseProject, draw, weight, matrix, stride, activation)


def _apply(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


class _SparseGather(torch.autograd.Function):
    """``sum_j dropout(x[table[:, j]]) @ slots[j]``."""

    @staticmethod
    def forward(ctx: Any, draw: _Draw, slots: Tensor) -> Tensor:
        ctx.draw, ctx.shape = draw, slots.shape
        out = slots.new_empty(draw.num_nodes, slots.shape[2])
        arrays = slots.detach().contiguous()
        if draw.whole and not ctx.needs_input_grad[1]:
            loops.gather_merged(*draw.x, draw.table, arrays.numpy(), _merged(arrays).numpy(), out.numpy())
        else:
            loops.gather(*draw.x, draw.table, *draw.mask, arrays.numpy(), out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        draw = ctx.draw
        blocks = loops.blocks_of(draw.bandwidth)
        out = grad.new_empty(blocks, *ctx.shape)
        loops.gather_backward(*draw.x, draw.table, *draw.mask, grad.contiguous().numpy(), out.numpy())
        return None, out.sum(0)


def _merged(slots: Tensor) -> Tensor:
    """Return slot 0's part plus those of the last m slots, for each m: what a node with m trailing copies needs."""
    tails = slots[1:].flip(0).cumsum(0)
    return torch.cat([slots[:1], slots[:1] + tails])


class _DenseGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, draw: _Draw, slots: Tensor) -> Tensor:
        ctx.draw, ctx.shape = draw, slots.shape
        if draw.whole and not ctx.needs_input_grad[1]:
            # Without dropout each node's row meets each slot once, whoever's neighbour it is.
            x = torch.from_numpy(draw.x[0])
            each = row_product(x, slots.transpose(0, 1).flatten(1).contiguous()).view(len(x), *slots.shape[::2])
            table = torch.from_numpy(draw.table)
            return torch.stack([each[table[:, j], j] for j in range(draw.bandwidth)]).sum(0)
        flat = slots.detach().flatten(0, 1)
        out = slots.new_empty(draw.num_nodes, slots.shape[2])
        for start, stop in draw.chunks(flat.shape[0]):
            out[start:stop] = row_product(draw.dense_map(start, stop, slots.dtype).flatten(1), flat)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        draw, grad = ctx.draw, grad.contiguous()
        out = grad.new_zeros(ctx.shape).flatten(0, 1)
        for start, stop in draw.chunks(out.shape[0]):
            out += transposed_product(draw.dense_map(start, stop, grad.dtype).flatten(1), grad[start:stop])
        return None, out.view(ctx.shape)


class _SparseConv(torch.autograd.Function):
    """The convolution before its activation, ``[N, n - w + 1, c, D']``."""

    @staticmethod
    def forward(ctx: Any, draw: _Draw, weight: Tensor, stride: int) -> Tensor:
        ctx.draw, ctx.stride, ctx.shape = draw, stride, weight.shape
        h = _tiles(draw, weight, stride, draw.num_nodes)
        _convolve(draw, weight, stride, 0, h, once=not ctx.needs_input_grad[1])
        return h.mT.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        sums = grad.new_zeros(loops.BLOCKS, *_runs(ctx.shape))
        loops.convolve_backward(
            *ctx.draw.x, ctx.draw.table, *ctx.draw.mask, ctx.stride, 0, grad.mT.contiguous().numpy(), sums.numpy()
        )
        return None, sums.sum(0).permute(2, 0, 1), None


class _SparseProject(torch.autograd.Function):
    """``flatten(activation(conv)) @ matrix``, a chunk of nodes at a time, forward and again backward."""

    @staticmethod
    def forward(ctx: Any, draw: _Draw, weight: Tensor, matrix: Tensor, stride: int, activation: str) -> Tensor:
        ctx.save_for_backward(weight, matrix)
        ctx.draw, ctx.stride, ctx.activation = draw, stride, activation
        out = matrix.new_empty(draw.num_nodes, matrix.shape[1])
        runs = _by_place(matrix, draw, weight)
        once = not any(ctx.needs_input_grad)
        chunks = draw.chunks(len(matrix))
        tiles = _tiles(draw, weight, stride, chunks[0][1])
        for start, stop in chunks:
            h = tiles[: stop - start]
            _activate(_convolve(draw, weight, stride, start, h, once=once), activation)
            out[start:stop] = _tile_product(h.flatten(1), runs)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None]:
        weight, matrix = ctx.saved_tensors
        draw, grad = ctx.draw, grad.contiguous()
        runs = _by_place(matrix, draw, weight)
        across = runs.mT.contiguous()
        grad_runs, sums = torch.zeros_like(runs), weight.new_zeros(loops.BLOCKS, *_runs(weight.shape))
        chunks = draw.chunks(len(matrix))
        tiles, grad_tiles = (_tiles(draw, weight, ctx.stride, chunks[0][1]) for _ in range(2))
        for start, stop in chunks:
            part, h, grad_h = grad[start:stop], tiles[: stop - start], grad_tiles[: stop - start]
            _activate(_convolve(draw, weight, ctx.stride, start, h), ctx.activation)
            grad_runs += _tile_gradient(h.flatten(1), part)
            # So few columns are summed that no BLAS cuts the sum: the bits do not depend on the threads.
            torch.mm(part, across, out=grad_h.flatten(1))
            if ctx.activation == "relu":
                grad_h *= h > 0
            else:
                torch.ops.aten.tanh_backward.grad_input(grad_h, h, grad_input=grad_h)
            loops.convolve_backward(*draw.x, draw.table, *draw.mask, ctx.stride, start, grad_h.numpy(), sums.numpy())
        steps, filters = draw.bandwidth - weight.shape[1] + 1, weight.shape[0]
        grad_matrix = grad_runs.view(steps, -1, filters, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)
        return None, sums.sum(0).permute(2, 0, 1), grad_matrix, None, None


class _DenseProject(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, draw: _Draw, weight: Tensor, matrix: Tensor, stride: int, activation: str) -> Tensor:
        ctx.save_for_backward(weight, matrix)
        ctx.draw, ctx.stride, ctx.activation = draw, stride, activation
        return torch.cat([_dense_chunk(draw, weight, matrix, stride, activation, *c) for c in _dense_chunks(draw)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None]:
        weight, matrix = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        grads = [torch.zeros_like(weight), torch.zeros_like(matrix)]
        for start, stop in _dense_chunks(ctx.draw):
            with torch.enable_grad():
                out = _dense_chunk(ctx.draw, weight, matrix, ctx.stride, ctx.activation, start, stop)
            for total, part in zip(grads, torch.autograd.grad(out, (weight, matrix), grad[start:stop]), strict=True):
                total += part
        return None, grads[0], grads[1], None, None


def _dense_chunks(draw: _Draw) -> list[tuple[int, int]]:
    return draw.chunks(draw.bandwidth * draw.num_features)


def _dense_chunk(
    draw: _Draw, weight: Tensor, matrix: Tensor, stride: int, activation: str, start: int, stop: int
) -> Tensor:
    maps = draw.dense_map(start, stop, weight.dtype)
    return product(ACTIVATIONS[activation](convolve(maps, weight, stride=stride)).flatten(1), matrix)


def _tile_product(h: Tensor, matrix: Tensor) -> Tensor:
    """Return ``h @ matrix`` for a few rows of many columns: the sum over columns is cut into blocks."""
    size = h.shape[1] // BLOCKS
    even = BLOCKS * size
    left = h[:, :even].view(len(h), BLOCKS, size).transpose(0, 1)
    blocks = torch.bmm(left, matrix[:even].view(BLOCKS, size, matrix.shape[1]))
    return blocks.sum(0) + h[:, even:] @ matrix[even:]


def _tile_gradient(h: Tensor, grad: Tensor) -> Tensor:
    """Return ``h.T @ grad`` for a few rows of many columns: the columns are cut into blocks, each sum is whole."""
    size = h.shape[1] // BLOCKS
    even = BLOCKS * size
    left = h[:, :even].view(len(h), BLOCKS, size).permute(1, 2, 0)
    blocks = torch.bmm(left, grad.expand(BLOCKS, *grad.shape)).view(even, grad.shape[1])
    return torch.cat([blocks, h[:, even:].mT @ grad])


def _runs(shape: torch.Size) -> tuple[int, int, int]:
    filters, width, size = shape
    return width, size, filters


def _tiles(draw: _Draw, weight: Tensor, stride: int, num_nodes: int) -> Tensor:
    """Return room for the convolution of some nodes, ``[nodes, n - w + 1, D', c]``; it is used again for the next ones.

    Filters come last, as the loops run over them. Fresh memory for each chunk cost a third of a Cora step with tanh.
    """
    filters, width, size = weight.shape
    places = (draw.num_features - size) // stride + 1
    return weight.new_empty(num_nodes, draw.bandwidth - width + 1, places, filters)


def _convolve(draw: _Draw, weight: Tensor, stride: int, start: int, out: Tensor, *, once: bool = False) -> Tensor:
    """Convolve the maps of the nodes from `start` on into `out`.

    What happens `once`, without a backward pass that must repeat it, may merge the copies of a node.
    """
    runs = weight.detach().permute(1, 2, 0).contiguous()
    if once and draw.whole and len(runs) == draw.bandwidth:
        merged = _merged(runs).numpy()
        loops.convolve_merged(*draw.x, draw.table, stride, start, runs.numpy(), merged, out.numpy())
    else:
        loops.convolve(*draw.x, draw.table, *draw.mask, stride, start, runs.numpy(), out.numpy())
    return out


def _activate(h: Tensor, activation: str) -> None:
    h.tanh_() if activation == "tanh" else h.relu_()


def _by_place(matrix: Tensor, draw: _Draw, weight: Tensor) -> Tensor:
    """Reorder the matrix's rows from ``(step, filter, place)`` to ``(step, place, filter)``."""
    steps, filters = draw.bandwidth - weight.shape[1] + 1, weight.shape[0]
    return matrix.detach().reshape(steps, filters, -1, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)
