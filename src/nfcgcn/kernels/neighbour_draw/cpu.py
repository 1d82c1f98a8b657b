"""The neighbour draw in Numba: the reference's steps, a node at a time; the same table to the bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from nfcgcn.graph import Ints
from nfcgcn.kernels.compiler import follow_torch


@njit(parallel=True, cache=True)
def _draw(starts: Ints, neighbours: Ints, uniforms: npt.NDArray[np.float64], table: Ints) -> None:
    num_steps = uniforms.shape[0]
    for node in prange(table.shape[0]):
        degree = starts[node + 1] - starts[node]
        table[node, 0] = node
        draws = np.empty(num_steps, np.int64)
        for step in range(num_steps):
            if step >= degree:
                table[node, step + 1] = node
                continue
            position = step + np.int64(uniforms[step, node] * (degree - step))
            draws[step] = position
            for earlier in range(step - 1, -1, -1):
                if position == draws[earlier]:
                    position = earlier
            table[node, step + 1] = neighbours[starts[node] + position]


def draw(starts: Ints, neighbours: Ints, uniforms: npt.NDArray[np.float64]) -> Ints:
    """See the reference."""
    follow_torch()
    table = np.empty((len(starts) - 1, len(uniforms) + 1), np.int64)
    _draw(starts, neighbours, uniforms, table)
    return table
