"""Pairs of nodes without an edge, drawn at random or so that they are hard to tell from edges."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.errors import GraphError
from nfcgcn.graph import Ints
from nfcgcn.links.splits import pair_keys

Negatives = Literal["uniform", "same-degree", "two-hops"]
ROUNDS = 100
"""How often pairs that turned out to be edges are drawn again, before uniform ones take their place."""
DENSE = 0.5
"""Above this share of all pairs that are edges, the pairs without an edge are listed and drawn from the list."""


class NegativeSampler:
    """Draws pairs that are none of the `known` edges ``[2, E]``.

    ``uniform`` draws both ends from all nodes. The other ways keep one end of each edge in `like`, in turn the first
    and the second, and draw the other end: ``same-degree`` from the nodes with as many known edges as the end that it
    replaces, ``two-hops`` from the neighbours' neighbours of the end that stays. Where no such node can be found, the
    pair is a uniform one.

    >>> sampler = NegativeSampler(np.array([[0, 1, 2], [1, 2, 3]]), 4)
    >>> sampler.draw(np.array([[0, 1, 2], [1, 2, 3]]), "two-hops", np.random.default_rng(0)).shape
    (2, 3)
    """

    def __init__(self, known: Ints, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.keys = np.unique(pair_keys(known, num_nodes))
        self.num_free = num_nodes * (num_nodes - 1) // 2 - len(self.keys)
        """How many pairs have no known edge."""
        if self.num_free < 1:
            raise GraphError("every two nodes have an edge: there is no pair without one to learn from")
        ends = np.concatenate([known, known[::-1]], axis=1)
        ones = np.ones(ends.shape[1], np.int8)
        lists = sp.csr_array((ones, (ends[0], ends[1])), shape=(num_nodes, num_nodes))
        lists.sum_duplicates()
        self.starts, self.neighbours = lists.indptr.astype(np.int64), lists.indices.astype(np.int64)
        self.degrees = np.diff(self.starts)
        self.by_degree = np.argsort(self.degrees, kind="stable")
        self.sorted_degrees = self.degrees[self.by_degree]

    def draw(self, like: Ints, way: Negatives, rng: np.random.Generator) -> Ints:
        """Return as many pairs without an edge as there are edges in `like`, ``[2, M]``; a pair may come twice."""
        count = like.shape[1]
        if way == "uniform":
            return self._uniform(count, rng)
        turn = np.arange(count) % 2
        stays, leaves = like[turn, np.arange(count)], like[1 - turn, np.arange(count)]
        pairs = np.stack([stays, stays])
        open_places = np.arange(count)
        for _ in range(ROUNDS):
            other = self._other_end(stays[open_places], leaves[open_places], way, rng)
            pairs[1, open_places] = other
            open_places = open_places[~self._free(pairs[:, open_places])]
            if not len(open_places):
                return pairs
        pairs[:, open_places] = self._uniform(len(open_places), rng)
        return pairs

    def draw_distinct(self, like: Ints, way: Negatives, rng: np.random.Generator) -> Ints:
        """Return as many different pairs without an edge as there are edges in `like`, ``[2, M]``, in random order."""
        count = like.shape[1]
        if count > self.num_free:
            raise GraphError(
                f"only {self.num_free:,} pairs of nodes have no edge, but {count:,} are needed to compare edges with; "
                "hold fewer edges out"
            )
        if self._is_dense or 2 * count > self.num_free:
            return self._listed()[:, rng.permutation(self.num_free)[:count]]
        drawn = np.zeros((2, 0), np.int64)
        for number in range(2 * ROUNDS):
            missing = count - drawn.shape[1]
            if not missing:
                break
            more = self.draw(like[:, rng.integers(count, size=missing)], way if number < ROUNDS else "uniform", rng)
            drawn = np.concatenate([drawn, more], axis=1)
            _, first = np.unique(pair_keys(drawn, self.num_nodes), return_index=True)
            drawn = drawn[:, np.sort(first)]
        return drawn

    @property
    def _is_dense(self) -> bool:
        return len(self.keys) > DENSE * (len(self.keys) + self.num_free)

    def _listed(self) -> Ints:
        """List all pairs without an edge; of a dense graph they are fewer than its edges."""
        upper = np.stack(np.triu_indices(self.num_nodes, 1)).astype(np.int64)
        return upper[:, self._free(upper)]

    def _uniform(self, count: int, rng: np.random.Generator) -> Ints:
        if self._is_dense:
            listed = self._listed()
            return listed[:, rng.integers(listed.shape[1], size=count)]
        pairs = rng.integers(self.num_nodes, size=(2, count))
        while len(taken := np.flatnonzero(~self._free(pairs))):
            pairs[:, taken] = rng.integers(self.num_nodes, size=(2, len(taken)))
        return pairs

    def _other_end(self, stays: Ints, leaves: Ints, way: Negatives, rng: np.random.Generator) -> Ints:
        if way == "same-degree":
            first, last = (
                np.searchsorted(self.sorted_degrees, self.degrees[leaves], side) for side in ("left", "right")
            )
            drawn: Ints = self.by_degree[first + (rng.random(len(leaves)) * (last - first)).astype(np.int64)]
            return drawn
        return self._step(self._step(stays, rng), rng)

    def _step(self, nodes: Ints, rng: np.random.Generator) -> Ints:
        """Return a random neighbour of each node; a node without one stays where it is."""
        places = (rng.random(len(nodes)) * self.degrees[nodes]).astype(np.int64)
        alone = self.degrees[nodes] == 0
        chosen = self.neighbours[np.where(alone, 0, self.starts[nodes] + places)] if len(self.neighbours) else nodes
        return np.where(alone, nodes, chosen)

    def _free(self, pairs: Ints) -> npt.NDArray[np.bool_]:
        """Say of each pair whether it joins two nodes without a known edge."""
        keys = pair_keys(pairs, self.num_nodes)
        places = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        known = self.keys[places] == keys if len(self.keys) else np.zeros(len(keys), bool)
        free: npt.NDArray[np.bool_] = ~known & (pairs[0] != pairs[1])
        return free
