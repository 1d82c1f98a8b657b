"""Node-feature convolution on a GPU, for one run or a stack of runs that train together.

As on the CPU, work follows the nonzeros, the map never exists, and ``h(0)`` only as the gradient of a chunk of places;
without an activation convolution and matrix collapse into one map a slot. A run's bits do not depend on the runs beside
it.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from nfcgcn.kernels.masks.gpu import rate_of
from nfcgcn.kernels.node_feature_conv import gpu_dense
from nfcgcn.kernels.node_feature_conv.gpu_tables import Options, Pieces, Tables
from nfcgcn.kernels.node_feature_conv.programs import collapse, lists, walks
from nfcgcn.kernels.node_feature_conv.reference import ACTIVATIONS
from nfcgcn.kernels.product.gpu import add_up, padded

CHUNK = 2**24
"""Bytes of one run's gradient of ``h(0)`` at a time: so many, or up to thrice that where the map would be large."""
MOST_CHUNKS = 16
PLACES = 2
"""Steps and places that one program projects, at least."""
PROGRAMS = 4096
"""About how many programs a run's work is shared out to."""
MOST_PARTS = 128
NODES = 16
BACKWARD = {"NODES": 2 * NODES, "num_warps": 4}


def _sizes(weight: Tensor, tables: Tables, stride: int) -> tuple[int, int, int, int, int]:
    """Return filters, width and size of a filter, and at how many steps and places it stands."""
    _, filters, width, size = weight.shape
    return filters, width, size, tables.bandwidth - width + 1, (tables.x.shape[1] - size) // stride + 1


def projected_stack(tables: Tables, weight: Tensor, matrix: Tensor, seeds: Tensor, options: Options) -> Tensor:
    """Return ``h(0) @ matrix`` of each run: ``[S, N, H]`` for ``weight [S, c, w, k]`` and ``matrix [S, F, H]``."""
    if not tables.is_sparse:
        return gpu_dense.projected_stack(tables, weight, matrix, seeds, options)
    if options.activation != "none":
        return _apply(_Project, weight, matrix, tables, seeds, options)
    slots = _apply(_Compose, weight, matrix, tables, options)
    return _apply(_Gather, slots, tables, seeds, options.dropout)


def convolved_stack(tables: Tables, weight: Tensor, seeds: Tensor, options: Options) -> Tensor:
    """Return ``h(0)`` of each run, ``[S, N, (n - w + 1) c D']``."""
    if not tables.is_sparse:
        return gpu_dense.convolved_stack(tables, weight, seeds, options)
    h = _apply(_Convolve, weight, tables, seeds, options)
    return ACTIVATIONS[options.activation](h).mT.flatten(2)


_known: Any = WeakTensorKeyDictionary()


def _tables_of(x: Tensor, neighbours: Tensor) -> Tables:
    """Return the tables of a single run, made once for as long as both tensors live and are not written to."""
    versions = tuple(0 if t.is_inference() else t._version for t in (x, neighbours))
    known = _known.get(neighbours)
    if known is None or known[0]() is not x or known[1] != versions:
        # A copy, so that the entry does not keep its own key alive.
        known = _known[neighbours] = (weakref.ref(x), versions, Tables(x, neighbours.clone()[None]))
    tables: Tables = known[2]
    return tables


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
    seeds = torch.tensor([seed], device=x.device)
    options = Options(stride, activation, dropout)
    return projected_stack(_tables_of(x, neighbours), weight[None], matrix[None], seeds, options)[0]


def node_feature_conv(
    x: Tensor, neighbours: Tensor, weight: Tensor, *, stride: int, activation: str, dropout: float, seed: int
) -> Tensor:
    """See the reference."""
    seeds = torch.tensor([seed], device=x.device)
    return convolved_stack(_tables_of(x, neighbours), weight[None], seeds, Options(stride, activation, dropout))[0]


def _apply(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


class _Compose(torch.autograd.Function):
    """The one map a slot that convolution and matrix are together, ``[S, n, D, H]``; see `collapse`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, tables: Tables, options: Options) -> Tensor:
        weight, matrix = weight.contiguous(), matrix.contiguous()
        ctx.save_for_backward(weight, matrix)
        ctx.tables, ctx.options = tables, options
        filters, width, size, steps, places = _sizes(weight, tables, options.stride)
        num_runs, _, hidden = matrix.shape
        num_features = tables.x.shape[1]
        out = matrix.new_empty(num_runs, tables.bandwidth, num_features, hidden)
        collapse.compose[(triton.cdiv(num_features, 16), tables.bandwidth, num_runs)](
            weight, matrix, out, num_features, filters, width, size, options.stride, steps, places, hidden,
            MODE=options.mode, COLUMNS=16, FILTERS=padded(filters), HIDDEN=padded(hidden), num_warps=2,
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weight, matrix = ctx.saved_tensors
        tables, options = ctx.tables, ctx.options
        filters, width, size, steps, places = _sizes(weight, tables, options.stride)
        num_runs, _, hidden = matrix.shape
        shape = (tables.x.shape[1], tables.bandwidth, filters, width, size, options.stride, steps, places, hidden)
        tiles = {"MODE": options.mode, "OFFSETS": 16, "FILTERS": padded(filters), "HIDDEN": padded(hidden)}
        parts = triton.cdiv(places, 8)
        pieces = weight.new_empty(parts, num_runs, width, size, filters)
        grad = grad.contiguous()
        collapse.compose_backward_weight[(parts, width * triton.cdiv(size, 16), num_runs)](
            grad, matrix, pieces, *shape, 8, **tiles
        )
        grad_matrix = torch.empty_like(matrix)
        collapse.compose_backward_matrix[(steps * places, num_runs)](grad, weight, grad_matrix, *shape, **tiles)
        return add_up(pieces).permute(0, 3, 1, 2), grad_matrix, None, None


class _Gather(torch.autograd.Function):
    """``sum_j dropout(x[table[:, j]]) @ slots[j]``."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, tables: Tables, seeds: Tensor, dropout: float) -> Tensor:
        ctx.tables, ctx.seeds, ctx.dropout, ctx.shape = tables, seeds, dropout, slots.shape
        num_runs, bandwidth, num_features, hidden = slots.shape
        out = slots.new_empty(num_runs, tables.num_nodes, hidden)
        rate, below, scale = rate_of(dropout)
        collapse.gather[(tables.num_nodes, num_runs)](
            *tables.features.parts, tables.table, seeds, slots.contiguous(), out, tables.num_nodes, num_features,
            hidden, below, scale, RATE=rate, BANDWIDTH=bandwidth, ENTRIES=32,
            HIDDEN=int(triton.next_power_of_2(hidden)), num_warps=1,
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        tables, entries = ctx.tables, ctx.tables.lists
        _, bandwidth, num_features, hidden = ctx.shape
        cut = entries.pieces(0, num_features)
        out, parts = grad.new_zeros(ctx.shape), grad.new_empty(cut.num_spare, hidden)
        rate, below, scale = rate_of(ctx.dropout)
        if len(cut.jobs):
            lists.gather_backward[(len(cut.jobs),)](
                *entries.parts, cut.jobs, ctx.seeds, grad.contiguous(), out, parts, tables.num_nodes, hidden, below,
                scale, RATE=rate, BANDWIDTH=bandwidth, HIDDEN=int(triton.next_power_of_2(hidden)), ENTRIES=32,
                num_warps=1,
            )  # fmt: skip
        _add(parts, cut, out)
        return out, None, None, None


def _add(parts: Tensor, cut: Pieces, out: Tensor) -> None:
    """Add to `out` what the pieces of longer lists laid aside."""
    width = parts[:1].numel()
    if cut.num_spare:
        block = min(1024, int(triton.next_power_of_2(width)))
        grid = (len(cut.longer), triton.cdiv(width, block))
        lists.add_pieces[grid](parts, cut.longer, cut.starts, out, width, WIDTH=block, num_warps=1)


class _Convolve(torch.autograd.Function):
    """The convolution before its activation, ``[S, N, n - w + 1, D', c]``."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, tables: Tables, seeds: Tensor, options: Options) -> Tensor:
        ctx.tables, ctx.seeds, ctx.options, ctx.shape = tables, seeds, options, weight.shape
        filters, width, size, steps, places = _sizes(weight, tables, options.stride)
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
        _add_filters(windows, ctx.tables, ctx.shape, grad.contiguous(), 0, ctx.seeds, ctx.options)
        return _from_windows(windows, ctx.shape, ctx.options.stride), None, None, None


class _Project(torch.autograd.Function):
    """``flatten(activation(conv)) @ matrix``; the convolution is computed again on the way back, a chunk at a time."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, tables: Tables, seeds: Tensor, options: Options) -> Tensor:
        weight, matrix = weight.detach(), matrix.contiguous()
        filters, width, size, steps, places = _sizes(weight, tables, options.stride)
        kept = tables.kept(seeds, options.dropout, size, options.stride)
        ctx.save_for_backward(weight, matrix, *kept)
        ctx.tables, ctx.seeds, ctx.options = tables, seeds, options
        hidden, blocks = matrix.shape[2], triton.cdiv(tables.num_nodes, NODES)
        per_program = max(PLACES, triton.cdiv(steps * places * blocks, PROGRAMS))
        parts = triton.cdiv(steps * places, per_program)
        out = matrix.new_empty(parts, len(weight), tables.num_nodes, hidden)
        walks.project[(blocks, parts, len(weight))](
            *kept, _by_offset(weight), matrix, out, tables.num_nodes, filters, size, options.stride, places, hidden,
            per_program, MODE=options.mode, ACTIVATION=options.activation, HIDDEN=padded(hidden),
            **_tiles(tables, width, filters),
        )  # fmt: skip
        return add_up(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        weight, matrix, *kept = ctx.saved_tensors
        tables, options, grad = ctx.tables, ctx.options, grad.contiguous()
        filters, width, size, steps, places = _sizes(weight, tables, options.stride)
        runs, hidden = _by_offset(weight), matrix.shape[2]
        walk = (*kept, runs, matrix, grad)
        num_runs, num_nodes = len(weight), tables.num_nodes
        room = min(max(num_nodes * tables.bandwidth * tables.x.shape[1] * 4 // 6, CHUNK), 3 * CHUNK)
        chunk = max(room // (num_nodes * steps * filters * 4), -(-places // MOST_CHUNKS))
        windows = _no_windows(tables, weight.shape, grad, options.stride)
        grad_matrix = matrix.new_empty(num_runs, steps, filters, places, hidden)
        for start in range(0, places, chunk):
            count = min(chunk, places - start)
            parts = min(MOST_PARTS, triton.cdiv(PROGRAMS, steps * count))
            per_program = 2 * NODES * triton.cdiv(num_nodes, 2 * NODES * parts)
            parts = triton.cdiv(num_nodes, per_program)
            grad_conv = grad.new_empty(num_runs, num_nodes, steps, count, filters)
            grad_parts = grad.new_empty(parts, num_runs, steps, filters, count, hidden)
            walks.project_backward[(steps * count, parts, num_runs)](
                *walk, grad_conv, grad_parts, start, count, num_nodes, filters, size, options.stride, places, hidden,
                per_program, MODE=options.mode,
                ACTIVATION=options.activation, HIDDEN=padded(hidden), **_tiles(tables, width, filters) | BACKWARD,
            )  # fmt: skip
            grad_matrix[:, :, :, start : start + count] = add_up(grad_parts)
            del grad_parts
            _add_filters(windows, tables, weight.shape, grad_conv, start, ctx.seeds, options)
            del grad_conv  # before the next chunk's is made: they are the largest tensors here
        return _from_windows(windows, weight.shape, options.stride), grad_matrix.view_as(matrix), None, None, None


def _tiles(tables: Tables, width: int, filters: int) -> dict[str, Any]:
    return {
        "BANDWIDTH": tables.bandwidth, "WIDTH": width, "NODES": NODES, "FILTERS": padded(filters), "num_warps": 2,
    }  # fmt: skip


def _by_offset(weight: Tensor) -> Tensor:
    """Lay filters ``[S, c, w, k]`` out as ``[S, w, k, c]``: what a nonzero meets is a run of ``c`` numbers."""
    return weight.detach().permute(0, 2, 3, 1).contiguous()


def _no_windows(tables: Tables, shape: torch.Size, like: Tensor, stride: int) -> Tensor:
    """Return room for what each column of each slot gives the filters: ``[S, n, D, n - w + 1, ceil(k / s), c]``."""
    num_runs, filters, width, size = shape
    steps = tables.bandwidth - width + 1
    return like.new_zeros(num_runs, tables.bandwidth, tables.x.shape[1], steps, -(-size // stride), filters)


def _add_filters(
    windows: Tensor, tables: Tables, shape: torch.Size, grad_conv: Tensor, start: int, seeds: Tensor, options: Options
) -> None:
    """Add what the gradient of a chunk of places, from `start` on, gives the filters."""
    _, filters, width, size = shape
    steps, count = grad_conv.shape[2:4]
    num_windows, entries = windows.shape[4], tables.lists
    last_column = min(tables.x.shape[1], (start + count - 1) * options.stride + size)
    cut = entries.pieces(start * options.stride, last_column)
    parts = grad_conv.new_empty(cut.num_spare, steps, num_windows, filters)
    rate, below, scale = rate_of(options.dropout)
    if len(cut.jobs):
        kept = torch.empty(cut.num_entries, dtype=torch.int64, device=windows.device)
        counts = torch.empty(len(cut.jobs), dtype=torch.int32, device=windows.device)
        lists.keep_in_list[(len(cut.jobs),)](
            *entries.parts, cut.jobs, seeds, kept, counts, below, scale, RATE=rate, BANDWIDTH=tables.bandwidth,
            ENTRIES=64, num_warps=1,
        )  # fmt: skip
        run = min(128, int(triton.next_power_of_2(num_windows * filters)))
        lists.convolve_backward[(len(cut.jobs), steps, triton.cdiv(num_windows * filters, run))](
            kept, counts, cut.jobs, grad_conv, windows, parts, tables.num_nodes, start, count, filters, options.stride,
            num_windows, BANDWIDTH=tables.bandwidth, WIDTH=width, RUN=run, ENTRIES=8, num_warps=1,
        )  # fmt: skip
    _add(parts, cut, windows)


def _from_windows(total: Tensor, shape: torch.Size, stride: int) -> Tensor:
    """Add up what the columns gave to each offset of the filters: ``[S, c, w, k]``."""
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
