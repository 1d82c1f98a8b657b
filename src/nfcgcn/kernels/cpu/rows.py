"""Sums over rows on the CPU in an order that depends only on the shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.cpu import rows_loops as loops
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.cpu.product import transposed_product


def _sums(h: Tensor) -> Tensor:
    # Each term is multiplied by 1, which changes no bit.
    return transposed_product(h.new_ones(len(h), 1), h).squeeze(0)


class _ColumnSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.shape = h.shape
        return _sums(h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.expand(ctx.shape)


class _Shifted(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, h: Tensor, row: Tensor) -> Tensor:
        return h + row

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        return grad, _sums(grad) if ctx.needs_input_grad[1] else None


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, row: Tensor) -> Tensor:
        ctx.save_for_backward(h, row)
        return h * row

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        h, row = ctx.saved_tensors
        return grad * row, _sums(grad * h) if ctx.needs_input_grad[1] else None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, table: Tensor) -> Tensor:
        ctx.table, ctx.shape = table, h.shape
        return h[table]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        out, table = grad.new_zeros(ctx.shape), ctx.table.flatten().contiguous()
        rows = grad.reshape(len(table), ctx.shape[1]).contiguous()
        run(loops.add_rows, 8 * len(table) + rows.numel(), table.numpy(), rows.numpy(), out.numpy())
        return out, None


def gathered(h: Tensor, table: Tensor) -> Tensor:
    """See `nfcgcn.kernels.rows`."""
    return _Gathered.apply(h, table)  # type: ignore[no-untyped-call,no-any-return]


def column_sums(h: Tensor) -> Tensor:
    """See `nfcgcn.kernels.rows`."""
    return _ColumnSums.apply(h)  # type: ignore[no-untyped-call,no-any-return]


def shifted(h: Tensor, row: Tensor) -> Tensor:
    """See `nfcgcn.kernels.rows`."""
    return _Shifted.apply(h, row)  # type: ignore[no-untyped-call,no-any-return]


def scaled(h: Tensor, row: Tensor) -> Tensor:
    """See `nfcgcn.kernels.rows`."""
    return _Scaled.apply(h, row)  # type: ignore[no-untyped-call,no-any-return]
