"""Vectors of nodes learned from sequences of nodes, by Numba or by plain NumPy."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch

from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels.choice import numba_refusal
from nfcgcn.kernels.reference import walks as reference_walks
from nfcgcn.kernels.reference.skip_gram import SHARED, Pairs
from nfcgcn.kernels.reference.walks import Nodes
from nfcgcn.randomness import hashed

MOST_TOGETHER, NODES_EACH = 16, 256
"""Sequences of a round: one per so many nodes, and so many at most; more would often change the same vectors."""
CHUNK = 2**15
"""Sequences that are made at a time."""
EVERY = 2**32
"""Below this limit is every 32-bit number."""
TELL = 10.0
"""Seconds between two lines about the progress."""
log = logging.getLogger("nfcgcn")


class Sequences(Protocol):
    """Sequences of the nodes of a graph."""

    @property
    def starts(self) -> Ints:
        """Where each node's neighbours start, as in CSR lists."""

    def sequences(self, seed: int) -> Iterator[tuple[Nodes, Ints]]:
        """Yield sequences, ``[W, length]``, and how many nodes of each count."""

    def __len__(self) -> int: ...


class Source(NamedTuple):
    """Where sequences come from: walks from all nodes, or pairs of neighbours, in a new order in every pass."""

    starts: Ints
    neighbours: Ints
    """Each node's neighbours, sorted, as CSR lists."""
    length: int
    """Nodes of a sequence."""
    passes: int
    """Walks per node, or times that each edge is seen in each direction."""
    limits: tuple[int, int, int] | None
    """As walks have them; None for pairs of neighbours."""

    def sequences(self, seed: int) -> Iterator[tuple[Nodes, Ints]]:
        """Yield sequences, ``[W, length]``, and how many nodes of each count."""
        degrees = np.diff(self.starts)
        nodes = np.flatnonzero(degrees).astype(np.int32)
        owners = np.repeat(np.arange(len(degrees), dtype=np.int32), degrees)
        for number in range(self.passes):
            shuffled = np.random.default_rng([seed, number])
            if self.limits is None:
                yield from self._edges(owners, shuffled)
                continue
            order = shuffled.permutation(nodes)
            for first in range(0, len(order), CHUNK):
                some = order[first : first + CHUNK]
                yield self._walks(some, seed, number * len(nodes) + first), np.full(len(some), self.length)

    def __len__(self) -> int:
        """Return how many sequences there are in all."""
        if self.limits is None:
            return self.passes * -(-len(self.neighbours) // (self.length // 2))
        return self.passes * int(np.count_nonzero(np.diff(self.starts)))

    def _walks(self, first: Nodes, seed: int, number: int) -> Nodes:
        if self.limits is None:
            raise ValueError("edges are no walks")
        return walk(
            self.starts, self.neighbours, first, length=self.length, seed=seed, number=number, limits=self.limits
        )

    def _edges(self, owners: Nodes, shuffled: np.random.Generator) -> Iterator[tuple[Nodes, Ints]]:
        each = self.length // 2
        order = shuffled.permutation(len(owners))
        for first in range(0, len(order), CHUNK * each):
            some = order[first : first + CHUNK * each]
            flat = np.stack([owners[some], self.neighbours[some].astype(np.int32)], axis=1).reshape(-1)
            rows = -(-len(some) // each)
            lengths = np.full(rows, self.length)
            lengths[-1] = len(flat) - (rows - 1) * self.length
            yield np.pad(flat, (0, rows * self.length - len(flat))).reshape(rows, self.length), lengths


def walk(
    starts: Ints, neighbours: Ints, first: Nodes, *, length: int, seed: int, number: int, limits: tuple[int, int, int]
) -> Nodes:
    """Return one walk of `length` nodes from each of `first`; see :func:`nfcgcn.kernels.reference.walks.walk`."""
    if numba_refusal():
        make = reference_walks.walk
    else:
        from nfcgcn.kernels.cpu.walks import walk as make
    return make(starts, neighbours, first, length=length, seed=seed, number=number, limits=limits)


def window_pairs(length: int, window: int, *, segment: int, negatives: float) -> Pairs:
    """Pair positions at most `window` apart, the nearer the more, inside segments of a sequence.

    A pair at a distance of d counts ``1 - (d - 1) / window``: how often word2vec, which draws a window for every
    position, would take it.
    """
    places = np.arange(length)
    distance = np.abs(places[:, None] - places)
    together = (distance > 0) & (places[:, None] // segment == places // segment)
    weights = np.where(together, np.maximum(0, 1 - (distance - 1) / window), 0)
    return Pairs(weights.astype(np.float32), min(window, segment - 1), negatives)


def learn_vectors(
    source: Sequences, pairs: Pairs, *, width: int, step: float, seed: int, tied: bool = False, say: str = ""
) -> Floats:
    """Return one vector per node, ``[N, width]``, learned by skip-gram with negative sampling.

    Negative nodes are drawn in proportion to degree to the power of 3/4. The step falls from `step` to nearly 0. With
    `tied`, a node has the same vector as a context. Vectors of nodes without neighbours are 0.
    """
    if numba_refusal():
        from nfcgcn.kernels.reference.skip_gram import skip_gram_round as make_round
    else:
        from nfcgcn.kernels.cpu.skip_gram import skip_gram_round as make_round
    degrees = np.diff(source.starts)
    num_nodes = len(degrees)
    vectors = _first_vectors(num_nodes, width, seed)
    contexts = vectors if tied else np.zeros_like(vectors)
    vectors[degrees == 0] = 0
    table = negative_table(degrees)
    together, total, done, last_message = _together(num_nodes), len(source), 0, time.monotonic()
    for sequences, lengths in source.sequences(seed):
        drawn = draw_negatives(table, seed, np.arange(done, done + len(sequences)))
        for first in range(0, len(sequences), together):
            part = slice(first, first + together)
            rate = step * max(1e-4, 1 - (done + first) / total)
            make_round(vectors, contexts, sequences[part], lengths[part], drawn[part], pairs=pairs, step=rate)
            if time.monotonic() - last_message > TELL:
                last_message = time.monotonic()
                log.info("%s: %.0f %% of the vectors' training done", say, 100 * (done + first) / total)
        done += len(sequences)
    return vectors


def _together(num_nodes: int) -> int:
    return max(1, min(MOST_TOGETHER, num_nodes // NODES_EACH))


def _first_vectors(num_nodes: int, width: int, seed: int) -> Floats:
    numbers = hashed(seed, torch.arange(num_nodes)[:, None], torch.arange(width)).numpy()
    return np.ascontiguousarray((numbers * 2.0**-32 - 0.5) / width, np.float32)


def negative_table(degrees: Ints) -> Nodes:
    """Return a table, a power of two long, in which a node stands in proportion to its degree to the power of 3/4."""
    shares = np.cumsum(degrees**0.75)
    if not len(shares) or not shares[-1]:
        return np.zeros(0, np.int32)
    size = 1 << max(16, min(24, len(degrees).bit_length() + 5))
    return np.searchsorted(shares / shares[-1], (np.arange(size) + 0.5) / size).astype(np.int32)


def draw_negatives(table: Nodes, seed: int, numbers: Ints) -> Nodes:
    """Draw the negative nodes of the sequences with these numbers, ``[W, SHARED]``."""
    shift = 33 - len(table).bit_length()
    drawn = hashed(seed + 1, torch.from_numpy(numbers)[:, None], torch.arange(SHARED)).numpy()
    return np.asarray(table[drawn >> shift], np.int32)
