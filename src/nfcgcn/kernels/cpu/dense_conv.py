"""Node-feature convolution of dense features on the CPU: products, with the map of a few nodes at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.cpu import dense_loops
from nfcgcn.kernels.cpu.conv_loops import BLOCKS, blocks_of
from nfcgcn.kernels.cpu.inputs import KINDS, Draw, by_filter, by_place, pad
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.cpu.product import add_up


class DenseGather(torch.autograd.Function):
    """``sum_j dropout(x[table[:, j]]) @ slots[j]``."""

    @staticmethod
    def forward(ctx: Any, draw: Draw, slots: Tensor) -> Tensor:
        ctx.draw, ctx.shape = draw, slots.shape
        out = slots.new_zeros(draw.num_nodes, slots.shape[2])
        arrays = pad(slots.detach()).contiguous().numpy()
        cost = 0.04 * draw.cells * slots.shape[2]
        run(dense_loops.gather, cost, *draw.x, draw.table, *draw.mask, draw.needed, arrays, out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        draw, grad = ctx.draw, pad(grad).contiguous()
        cost = 0.04 * draw.cells * grad.shape[1]
        out = grad.new_empty(blocks_of(draw.bandwidth, cost), *ctx.shape[:2], grad.shape[1])
        run(dense_loops.gather_backward, cost, *draw.x, draw.table, *draw.mask, grad.numpy(), out.numpy())
        return None, add_up(out)[:, :, : ctx.shape[2]]


class DenseConv(torch.autograd.Function):
    """The convolution before its activation, ``[N, n - w + 1, c, D']``."""

    @staticmethod
    def forward(ctx: Any, draw: Draw, weight: Tensor, stride: int) -> Tensor:
        ctx.draw, ctx.stride, ctx.shape = draw, stride, weight.shape
        steps, places = draw.steps(weight.shape), draw.places(weight.shape, stride)
        h = weight.new_empty(draw.num_nodes, steps * places * len(weight))
        rows = _filters_last(weight).numpy()
        cost = draw.conv_cost(weight.shape, stride)
        run(dense_loops.convolve, cost, *draw.x, draw.table, *draw.mask, stride, rows, h.numpy())
        return h.view(len(h), steps, places, -1).mT.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        draw, sums = ctx.draw, _room(ctx.shape, grad)
        grad_h = grad.mT.flatten(1).contiguous()
        cost = draw.conv_cost(ctx.shape, ctx.stride)
        arrays = grad_h.numpy(), sums.numpy()
        run(dense_loops.convolve_backward, cost, *draw.x, draw.table, *draw.mask, ctx.stride, *arrays)
        return None, add_up(sums).permute(2, 0, 1), None


class DenseProject(torch.autograd.Function):
    """``dropout(flatten(activation(conv))) @ matrix``, one tile of nodes at a time, forward and again backward."""

    @staticmethod
    def forward(
        ctx: Any, draw: Draw, weight: Tensor, matrix: Tensor, stride: int, activation: str, dropout: float
    ) -> Tensor:
        ctx.save_for_backward(weight, matrix)
        ctx.draw, ctx.stride = draw, stride
        ctx.hidden = (KINDS[activation], *draw.dropped(dropout))
        rows = pad(by_place(matrix, draw.steps(weight.shape), len(weight)))
        product = matrix.new_empty(len(draw.needed), rows.shape[1])
        run(
            dense_loops.project, draw.cost(weight.shape, stride, matrix),
            *draw.x, draw.table, *draw.mask, draw.needed, stride, _filters_last(weight).numpy(), *ctx.hidden,
            rows.numpy(), product.numpy(),
        )  # fmt: skip
        return draw.spread(product, matrix.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        weight, matrix = ctx.saved_tensors
        draw, steps, filters = ctx.draw, ctx.draw.steps(weight.shape), len(weight)
        across = by_place(matrix, steps, filters).mT.contiguous()
        sums = _room(weight.shape, grad)
        grad_matrix = grad.new_empty(BLOCKS, len(matrix), matrix.shape[1] + -matrix.shape[1] % 4)
        run(
            dense_loops.project_backward, 2 * draw.cost(weight.shape, ctx.stride, matrix),
            *draw.x, draw.table, *draw.mask, ctx.stride, _filters_last(weight).numpy(), *ctx.hidden, across.numpy(),
            grad.contiguous().numpy(), grad_matrix.numpy(), sums.numpy(),
        )  # fmt: skip
        grad_matrix = by_filter(add_up(grad_matrix)[:, : matrix.shape[1]], steps, filters)
        return None, add_up(sums).permute(2, 0, 1), grad_matrix, None, None, None


def _filters_last(weight: Tensor) -> Tensor:
    """Arrange filters ``[c, w, k]`` as the loops read them, ``[w, k, c]``."""
    return weight.detach().permute(1, 2, 0).contiguous()


def _room(shape: torch.Size, like: Tensor) -> Tensor:
    """Return memory for the gradient of filters of this shape, one part per block of nodes."""
    filters, width, size = shape
    return like.new_empty(BLOCKS, width, size, filters)
