"""The inner loops, compiled by Numba and kept on disk: only the first call ever on a machine compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from nfcgcn.kernels.masks.cpu import compiled, inlined, key_of, number

BLOCKS = 8
"""Pieces that a sum over nodes is cut into, each the work of one thread; no function of the number of threads."""
TASKS = 64
"""Pieces that independent nodes are cut into."""


def blocks_of(bandwidth: int) -> int:
    """Pieces a slot, where the slots themselves are pieces."""
    return -(-BLOCKS // bandwidth)


@inlined
def _keep(
    indices: Any, data: Any, start: Any, stop: Any, key: Any, below: Any, scale: Any, cols: Any, vals: Any
) -> Any:
    """Copy the nonzeros of a row that stay, and count them; without branches, which half the time would be guessed."""
    count = 0
    for place in range(stop - start):
        cols[count] = indices[start + place]
        vals[count] = data[start + place] * scale
        count += 1 if number(key, place) >= below else 0
    return count


@inlined
def _longest(indptr: Any) -> Any:
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    return longest + 1


@compiled
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
                key = key_of(seed, node * bandwidth + slot)
                count = _keep(indices, data, indptr[row], indptr[row + 1], key, below, scale, cols, vals)
                for entry in range(count):
                    column, value = cols[entry], vals[entry]
                    for h in range(hidden):
                        total[h] += value * slots[slot, column, h]
            out[node] = total


@compiled
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


@compiled
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
            key = key_of(seed, node * bandwidth + slot)
            count = _keep(indices, data, indptr[row], indptr[row + 1], key, below, scale, cols, vals)
            for entry in range(count):
                column, value = cols[entry], vals[entry]
                for h in range(hidden):
                    out[block, slot, column, h] += value * grad[node, h]


@compiled
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
                key = key_of(seed, node * bandwidth + slot)
                count = _keep(indices, data, indptr[row], indptr[row + 1], key, below, scale, cols, vals)
                for entry in range(count):
                    column, value = cols[entry], vals[entry]
                    first = max(0, (column - size) // stride + 1)
                    last = min(column // stride, places - 1)
                    for step in range(max(0, slot - width + 1), min(steps, slot + 1)):
                        for place in range(first, last + 1):
                            for f in range(filters):
                                out[index, step, place, f] += value * runs[slot - step, column - place * stride, f]


@compiled
def convolve_merged(
    indptr: Any, indices: Any, data: Any, table: Any, stride: Any, start: Any, runs: Any, merged: Any, out: Any
) -> None:
    """``convolve`` in 1D without dropout, where trailing copies of a node share one pass by ``merged[copies]``."""
    bandwidth, size, filters = runs.shape
    num_nodes, _, places, _ = out.shape
    for task in prange(TASKS):
        for index in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            node = start + index
            out[index] = 0
            copies = 0
            while copies < bandwidth - 1 and table[node, bandwidth - 1 - copies] == table[node, 0]:
                copies += 1
            for slot in range(bandwidth - copies):
                row = table[node, slot]
                for entry in range(indptr[row], indptr[row + 1]):
                    column, value = indices[entry], data[entry]
                    first = max(0, (column - size) // stride + 1)
                    last = min(column // stride, places - 1)
                    for place in range(first, last + 1):
                        offset = column - place * stride
                        if slot == 0:
                            for f in range(filters):
                                out[index, 0, place, f] += value * merged[copies, offset, f]
                        else:
                            for f in range(filters):
                                out[index, 0, place, f] += value * runs[slot, offset, f]


@compiled
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
                key = key_of(seed, node * bandwidth + slot)
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


@compiled
def fold(windows: Any, stride: Any, out: Any) -> None:
    """Add ``windows [steps, w, k, places, H]`` up where they overlap: ``out [n, D, H]``, 0 where no window reaches."""
    steps, width, size, places, _ = windows.shape
    bandwidth, num_features, hidden = out.shape
    for task in prange(TASKS):
        for cell in range(bandwidth * num_features * task // TASKS, bandwidth * num_features * (task + 1) // TASKS):
            slot, column = cell // num_features, cell % num_features
            first = max(0, (column - size) // stride + 1)
            last = min(column // stride, places - 1)
            for h in range(hidden):
                out[slot, column, h] = 0
            for step in range(max(0, slot - width + 1), min(steps, slot + 1)):
                for place in range(first, last + 1):
                    for h in range(hidden):
                        out[slot, column, h] += windows[step, slot - step, column - place * stride, place, h]


@compiled
def unfold(grad: Any, stride: Any, windows: Any) -> None:
    """The gradient of `fold`: each window's part of ``grad [n, D, H]``."""
    steps, width, size, places, hidden = windows.shape
    for row in prange(steps * width * size):
        step, slot, offset = row // (width * size), row // size % width, row % size
        for place in range(places):
            for h in range(hidden):
                windows[step, slot, offset, place, h] = grad[step + slot, place * stride + offset, h]


@compiled
def dense_map(x: Any, table: Any, below: Any, scale: Any, seed: Any, start: Any, out: Any) -> None:
    """``out[i, j] = dropout(x[table[start + i, j]])``, a hash a cell."""
    num_nodes, bandwidth, num_features = out.shape
    for index in prange(num_nodes):
        for slot in range(bandwidth):
            row = table[start + index, slot]
            key = key_of(seed, (start + index) * bandwidth + slot)
            for column in range(num_features):
                out[index, slot, column] = x[row, column] * scale if number(key, column) >= below else 0
