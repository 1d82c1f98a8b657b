"""Dense features on the GPU: the maps of one chunk of nodes at a time, and their products."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.gpu.masks import rate_of
from nfcgcn.kernels.gpu.product import matmul
from nfcgcn.kernels.gpu.programs import maps as map_programs
from nfcgcn.kernels.gpu.tables import Options, Tables
from nfcgcn.method.node_feature_conv import ACTIVATIONS

CHUNK = 2**22
"""Numbers of one run's windows that are in memory at a time."""


def projected_stack(tables: Tables, weight: Tensor, matrix: Tensor, seeds: Tensor, options: Options) -> Tensor:
    """See :func:`gpu.projected_stack`."""
    return _Project.apply(weight, matrix, tables, seeds, options)  # type: ignore[no-any-return]


def convolved_stack(tables: Tables, weight: Tensor, seeds: Tensor, options: Options) -> Tensor:
    """See :func:`gpu.convolved_stack`."""
    h = _Convolve.apply(weight, tables, seeds, options)
    return ACTIVATIONS[options.activation](h).mT.flatten(2)


class _Chunks:
    """The windows of the maps, ``[S, nodes D', steps..., w k]``, one chunk of nodes at a time."""

    def __init__(self, tables: Tables, weight: Tensor, seeds: Tensor, options: Options) -> None:
        self.tables, self.seeds, self.options = tables, seeds, options
        self.num_runs, self.filters, self.width, self.size = weight.shape
        self.steps = tables.bandwidth - self.width + 1
        self.places = (tables.x.shape[1] - self.size) // options.stride + 1
        self.x = tables.x.contiguous()
        nodes = max(1, CHUNK // (self.steps * self.places * self.width * self.size))
        self.bounds = [(i, min(i + nodes, tables.num_nodes)) for i in range(0, tables.num_nodes, nodes)]

    def windows(self, start: int, stop: int) -> Tensor:
        """Return what the filters see of these nodes, ``[S, nodes * steps * D', w k]``."""
        t, stride = self.tables, self.options.stride
        num_features = self.x.shape[1]
        maps = self.x.new_empty(self.num_runs, stop - start, t.bandwidth, num_features)
        rate, below, scale = rate_of(self.options.dropout)
        grid = ((stop - start) * t.bandwidth, triton.cdiv(num_features, 256), self.num_runs)
        map_programs.dense_map[grid](
            self.x, t.table, self.seeds, maps, start, t.num_nodes, num_features, below, scale,
            RATE=rate, BANDWIDTH=t.bandwidth, COLUMNS=256, num_warps=2,
        )  # fmt: skip
        # [run, node, step, column, turn] -> [run, node, step, place, turn, offset]
        seen = maps.unfold(2, self.width, 1).unfold(3, self.size, stride)
        return seen.reshape(self.num_runs, -1, self.width * self.size)

    def filters_matrix(self, weight: Tensor) -> Tensor:
        return weight.detach().flatten(2).mT


class _Convolve(torch.autograd.Function):
    """The convolution before its activation, ``[S, N, n - w + 1, D', c]``."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, tables: Tables, seeds: Tensor, options: Options) -> Tensor:
        chunks = ctx.chunks = _Chunks(tables, weight, seeds, options)
        matrix = chunks.filters_matrix(weight)
        parts = [matmul(chunks.windows(*bound), matrix, options.precision) for bound in chunks.bounds]
        return torch.cat(parts, 1).view(len(weight), tables.num_nodes, chunks.steps, chunks.places, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        chunks = ctx.chunks
        total = grad.new_zeros(chunks.num_runs, chunks.filters, chunks.width * chunks.size)
        for start, stop in chunks.bounds:
            part = grad[:, start:stop].reshape(chunks.num_runs, -1, chunks.filters)
            total += matmul(part.mT, chunks.windows(start, stop), chunks.options.precision)
        return total.view(chunks.num_runs, chunks.filters, chunks.width, chunks.size), None, None, None


class _Project(torch.autograd.Function):
    """``flatten(activation(conv)) @ matrix``, computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, tables: Tables, seeds: Tensor, options: Options) -> Tensor:
        ctx.save_for_backward(weight, matrix)
        chunks = ctx.chunks = _Chunks(tables, weight, seeds, options)
        by_place = _by_place(matrix, chunks)
        parts = []
        for bound in chunks.bounds:
            h = matmul(chunks.windows(*bound), chunks.filters_matrix(weight), options.precision)
            h = ACTIVATIONS[options.activation](h)
            parts.append(matmul(h.view(len(weight), bound[1] - bound[0], -1), by_place, options.precision))
        return torch.cat(parts, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        weight, matrix = ctx.saved_tensors
        chunks, options = ctx.chunks, ctx.chunks.options
        by_place = _by_place(matrix, chunks)
        grad_weight, grad_matrix = torch.zeros_like(weight).flatten(2), torch.zeros_like(by_place)
        for start, stop in chunks.bounds:
            windows = chunks.windows(start, stop)
            h = ACTIVATIONS[options.activation](matmul(windows, chunks.filters_matrix(weight), options.precision))
            part = grad[:, start:stop]
            rows = h.view(len(weight), stop - start, -1)
            grad_matrix += matmul(rows.mT, part, options.precision)
            back = matmul(part, by_place.mT, options.precision).view_as(h)
            if options.activation == "tanh":
                back = back * (1 - h * h)
            elif options.activation == "relu":
                back = torch.where(h > 0, back, 0)
            grad_weight += matmul(back.mT, windows, options.precision)
        shape = (len(matrix), chunks.steps, chunks.places, chunks.filters, -1)
        return grad_weight.view_as(weight), grad_matrix.view(shape).transpose(2, 3).reshape_as(matrix), None, None, None


def _by_place(matrix: Tensor, chunks: _Chunks) -> Tensor:
    """Reorder the matrix's rows from ``(step, filter, place)`` to ``(step, place, filter)``."""
    shape = (len(matrix), chunks.steps, chunks.filters, chunks.places, -1)
    return matrix.detach().reshape(shape).transpose(2, 3).reshape(matrix.shape)
