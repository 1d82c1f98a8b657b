"""The inner loops, compiled by Numba and kept on disk: only the first call ever on a machine compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange, uint32, uint64

BLOCKS = 8
"""Pieces that a sum over nodes is cut into, each the work of one thread; no function of the number of threads."""
TASKS = 64
"""Pieces that independent nodes are cut into."""

# Products and sums may fuse and signs of zero be lost; nothing is reordered, so that results do not depend on luck.
_compiled: Any = njit(parallel=True, cache=True, nogil=True, fastmath={"contract", "nsz"})
_inlined: Any = njit(inline="always")


def blocks_of(bandwidth: int) -> int:
    """Pieces a slot, where the slots themselves are pieces."""
    return -(-BLOCKS // bandwidth)


@_inlined
def _key(seed: Any, row: Any) -> Any:
    z = seed + uint64(row + 1) * uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return uint32((z ^ (z >> uint64(31))) & uint64(0xFFFFFFFF))


@_inlined
def _number(key: Any, place: Any) -> Any:
    h = uint32(key + uint32(uint32(place) * uint32(0x9E3779B9)))
    h = uint32(uint32(h ^ (h >> uint32(16))) * uint32(0x85EBCA6B))
    h = uint32(uint32(h ^ (h >> uint32(13))) * uint32(0xC2B2AE35))
    return uint32(h ^ (h >> uint32(16)))


@_inlined
def _keep(
    indices: Any, data: Any, start: Any, stop: Any, key: Any, below: Any, scale: Any, cols: Any, vals: Any
) -> Any:
    """Copy the nonzeros of a row that stay, and count them; without branches, which half the time would be guessed."""
    count = 0
    for place in range(stop - start):
        cols[count] = indices[start + place]
        vals[count] = data[start + place] * scale
        count += 1 if _number(key, place) >= below else 0
    return count


@_inlined
def _longest(indptr: Any) -> Any:
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    return longest + 1


@_compiled
def gather(
    indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, slots: Any, out: Any
) -> None:
    """``out[i] = sum_j dropout(x[table[i, j]]) @ slots[j]``."""
    num_nodes, bandwidth = table.shape
    hidden = slots.shape[2]
    room = _longest(indptr)
    for task in prange(TASKS):
        cols, vals = np.empty(room, np.int64), np.empty(room, data.dtype)
        total = np.empty(hidden, data.dtype)
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            total[:] = 0
            for slot in range(bandwidth):
                row = table[node, slot]
                key = _key(seed, node * bandwidth + slot)
                count = _keep(indices, data, indptr[row], indptr[row + 1], key, below, scale, cols, vals)
                for entry in range(count):
                    column, value = cols[entry], vals[entry]
                    for h in range(hidden):
                        total[h] += value * slots[slot, column, h]
            out[node] = total


@_compiled
def gather_merged(indptr: Any, indices: Any, data: Any, table: Any, slots: Any, merged: Any, out: Any) -> None:
    """``gather`` without dropout, where trailing copies of a node share one pass by ``merged[copies]``."""
    num_nodes, bandwidth = table.shape
    hidden = slots.shape[2]
    for task in prange(TASKS):
        total = np.empty(hidden, data.dtype)
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            total[:] = 0
            own = table[node, 0]
            copies = 0
            while copies < bandwidth - 1 and table[node, bandwidth - 1 - copies] == own:
                copies += 1
            for slot in range(bandwidth - copies):
                row = table[node, slot]
                for entry in range(indptr[row], indptr[row + 1]):
                    column, value = indices[entry], data[entry]
                    if slot == 0:
                        for h in range(hidden):
                            total[h] += value * merged[copies, column, h]
                    else:
                        for h in range(hidden):
                            total[h] += value * slots[slot, column, h]
            out[node] = total


@_compiled
def gather_backward(
    indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, grad: Any, out: Any
) -> None:
    """``out[block, j] = sum_i dropout(x[table[i, j]]).T @ grad[i]`` over the block's nodes."""
    num_nodes, bandwidth = table.shape
    blocks, hidden = out.shape[0], grad.shape[1]
    room = _longest(indptr)
    for task in prange(bandwidth * blocks):
        slot, block = task % bandwidth, task // bandwidth
        cols, vals = np.empty(room, np.int64), np.empty(room, data.dtype)
        out[block, slot] = 0
        for node in range(num_nodes * block // blocks, num_nodes * (block + 1) // blocks):
            seen = False  # nodes out of the loss's sight have no gradient and cost nothing
            for h in range(hidden):
                seen |= grad[node, h] != 0
            if not seen:
                continue
            row = table[node, slot]
            key = _key(seed, node * bandwidth + slot)
            count = _keep(indices, data, indptr[row], indptr[row + 1], key, below, scale, cols, vals)
            for entry in range(count):
                column, value = cols[entry], vals[entry]
                for h in range(hidden):
                    out[block, slot, column, h] += value * grad[node, h]


@_compiled
def convolve(
    indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, stride: Any, start: Any,
    runs: Any, out: Any,
) -> None:  # fmt: skip
    """Convolve the maps of nodes from ``start`` on: ``out [nodes, steps, places, c]``, filters ``runs [w, k, c]``."""
    bandwidth = table.shape[1]
    width, size, filters = runs.shape
    num_nodes, steps, places, _ = out.shape
    room = _longest(indptr)
    for task in prange(TASKS):
        cols, vals = np.empty(room, np.int64), np.empty(room, data.dtype)
        for index in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            node = start + index
            out[index] = 0
            for slot in range(bandwidth):
                row = table[node, slot]
                key = _key(seed, node * bandwidth + slot)
                count = _keep(indices, data, indptr[row], indptr[row + 1], key, below, scale, cols, vals)
                for entry in range(count):
                    column, value = cols[entry], vals[entry]
                    first = max(0, (column - size) // stride + 1)
                    last = min(column // stride, places - 1)
                    for step in range(max(0, slot - width + 1), min(steps, slot + 1)):
                        for place in range(first, last + 1):
                            for f in range(filters):
                                out[index, step, place, f] += value * runs[slot - step, column - place * stride, f]


@_compiled
def convolve_backward(
    indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, stride: Any, start: Any,
    grad: Any, sums: Any,
) -> None:  # fmt: skip
    """Add the filter gradient of nodes from ``start`` on to ``sums [blocks, w, k, c]``; ``grad`` is as ``out``."""
    bandwidth = table.shape[1]
    blocks, width, size, filters = sums.shape
    num_nodes, steps, places, _ = grad.shape
    room = _longest(indptr)
    for block in prange(blocks):
        cols, vals = np.empty(room, np.int64), np.empty(room, data.dtype)
        for index in range(num_nodes * block // blocks, num_nodes * (block + 1) // blocks):
            node = start + index
            for slot in range(bandwidth):
                row = table[node, slot]
                key = _key(seed, node * bandwidth + slot)
                count = _keep(indices, data, indptr[row], indptr[row + 1], key, below, scale, cols, vals)
                for entry in range(count):
                    column, value = cols[entry], vals[entry]
                    first = max(0, (column - size) // stride + 1)
                    last = min(column // stride, places - 1)
                    for step in range(max(0, slot - width + 1), min(steps, slot + 1)):
                        for place in range(first, last + 1):
                            for f in range(filters):
                                sums[block, slot - step, column - place * stride, f] += (
                                    value * grad[index, step, place, f]
                                )


@_compiled
def dense_map(x: Any, table: Any, below: Any, scale: Any, seed: Any, start: Any, out: Any) -> None:
    """``out[i, j] = dropout(x[table[start + i, j]])``, a hash a cell."""
    num_nodes, bandwidth, num_features = out.shape
    for index in prange(num_nodes):
        for slot in range(bandwidth):
            row = table[start + index, slot]
            key = _key(seed, (start + index) * bandwidth + slot)
            for column in range(num_features):
                out[index, slot, column] = x[row, column] * scale if _number(key, column) >= below else 0
