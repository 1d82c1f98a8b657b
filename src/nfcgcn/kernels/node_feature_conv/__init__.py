"""Gather neighbours into feature maps, drop cells, convolve, and multiply by the matrix that follows.

======================  ===========================================================================================
variant                 runs
======================  ===========================================================================================
``reference``           anywhere, any float type, with a gradient for the features too
``cpu``                 CPU, float32 and float64, features dense or CSR that need no gradient; needs Numba
``gpu``                 CUDA, float32, features dense or CSR that need no gradient; needs Triton
======================  ===========================================================================================
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from nfcgcn.kernels.choice import numba_refusal, triton_refusal
from nfcgcn.method.node_feature_conv import Backend

WIDEST = 128
"""Filters and outputs that a GPU's program holds, at most."""


def variant_for(x: Tensor, backend: Backend) -> Literal["cpu", "gpu"]:
    """Name the fast variant that is meant for these features."""
    if backend in ("cpu", "gpu"):
        return backend
    return "gpu" if x.is_cuda else "cpu"


def refusal(variant: Literal["cpu", "gpu"], x: Tensor, weight: Tensor, matrix: Tensor | None = None) -> str | None:
    """Say why a variant cannot run on these tensors, or None."""
    wanted = "cpu" if variant == "cpu" else "cuda"
    for t in (x, weight):
        if t.device.type != wanted:
            return f"the tensors are on {t.device.type}"
    if x.layout not in (torch.strided, torch.sparse_csr):
        return f"features have layout {x.layout}, neither dense nor CSR"
    if x.requires_grad:
        return "the features need a gradient"
    if variant == "cpu":
        if x.dtype != weight.dtype or x.dtype not in (torch.float32, torch.float64):
            return f"features are {x.dtype} and filters {weight.dtype}, not both float32 or both float64"
        return numba_refusal()
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return f"features are {x.dtype} and filters {weight.dtype}, not both float32"
    widest = max(len(weight), 0 if matrix is None else matrix.shape[1])
    if widest > WIDEST:
        return f"there are {widest} filters or outputs, more than {WIDEST}"
    return triton_refusal()
