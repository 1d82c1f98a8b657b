"""Cross-entropy and accuracy in plain PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(scores: Tensor, nodes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean loss ``[S]``, accuracy ``[S]`` and the gradient of the losses' sum, ``[S, N, C]``.

    ``scores`` is ``[S, N, C]``; ``nodes`` and ``labels`` are ``[S, T]``, without repeated nodes within a run.
    """
    scores = scores.detach().requires_grad_()
    with torch.enable_grad():
        picked = scores[torch.arange(len(scores), device=scores.device)[:, None], nodes]
        losses = F.cross_entropy(picked.mT, labels, reduction="none").mean(1)
        (grad,) = torch.autograd.grad(losses.sum(), scores)
    return losses.detach(), (picked.argmax(2) == labels).double().mean(1), grad
