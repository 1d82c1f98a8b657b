"""How Numba compiles the CPU kernels, and how many threads they run on."""

from __future__ import annotations

from typing import Any

import numba
import torch
from numba import njit
from numba.extending import intrinsic

# A product and a sum may be fused, and the sign of a zero may be lost; nothing is reordered: results are repeatable.
compiled: Any = njit(parallel=True, cache=True, nogil=True, fastmath={"contract", "nsz"})
inlined: Any = njit(inline="always")
primitive: Any = intrinsic


def follow_torch() -> None:
    """Let Numba use as many threads as torch does, up to the number that Numba has."""
    count = torch.get_num_threads()
    numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))  # type: ignore[attr-defined]
    if torch.get_num_threads() != count:  # Numba's first call restarts OpenMP, which resets torch's number
        torch.set_num_threads(count)
