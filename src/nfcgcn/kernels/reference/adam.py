"""A step of Adam (Kingma and Ba, 2015) in plain PyTorch, as ``torch.optim.Adam`` makes it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8


def corrections(num_steps: int) -> Tensor:
    """Return the divisors of the two moments per step, ``1 - beta ** step``, for the second its root, ``[T, 2]``."""
    steps = torch.arange(1, num_steps + 1, dtype=torch.float64)
    return torch.stack([1 - BETAS[0] ** steps, (1 - BETAS[1] ** steps).sqrt()], 1).float()


def adam(
    param: Tensor, grad: Tensor, moments: Tensor, correction: Tensor | Sequence[float], *, rate: float, decay: float
) -> None:
    """Update a parameter and its two moments ``[2, ...]`` in place."""
    grad = grad + decay * param
    moments[0].lerp_(grad, 1 - BETAS[0])
    moments[1].mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
    param.addcdiv_(-rate / correction[0] * moments[0], moments[1].sqrt() / correction[1] + EPSILON)
