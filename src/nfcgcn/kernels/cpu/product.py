"""Products on the CPU whose bits depend only on the numbers and their shapes.

A BLAS divides a long sum among its threads, or chooses a method by their number, and so do torch's own sums: their last
bits depend on the threads, the vendor and the machine. Here every sum has one fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.cpu import product_loops as loops
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.sparse import Sparse


def row_product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b`` for ``a [M, F]`` and ``b [F, H]``: one sum per result, term after term."""
    if not a.is_contiguous() and not a.mT.is_contiguous():
        a = a.contiguous()
    rows = a if a.is_contiguous() else a.mT
    a_row, a_step = (a.shape[1], 1) if rows is a else (1, len(a))
    out = a.new_empty(len(a), b.shape[1])
    cost = 0.03 * out.numel() * len(b)
    run(loops.multiply_rows, cost, rows.detach().numpy(), a_row, a_step, _whole_vectors(b).numpy(), out.numpy())
    return out


def transposed_product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a.T @ b`` for ``a [M, F]`` and ``b [M, H]``: the sum over M is cut into blocks by the shapes."""
    width = b.shape[1]
    a, b = a.detach().contiguous(), _whole_vectors(b)
    parts = a.new_empty(loops.blocks_of(len(a), a.shape[1] * b.shape[1]), a.shape[1], b.shape[1])
    run(loops.multiply_transposed, 0.05 * a.numel() * b.shape[1], a.numpy(), b.numpy(), parts.numpy())
    out = add_up(parts)
    return out if width == b.shape[1] else out[:, :width].contiguous()


def csr_product(matrix: Tensor, dense: Tensor) -> Tensor:
    """Return ``matrix @ dense`` for a CSR matrix: each row's entries are added up in their order."""
    out = dense.new_empty(matrix.shape[0], dense.shape[1])
    starts, columns = matrix.crow_indices().long().contiguous(), matrix.col_indices().long().contiguous()
    arrays = starts, columns, matrix.values().detach().contiguous(), _whole_vectors(dense), out
    cost = len(columns) * (2.5 + 0.15 * out.shape[1])
    run(loops.multiply_sparse, cost, *(array.numpy() for array in arrays))
    return out


def add_up(parts: Tensor, scale: Any = 1) -> Tensor:
    """Return ``(parts[0] + parts[1] + ...) * scale``; there is at least one part."""
    if len(parts) == 1 and scale == 1:
        return parts[0]
    out = parts.new_empty(parts.shape[1:])
    rows = parts.detach().reshape(len(parts), -1).numpy()
    run(loops.add_up, 0.7 * parts.numel(), rows, rows.dtype.type(scale), out.view(-1).numpy())
    return out


def _whole_vectors(rows: Tensor) -> Tensor:
    """Append zeros to each row up to a multiple of 4, the shortest vector: a remainder would be computed one by one."""
    rows = rows.detach().contiguous()
    if rows.shape[1] % 4 == 0:
        return rows
    wide = rows.new_empty(len(rows), rows.shape[1] + -rows.shape[1] % 4)
    run(loops.widen, 0.8 * wide.numel(), rows.numpy(), wide.numpy())
    return wide


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return row_product(a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        return (
            row_product(grad, b.mT) if ctx.needs_input_grad[0] else None,
            transposed_product(a, grad) if ctx.needs_input_grad[1] else None,
        )


def product(a: Tensor, b: Tensor) -> Tensor:
    """See the reference."""
    return _Product.apply(a, b)  # type: ignore[no-untyped-call,no-any-return]


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Sparse, dense: Tensor) -> Tensor:
        ctx.transpose = a.transpose
        return csr_product(a.matrix, dense)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, csr_product(ctx.transpose, grad)


def sparse_product(a: Sparse, dense: Tensor) -> Tensor:
    """See the reference."""
    return _SparseProduct.apply(a, dense)  # type: ignore[no-untyped-call,no-any-return]
