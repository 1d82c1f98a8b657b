"""Skip-gram in Numba: a round of steps on several sequences, each the work of one thread; the sums have one order."""

from __future__ import annotations

from typing import Any

import numpy as np

from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels.cpu.compiler import compiled, take
from nfcgcn.kernels.cpu.pool import run
from nfcgcn.kernels.cpu.vectors import add_product, combine, dots, scatter, tanh
from nfcgcn.kernels.reference.skip_gram import EACH, SHARED, Pairs
from nfcgcn.kernels.reference.walks import Nodes

COLUMNS = 32
"""Columns that a task adds up."""
WORD = 32
"""Rows that a vector primitive takes at a time."""


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
def _subtract(rows: Any, at: Any, table: Any, node: Any) -> None:
    for c in range(table.shape[1]):
        rows[at, c] -= table[node, c]


@compiled
def _take_step(rows: Any, own: Any, places: Any, pulls: Any, change: Any, weights: Any, length: Any, reach: Any,
               share: Any, step: Any, i: Any) -> None:  # fmt: skip
    """Change the vector of position `i`, those of the contexts around it and those of its negative nodes."""
    longest, width = weights.shape[0], rows.shape[1]
    low, high = max(0, i - reach), min(length, i + reach + 1)
    near, count = high - low, high - low + EACH
    for e in range(near):
        places[e] = longest + own[low + e]
    for e in range(EACH):
        places[near + e] = longest + own[longest + (i * EACH + e) % SHARED]
    centre = own[i] * width
    dots(pulls, rows, width, places, count, centre, width)
    for e in range(count):
        pulls[e] *= 0.5
    tanh(pulls, 0, count)
    half, total = rows.dtype.type(0.5), rows.dtype.type(0)
    for e in range(near):
        weight = step * weights[i, low + e]
        total += weight
        pulls[e] = weight * (half - half * pulls[e])
    for e in range(near, count):
        pulls[e] = -share * total * (half + half * pulls[e])
    for c in range(width):
        change[c] = 0
    for first in range(0, count, WORD):
        bits = (1 << min(WORD, count - first)) - 1
        combine(change, 0, rows, 0, width, places, pulls, first, bits, width)
    for first in range(0, count, WORD):
        bits = (1 << min(WORD, count - first)) - 1
        scatter(rows, 0, width, places, pulls, first, bits, rows, centre, width)
    for c in range(width):
        rows[own[i], c] += change[c]


@compiled
def _steps(turn: Any, vectors: Any, contexts: Any, sequences: Any, lengths: Any, drawn: Any, weights: Any, reach: Any,
           share: Any, step: Any, owns: Any, work: Any) -> None:  # fmt: skip
    """``work[r]`` = by how much a sequence changes its rows: of its nodes, of these as contexts, of negative nodes."""
    longest, width = weights.shape[0], vectors.shape[1]
    places = np.empty(2 * reach + 1 + EACH, np.int64)
    pulls, change = np.empty(len(places), vectors.dtype), np.empty(width, vectors.dtype)
    task = take(turn)
    while task < len(sequences):
        nodes, others, rows, length, own = sequences[task], drawn[task], work[task], lengths[task], owns[task]
        _find_rows(nodes, length, others, own)
        for i in range(length):
            if own[i] == i:
                _copy(rows, i, vectors, nodes[i])
                _copy(rows, longest + i, contexts, nodes[i])
        for i in range(SHARED):
            if own[longest + i] == longest + i:
                _copy(rows, 2 * longest + i, contexts, others[i])
        for i in range(length):
            _take_step(rows, own, places, pulls, change, weights, length, reach, share, step, i)
        for i in range(length):
            if own[i] == i:
                _subtract(rows, i, vectors, nodes[i])
                _subtract(rows, longest + i, contexts, nodes[i])
        for i in range(SHARED):
            if own[longest + i] == longest + i:
                _subtract(rows, 2 * longest + i, contexts, others[i])
        task = take(turn)


@compiled
def _add(table: Any, node: Any, source: Any, at: Any, first: Any, length: Any) -> None:
    width, one = table.shape[1], np.ones(1, table.dtype)
    add_product(table, node * width + first, width, 1, one, 0, 1, 1, source, at * width + first, width, 1, length)


@compiled
def _add_up(turn: Any, vectors: Any, contexts: Any, sequences: Any, lengths: Any, drawn: Any, owns: Any,
            work: Any) -> None:  # fmt: skip
    """Add all changes in the order of the sequences; each task has some columns."""
    longest, width = sequences.shape[1], vectors.shape[1]
    task = take(turn)
    while task * COLUMNS < width:
        first = task * COLUMNS
        length = min(COLUMNS, width - first)
        for r in range(len(sequences)):
            rows, own = work[r], owns[r]
            for i in range(lengths[r]):
                if own[i] == i:
                    _add(vectors, sequences[r, i], rows, i, first, length)
                    _add(contexts, sequences[r, i], rows, longest + i, first, length)
            for i in range(SHARED):
                if own[longest + i] == longest + i:
                    _add(contexts, drawn[r, i], rows, 2 * longest + i, first, length)
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
    cost = 0.1 * count * longest * (2 * pairs.reach + EACH) * width
    run(_steps, cost, vectors, contexts, *each, pairs.weights, pairs.reach, share, np.float32(step), owns, work)
    run(_add_up, 0.3 * work.size, vectors, contexts, *each, owns, work)
