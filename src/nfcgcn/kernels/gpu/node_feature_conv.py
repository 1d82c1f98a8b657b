"""Node-feature convolution on a GPU, for one run or a stack of runs that train together.

As on the CPU, the work grows with the nonzeros and the map is never built; of ``h(0)`` only the gradient of one chunk
of places exists at a time. Without an activation, convolution and matrix collapse into one map per slot. The bits of a
run do not depend on the other runs.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from nfcgcn.kernels.gpu import dense_conv as gpu_dense
from nfcgcn.kernels.gpu import walks as gpu_walks
from nfcgcn.kernels.gpu.masks import rate_of
from nfcgcn.kernels.gpu.product import add_up, padded
from nfcgcn.kernels.gpu.programs import collapse, lists
from nfcgcn.kernels.gpu.tables import Options, Tables

HIDDEN_DROPOUT = False
"""Whether `projected` drops cells of ``h(0)`` by itself."""


def projected_stack(tables: Tables, weight: Tensor, matrix: Tensor, seeds: Tensor, options: Options) -> Tensor:
    """Return ``h(0) @ matrix`` of each run: ``[S, N, H]`` for ``weight [S, c, w, k]`` and ``matrix [S, F, H]``."""
    if not tables.is_sparse:
        return gpu_dense.projected_stack(tables, weight, matrix, seeds, options)
    if options.activation != "none":
        return gpu_walks.projected_stack(tables, weight, matrix, seeds, options)
    slots = _apply(_Compose, weight, matrix, tables, options)
    return _apply(_Gather, slots, tables, seeds, options.dropout)


def convolved_stack(tables: Tables, weight: Tensor, seeds: Tensor, options: Options) -> Tensor:
    """Return ``h(0)`` of each run, ``[S, N, (n - w + 1) c D']``."""
    if not tables.is_sparse:
        return gpu_dense.convolved_stack(tables, weight, seeds, options)
    return gpu_walks.convolved_stack(tables, weight, seeds, options)


_known: Any = WeakTensorKeyDictionary()


def _tables_of(x: Tensor, neighbours: Tensor) -> Tables:
    """Return the tables of a single run, cached for as long as both tensors live and are not written to."""
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
    needed: Tensor | None = None,  # noqa: ARG001  (all rows are computed)
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
    """Convolution and matrix as one map per slot, ``[S, n, D, H]``; see `collapse`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, tables: Tables, options: Options) -> Tensor:
        weight, matrix = weight.contiguous(), matrix.contiguous()
        ctx.save_for_backward(weight, matrix)
        ctx.tables, ctx.options = tables, options
        filters, width, size, steps, places = tables.sizes(weight.shape, options.stride)
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
        filters, width, size, steps, places = tables.sizes(weight.shape, options.stride)
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
        cut = tables.pieces(0, num_features)
        out, parts = grad.new_zeros(ctx.shape), grad.new_empty(entries.num_slots, cut.num_spare, hidden)
        rate, below, scale = rate_of(ctx.dropout)
        if len(cut.jobs):
            lists.gather_backward[(len(cut.jobs), entries.num_slots)](
                *entries.parts, cut.jobs, entries.starts, ctx.seeds, grad.contiguous(), out, parts, tables.num_nodes,
                num_features, cut.num_spare, hidden, below, scale, RATE=rate, BANDWIDTH=bandwidth,
                HIDDEN=int(triton.next_power_of_2(hidden)), ENTRIES=32, num_warps=1,
            )  # fmt: skip
        cut.join(parts, out, num_features)
        return out, None, None, None
