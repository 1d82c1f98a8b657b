"""Random walks in Numba: the same nodes as the reference, one walk after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint64

from nfcgcn.graph import Ints
from nfcgcn.kernels.cpu.compiler import compiled, take
from nfcgcn.kernels.cpu.masks import TASKS, key_of, number
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.reference.walks import TRIES, Nodes


@compiled
def _adjacent(starts: Any, neighbours: Any, node: Any, other: Any) -> Any:
    low, high = starts[node], starts[node + 1]
    while low < high:
        middle = (low + high) // 2
        if neighbours[middle] < other:
            low = middle + 1
        else:
            high = middle
    return low < starts[node + 1] and neighbours[low] == other


@compiled
def _walk(turn: Any, starts: Any, neighbours: Any, first: Any, seed: Any, numbered: Any, limits: Any, out: Any) -> None:
    num_walks, length = out.shape
    task = take(turn)
    while task < TASKS:
        for w in range(num_walks * task // TASKS, num_walks * (task + 1) // TASKS):
            key = key_of(seed, numbered + w)
            out[w, 0] = first[w]
            for step in range(1, length):
                here = out[w, step - 1]
                begin, degree = starts[here], starts[here + 1] - starts[here]
                for attempt in range(TRIES):
                    place = 2 * (step * TRIES + attempt)
                    position = int64(uint64(number(key, place)) * uint64(degree) >> uint64(32))
                    proposed = neighbours[begin + position]
                    if step == 1 or attempt == TRIES - 1:
                        break
                    before = out[w, step - 2]
                    chance = int64(number(key, place + 1))
                    # The largest limit allows every number: plain walks need no look at other nodes' neighbours.
                    if chance < min(limits[0], limits[1], limits[2]):
                        break
                    if proposed == before:
                        limit = limits[0]
                    else:
                        limit = limits[1] if _adjacent(starts, neighbours, before, proposed) else limits[2]
                    if chance < limit:
                        break
                out[w, step] = proposed
        task = take(turn)


def walk(
    starts: Ints, neighbours: Ints, first: Nodes, *, length: int, seed: int, number: int, limits: tuple[int, int, int]
) -> Nodes:
    """See the reference."""
    out = np.empty((len(first), length), np.int32)
    bounds = np.array(limits, np.int64)
    run(_walk, 30 * out.size, starts, neighbours, first, np.uint64(seed), number, bounds, out)
    return out
