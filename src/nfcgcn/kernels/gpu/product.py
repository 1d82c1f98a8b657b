"""Products in Triton of stacks of matrices, one matrix per run of those that train together.

A run's result does not depend on the other runs: tiles and the order of sums depend only on the shape of one matrix,
while cuBLAS chooses its algorithm by the size of the stack.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.choice import Precision
from nfcgcn.kernels.gpu.launch import Program

TILE = 64
LONG = 512
"""Terms of a sum that one program adds up; longer sums are divided."""
ROWS = 2
"""Rows of a sparse matrix that one program multiplies."""
MODES = {"float32": "ieee", "tf32": "tf32", "bf16": "bf16"}


def padded(size: int) -> int:
    """Return the smallest power of two that is at least `size` and 16, as tiles of a product require."""
    return max(16, int(triton.next_power_of_2(size)))


@triton.jit
def _to_bf16(x):
    """Round to the nearest bfloat16, ties to even; infinities and NaN are not expected."""
    bits = x.to(tl.uint32, bitcast=True)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).to(tl.float32, bitcast=True)


@triton.jit
def dot(a, b, total, MODE: tl.constexpr):
    """Return ``total + a @ b`` of two tiles."""
    # Not with two returns: Triton also compiles what follows the first one, and does not know a precision "bf16".
    if MODE == "bf16":
        # Every bfloat16 is also a TF32 number, and tiles this small take little of a step's time.
        total = tl.dot(_to_bf16(a), _to_bf16(b), total, input_precision="tf32")
    else:
        total = tl.dot(a, b, total, input_precision=MODE)
    return total


@Program
def _matmul(
    a, b, out, rows, terms, columns, a_run, a_row, a_term, b_run, b_term, b_column,
    MODE: tl.constexpr, ROWS: tl.constexpr, TERMS: tl.constexpr, COLUMNS: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    run, part = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    across = tl.cdiv(columns, COLUMNS)
    i = (tl.program_id(0) // across) * ROWS + tl.arange(0, ROWS)
    j = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range(0, tl.cdiv(tl.minimum(LONG, terms - part * LONG), TERMS)):
        t = part * LONG + step * TERMS + tl.arange(0, TERMS)
        left = tl.load(
            a + run * a_run + i[:, None] * a_row + t[None] * a_term,
            mask=(i < rows)[:, None] & (t < terms)[None],
            other=0.0,
        )
        right = tl.load(
            b + run * b_run + t[:, None] * b_term + j[None] * b_column,
            mask=(t < terms)[:, None] & (j < columns)[None],
            other=0.0,
        )
        total = dot(left, right, total, MODE)
    place = out + ((part * tl.num_programs(1) + run) * rows + i[:, None]) * columns + j[None]
    tl.store(place, total, mask=(i < rows)[:, None] & (j < columns)[None])


@partial(Program, sizes=("num_parts",))
def _add_up(parts, out, num_parts, inner, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    outer = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([PARTS, BLOCK], tl.float32)
    for first in range(0, num_parts, PARTS):
        part = first + tl.arange(0, PARTS)
        at = (outer * num_parts + part[:, None]) * inner + i[None]
        total += tl.load(parts + at, mask=(part < num_parts)[:, None] & (i < inner)[None], other=0.0)
    tl.store(out + outer * inner + i, tl.sum(total, 0), mask=i < inner)


def add_up(parts: Tensor, dim: int = 0) -> Tensor:
    """Return the sum along a dimension in a fixed order: PyTorch's order depends on the other dimensions' size."""
    parts = parts.contiguous()
    out = parts.new_empty(parts.shape[:dim] + parts.shape[dim + 1 :])
    inner = parts.shape[dim + 1 :].numel()
    grid = (triton.cdiv(inner, 64), parts.shape[:dim].numel())
    if out.numel():
        _add_up[grid](parts, out, parts.shape[dim], inner, PARTS=32, BLOCK=64, num_warps=2)
    return out


def matmul(a: Tensor, b: Tensor, precision: Precision = "float32") -> Tensor:
    """Return ``a @ b`` for stacks ``a [S, M, K]`` and ``b [S, K, N]`` of any strides."""
    runs, rows, terms = a.shape
    columns = b.shape[2]
    parts = max(1, triton.cdiv(terms, LONG))
    out = a.new_empty(parts, runs, rows, columns)
    tile = {"ROWS": min(TILE, padded(rows)), "TERMS": min(TILE, padded(terms)), "COLUMNS": min(TILE, padded(columns))}
    grid = (triton.cdiv(rows, tile["ROWS"]) * triton.cdiv(columns, tile["COLUMNS"]), runs, parts)
    _matmul[grid](a, b, out, rows, terms, columns, *a.stride(), *b.stride(), MODE=MODES[precision], LONG=LONG, **tile)
    return out[0] if parts == 1 else add_up(out)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, precision: Precision) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.precision = precision
        return matmul(a, b, precision)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        a, b = ctx.saved_tensors
        return (
            matmul(grad, b.mT, ctx.precision) if ctx.needs_input_grad[0] else None,
            matmul(a.mT, grad, ctx.precision) if ctx.needs_input_grad[1] else None,
            None,
        )


def product(a: Tensor, b: Tensor, precision: Precision = "float32") -> Tensor:
    """Return ``a @ b`` for stacks ``a [S, M, K]`` and ``b [S, K, N]``."""
    return _Product.apply(a, b, precision)  # type: ignore[no-any-return]


class _Shifted(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, h: Tensor, bias: Tensor) -> Tensor:
        return h + bias[:, None]

    @staticmethod
    @once_differentiable
    def backward(_: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, add_up(grad, 1)


def shifted(h: Tensor, bias: Tensor) -> Tensor:
    """Return ``h + bias`` for each of a stack, ``h [S, N, H]`` and ``bias [S, H]``."""
    return _Shifted.apply(h, bias)  # type: ignore[no-any-return]


@Program
def _propagate(
    starts, columns, values, h, out, num_columns, num_rows, width,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDTH)
    first = tl.load(starts + row, mask=row < num_rows, other=0)
    last = tl.load(starts + row + 1, mask=row < num_rows, other=0)
    mine = h + run * num_columns * width
    total = tl.zeros([ROWS, ENTRIES, WIDTH], tl.float32)
    for start in range(0, tl.max(last - first, 0), ENTRIES):
        e = first[:, None] + start + tl.arange(0, ENTRIES)[None]
        inside = e < last[:, None]
        column = tl.load(columns + e, mask=inside, other=0)
        value = tl.load(values + e, mask=inside, other=0.0)
        at = (column.to(tl.int64) * width)[:, :, None] + k[None, None]
        total += value[:, :, None] * tl.load(mine + at, mask=inside[:, :, None] & (k < width)[None, None], other=0.0)
    at = (run * num_rows + row[:, None]) * width + k[None]
    tl.store(out + at, tl.sum(total, 1), mask=(row < num_rows)[:, None] & (k < width)[None])


def _times(matrix: Tensor, h: Tensor) -> Tensor:
    h = h.contiguous()
    runs, num_columns, width = h.shape
    num_rows = matrix.shape[0]
    out = h.new_empty(runs, num_rows, width)
    parts = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    _propagate[(triton.cdiv(num_rows, ROWS), runs)](
        *parts, h, out, num_columns, num_rows, width,
        ROWS=ROWS, ENTRIES=16, WIDTH=int(triton.next_power_of_2(width)), num_warps=ROWS,
    )  # fmt: skip
    return out


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transpose: Tensor, h: Tensor) -> Tensor:
        ctx.transpose = transpose
        return _times(matrix, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _times(ctx.transpose, grad)


def sparse_product(matrix: Tensor, transpose: Tensor, h: Tensor) -> Tensor:
    """Return ``matrix @ h[s]`` for each of a stack ``h [S, F, H]``; the CSR matrix is a constant."""
    return _SparseProduct.apply(matrix, transpose, h)  # type: ignore[no-any-return]
