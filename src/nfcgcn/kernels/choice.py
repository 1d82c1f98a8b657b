"""Which kernels can run here, and which one does."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from typing import Literal

from nfcgcn.errors import ConfigError, NFCWarning
from nfcgcn.method.node_feature_conv import Backend

Precision = Literal["float32", "tf32", "bf16"]
"""What products on a GPU round their factors to; sums are always float32."""


@cache
def numba_refusal() -> str | None:
    """Say why kernels written in Numba cannot run here, or None."""
    if find_spec("numba") is None:
        return "Numba is not installed (`pip install numba`)"
    return None


@cache
def triton_refusal() -> str | None:
    """Say why kernels written in Triton cannot run here, or None."""
    if find_spec("triton") is None:
        return "Triton is not installed (it comes with PyTorch's CUDA builds)"
    return None


def choose(backend: Backend, variant: Literal["cpu", "gpu"], refusal: str | None, *, expected: bool = False) -> str:
    """Return what to run: `variant` or "reference".

    `refusal` says why the variant cannot run, if so. A forced variant that cannot run is an error; where the choice is
    free the plain formula runs instead and, unless that is `expected`, says so once.
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
