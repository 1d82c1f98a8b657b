"""A step of Adam in Triton; the number of the step is stored on the device, so that a CUDA graph can repeat it."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nfcgcn.kernels.gpu.launch import Program
from nfcgcn.kernels.reference.adam import BETAS, EPSILON

BLOCK = 512


@Program
def _adam(
    param, grad, moments, corrections, step, size, rate, decay, first_beta, second_beta, epsilon, BLOCK: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    now = tl.load(step)
    p = tl.load(param + i, mask=inside, other=0.0)
    g = tl.load(grad + i, mask=inside, other=0.0) + decay * p
    m = tl.load(moments + i, mask=inside, other=0.0)
    v = tl.load(moments + size + i, mask=inside, other=0.0)
    m += (1 - first_beta) * (g - m)
    v = second_beta * v + (1 - second_beta) * g * g
    pace = rate / tl.load(corrections + 2 * now)
    p -= pace * m / (tl.sqrt(v) / tl.load(corrections + 2 * now + 1) + epsilon)
    tl.store(param + i, p, mask=inside)
    tl.store(moments + i, m, mask=inside)
    tl.store(moments + size + i, v, mask=inside)


def adam(
    param: Tensor, grad: Tensor, moments: Tensor, corrections: Tensor, step: Tensor, *, rate: float, decay: float
) -> None:
    """Make step number ``step`` (from 0, on the device) with the ``corrections`` of all steps; see the reference."""
    size = param.numel()
    _adam[(triton.cdiv(size, BLOCK),)](
        param, grad.contiguous(), moments, corrections, step, size, rate, decay, *BETAS, EPSILON, BLOCK=BLOCK
    )
