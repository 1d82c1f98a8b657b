"""Skip-gram in Numba: a round of steps on several sequences, each the work of one thread; the sums have one order."""

from __future__ import annotations

from typing import Any

import numpy as np

from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels.cpu.compiler import compiled, prefetch, take
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.cpu.row_blocks import add_to_rows, combine_rows, score_rows, transpose
from nfcgcn.kernels.cpu.vectors import tanh
from nfcgcn.kernels.reference.skip_gram import BLOCK, EACH, SHARED, Pairs
from nfcgcn.kernels.reference.walks import Nodes

LINE = 16
"""Numbers that come from memory together."""
STRIP = 8
"""Rows that are scored together as fast as one alone."""
PARTS = 8
"""Tasks that add up changes, each those of some of the nodes."""


@compiled
def _find_rows(nodes: Any, length: Any, others: Any, rows: Any) -> None:
    """``rows[i]`` = where the node of a place stands first; negative nodes have the places after all others."""
    longest = len(nodes)
    for i in range(longest + SHARED):
        rows[i] = i
        node = nodes[i] if i < longest else others[i - longest]
        for j in range(min(i, length)):
            if nodes[j] == node:
                rows[i] = j
                break
        if i >= longest and rows[i] == i:
            for j in range(i - longest):
                if others[j] == node:
                    rows[i] = longest + j
                    break


@compiled
def _copy(rows: Any, at: Any, table: Any, node: Any) -> None:
    for c in range(table.shape[1]):
        rows[at, c] = table[node, c]


@compiled
def _subtract(out: Any, rows: Any, at: Any, table: Any, node: Any) -> None:
    for c in range(table.shape[1]):
        out[at, c] = rows[at, c] - table[node, c]


@compiled
def _add(table: Any, node: Any, rows: Any, at: Any) -> None:
    for c in range(table.shape[1]):
        table[node, c] += rows[at, c]


@compiled
def _fetch(table: Any, node: Any) -> None:
    """Let a row come nearer while other work goes on."""
    width = table.shape[1]
    for c in range(0, width, LINE):
        prefetch(table, node * width + c)


@compiled
def _find_pairs(own: Any, slots: Any, places: Any, near: Any, both: Any, weights: Any, length: Any, reach: Any,
                share: Any, step: Any, first: Any) -> Any:  # fmt: skip
    """Return how many rows the block from `first` on meets: `places`, with the weights of its eight positions.

    ``near[r, b]`` is the weight of row r as a context of position b, and ``both[r, b]`` also has that as a negative
    node. ``slots`` says where a row stands in `places`; it is -1 for all before and after.
    """
    longest, count = weights.shape[0], 0
    last = min(first + BLOCK, length)
    total = np.zeros(BLOCK, near.dtype)
    for j in range(max(0, first - reach), min(length, last + reach)):
        place = longest + own[j]
        slot = slots[place]
        if slot < 0:
            slot = slots[place] = count
            places[slot] = place
            count += 1
            for b in range(BLOCK):
                near[slot, b] = 0
        for b in range(BLOCK):
            near[slot, b] += step * weights[j, first + b]
            total[b] += step * weights[j, first + b]
    for b in range(last - first, BLOCK):
        total[b] = 0
        for slot in range(count):
            near[slot, b] = 0
    for slot in range(count):
        for b in range(BLOCK):
            both[slot, b] = near[slot, b]
    for b in range(BLOCK):
        total[b] *= share
    for e in range(EACH):
        place = longest + own[longest + (first // BLOCK * EACH + e) % SHARED]
        slot = slots[place]
        if slot < 0:
            slot = slots[place] = count
            places[slot] = place
            count += 1
            for b in range(BLOCK):
                near[slot, b] = both[slot, b] = 0
        for b in range(BLOCK):
            both[slot, b] += total[b]
    for slot in range(count):
        slots[places[slot]] = -1
    return count


@compiled
def _take_step(rows: Any, own: Any, places: Any, near: Any, both: Any, pulls: Any, block: Any, turned: Any,
               change: Any, count: Any, first: Any, last: Any) -> None:  # fmt: skip
    """Change the vectors of the positions from `first` to `last`, those of their contexts and of the negative nodes."""
    width, half = rows.shape[1], rows.dtype.type(0.5)
    for b in range(last - first):
        _copy(block, b, rows, own[first + b])
    for b in range(last - first, BLOCK):
        for c in range(width):
            block[b, c] = 0
    transpose(turned, block, half, width)
    whole = -(-count // STRIP) * STRIP
    for slot in range(count, whole):
        places[slot] = places[0]
    score_rows(pulls, rows, width, places, whole, turned, width)
    tanh(pulls, 0, count * BLOCK)
    for slot in range(count):
        for b in range(BLOCK):
            pulls[slot, b] = near[slot, b] - both[slot, b] * (half + half * pulls[slot, b])
    combine_rows(change, rows, width, places, pulls, count, width)
    add_to_rows(rows, width, places, pulls, count, block, width)
    for b in range(last - first):
        _add(rows, own[first + b], change, b)


@compiled
def _steps(turn: Any, vectors: Any, contexts: Any, sequences: Any, lengths: Any, drawn: Any, weights: Any, reach: Any,
           share: Any, step: Any, owns: Any, work: Any) -> None:  # fmt: skip
    """``work[r]`` = by how much a sequence changes its rows: of its nodes, of these as contexts, of negative nodes."""
    longest, width = weights.shape[0], vectors.shape[1]
    places = np.empty(2 * reach + BLOCK + EACH + STRIP, np.int64)
    slots = np.full(2 * longest + SHARED, -1, np.int64)
    near, both, pulls = np.empty((3, len(places), BLOCK), vectors.dtype)
    block, change = np.empty((2, BLOCK, width), vectors.dtype)
    turned = np.empty((width, BLOCK), vectors.dtype)
    rows = np.empty((2 * longest + SHARED, width), vectors.dtype)  # in the thread's cache, as it is used again
    task = take(turn)
    while task < len(sequences):
        nodes, others, out, length, own = sequences[task], drawn[task], work[task], lengths[task], owns[task]
        for i in range(length):
            _fetch(vectors, nodes[i])
            _fetch(contexts, nodes[i])
        for i in range(SHARED):
            _fetch(contexts, others[i])
        _find_rows(nodes, length, others, own)
        for i in range(length):
            if own[i] == i:
                _copy(rows, i, vectors, nodes[i])
                _copy(rows, longest + i, contexts, nodes[i])
        for i in range(SHARED):
            if own[longest + i] == longest + i:
                _copy(rows, 2 * longest + i, contexts, others[i])
        for first in range(0, length, BLOCK):
            count = _find_pairs(own, slots, places, near, both, weights, length, reach, share, step, first)
            last = min(first + BLOCK, length)
            _take_step(rows, own, places, near, both, pulls, block, turned, change, count, first, last)
        for i in range(length):
            if own[i] == i:
                _subtract(out, rows, i, vectors, nodes[i])
                _subtract(out, rows, longest + i, contexts, nodes[i])
        for i in range(SHARED):
            if own[longest + i] == longest + i:
                _subtract(out, rows, 2 * longest + i, contexts, others[i])
        task = take(turn)


@compiled
def _add_up(turn: Any, vectors: Any, contexts: Any, sequences: Any, lengths: Any, drawn: Any, owns: Any,
            work: Any) -> None:  # fmt: skip
    """Add all changes in the order of the sequences; each task has some of the nodes."""
    longest = sequences.shape[1]
    task = take(turn)
    while task < PARTS:
        for r in range(len(sequences)):
            rows, own = work[r], owns[r]
            for i in range(lengths[r]):
                node = sequences[r, i]
                if own[i] == i and node % PARTS == task:
                    _add(vectors, node, rows, i)
                    _add(contexts, node, rows, longest + i)
            for i in range(SHARED):
                node = drawn[r, i]
                if own[longest + i] == longest + i and node % PARTS == task:
                    _add(contexts, node, rows, 2 * longest + i)
        task = take(turn)


def skip_gram_round(
    vectors: Floats, contexts: Floats, sequences: Nodes, lengths: Ints, drawn: Nodes, *, pairs: Pairs, step: float
) -> None:
    """See the reference."""
    (count, longest), width = sequences.shape, vectors.shape[1]
    work = np.empty((count, 2 * longest + SHARED, width), np.float32)
    owns = np.empty((count, longest + SHARED), np.int64)
    share = np.float32(pairs.negatives / EACH)
    each = (sequences, lengths, drawn)
    weights = np.zeros((longest, longest + BLOCK), np.float32)  # so that a block may reach past the end
    weights[:, :longest] = pairs.weights.T
    cost = 0.05 * count * longest * (2 * pairs.reach + BLOCK + EACH) * width
    run(_steps, cost, vectors, contexts, *each, weights, pairs.reach, share, np.float32(step), owns, work)
    run(_add_up, 0.3 * work.size, vectors, contexts, *each, owns, work)
