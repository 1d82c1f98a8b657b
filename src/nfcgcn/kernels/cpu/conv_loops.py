"""The inner loops, compiled by Numba and cached on disk: only the first call on a machine compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint32

from nfcgcn.kernels.cpu.compiler import compiled, inlined, take
from nfcgcn.kernels.cpu.masks import kept_bits, key_of
from nfcgcn.kernels.cpu.vectors import add_product, add_runs, combine, keep, multiply, scatter, tanh
from nfcgcn.kernels.reference.masks import WORD

BLOCKS = 8
"""Pieces that a sum over nodes is divided into, one task per piece; independent of the number of threads."""
LARGE = 5_000_000
"""Nanoseconds of work from which there are all pieces."""
TASKS = 64
"""Pieces that independent nodes are divided into."""
TILE = 2**17
"""Numbers of ``h(0)`` per thread at a time: with its gradient, 1 MiB of float32, about what a core's cache holds."""
NONE, TANH, RELU = 0, 1, 2
RUN, PLACE = 0, 1
"""Where a column's span, see `spans`, tells of the filters and where of the outputs."""


@inlined
def tile_of(size: Any) -> Any:
    """Nodes per tile."""
    return max(1, TILE // (8 * size)) * 8


def blocks_of(bandwidth: int, cost: float) -> int:
    """Pieces per slot, if the slots themselves are pieces; fewer where adding up would cost more than threads save."""
    return -(-(BLOCKS if cost > LARGE else BLOCKS // 2) // bandwidth)


@inlined
def _copies(table: Any, node: Any) -> Any:
    """Count the trailing slots that hold the same node as slot 0."""
    bandwidth = table.shape[1]
    copies = 0
    while copies < bandwidth - 1 and table[node, bandwidth - 1 - copies] == table[node, 0]:
        copies += 1
    return copies


@compiled
def gather(
    turn: Any, indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, nodes: Any,
    merged: Any, slots: Any, out: Any,
) -> None:  # fmt: skip
    """``out[i] = sum_j dropout(x[table[i, j]]) @ slots[j]`` for each i in `nodes`.

    For `merged` see `_merge` in cpu.py; the slots may be wider than ``out``, see `_pad` there.
    """
    num_nodes, bandwidth = len(nodes), table.shape[1]
    _, num_features, hidden = slots.shape
    total = np.empty(hidden, data.dtype)
    task = take(turn)
    while task < TASKS:
        for index in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            node = nodes[index]
            copies = _copies(table, node) if merged else 0
            total[:] = 0
            for slot in range(bandwidth - copies):
                row = table[node, slot]
                key = key_of(seed, node * bandwidth + slot)
                base = (merged + slot if slot else copies) * num_features * hidden
                start, count = indptr[row], indptr[row + 1] - indptr[row]
                for first in range(0, count, WORD):
                    kept = kept_bits(key, first, count - first, below)
                    combine(total, 0, slots, base, hidden, indices, data, start + first, kept, hidden)
            for h in range(out.shape[1]):
                out[node, h] = total[h] * scale
        task = take(turn)


@compiled
def gather_backward(
    turn: Any, indptr: Any, indices: Any, data: Any, table: Any, below: Any, seed: Any, grad: Any, out: Any
) -> None:
    """``out[block, j] = sum_i dropout(x[table[i, j]]).T @ grad[i]`` over the block's nodes, but not scaled up."""
    num_nodes, bandwidth = table.shape
    blocks, _, num_features, hidden = out.shape
    task = take(turn)
    while task < bandwidth * blocks:
        slot, block = task % bandwidth, task // bandwidth
        base = (block * bandwidth + slot) * num_features * hidden
        out[block, slot] = 0
        for node in range(num_nodes * block // blocks, num_nodes * (block + 1) // blocks):
            seen = False  # nodes that do not affect the loss have no gradient and cost nothing
            for h in range(hidden):
                seen |= grad[node, h] != 0
            if not seen:
                continue
            row = table[node, slot]
            key = key_of(seed, node * bandwidth + slot)
            start, count = indptr[row], indptr[row + 1] - indptr[row]
            for first in range(0, count, WORD):
                kept = kept_bits(key, first, count - first, below)
                scatter(out, base, hidden, indices, data, start + first, kept, grad, node * hidden, hidden)
        task = take(turn)


def spans(num_features: int, size: int, stride: int, filters: int) -> Any:
    """Return for each column where its run of filters starts, where its run of outputs does, and how long both are.

    The windows that cover a column are neighbours, so their outputs ``[places, c]`` are one run of numbers. So are
    their filters, ``[w, stride, windows, c]``: those a stride apart lie side by side, the farthest first.
    """
    column = np.arange(num_features)
    windows = -(-size // stride)
    first = np.maximum(0, (column - size) // stride + 1)
    last = np.minimum(column // stride, (num_features - size) // stride)
    skipped = first - (column // stride - windows + 1)
    filter_run = (column % stride * windows + skipped) * filters
    return np.stack([filter_run, first * filters, np.maximum(0, last + 1 - first) * filters], 1)


@inlined
def _convolve_node(
    indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, merged: Any, spans: Any,
    steps: Any, node: Any, runs: Any, out: Any, index: Any,
) -> None:  # fmt: skip
    """Convolve the map of one node into ``out[index]``, ``[steps places c]``."""
    bandwidth = table.shape[1]
    width, pitch, run_pitch = bandwidth - steps + 1, out.shape[1] // steps, runs.shape[1]
    for i in range(out.shape[1]):
        out[index, i] = 0
    copies = _copies(table, node) if merged else 0
    for slot in range(bandwidth - copies):
        row = table[node, slot]
        key = key_of(seed, node * bandwidth + slot)
        filters = merged + slot if slot else copies
        start, count = indptr[row], indptr[row + 1] - indptr[row]
        for first in range(0, count, WORD):
            kept = kept_bits(key, first, count - first, below)
            for step in range(max(0, slot - width + 1), min(steps, slot + 1)):
                to, at = (index * steps + step) * pitch, (filters - step) * run_pitch
                add_runs(out, to, PLACE, runs, at, RUN, spans, indices, data, scale, start + first, kept)


@inlined
def _filter_gradient(
    indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, spans: Any, steps: Any,
    node: Any, grad: Any, index: Any, sums: Any, block: Any,
) -> None:  # fmt: skip
    """Add to ``sums[block]`` what one node, whose convolution has the gradient ``grad[index]``, gives the filters."""
    bandwidth = table.shape[1]
    width, pitch, run_pitch = bandwidth - steps + 1, grad.shape[1] // steps, sums.shape[2]
    for slot in range(bandwidth):
        row = table[node, slot]
        key = key_of(seed, node * bandwidth + slot)
        start, count = indptr[row], indptr[row + 1] - indptr[row]
        for first in range(0, count, WORD):
            kept = kept_bits(key, first, count - first, below)
            for step in range(max(0, slot - width + 1), min(steps, slot + 1)):
                to, at = (block * width + slot - step) * run_pitch, (index * steps + step) * pitch
                add_runs(sums, to, RUN, grad, at, PLACE, spans, indices, data, scale, start + first, kept)


@compiled
def convolve(
    turn: Any, indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, merged: Any,
    spans: Any, steps: Any, runs: Any, out: Any,
) -> None:  # fmt: skip
    """Convolve all maps: ``out [N, steps places c]``, filters ``runs [w, ...]``."""
    num_nodes = len(out)
    task = take(turn)
    while task < TASKS:
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            _convolve_node(
                indptr, indices, data, table, below, scale, seed, merged, spans, steps, node, runs, out, node,
            )  # fmt: skip
        task = take(turn)


@compiled
def convolve_backward(
    turn: Any, indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, spans: Any,
    steps: Any, grad: Any, sums: Any,
) -> None:  # fmt: skip
    """Write the filters' gradient to ``sums [blocks, w, ...]``, a sum over each block's nodes."""
    num_nodes, blocks = len(grad), len(sums)
    block = take(turn)
    while block < blocks:
        sums[block] = 0
        for node in range(num_nodes * block // blocks, num_nodes * (block + 1) // blocks):
            _filter_gradient(
                indptr, indices, data, table, below, scale, seed, spans, steps, node, grad, node, sums, block,
            )  # fmt: skip
        block = take(turn)


@inlined
def activate(h: Any, index: Any, activation: Any) -> None:
    """Apply the activation to ``h[index]``."""
    size = h.shape[1]
    if activation == TANH:
        tanh(h, index * size, size)
    elif activation == RELU:
        for i in range(size):
            h[index, i] = max(h[index, i], 0)


@inlined
def activation_gradient(grad: Any, h: Any, index: Any, activation: Any, scale: Any) -> None:
    """Multiply ``grad[index]`` by the activation's slope; ``h[index]`` is its outcome, scaled up where it was kept."""
    if activation == TANH:
        for i in range(h.shape[1]):
            value = h[index, i] / scale
            grad[index, i] *= 1 - value * value
    elif activation == RELU:
        for i in range(h.shape[1]):
            grad[index, i] = grad[index, i] if h[index, i] > 0 else 0


@inlined
def drop(h: Any, index: Any, key: Any, below: Any, scale: Any) -> None:
    """Drop cells of ``h[index]`` and scale the others up, where `below` is not 0."""
    size = h.shape[1]
    if below:
        whole = size // WORD * WORD
        for first in range(0, whole, WORD):
            keep(h, index * size + first, scale, kept_bits(key, first, WORD, below))
        bits = kept_bits(key, whole, size - whole, below)
        for i in range(whole, size):
            h[index, i] *= scale if bits >> uint32(i - whole) & uint32(1) else 0


@compiled
def project(
    turn: Any, indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, nodes: Any,
    merged: Any, spans: Any, steps: Any, runs: Any, activation: Any, hidden_below: Any, hidden_scale: Any, matrix: Any,
    out: Any,
) -> None:  # fmt: skip
    """``out[i] = dropout(activation(convolution of nodes[i])) @ matrix``, a tile at a time.

    The matrix's rows are ordered as the convolution's outputs.
    """
    num_nodes, (size, hidden) = len(nodes), matrix.shape
    tile = tile_of(size)
    h = np.empty((tile, size), data.dtype)
    task = take(turn)
    while task < TASKS:
        stop = num_nodes * (task + 1) // TASKS
        for first in range(num_nodes * task // TASKS, stop, tile):
            count = min(tile, stop - first)
            for index in range(count):
                _convolve_node(
                    indptr, indices, data, table, below, scale, seed, merged, spans, steps, nodes[first + index], runs,
                    h, index,
                )  # fmt: skip
                activate(h, index, activation)
                drop(h, index, key_of(seed, table.size + nodes[first + index]), hidden_below, hidden_scale)
            multiply(out, first * hidden, hidden, count, h, 0, size, 1, matrix, 0, hidden, size, hidden)
        task = take(turn)


@compiled
def project_backward(
    turn: Any, indptr: Any, indices: Any, data: Any, table: Any, below: Any, scale: Any, seed: Any, spans: Any,
    steps: Any, runs: Any, activation: Any, hidden_below: Any, hidden_scale: Any, across: Any, grad: Any,
    grad_matrix: Any, sums: Any,
) -> None:  # fmt: skip
    """Write the gradients of matrix and filters, ``[blocks, size, H]`` and ``[blocks, w, ...]``.

    ``across`` is the matrix, transposed; its gradient may be wider.
    """
    num_nodes, (hidden, size), (blocks, _, wide) = len(table), across.shape, grad_matrix.shape
    tile = tile_of(size)
    h, grad_h = np.empty((tile, size), data.dtype), np.empty((tile, size), data.dtype)
    nodes, grad_out = np.empty(tile, np.int64), np.zeros((tile, wide), data.dtype)
    block = take(turn)
    while block < blocks:
        sums[block] = 0
        grad_matrix[block] = 0
        count = 0
        stop = num_nodes * (block + 1) // blocks
        for node in range(num_nodes * block // blocks, stop):
            seen = False  # nodes that do not affect the loss have no gradient and cost nothing
            for i in range(hidden):
                grad_out[count, i] = grad[node, i]
                seen |= grad[node, i] != 0
            if seen:
                nodes[count] = node
                _convolve_node(
                    indptr, indices, data, table, below, scale, seed, 0, spans, steps, node, runs, h, count,
                )  # fmt: skip
                activate(h, count, activation)
                drop(h, count, key_of(seed, table.size + node), hidden_below, hidden_scale)
                count += 1
            if count < tile and (node < stop - 1 or count == 0):
                continue
            add_product(grad_matrix, block * size * wide, wide, size, h, 0, 1, size, grad_out, 0, wide, count, wide)
            multiply(grad_h, 0, size, count, grad_out, 0, wide, 1, across, 0, size, hidden, size)
            for index in range(count):
                drop(grad_h, index, key_of(seed, table.size + nodes[index]), hidden_below, hidden_scale)
                activation_gradient(grad_h, h, index, activation, hidden_scale)
                _filter_gradient(
                    indptr, indices, data, table, below, scale, seed, spans, steps, nodes[index], grad_h, index, sums,
                    block,
                )  # fmt: skip
            count = 0
        block = take(turn)


@compiled
def fold(turn: Any, windows: Any, stride: Any, out: Any) -> None:
    """Add ``windows [steps, w, k, places, H]`` up where they overlap: ``out [n, D, H]``, 0 where no window reaches."""
    steps, width, size, places, _ = windows.shape
    bandwidth, num_features, hidden = out.shape
    task = take(turn)
    while task < TASKS:
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
        task = take(turn)


@compiled
def unfold(turn: Any, grad: Any, stride: Any, windows: Any) -> None:
    """The gradient of `fold`: each window's part of ``grad [n, D, H]``."""
    steps, width, size, places, hidden = windows.shape
    num_rows = steps * width * size
    task = take(turn)
    while task < TASKS:
        for row in range(num_rows * task // TASKS, num_rows * (task + 1) // TASKS):
            step, slot, offset = row // (width * size), row // size % width, row % size
            for place in range(places):
                for h in range(hidden):
                    windows[step, slot, offset, place, h] = grad[step + slot, place * stride + offset, h]
        task = take(turn)
