"""The neighbour draw in Numba: the formula's steps, one node at a time; the table is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import int64, uint64
from torch import Tensor

from nfcgcn.kernels.cpu.compiler import compiled, take
from nfcgcn.kernels.cpu.masks import TASKS, key_of, number
from nfcgcn.kernels.cpu.pool import run


@compiled
def _draw(turn: Any, starts: Any, neighbours: Any, seed: Any, table: Any) -> None:
    num_nodes, size = table.shape[0], table.shape[1] - 1
    draws = np.empty(size, np.int64)
    task = take(turn)
    while task < TASKS:
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            degree = starts[node + 1] - starts[node]
            key = key_of(seed, node)
            table[node, 0] = node
            for step in range(size):
                if step >= degree:
                    table[node, step + 1] = node
                    continue
                position = step + int64(uint64(number(key, step)) * uint64(degree - step) >> uint64(32))
                draws[step] = position
                for earlier in range(step - 1, -1, -1):
                    if position == draws[earlier]:
                        position = earlier
                table[node, step + 1] = neighbours[starts[node] + position]
        task = take(turn)


def draw_rows(starts: Tensor, neighbours: Tensor, *, size: int, seed: int) -> Tensor:
    """See the formula."""
    table = torch.empty(len(starts) - 1, size + 1, dtype=torch.int64)
    run(_draw, 5 * table.numel(), starts.numpy(), neighbours.numpy(), np.uint64(seed), table.numpy())
    return table
