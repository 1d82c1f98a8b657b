r"""Without an activation, convolution and the matrix after it are one linear map per slot.

.. math:: h^{(0)} W = \sum_j x_{i_j} M_j, \qquad
    M[j, d] = \sum_{q, p} \sum_f F[f, j - q, d - p s] \, W[(q, f, p)]

with filters :math:`F [c, w, k]`: exact, and differentiable through the composition.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfcgcn.kernels.cpu import conv_loops as loops
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.cpu.product import add_up, row_product


class _Compose(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, bandwidth: int, num_features: int, stride: int) -> Tensor:
        filters, width, size = weight.shape
        steps, hidden = bandwidth - width + 1, matrix.shape[1]
        columns = matrix.reshape(steps, filters, -1)
        places = columns.shape[2] // hidden
        rows = weight.flatten(1).mT.contiguous()
        ctx.save_for_backward(rows, columns)
        ctx.sizes = (steps, width, size, places, hidden, stride)
        windows = _stack([row_product(rows, c) for c in columns]).view(steps, width, size, places, hidden)
        out = matrix.new_empty(bandwidth, num_features, hidden)
        run(loops.fold, 0.6 * windows.numel(), windows.numpy(), stride, out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        rows, columns = ctx.saved_tensors
        *sizes, stride = ctx.sizes
        windows = grad.new_empty(sizes)
        run(loops.unfold, 0.2 * windows.numel(), grad.contiguous().numpy(), stride, windows.numpy())
        steps, width, size, _, hidden = sizes
        parts = windows.view(steps, width * size, -1)
        grad_matrix = _stack([row_product(rows.mT, part) for part in parts])
        grad_rows = _stack([row_product(part, c.mT) for part, c in zip(parts, columns, strict=True)])
        return add_up(grad_rows).mT.reshape(-1, width, size), grad_matrix.view(-1, hidden), None, None, None


def _stack(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts) if len(parts) > 1 else parts[0].unsqueeze(0)


def compose(weight: Tensor, matrix: Tensor, *, bandwidth: int, num_features: int, stride: int) -> Tensor:
    """Return ``M [n, D, H]`` for filters ``[c, w, k]`` and a matrix ``[(n - w + 1) c D', H]``."""
    return _Compose.apply(weight, matrix, bandwidth, num_features, stride)  # type: ignore[no-untyped-call,no-any-return]
