"""The inner loops for dense features: maps are built for one tile of nodes at a time and multiplied there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint32

from nfcgcn.kernels.cpu.compiler import compiled, inlined, take
from nfcgcn.kernels.cpu.conv_loops import TASKS, activate, activation_gradient, drop, tile_of
from nfcgcn.kernels.cpu.masks import kept_bits, key_of
from nfcgcn.kernels.cpu.vectors import add_product, multiply
from nfcgcn.kernels.reference.masks import WORD


@inlined
def _read_slot(
    x: Any, table: Any, below: Any, scale: Any, seed: Any, node: Any, slot: Any, out: Any, index: Any
) -> None:
    """``out[index] = dropout(x[table[node, slot]])``, every cell drawn independently, zeros included."""
    num_features = x.shape[1]
    row, key = table[node, slot], key_of(seed, node * table.shape[1] + slot)
    if below == uint32(0):
        for column in range(num_features):
            out[index, column] = x[row, column]
    else:
        for first in range(0, num_features, WORD):
            bits = kept_bits(key, first, num_features - first, below)
            for column in range(first, min(first + WORD, num_features)):
                kept = bits >> uint32(column - first) & uint32(1)
                out[index, column] = x[row, column] * scale if kept else 0


@compiled
def gather(turn: Any, x: Any, table: Any, below: Any, scale: Any, seed: Any, nodes: Any, slots: Any, out: Any) -> None:
    """``out[i] = sum_j dropout(x[table[i, j]]) @ slots[j]`` for each i in `nodes`; slots may be wider than ``out``."""
    num_nodes, (bandwidth, num_features, wide) = len(nodes), slots.shape
    tile = tile_of(num_features)
    rows, sums = np.empty((tile, num_features), x.dtype), np.empty((tile, wide), x.dtype)
    task = take(turn)
    while task < TASKS:
        stop = num_nodes * (task + 1) // TASKS
        for first in range(num_nodes * task // TASKS, stop, tile):
            count = min(tile, stop - first)
            sums[:count] = 0
            for slot in range(bandwidth):
                for index in range(count):
                    _read_slot(x, table, below, scale, seed, nodes[first + index], slot, rows, index)
                at = slot * num_features * wide
                add_product(sums, 0, wide, count, rows, 0, num_features, 1, slots, at, wide, num_features, wide)
            for index in range(count):
                for column in range(out.shape[1]):
                    out[nodes[first + index], column] = sums[index, column]
        task = take(turn)


@compiled
def gather_backward(turn: Any, x: Any, table: Any, below: Any, scale: Any, seed: Any, grad: Any, out: Any) -> None:
    """``out[block, j] = sum_i dropout(x[table[i, j]]).T @ grad[i]`` over the block's nodes."""
    num_nodes, (blocks, bandwidth, num_features, wide) = len(table), out.shape
    tile = tile_of(num_features)
    rows, pull = np.empty((tile, num_features), x.dtype), np.empty((tile, wide), x.dtype)
    task = take(turn)
    while task < blocks * bandwidth:
        block, slot = task // bandwidth, task % bandwidth
        out[block, slot] = 0
        at = task * num_features * wide
        count = 0
        stop = num_nodes * (block + 1) // blocks
        for node in range(num_nodes * block // blocks, stop):
            seen = False  # nodes that do not affect the loss have no gradient and cost nothing
            for column in range(wide):
                pull[count, column] = grad[node, column]
                seen |= grad[node, column] != 0
            if seen:
                _read_slot(x, table, below, scale, seed, node, slot, rows, count)
                count += 1
            if count == tile or node == stop - 1:
                add_product(out, at, wide, num_features, rows, 0, 1, num_features, pull, 0, wide, count, wide)
                count = 0
        task = take(turn)


@inlined
def _convolve_node(
    x: Any, table: Any, below: Any, scale: Any, seed: Any, stride: Any, weight: Any, node: Any, maps: Any, h: Any,
    index: Any,
) -> None:  # fmt: skip
    """Lay out the map of one node in ``maps [n, D]`` and convolve it into ``h[index]``, ``[steps, places, c]``."""
    (bandwidth, num_features), (width, size, filters) = maps.shape, weight.shape
    steps, places = bandwidth - width + 1, (num_features - size) // stride + 1
    for slot in range(bandwidth):
        _read_slot(x, table, below, scale, seed, node, slot, maps, slot)
    for i in range(h.shape[1]):
        h[index, i] = 0
    for step in range(steps):
        to = index * h.shape[1] + step * places * filters
        for slot in range(width):
            at = (step + slot) * num_features
            add_product(
                h, to, filters, places, maps, at, stride, 1, weight, slot * size * filters, filters, size, filters
            )


@inlined
def _filter_gradient(maps: Any, at: Any, stride: Any, grad: Any, index: Any, sums: Any, block: Any) -> None:
    """Add to ``sums[block]`` what one node, whose map starts at ``maps[at]``, gives the filters."""
    (bandwidth, num_features), (_, width, size, filters) = maps.shape[1:], sums.shape
    steps, places = bandwidth - width + 1, (num_features - size) // stride + 1
    for step in range(steps):
        pull = index * grad.shape[1] + step * places * filters
        for slot in range(width):
            to, here = (block * width + slot) * size * filters, at + (step + slot) * num_features
            add_product(sums, to, filters, size, maps, here, 1, stride, grad, pull, filters, places, filters)


@compiled
def convolve(
    turn: Any, x: Any, table: Any, below: Any, scale: Any, seed: Any, stride: Any, weight: Any, out: Any
) -> None:
    """Convolve all maps: ``out [N, steps places c]``, filters ``weight [w, k, c]``."""
    num_nodes, bandwidth = table.shape
    maps = np.empty((bandwidth, x.shape[1]), x.dtype)
    task = take(turn)
    while task < TASKS:
        for node in range(num_nodes * task // TASKS, num_nodes * (task + 1) // TASKS):
            _convolve_node(x, table, below, scale, seed, stride, weight, node, maps, out, node)
        task = take(turn)


@compiled
def convolve_backward(
    turn: Any, x: Any, table: Any, below: Any, scale: Any, seed: Any, stride: Any, grad: Any, sums: Any
) -> None:
    """Write the filters' gradient to ``sums [blocks, w, k, c]``, a sum over each block's nodes."""
    (num_nodes, bandwidth), blocks = table.shape, len(sums)
    maps = np.empty((1, bandwidth, x.shape[1]), x.dtype)
    block = take(turn)
    while block < blocks:
        sums[block] = 0
        for node in range(num_nodes * block // blocks, num_nodes * (block + 1) // blocks):
            for slot in range(bandwidth):
                _read_slot(x, table, below, scale, seed, node, slot, maps[0], slot)
            _filter_gradient(maps, 0, stride, grad, node, sums, block)
        block = take(turn)


@compiled
def project(
    turn: Any, x: Any, table: Any, below: Any, scale: Any, seed: Any, nodes: Any, stride: Any, weight: Any,
    activation: Any, hidden_below: Any, hidden_scale: Any, matrix: Any, out: Any,
) -> None:  # fmt: skip
    """``out[i] = dropout(activation(convolution of nodes[i])) @ matrix``, a tile at a time.

    The matrix's rows are ordered as the convolution's outputs.
    """
    num_nodes, (size, hidden) = len(nodes), matrix.shape
    tile = tile_of(size)
    maps, h = np.empty((table.shape[1], x.shape[1]), x.dtype), np.empty((tile, size), x.dtype)
    task = take(turn)
    while task < TASKS:
        stop = num_nodes * (task + 1) // TASKS
        for first in range(num_nodes * task // TASKS, stop, tile):
            count = min(tile, stop - first)
            for index in range(count):
                node = nodes[first + index]
                _convolve_node(x, table, below, scale, seed, stride, weight, node, maps, h, index)
                activate(h, index, activation)
                drop(h, index, key_of(seed, table.size + node), hidden_below, hidden_scale)
            multiply(out, first * hidden, hidden, count, h, 0, size, 1, matrix, 0, hidden, size, hidden)
        task = take(turn)


@compiled
def project_backward(
    turn: Any, x: Any, table: Any, below: Any, scale: Any, seed: Any, stride: Any, weight: Any, activation: Any,
    hidden_below: Any, hidden_scale: Any, across: Any, grad: Any, grad_matrix: Any, sums: Any,
) -> None:  # fmt: skip
    """Write the gradients of matrix and filters, ``[blocks, size, H]`` and ``[blocks, w, k, c]``.

    ``across`` is the matrix, transposed; its gradient may be wider.
    """
    (num_nodes, bandwidth), (hidden, size), (blocks, _, wide) = table.shape, across.shape, grad_matrix.shape
    num_features = x.shape[1]
    tile = tile_of(max(size, bandwidth * num_features))
    h, grad_h = np.empty((tile, size), x.dtype), np.empty((tile, size), x.dtype)
    maps, nodes = np.empty((tile, bandwidth, num_features), x.dtype), np.empty(tile, np.int64)
    grad_out = np.zeros((tile, wide), x.dtype)
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
                _convolve_node(x, table, below, scale, seed, stride, weight, node, maps[count], h, count)
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
                _filter_gradient(maps, index * bandwidth * num_features, stride, grad_h, index, sums, block)
            count = 0
        block = take(turn)
