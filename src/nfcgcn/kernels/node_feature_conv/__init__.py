"""Gather neighbours into feature maps, drop cells, convolve, and multiply by the matrix that follows.

======================  ===========================================================================================
variant                 runs
======================  ===========================================================================================
``reference``           anywhere, any float type, with a gradient for the features too
``cpu``                 CPU, float32 and float64, features dense or CSR that need no gradient; needs Numba
======================  ===========================================================================================
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nfcgcn.kernels import Backend, choose, numba_refusal
from nfcgcn.kernels.node_feature_conv import reference


def refusal(x: Tensor, weight: Tensor) -> str | None:
    """Say why the CPU kernels cannot run on these tensors, or None."""
    if x.device.type != "cpu" or weight.device.type != "cpu":
        return f"the tensors are on {x.device.type if x.device.type != 'cpu' else weight.device.type}"
    if x.dtype != weight.dtype or x.dtype not in (torch.float32, torch.float64):
        return f"features are {x.dtype} and filters {weight.dtype}, not both float32 or both float64"
    if x.layout not in (torch.strided, torch.sparse_csr):
        return f"features have layout {x.layout}, neither dense nor CSR"
    if x.requires_grad:
        return "the features need a gradient"
    return numba_refusal()


def node_feature_conv(x: Tensor, neighbours: Tensor, weight: Tensor, *, backend: Backend, **options: Any) -> Tensor:
    """Return ``h(0)``; see :func:`reference.node_feature_conv`."""
    return _variant(x, weight, backend).node_feature_conv(x, neighbours, weight, **options)  # type: ignore[no-any-return]


def projected(
    x: Tensor, neighbours: Tensor, weight: Tensor, matrix: Tensor, *, backend: Backend, **options: Any
) -> Tensor:
    """Return ``h(0) @ matrix``; see :func:`reference.projected`."""
    return _variant(x, weight, backend).projected(x, neighbours, weight, matrix, **options)  # type: ignore[no-any-return]


def _variant(x: Tensor, weight: Tensor, backend: Backend) -> Any:
    # On a GPU, and inside a stack of layers, the reference is what is meant to run.
    expected = x.device.type != "cpu" or x.requires_grad
    if choose(backend, refusal(x, weight), expected=expected) == "reference":
        return reference
    from nfcgcn.kernels.node_feature_conv import cpu

    return cpu
