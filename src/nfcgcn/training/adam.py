"""Adam for a model, without ``torch.optim``: making one of its optimizers loads torch's compiler, which takes 1.5 s."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import nn

from nfcgcn.kernels.products import has_kernel
from nfcgcn.kernels.reference.adam import BETAS
from nfcgcn.kernels.reference.adam import adam as formula


class Trained(Protocol):
    """A model that says which of its parameters are regularised."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters."""
        ...

    def decayed_parameters(self) -> list[nn.Parameter]:
        """List the parameters that L2 regularisation applies to."""
        ...


class StepSize(Protocol):
    """The settings that Adam reads."""

    @property
    def learning_rate(self) -> float:
        """The step size."""
        ...

    @property
    def weight_decay(self) -> float:
        """The L2 penalty."""
        ...


class Adam:
    """Adam (Kingma and Ba, 2015), with L2 regularisation on the parameters that the model chooses for it."""

    def __init__(self, model: Trained, config: StepSize) -> None:
        decayed = model.decayed_parameters()
        self.rate, self.steps = config.learning_rate, 0
        self.parameters = list(model.parameters())
        self.decays = [config.weight_decay if any(p is d for d in decayed) else 0.0 for p in self.parameters]
        self.moments = [p.new_zeros(2, *p.shape) for p in self.parameters]

    def forget_gradients(self) -> None:
        """Remove all gradients."""
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update each parameter that has a gradient."""
        self.steps += 1
        correction = 1 - BETAS[0] ** self.steps, (1 - BETAS[1] ** self.steps) ** 0.5
        for p, moments, decay in zip(self.parameters, self.moments, self.decays, strict=True):
            if p.grad is None:
                continue
            if has_kernel(p) and p.is_contiguous():
                from nfcgcn.kernels.cpu import adam as cpu

                cpu.adam(p, p.grad, moments, correction, rate=self.rate, decay=decay)
            else:
                formula(p, p.grad, moments, correction, rate=self.rate, decay=decay)
