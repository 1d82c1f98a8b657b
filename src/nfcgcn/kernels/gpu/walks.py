"""Sparse features and an activation on the GPU: convolutions that walk along the nonzeros."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.gpu.masks import rate_of
from nfcgcn.kernels.gpu.product import add_up, padded
from nfcgcn.kernels.gpu.programs import lists, walks
from nfcgcn.kernels.gpu.tables import Options, Tables
from nfcgcn.method.node_feature_conv import ACTIVATIONS

CHUNK = 2**24
"""Bytes of one run's gradient of ``h(0)`` in memory at a time; up to three times as many if the map would be large."""
MOST_CHUNKS = 16
PLACES = 2
"""Smallest number of steps and places that one program projects."""
PROGRAMS = 4096
"""Approximate number of programs that share a run's projection."""
PROGRAMS_BACK = 2048
"""The same for the backward pass, where each adds up a part of the matrix's gradient, which takes memory."""
MOST_PARTS = 128
LEAST_NODES = 64
"""Nodes per part of the matrix's gradient."""
NODES = 16
"""Nodes that one program handles in the forward pass."""


def projected_stack(tables: Tables, weight: Tensor, matrix: Tensor, seeds: Tensor, options: Options) -> Tensor:
    """See :func:`gpu.projected_stack`."""
    return _Project.apply(weight, matrix, tables, seeds, options)  # type: ignore[no-any-return]


def convolved_stack(tables: Tables, weight: Tensor, seeds: Tensor, options: Options) -> Tensor:
    """See :func:`gpu.convolved_stack`."""
    h = _Convolve.apply(weight, tables, seeds, options)
    return ACTIVATIONS[options.activation](h).mT.flatten(2)


class _Convolve(torch.autograd.Function):
    """The convolution before its activation, ``[S, N, n - w + 1, D', c]``."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, tables: Tables, seeds: Tensor, options: Options) -> Tensor:
        ctx.tables, ctx.seeds, ctx.options, ctx.shape = tables, seeds, options, weight.shape
        filters, width, size, steps, places = tables.sizes(weight.shape, options.stride)
        out = weight.new_empty(len(weight), tables.num_nodes, steps, places, filters)
        walks.convolve[(triton.cdiv(tables.num_nodes, NODES), steps * places, len(weight))](
            *tables.kept(seeds, options.dropout, size, options.stride), _by_offset(weight), out, tables.num_nodes,
            filters, size, options.stride, places,
            **_tiles(tables, width, filters),
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        windows = _no_windows(ctx.tables, ctx.shape, grad, ctx.options.stride)
        kept = _Kept(ctx.tables, 0, ctx.tables.x.shape[1], ctx.seeds, ctx.options)
        _add_filters(windows, ctx.tables, ctx.shape, grad.contiguous(), 0, kept, ctx.options)
        return _from_windows(windows, ctx.shape, ctx.options.stride), None, None, None


class _Project(torch.autograd.Function):
    """``flatten(activation(conv)) @ matrix``; the backward pass computes the convolution again, one chunk at a time."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, tables: Tables, seeds: Tensor, options: Options) -> Tensor:
        weight, matrix = weight.detach(), matrix.contiguous()
        filters, width, size, steps, places = tables.sizes(weight.shape, options.stride)
        walk = (*tables.kept(seeds, options.dropout, size, options.stride), _by_offset(weight), matrix)
        ctx.save_for_backward(*walk)
        ctx.tables, ctx.seeds, ctx.options, ctx.shape = tables, seeds, options, weight.shape
        hidden, blocks = matrix.shape[2], triton.cdiv(tables.num_nodes, NODES)
        per_program = max(PLACES, triton.cdiv(steps * places * blocks, PROGRAMS))
        parts = triton.cdiv(steps * places, per_program)
        out = matrix.new_empty(parts, len(weight), tables.num_nodes, hidden)
        walks.project[(blocks, parts, len(weight))](
            *walk, out, tables.num_nodes, filters, size, options.stride, places, hidden, per_program,
            MODE=_mode(options), ACTIVATION=options.activation, HIDDEN=padded(hidden),
            **_tiles(tables, width, filters) | {"num_warps": 4 if padded(filters) <= 32 else 2},
        )  # fmt: skip
        return add_up(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        *walk, matrix = ctx.saved_tensors
        tables, options, grad = ctx.tables, ctx.options, grad.contiguous()
        filters, width, size, steps, places = tables.sizes(ctx.shape, options.stride)
        num_runs, num_nodes, hidden = len(matrix), tables.num_nodes, matrix.shape[2]
        room = min(max(num_nodes * tables.bandwidth * tables.x.shape[1] * 4 // 6, CHUNK), 3 * CHUNK)
        chunk = max(room // (num_nodes * steps * filters * 4), -(-places // MOST_CHUNKS))
        together = max(16, min(32, padded(filters) // 2))
        tiles = _tiles(tables, width, filters) | {"NODES": together, "num_warps": together // 8}
        windows = _no_windows(tables, ctx.shape, grad, options.stride)
        num_columns = tables.x.shape[1]
        # All at once if that takes little memory: each launch takes time.
        kept = (
            _Kept(tables, 0, num_columns, ctx.seeds, options) if _Kept.size(tables, 0, num_columns) <= CHUNK else None
        )
        grads_of_matrix = []
        for start in range(0, places, chunk):
            count = min(chunk, places - start)
            parts = min(MOST_PARTS, triton.cdiv(PROGRAMS_BACK, steps * count), triton.cdiv(num_nodes, LEAST_NODES))
            per_program = together * triton.cdiv(num_nodes, together * parts)
            parts = triton.cdiv(num_nodes, per_program)
            grad_conv = grad.new_empty(num_runs, num_nodes, steps, count, filters)
            grad_parts = grad.new_empty(parts, num_runs, steps, filters, count, hidden)
            walks.project_backward[(steps * count, parts, num_runs)](
                *walk, matrix, grad, grad_conv, grad_parts, start, count, num_nodes, filters, size, options.stride,
                places, hidden, per_program, MODE=_mode(options), ACTIVATION=options.activation, HIDDEN=padded(hidden),
                **tiles,
            )  # fmt: skip
            grads_of_matrix.append(add_up(grad_parts))
            del grad_parts
            columns = start * options.stride, min(num_columns, (start + count - 1) * options.stride + size)
            now = kept or _Kept(tables, *columns, ctx.seeds, options)
            _add_filters(windows, tables, ctx.shape, grad_conv, start, now, options)
            del now
            del grad_conv  # freed before the next chunk's are made: they are the largest tensors here
        grad_matrix = torch.cat(grads_of_matrix, 3).view_as(matrix)
        return _from_windows(windows, ctx.shape, options.stride), grad_matrix, None, None, None


def _mode(options: Options) -> str:
    """Return how walks multiply: in float32 by three TF32 products, whose sum keeps float32's digits and is faster."""
    return "tf32x3" if options.mode == "ieee" else options.mode


def _tiles(tables: Tables, width: int, filters: int) -> dict[str, Any]:
    return {
        "BANDWIDTH": tables.bandwidth, "WIDTH": width, "NODES": NODES, "FILTERS": padded(filters), "num_warps": 2,
    }  # fmt: skip


def _by_offset(weight: Tensor) -> Tensor:
    """Arrange filters ``[S, c, w, k]`` as ``[S, w, k, c]``: a nonzero then meets runs of ``c`` numbers."""
    return weight.detach().permute(0, 2, 3, 1).contiguous()


def _no_windows(tables: Tables, shape: torch.Size, like: Tensor, stride: int) -> Tensor:
    """Return memory for what each slot's columns add to the filters: ``[S, n, D, n - w + 1, ceil(k / s), c]``."""
    num_runs, filters, width, size = shape
    steps = tables.bandwidth - width + 1
    return like.new_zeros(num_runs, tables.bandwidth, tables.x.shape[1], steps, -(-size // stride), filters)


class _Kept:
    """What dropout leaves of the lists of some columns."""

    def __init__(self, tables: Tables, first_column: int, last_column: int, seeds: Tensor, options: Options) -> None:
        cut, entries = tables.pieces(first_column, last_column), tables.lists
        self.first, self.starts = cut.first, entries.starts_of(cut)
        self.entries = seeds.new_empty(tables.room(first_column, last_column))
        self.counts = torch.empty(len(cut.jobs), entries.num_slots, dtype=torch.int32, device=seeds.device)
        rate, below, scale = rate_of(options.dropout)
        if len(cut.jobs):
            lists.keep_in_list[(len(cut.jobs), entries.num_slots)](
                *entries.parts, self.starts, seeds, self.entries, self.counts, below, scale, RATE=rate,
                BANDWIDTH=tables.bandwidth, ENTRIES=64, num_warps=1,
            )  # fmt: skip

    @staticmethod
    def size(tables: Tables, first_column: int, last_column: int) -> int:
        """Return how many bytes these take at most."""
        return 8 * tables.room(first_column, last_column)


def _add_filters(
    windows: Tensor, tables: Tables, shape: torch.Size, grad_conv: Tensor, start: int, kept: _Kept, options: Options
) -> None:
    """Add what the gradient of a chunk of places, from `start` on, contributes to the filters' gradient."""
    _, filters, width, size = shape
    steps, count = grad_conv.shape[2:4]
    num_windows, num_columns, num_slots = windows.shape[4], tables.x.shape[1], tables.lists.num_slots
    cut = tables.pieces(start * options.stride, min(num_columns, (start + count - 1) * options.stride + size))
    parts = grad_conv.new_empty(num_slots, cut.num_spare, steps, num_windows, filters)
    if len(cut.jobs):
        run = min(64, int(triton.next_power_of_2(num_windows * filters)))
        lists.convolve_backward[(len(cut.jobs), num_slots * steps, triton.cdiv(num_windows * filters, run))](
            kept.entries, kept.counts, kept.starts, cut.first - kept.first, cut.jobs, grad_conv, windows, parts,
            tables.num_nodes, num_columns, cut.num_spare, start, count, filters, options.stride, num_windows,
            BANDWIDTH=tables.bandwidth, WIDTH=width, RUN=run, ENTRIES=8, num_warps=1,
        )  # fmt: skip
    cut.join(parts, windows, num_columns)


def _from_windows(total: Tensor, shape: torch.Size, stride: int) -> Tensor:
    """Add up the contributions of the columns to each offset of the filters: ``[S, c, w, k]``."""
    num_runs, filters, width, size = shape
    _, bandwidth, num_features, steps, windows, _ = total.shape
    pad = -num_features % stride
    if pad:
        total = torch.nn.functional.pad(total, (0, 0, 0, 0, 0, 0, 0, pad))
    # [run, slot, block, column in block, step, window, filter] -> [run, slot, step, window, column in block, filter]
    # Windows come in the order of their places: the last one is that at whose start the column's block stands.
    by_offset = add_up(total.view(num_runs, bandwidth, -1, stride, steps, windows, filters), 2).flip(4)
    by_offset = by_offset.permute(0, 1, 3, 4, 2, 5)
    by_offset = by_offset.reshape(num_runs, bandwidth, steps, windows * stride, filters)[:, :, :, :size]
    turns = sum(by_offset[:, step : step + width, step] for step in range(steps))
    assert isinstance(turns, Tensor)  # noqa: S101
    return turns.permute(0, 3, 1, 2)
