"""Node-feature convolution on the CPU without the map, and without ``h(0)`` unless it is asked for.

Work follows the nonzeros: one at column ``d`` of slot ``j`` touches the ``k / s`` places whose window covers ``d``,
each a run of ``c`` numbers. With an activation, ``h(0)`` exists for a tile of nodes at a time; without one the
convolution and the matrix behind it collapse into one map a slot (:mod:`collapse`). Masks are computed again in the
backward pass. Sums over nodes are cut into a number of blocks that does not depend on the threads, so neither do their
bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.compiler import follow_torch
from nfcgcn.kernels.masks.reference import threshold
from nfcgcn.kernels.node_feature_conv import loops
from nfcgcn.kernels.node_feature_conv.collapse import compose
from nfcgcn.kernels.node_feature_conv.reference import ACTIVATIONS, convolve, hidden_mask
from nfcgcn.kernels.product.reference import product, row_product, transposed_product

CHUNK = 2**19
"""Numbers of the map of dense features at a time: 2 MiB of float32."""

KINDS = {"none": loops.NONE, "tanh": loops.TANH, "relu": loops.RELU}

_spans = lru_cache(8)(loops.spans)


class Draw:
    """The features, the neighbour table, the mask and the nodes whose rows are needed, as the loops take them."""

    def __init__(self, x: Tensor, neighbours: Tensor, dropout: float, seed: int, needed: Tensor | None = None) -> None:
        self.is_sparse = x.layout == torch.sparse_csr
        # 64-bit indices for all: the loops would be compiled once more for others, for some 20 s each.
        parts = [x.crow_indices().long(), x.col_indices().long(), x.values()] if self.is_sparse else [x]
        self.x = tuple(part.detach().contiguous().numpy() for part in parts)
        self.table = neighbours.contiguous().numpy()
        scale = self.x[-1].dtype.type(1 / (1 - dropout))
        self.whole = dropout == 0
        self.mask = (np.uint32(threshold(dropout)), scale, np.uint64(seed))
        self.num_nodes, self.bandwidth = neighbours.shape
        self.num_features = x.shape[1]
        self.needed = np.arange(self.num_nodes) if needed is None else needed.numpy()
        follow_torch()

    def chunks(self, width: int) -> list[tuple[int, int]]:
        """Cut the nodes into ranges of about ``CHUNK / width``."""
        step = max(1, CHUNK // width)
        return [(start, min(start + step, self.num_nodes)) for start in range(0, self.num_nodes, step)]

    def spans(self, shape: torch.Size, stride: int) -> Any:
        """Return which outputs and filters of this shape each column meets, as the loops take it."""
        return _spans(self.num_features, shape[2], stride, shape[0])

    def dense_map(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Return the dropped-out map of some nodes, for dense features."""
        maps = torch.empty(stop - start, self.bandwidth, self.num_features, dtype=dtype)
        loops.dense_map(*self.x, self.table, *self.mask, start, maps.numpy())
        return maps


def node_feature_conv(
    x: Tensor, neighbours: Tensor, weight: Tensor, *, stride: int, activation: str, dropout: float, seed: int
) -> Tensor:
    """See the reference."""
    draw = Draw(x, neighbours, dropout, seed)
    if draw.is_sparse:
        h = apply(_SparseConv, draw, weight, stride)
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
    hidden_dropout: float = 0.0,
    needed: Tensor | None = None,
) -> Tensor:
    """See the reference; of dense features all rows are computed."""
    draw = Draw(x, neighbours, dropout, seed, needed)
    if activation == "none" and not hidden_dropout:
        slots = compose(weight, matrix, bandwidth=draw.bandwidth, num_features=draw.num_features, stride=stride)
        return apply(SparseGather if draw.is_sparse else _DenseGather, draw, slots)
    function = _SparseProject if draw.is_sparse else _DenseProject
    return apply(function, draw, weight, matrix, stride, activation, hidden_dropout)


def apply(function: Any, *arguments: Any) -> Tensor:
    """Call an autograd function."""
    result: Tensor = function.apply(*arguments)
    return result


class SparseGather(torch.autograd.Function):
    """``sum_j dropout(x[table[:, j]]) @ slots[j]``."""

    @staticmethod
    def forward(ctx: Any, draw: Draw, slots: Tensor) -> Tensor:
        ctx.draw, ctx.shape = draw, slots.shape
        out = slots.new_zeros(draw.num_nodes, slots.shape[2])
        arrays, merged = _pad(slots.detach()).contiguous(), 0
        if draw.whole and not ctx.needs_input_grad[1]:
            arrays, merged = _merge(arrays)
        loops.gather(*draw.x, draw.table, *draw.mask, draw.needed, merged, arrays.numpy(), out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        draw = ctx.draw
        blocks = loops.blocks_of(draw.bandwidth)
        grad = _pad(grad)
        out = grad.new_empty(blocks, *ctx.shape[:2], grad.shape[1])
        below, scale, seed = draw.mask
        loops.gather_backward(*draw.x, draw.table, below, seed, grad.contiguous().numpy(), out.numpy())
        return None, out.sum(0)[:, :, : ctx.shape[2]] * float(scale)


def _pad(rows: Tensor) -> Tensor:
    """Append zeros to each row up to a multiple of 4, the shortest vector: what is left over would go one by one."""
    left = -rows.shape[-1] % 4
    return F.pad(rows, (0, left)) if left else rows


def _merge(slots: Tensor) -> tuple[Tensor, int]:
    """Let trailing copies of a node share one pass.

    Returns slot 0's part plus those of the last m slots, for each m (what a node with m copies needs for slot 0), then
    the other slots' parts; and how much later slot 1 comes than it did.
    """
    tails = slots[1:].flip(0).cumsum(0)
    return torch.cat([slots[:1], slots[:1] + tails, slots[1:]]), len(slots) - 1


class _DenseGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, draw: Draw, slots: Tensor) -> Tensor:
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
    def forward(ctx: Any, draw: Draw, weight: Tensor, stride: int) -> Tensor:
        ctx.draw, ctx.stride, ctx.shape = draw, stride, weight.shape
        runs, merged = _runs(draw, weight, stride, once=not ctx.needs_input_grad[1])
        steps, places = _steps(draw, weight.shape), (draw.num_features - weight.shape[2]) // stride + 1
        h = weight.new_empty(draw.num_nodes, steps * places * len(weight))
        spans = draw.spans(weight.shape, stride)
        loops.convolve(*draw.x, draw.table, *draw.mask, merged, spans, steps, runs.numpy(), h.numpy())
        return h.view(len(h), steps, places, -1).mT.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        draw, sums = ctx.draw, _sums(ctx.shape, ctx.stride, grad)
        spans = draw.spans(ctx.shape, ctx.stride)
        grad_h = grad.mT.flatten(1).contiguous()
        steps = _steps(draw, ctx.shape)
        loops.convolve_backward(*draw.x, draw.table, *draw.mask, spans, steps, grad_h.numpy(), sums.numpy())
        return None, _from_runs(sums.sum(0), ctx.shape, ctx.stride), None


class _SparseProject(torch.autograd.Function):
    """``dropout(flatten(activation(conv))) @ matrix``, a tile of nodes at a time, forward and again backward."""

    @staticmethod
    def forward(
        ctx: Any, draw: Draw, weight: Tensor, matrix: Tensor, stride: int, activation: str, dropout: float
    ) -> Tensor:
        ctx.save_for_backward(weight, matrix)
        ctx.draw, ctx.stride = draw, stride
        scale = draw.x[-1].dtype.type(1 / (1 - dropout))
        ctx.hidden = (KINDS[activation], np.uint32(threshold(dropout)), scale)
        runs, merged = _runs(draw, weight, stride, once=not any(ctx.needs_input_grad))
        steps, spans = _steps(draw, weight.shape), draw.spans(weight.shape, stride)
        by_place = _pad(_by_place(matrix, steps, len(weight)))
        found = matrix.new_empty(len(draw.needed), by_place.shape[1])
        loops.project(
            *draw.x, draw.table, *draw.mask, draw.needed, merged, spans, steps, runs.numpy(), *ctx.hidden,
            by_place.numpy(), found.numpy(),
        )  # fmt: skip
        out = matrix.new_zeros(draw.num_nodes, matrix.shape[1])
        out.numpy()[draw.needed] = found[:, : matrix.shape[1]].numpy()
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        weight, matrix = ctx.saved_tensors
        draw, stride = ctx.draw, ctx.stride
        runs, _ = _runs(draw, weight, stride, once=False)
        steps, spans = _steps(draw, weight.shape), draw.spans(weight.shape, stride)
        across = _by_place(matrix, steps, len(weight)).mT.contiguous()
        sums = _sums(weight.shape, stride, grad)
        grad_matrix = grad.new_empty(loops.BLOCKS, len(matrix), matrix.shape[1] + -matrix.shape[1] % 4)
        loops.project_backward(
            *draw.x, draw.table, *draw.mask, spans, steps, runs.numpy(), *ctx.hidden, across.numpy(),
            grad.contiguous().numpy(), grad_matrix.numpy(), sums.numpy(),
        )  # fmt: skip
        by_place = grad_matrix.sum(0)[:, : matrix.shape[1]].reshape(steps, -1, len(weight), matrix.shape[1])
        grad_matrix = by_place.transpose(1, 2).reshape(matrix.shape)
        return None, _from_runs(sums.sum(0), weight.shape, stride), grad_matrix, None, None, None


class _DenseProject(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, draw: Draw, weight: Tensor, matrix: Tensor, *options: Any) -> Tensor:
        ctx.save_for_backward(weight, matrix)
        ctx.draw, ctx.options = draw, options
        return torch.cat([_dense_chunk(draw, chunk, weight, matrix, *options) for chunk in _dense_chunks(draw)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        weight, matrix = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        grads = [torch.zeros_like(weight), torch.zeros_like(matrix)]
        for chunk in _dense_chunks(ctx.draw):
            with torch.enable_grad():
                out = _dense_chunk(ctx.draw, chunk, weight, matrix, *ctx.options)
            for total, part in zip(grads, torch.autograd.grad(out, (weight, matrix), grad[slice(*chunk)]), strict=True):
                total += part
        return None, grads[0], grads[1], None, None, None


def _dense_chunks(draw: Draw) -> list[tuple[int, int]]:
    return draw.chunks(draw.bandwidth * draw.num_features)


def _dense_chunk(
    draw: Draw, chunk: tuple[int, int], weight: Tensor, matrix: Tensor, stride: int, activation: str, dropout: float
) -> Tensor:
    maps = draw.dense_map(*chunk, weight.dtype)
    h = ACTIVATIONS[activation](convolve(maps, weight, stride=stride)).flatten(1)
    if dropout:
        nodes, table = torch.arange(*chunk), torch.from_numpy(draw.table)
        h = h * hidden_mask(nodes, table, weight, h.shape[1], dropout=dropout, seed=int(draw.mask[2]))
    return product(h, matrix)


def _to_runs(weight: Tensor, stride: int) -> Tensor:
    """Lay filters ``[c, w, k]`` out as the loops read them, ``[w, ...]``; see :func:`loops.spans`."""
    filters, width, size = weight.shape
    windows = -(-size // stride)
    padded = F.pad(weight, (0, windows * stride - size)).view(filters, width, windows, stride)
    return padded.flip(2).permute(1, 3, 2, 0).reshape(width, -1)


def _from_runs(runs: Tensor, shape: torch.Size, stride: int) -> Tensor:
    """Undo `_to_runs`."""
    filters, width, size = shape
    parts = runs.view(width, stride, -1, filters).permute(3, 0, 2, 1).flip(2)
    return parts.reshape(filters, width, -1)[:, :, :size]


def _sums(shape: torch.Size, stride: int, like: Tensor) -> Tensor:
    """Return room for the filters' gradient, a block of nodes each, laid out as runs."""
    filters, width, size = shape
    return like.new_empty(loops.BLOCKS, width, -(-size // stride) * stride * filters)


def _runs(draw: Draw, weight: Tensor, stride: int, *, once: bool) -> tuple[Tensor, int]:
    """Return the filters as runs, and how far they are merged.

    What happens `once`, without a backward pass that must repeat it, may merge the copies of a node.
    """
    runs = _to_runs(weight.detach(), stride)
    return _merge(runs) if once and draw.whole and len(runs) == draw.bandwidth else (runs, 0)


def _steps(draw: Draw, shape: torch.Size) -> int:
    """Return at how many places along the slots a filter stands."""
    return draw.bandwidth - shape[1] + 1


def _by_place(matrix: Tensor, steps: int, filters: int) -> Tensor:
    """Reorder the matrix's rows from ``(step, filter, place)`` to ``(step, place, filter)``."""
    return matrix.detach().reshape(steps, filters, -1, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)
