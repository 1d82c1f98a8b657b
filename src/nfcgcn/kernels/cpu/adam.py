"""A step of Adam on the CPU in one pass over a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from nfcgcn.kernels.cpu.compiler import compiled, take
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.reference.adam import BETAS, EPSILON

TASKS = 64
"""Pieces that a parameter is divided into."""


@compiled
def _update(
    turn: Any, param: Any, grad: Any, first: Any, second: Any, new: Any, old_square: Any, new_square: Any, rate: Any,
    root: Any, decay: Any, epsilon: Any,
) -> None:  # fmt: skip
    size = len(param)
    task = take(turn)
    while task < TASKS:
        for i in range(size * task // TASKS, size * (task + 1) // TASKS):
            slope = grad[i] + decay * param[i]
            first[i] += new * (slope - first[i])
            second[i] = old_square * second[i] + new_square * slope * slope
            param[i] -= rate * first[i] / (np.sqrt(second[i]) / root + epsilon)
        task = take(turn)


def adam(
    param: Tensor, grad: Tensor, moments: Tensor, correction: Sequence[float], *, rate: float, decay: float
) -> None:
    """See the reference; the parameter is contiguous."""
    arrays = [t.detach().reshape(-1).numpy() for t in (param, grad, *moments)]
    number = arrays[0].dtype.type
    # Differences from 1 are rounded once, here: in float32 what is left of 1 - 0.999 is right to five digits only.
    numbers = (1 - BETAS[0], BETAS[1], 1 - BETAS[1], rate / correction[0], correction[1], decay, EPSILON)
    run(_update, 2 * len(arrays[0]), *arrays, *(number(value) for value in numbers))
