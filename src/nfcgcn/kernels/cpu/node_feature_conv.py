"""Node-feature convolution on the CPU without the map, and without ``h(0)`` unless it is requested.

The work grows with the nonzeros: one at column ``d`` of slot ``j`` touches the ``k / s`` places whose window covers
``d``, each a run of ``c`` numbers. With an activation, ``h(0)`` exists for a tile of nodes at a time; without one the
convolution and the matrix behind it collapse into one map per slot (:mod:`collapse`). Masks are computed again in the
backward pass. Sums over nodes are cut into a number of blocks that does not depend on the threads, so neither do their
bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.cpu import conv_loops as loops
from nfcgcn.kernels.cpu.collapse import compose
from nfcgcn.kernels.cpu.dense_conv import DenseConv, DenseGather, DenseProject
from nfcgcn.kernels.cpu.inputs import KINDS, Draw, apply, by_filter, by_place, pad
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.cpu.product import add_up
from nfcgcn.method.node_feature_conv import ACTIVATIONS

HIDDEN_DROPOUT = True
"""Whether `projected` drops cells of ``h(0)`` by itself."""

_spans = lru_cache(8)(loops.spans)


def node_feature_conv(
    x: Tensor, neighbours: Tensor, weight: Tensor, *, stride: int, activation: str, dropout: float, seed: int
) -> Tensor:
    """See the reference."""
    draw = Draw(x, neighbours, dropout, seed)
    h = apply(_SparseConv if draw.is_sparse else DenseConv, draw, weight, stride)
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
    """See the reference."""
    draw = Draw(x, neighbours, dropout, seed, needed)
    if activation == "none" and not hidden_dropout:
        slots = compose(weight, matrix, bandwidth=draw.bandwidth, num_features=draw.num_features, stride=stride)
        return apply(SparseGather if draw.is_sparse else DenseGather, draw, slots)
    function = _SparseProject if draw.is_sparse else DenseProject
    return apply(function, draw, weight, matrix, stride, activation, hidden_dropout)


class SparseGather(torch.autograd.Function):
    """``sum_j dropout(x[table[:, j]]) @ slots[j]``."""

    @staticmethod
    def forward(ctx: Any, draw: Draw, slots: Tensor) -> Tensor:
        ctx.draw, ctx.shape = draw, slots.shape
        out = slots.new_zeros(draw.num_nodes, slots.shape[2])
        arrays, merged = pad(slots.detach()).contiguous(), 0
        if draw.whole and not ctx.needs_input_grad[1]:
            arrays, merged = _merge(arrays)
        cost, to = 0.08 * draw.cells * slots.shape[2], (arrays.numpy(), out.numpy())
        run(loops.gather, cost, *draw.x, draw.table, *draw.mask, draw.needed, merged, *to)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        draw = ctx.draw
        grad = pad(grad)
        cost = 0.08 * draw.cells * grad.shape[1]
        blocks = loops.blocks_of(draw.bandwidth, cost)
        out = grad.new_empty(blocks, *ctx.shape[:2], grad.shape[1])
        below, scale, seed = draw.mask
        to = grad.contiguous().numpy(), out.numpy()
        run(loops.gather_backward, cost, *draw.x, draw.table, below, seed, *to)
        return None, add_up(out, scale)[:, :, : ctx.shape[2]]


def _merge(slots: Tensor) -> tuple[Tensor, int]:
    """Let trailing copies of a node share one pass.

    Returns slot 0's part plus those of the last m slots, for each m (what a node with m copies needs for slot 0), then
    the other slots' parts; and by how many places slot 1 has moved.
    """
    tails = slots[1:].flip(0).cumsum(0)
    return torch.cat([slots[:1], slots[:1] + tails, slots[1:]]), len(slots) - 1


class _SparseConv(torch.autograd.Function):
    """The convolution before its activation, ``[N, n - w + 1, c, D']``."""

    @staticmethod
    def forward(ctx: Any, draw: Draw, weight: Tensor, stride: int) -> Tensor:
        ctx.draw, ctx.stride, ctx.shape = draw, stride, weight.shape
        runs, merged = _runs(draw, weight, stride, once=not ctx.needs_input_grad[1])
        steps, places = draw.steps(weight.shape), draw.places(weight.shape, stride)
        h = weight.new_empty(draw.num_nodes, steps * places * len(weight))
        spans = _places(draw, weight.shape, stride)
        cost, to = draw.conv_cost(weight.shape, stride), (runs.numpy(), h.numpy())
        run(loops.convolve, cost, *draw.x, draw.table, *draw.mask, merged, spans, steps, *to)
        return h.view(len(h), steps, places, -1).mT.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        draw, sums = ctx.draw, _sums(ctx.shape, ctx.stride, grad)
        spans = _places(draw, ctx.shape, ctx.stride)
        grad_h = grad.mT.flatten(1).contiguous()
        steps = draw.steps(ctx.shape)
        cost, to = draw.conv_cost(ctx.shape, ctx.stride), (grad_h.numpy(), sums.numpy())
        run(loops.convolve_backward, cost, *draw.x, draw.table, *draw.mask, spans, steps, *to)
        return None, _from_runs(add_up(sums), ctx.shape, ctx.stride), None


class _SparseProject(torch.autograd.Function):
    """``dropout(flatten(activation(conv))) @ matrix``, one tile of nodes at a time, forward and again backward."""

    @staticmethod
    def forward(
        ctx: Any, draw: Draw, weight: Tensor, matrix: Tensor, stride: int, activation: str, dropout: float
    ) -> Tensor:
        ctx.save_for_backward(weight, matrix)
        ctx.draw, ctx.stride = draw, stride
        ctx.hidden = (KINDS[activation], *draw.dropped(dropout))
        runs, merged = _runs(draw, weight, stride, once=not any(ctx.needs_input_grad))
        steps, spans = draw.steps(weight.shape), _places(draw, weight.shape, stride)
        rows = pad(by_place(matrix, steps, len(weight)))
        product = matrix.new_empty(len(draw.needed), rows.shape[1])
        run(
            loops.project, draw.cost(weight.shape, stride, matrix),
            *draw.x, draw.table, *draw.mask, draw.needed, merged, spans, steps, runs.numpy(), *ctx.hidden,
            rows.numpy(), product.numpy(),
        )  # fmt: skip
        return draw.spread(product, matrix.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        weight, matrix = ctx.saved_tensors
        draw, stride = ctx.draw, ctx.stride
        runs, _ = _runs(draw, weight, stride, once=False)
        steps, spans = draw.steps(weight.shape), _places(draw, weight.shape, stride)
        across = by_place(matrix, steps, len(weight)).mT.contiguous()
        sums = _sums(weight.shape, stride, grad)
        grad_matrix = grad.new_empty(loops.BLOCKS, len(matrix), matrix.shape[1] + -matrix.shape[1] % 4)
        run(
            loops.project_backward, 2 * draw.cost(weight.shape, stride, matrix),
            *draw.x, draw.table, *draw.mask, spans, steps, runs.numpy(), *ctx.hidden, across.numpy(),
            grad.contiguous().numpy(), grad_matrix.numpy(), sums.numpy(),
        )  # fmt: skip
        grad_matrix = by_filter(add_up(grad_matrix)[:, : matrix.shape[1]], steps, len(weight))
        return None, _from_runs(add_up(sums), weight.shape, stride), grad_matrix, None, None, None


def _to_runs(weight: Tensor, stride: int) -> Tensor:
    """Arrange filters ``[c, w, k]`` as the loops read them, ``[w, ...]``; see :func:`loops.spans`."""
    filters, width, size = weight.shape
    windows = -(-size // stride)
    padded = F.pad(weight, (0, windows * stride - size)).view(filters, width, windows, stride)
    return padded.flip(2).permute(1, 3, 2, 0).reshape(width, -1).contiguous()  # of one column, reshape copies nothing


def _from_runs(runs: Tensor, shape: torch.Size, stride: int) -> Tensor:
    """Undo `_to_runs`."""
    filters, width, size = shape
    parts = runs.view(width, stride, -1, filters).permute(3, 0, 2, 1).flip(2)
    return parts.reshape(filters, width, -1)[:, :, :size]


def _sums(shape: torch.Size, stride: int, like: Tensor) -> Tensor:
    """Return memory for the filters' gradient, one part per block of nodes, arranged as runs."""
    filters, width, size = shape
    return like.new_empty(loops.BLOCKS, width, -(-size // stride) * stride * filters)


def _runs(draw: Draw, weight: Tensor, stride: int, *, once: bool) -> tuple[Tensor, int]:
    """Return the filters as runs, and by how many places merging moves slot 1.

    A call that happens `once`, without a backward pass that repeats it, may merge the copies of a node.
    """
    runs = _to_runs(weight.detach(), stride)
    return _merge(runs) if once and draw.whole and len(runs) == draw.bandwidth else (runs, 0)


def _places(draw: Draw, shape: torch.Size, stride: int) -> Any:
    """Return which outputs and filters of this shape each column meets, as the loops take it."""
    return _spans(draw.num_features, shape[2], stride, shape[0])
