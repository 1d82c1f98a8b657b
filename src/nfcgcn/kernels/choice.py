"""Which kernels can run here, and which one does."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from nfcgcn.errors import ConfigError, NFCWarning
from nfcgcn.method.node_feature_conv import Backend

WIDEST = 128
"""Most filters or outputs that a GPU program can hold."""
Precision = Literal["float32", "tf32", "bf16"]
"""The precision to which matrix products on a GPU round their inputs; sums are always float32."""


@cache
def numba_refusal() -> str | None:
    """Return why kernels written in Numba cannot run here, or None if they can."""
    if find_spec("numba") is None:
        return "Numba is not installed (`pip install numba`)"
    return None


@cache
def triton_refusal() -> str | None:
    """Return why kernels written in Triton cannot run here, or None if they can."""
    if find_spec("triton") is None:
        return "Triton is not installed (it comes with PyTorch's CUDA builds)"
    return None


def choose(backend: Backend, variant: Literal["cpu", "gpu"], refusal: str | None, *, expected: bool = False) -> str:
    """Return what to run: `variant` or "reference".

    `refusal` is the reason why the variant cannot run, or None. A forced variant that cannot run is an error. With a
    free choice, the plain formula runs instead and, unless that is `expected`, warns once.
    """
    if backend == "reference" or (backend == "auto" and refusal is not None):
        if backend == "auto" and not expected:
            _warn_once(f"the slow formula runs in place of the {variant.upper()} kernel: {refusal}")
        return "reference"
    if refusal is not None:
        raise ConfigError(f"backend '{backend}' cannot run: {refusal}; use 'auto' or 'reference'")
    return variant


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, NFCWarning, stacklevel=4)


def variant_for(x: Tensor, backend: Backend) -> Literal["cpu", "gpu"]:
    """Return the name of the fast variant for these features."""
    if backend in ("cpu", "gpu"):
        return backend
    return "gpu" if x.is_cuda else "cpu"


def refusal(variant: Literal["cpu", "gpu"], x: Tensor, weight: Tensor, matrix: Tensor | None = None) -> str | None:
    """Return why a variant cannot run on these tensors, or None if it can."""
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
