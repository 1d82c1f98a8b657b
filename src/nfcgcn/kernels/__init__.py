"""The arithmetic, on tensors and arrays alone: one folder an operation.

``reference.py`` is the specification, in plain PyTorch or NumPy; ``cpu.py`` beside it is the same in Numba and
``gpu.py`` in Triton, faster. The folder's ``__init__`` lists the variants and chooses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from typing import Literal, ParamSpec, TypeVar

import torch

from nfcgcn.errors import ConfigError, NFCWarning

Backend = Literal["auto", "reference", "cpu", "gpu"]
Precision = Literal["float32", "tf32", "bf16"]
"""What products on a GPU round their factors to; sums are always float32."""

P = ParamSpec("P")
T = TypeVar("T")


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
    free the reference runs instead and, unless that is `expected`, says so once.
    """
    if backend == "reference" or (backend == "auto" and refusal is not None):
        if backend == "auto" and not expected:
            _say_once(f"the slow reference runs in place of the {variant.upper()} kernel: {refusal}")
        return "reference"
    if refusal is not None:
        raise ConfigError(f"backend '{backend}' cannot run: {refusal}; use 'auto' or 'reference'")
    return variant


@cache
def _say_once(message: str) -> None:
    warnings.warn(message, NFCWarning, stacklevel=4)


def opaque(function: Callable[P, T]) -> Callable[P, T]:
    """Let ``torch.compile`` call a function as it is: it stumbles over what Numba and NumPy do, and over caches."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_compiling():
            # Made here and not beforehand, since this loads the compiler, a second's work.
            closed: Callable[P, T] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
            return closed(*args, **kwargs)
        return function(*args, **kwargs)

    return call
