"""The contexts that Planetoid learns embeddings from: nodes near each other on walks, and nodes of the same class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nfcgcn.graph import Ints
from nfcgcn.kernels.reference.walks import Nodes
from nfcgcn.kernels.skip_gram import EVERY, Source, walk


class Contexts(NamedTuple):
    """Where contexts come from."""

    starts: Ints
    neighbours: Ints
    """Each node's neighbours, sorted, as CSR lists."""
    nodes: Ints
    labels: Ints
    """The labelled nodes and their classes."""

    def of_same_class(self, classes: Ints, rng: np.random.Generator) -> Ints:
        """Draw a labelled node of each of these classes."""
        order, counts = self._by_class()
        return np.asarray(order[(np.cumsum(counts) - counts)[classes] + _below(counts[classes], rng)])

    def of_other_class(self, classes: Ints, rng: np.random.Generator) -> Ints:
        """Draw a labelled node that is not of the class; any node, where all are of one class."""
        order, counts = self._by_class()
        others = len(order) - counts[classes]
        place = _below(np.maximum(others, 1), rng)
        first = (np.cumsum(counts) - counts)[classes]
        return np.asarray(order[np.where(others > 0, place + np.where(place >= first, counts[classes], 0), 0)])

    def _by_class(self) -> tuple[Ints, Ints]:
        order = self.nodes[np.argsort(self.labels, kind="stable")]
        return order, np.bincount(self.labels)


class LabelledWalks:
    """Sequences for skip-gram: walks from all nodes, and among them sequences of labelled nodes of one class."""

    def __init__(self, known: Contexts, length: int, passes: int, label_share: float) -> None:
        self.known, self.length, self.starts = known, length, known.starts
        every = (EVERY, EVERY, EVERY)
        self.walks = Source(known.starts, known.neighbours, length, passes, every)
        many = len(self.walks) / (1 - label_share) if label_share < 1 else 0.0
        self.labelled = round(many * label_share) if label_share < 1 else len(self.walks)
        self.walking = label_share < 1

    def __len__(self) -> int:
        """Return how many sequences there are in all."""
        return self.labelled + self.walking * len(self.walks)

    def sequences(self, seed: int) -> Iterator[tuple[Nodes, Ints]]:
        """Yield sequences, ``[W, length]``, and how many nodes of each count."""
        done, given = 0, 0
        for number, (some, _) in enumerate(self.walks.sequences(seed)):
            rng = np.random.default_rng([seed, 1, number])
            done += len(some)
            due = self.labelled * done // len(self.walks) - given
            given += due
            classes = self.known.labels[rng.integers(max(1, len(self.known.labels)), size=due)]
            rows = self.known.of_same_class(np.repeat(classes, self.length), rng).reshape(due, self.length)
            both = np.concatenate([some[: len(some) * self.walking], rows])
            yield rng.permutation(both).astype(np.int32), np.full(len(both), self.length)


def draw_triplets(
    known: Contexts, count: int, *, length: int, window: int, label_share: float, rng: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """Draw nodes, a context of each and a node in its place, ``[count]`` each (the paper's algorithm 1).

    A share of the contexts are nodes of the same class, in whose place stand nodes of other classes; the others are
    near on a walk from any node that has neighbours, in whose place stand any nodes.
    """
    degrees = np.diff(known.starts)
    begin = np.flatnonzero(degrees)
    by_label = round(label_share * count) if len(known.nodes) else 0
    by_label = by_label if len(begin) else count
    parts = []
    if by_label:
        at = rng.integers(len(known.nodes), size=by_label)
        classes = known.labels[at]
        parts.append((known.nodes[at], known.of_same_class(classes, rng), known.of_other_class(classes, rng)))
    if rest := count - by_label:
        first = begin[rng.integers(len(begin), size=rest)].astype(np.int32)
        limits = (EVERY, EVERY, EVERY)
        seed = int(rng.integers(2**62))
        walks = walk(known.starts, known.neighbours, first, length=length, seed=seed, number=0, limits=limits)
        one = rng.integers(length, size=rest)
        low, high = np.maximum(one - window, 0), np.minimum(one + window, length - 1)
        other = low + _below(np.maximum(high - low, 1), rng)
        other += (other >= one) & (high > low)  # never the place itself, unless the walk has no other
        rows = np.arange(rest)
        near = walks[rows, one].astype(np.int64), walks[rows, other].astype(np.int64)
        parts.append((*near, rng.integers(len(degrees), size=rest)))
    centre, context, negative = (np.concatenate(each) for each in zip(*parts, strict=True))
    return centre, context, negative


def _below(limits: Ints, rng: np.random.Generator) -> Ints:
    """Draw a whole number from 0 to below each limit."""
    return np.asarray(rng.integers(0, limits, size=len(limits)), np.int64)
