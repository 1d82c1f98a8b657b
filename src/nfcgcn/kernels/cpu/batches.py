"""What a mini-batch needs of a graph, in Numba: drawn neighbours, new numbers for nodes, rows of features.

Lists and rows are read where they lie, also in a file that is mapped into memory; only those of the given nodes are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, float64, int64, uint64

from nfcgcn.kernels.cpu.compiler import compiled, inlined, prefetch, take
from nfcgcn.kernels.cpu.masks import TASKS, key_of, number
from nfcgcn.kernels.cpu.pool import run

FAR, NEAR = 32, 16
"""How many rows ahead the start of a row is fetched, and the row itself: rows of a large graph lie far apart."""
LINE, LONG = 16, 64
"""Numbers per cache line, and how many of a row are fetched ahead: in longer rows the core sees the pattern itself."""


@inlined
def _place(key: Any, step: Any, degree: Any, draws: Any) -> Any:
    """Return the place in a list of the neighbour that a step of the shuffle draws; see the formula of `draw_rows`."""
    position = step + int64(uint64(number(key, step)) * uint64(degree - step) >> uint64(32))
    draws[step] = position
    for earlier in range(step - 1, -1, -1):
        if position == draws[earlier]:
            position = earlier
    return position


@inlined
def _fetch(starts: Any, neighbours: Any, nodes: Any, row: Any, stop: Any) -> None:
    """Fetch lists of neighbours that will be read soon."""
    if row + FAR < stop:
        prefetch(starts, nodes[row + FAR])
    if row + NEAR < stop:
        coming = nodes[row + NEAR]
        for place in range(starts[coming], min(starts[coming + 1], starts[coming] + LONG), LINE):
            prefetch(neighbours, place)


@compiled
def _draw(turn: Any, starts: Any, neighbours: Any, nodes: Any, seed: Any, table: Any) -> None:
    count, size = len(nodes), table.shape[1] - 1
    draws = np.empty(size, np.int64)
    task = take(turn)
    while task < TASKS:
        stop = count * (task + 1) // TASKS
        for row in range(count * task // TASKS, stop):
            _fetch(starts, neighbours, nodes, row, stop)
            node = nodes[row]
            first, degree = int64(starts[node]), int64(starts[node + 1]) - int64(starts[node])
            key = key_of(seed, node)
            table[row, 0] = node
            for step in range(size):
                table[row, step + 1] = neighbours[first + _place(key, step, degree, draws)] if step < degree else node
        task = take(turn)


@inlined
def _strength(starts: Any, weights: Any, weighted: Any, node: Any) -> Any:
    """Return the sum of the weights of a node's edges."""
    if not weighted:
        return float64(int64(starts[node + 1]) - int64(starts[node]))
    total = 0.0
    for place in range(starts[node], starts[node + 1]):
        total += float64(weights[place])
    return total


@compiled
def _fill(
    turn: Any, starts: Any, neighbours: Any, weights: Any, weighted: Any, nodes: Any, size: Any, longest: Any,
    seed: Any, self_weight: Any, rows: Any, columns: Any, values: Any,
) -> None:  # fmt: skip
    count = len(nodes)
    draws = np.empty(longest, np.int64)
    task = take(turn)
    while task < TASKS:
        stop = count * (task + 1) // TASKS
        for row in range(count * task // TASKS, stop):
            _fetch(starts, neighbours, nodes, row, stop)
            node = nodes[row]
            first, degree = int64(starts[node]), int64(starts[node + 1]) - int64(starts[node])
            at, drawn = rows[row], min(degree, size)
            own = 1 / np.sqrt(_strength(starts, weights, weighted, node) + self_weight)
            columns[at], values[at] = node, float32(self_weight * own * own)
            factor = own * degree / max(drawn, 1)
            key = key_of(seed, node)
            for step in range(drawn):
                place = first + (step if drawn == degree else _place(key, step, degree, draws))
                other = neighbours[place]
                weight = float64(weights[place]) if weighted else 1.0
                total = _strength(starts, weights, weighted, other) + self_weight
                columns[at + 1 + step], values[at + 1 + step] = other, float32(factor * weight / np.sqrt(total))
        task = take(turn)


@inlined
def _slot(node: Any, mask: Any) -> Any:
    return int64(uint64(node) * uint64(0x9E3779B97F4A7C15) >> uint64(20)) & mask


@compiled
def _renumber(first: Any, others: Any, keys: Any, slots: Any, nodes: Any, places: Any) -> Any:
    mask, count = len(keys) - 1, 0
    for i in range(len(first) + len(others)):
        node = first[i] if i < len(first) else others[i - len(first)]
        if NEAR <= i + NEAR - len(first) < len(others):
            coming = _slot(others[i + NEAR - len(first)], mask)
            prefetch(keys, coming)
            prefetch(slots, coming)
        slot = _slot(node, mask)
        while keys[slot] != -1 and keys[slot] != node:
            slot = (slot + 1) & mask
        if keys[slot] == -1:
            keys[slot], slots[slot], nodes[count] = node, count, node
            count += 1
        if i >= len(first):
            places[i - len(first)] = slots[slot]
    return count


@compiled
def _measure(starts: Any, rows: Any, old: Any, new: Any) -> None:
    """Write where each row begins, and where it will when these rows stand one after the other."""
    count = len(rows)
    for row in range(count):
        if row + FAR < count:
            prefetch(starts, rows[row + FAR])
        old[row] = starts[rows[row]]
        new[row + 1] = new[row] + starts[rows[row] + 1] - starts[rows[row]]


@compiled
def _take(turn: Any, old: Any, indices: Any, data: Any, new: Any, columns: Any, values: Any) -> None:
    count = len(old)
    task = take(turn)
    while task < TASKS:
        stop = count * (task + 1) // TASKS
        for row in range(count * task // TASKS, stop):
            if row + NEAR < stop:
                coming, length = old[row + NEAR], new[row + NEAR + 1] - new[row + NEAR]
                for step in range(0, min(length, LONG), LINE):
                    prefetch(indices, coming + step)
                    prefetch(data, coming + step)
            first, at = old[row], new[row]
            for step in range(new[row + 1] - at):
                columns[at + step], values[at + step] = indices[first + step], data[first + step]
        task = take(turn)


def draw_table(starts: Any, neighbours: Any, nodes: Any, *, size: int, seed: int) -> Any:
    """See the reference."""
    table = np.empty((len(nodes), size + 1), np.int64)
    run(_draw, 10 * table.size, starts, neighbours, nodes, np.uint64(seed), table)
    return table


def draw_hop(
    starts: Any, neighbours: Any, weights: Any, nodes: Any, *, size: int, seed: int, self_weight: float
) -> tuple[Any, Any, Any]:
    """See the reference."""
    degrees = starts[nodes + 1].astype(np.int64) - starts[nodes]
    rows = np.concatenate([[0], (np.minimum(degrees, size) + 1).cumsum()])
    columns, values = np.empty(rows[-1], np.int64), np.empty(rows[-1], np.float32)
    longest = int(min(size, degrees.max())) if (degrees > size).any() else 0
    weighted = weights is not None
    run(
        _fill, 20 * len(columns), starts, neighbours, weights if weighted else np.ones(1, np.float32), weighted, nodes,
        size, longest, np.uint64(seed), float(self_weight), rows, columns, values,
    )  # fmt: skip
    return rows, columns, values


def renumber(first: Any, others: Any) -> tuple[Any, Any]:
    """See the reference."""
    most = len(first) + len(others)
    room = 1 << max(4, int(1.5 * most).bit_length())
    nodes, places = np.empty(most, np.int64), np.empty(len(others), np.int64)
    count = _renumber(first, others, np.full(room, -1, np.int64), np.empty(room, np.int32), nodes, places)
    return nodes[:count].copy(), places


def take_rows(starts: Any, indices: Any, data: Any, rows: Any, empty: Any) -> tuple[Any, Any, Any]:
    """See the reference."""
    old, new = np.empty(len(rows), np.int64), np.zeros(len(rows) + 1, np.int64)
    _measure(starts, rows, old, new)
    columns, values = (empty(int(new[-1]), kind) for kind in (np.int64, np.float32))
    run(_take, 4 * len(columns), old, indices, data, new, columns, values)
    return new, columns, values
