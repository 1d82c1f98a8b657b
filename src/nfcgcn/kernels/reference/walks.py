"""Random walks along the edges, all of them one step at a time; their numbers are hashes of (seed, walk, step)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from nfcgcn.graph import Ints
from nfcgcn.randomness import hashed

Nodes = npt.NDArray[np.int32]
TRIES = 32
"""Neighbours that a biased step proposes at most; the last one is taken as it is."""


def walk(
    starts: Ints, neighbours: Ints, first: Nodes, *, length: int, seed: int, number: int, limits: tuple[int, int, int]
) -> Nodes:
    """Return one walk of `length` nodes from each of `first`, ``[W, length]``; `number` is that of the first walk.

    A step proposes one of the node's neighbours, all alike, and takes it if a number below ``2**32`` is below a limit:
    ``limits[0]`` for the node before, ``limits[1]`` for a neighbour of the node before, ``limits[2]`` for any other.
    Every node needs a neighbour.
    """
    num_nodes = len(starts) - 1
    degrees = np.diff(starts)
    pairs = np.repeat(np.arange(num_nodes), degrees) * num_nodes + neighbours
    rows = torch.arange(number, number + len(first))
    out = np.empty((len(first), length), np.int32)
    out[:, 0] = first
    for step in range(1, length):
        left = np.arange(len(first))
        for attempt in range(TRIES):
            place = torch.tensor(2 * (step * TRIES + attempt))
            here = out[left, step - 1].astype(np.int64)
            drawn, chance = (hashed(seed, rows[torch.from_numpy(left)], place + i).numpy() for i in (0, 1))
            proposed = neighbours[starts[here] + (drawn * degrees[here] >> 32)]
            out[left, step] = proposed
            if step == 1 or attempt == TRIES - 1:
                break
            before = out[left, step - 2].astype(np.int64)
            wanted = before * num_nodes + proposed
            near = pairs[np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)] == wanted
            limit = np.where(proposed == before, limits[0], np.where(near, limits[1], limits[2]))
            left = left[chance >= limit]
            if not len(left):
                break
    return out
