"""Which edges train, validate and test: drawn by a seed, or by the time of each edge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Graph, Ints
from nfcgcn.randomness import generator

VAL_RATIO, TEST_RATIO = 0.05, 0.10
"""As in Kipf and Welling, "Variational Graph Auto-Encoders" (2016): 85 % of the edges train."""


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """Which edges are for training, for validation (to choose the best epoch and settings) and for testing.

    Each part is ``[2, E]``: every undirected edge once, the node with the lower number first, in ascending order.
    """

    train: Ints
    val: Ints
    test: Ints
    name: str = "given"

    @property
    def sizes(self) -> dict[str, int]:
        """The number of edges in each part."""
        return {part: getattr(self, part).shape[1] for part in ("train", "val", "test")}

    def check(self) -> None:
        """Refuse a split with an empty part."""
        needs = {"train": "learn from", "val": "choose the best epoch by", "test": "judge the model by"}
        for part, why in needs.items():
            if not self.sizes[part]:
                raise GraphError(
                    f"the split '{self.name}' has no {part} edge to {why}: {self.sizes['train']} train, "
                    f"{self.sizes['val']} validation, {self.sizes['test']} test; change the shares or add edges"
                )

    def __repr__(self) -> str:
        return f"EdgeSplit('{self.name}', {', '.join(f'{part}={size}' for part, size in self.sizes.items())})"


def pairs_of(graph: Graph) -> Ints:
    """Return every undirected edge of a graph once, ``[2, E]``, lower node first, in ascending order."""
    upper = sp.triu(graph.adjacency, k=1, format="csr").tocoo()
    return np.stack([upper.row, upper.col]).astype(np.int64)


def split_edges(
    graph: Graph, *, seed: int = 0, val_ratio: float = VAL_RATIO, test_ratio: float = TEST_RATIO
) -> EdgeSplit:
    """Hold out edges drawn by `seed`: ``floor(val_ratio E)`` for validation and ``floor(test_ratio E)`` for testing.

    >>> graph = Graph.from_edges([range(40), range(1, 41)], np.eye(41))
    >>> split_edges(graph)
    EdgeSplit('random', train=34, val=2, test=4)
    """
    _check_ratios(val_ratio, test_ratio)
    pairs = pairs_of(graph)
    count = pairs.shape[1]
    order = generator(seed, "split").permutation(count)
    num_val, num_test = int(count * val_ratio), int(count * test_ratio)
    parts = np.split(order, [num_test, num_test + num_val])
    test, val, train = (pairs[:, np.sort(part)] for part in parts)
    split = EdgeSplit(train, val, test, "random")
    split.check()
    return split


def split_by_time(
    graph: Graph,
    pairs: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    val_ratio: float = VAL_RATIO,
    test_ratio: float = TEST_RATIO,
) -> EdgeSplit:
    """Train on the oldest edges, validate on later ones and test on the newest.

    `pairs` ``[2, M]`` and `times` ``[M]`` give every edge of the graph a time, in any order and direction; of an edge
    that is given several times the first time counts. Edges of the same time stay together, so that the shares are
    only about those that were asked for.

    >>> graph = Graph.from_edges([range(40), range(1, 41)], np.eye(41))
    >>> split_by_time(graph, [range(40), range(1, 41)], np.arange(40) // 2)
    EdgeSplit('time', train=34, val=2, test=4)
    """
    _check_ratios(val_ratio, test_ratio)
    known = pairs_of(graph)
    first = _first_times(graph, known, np.asarray(pairs), np.asarray(times, np.float64))
    ordered = np.sort(first)
    count = len(ordered)
    last_train = ordered[max(0, count - int(count * val_ratio) - int(count * test_ratio) - 1)]
    last_val = ordered[max(0, count - int(count * test_ratio) - 1)]
    later = first > last_train
    split = EdgeSplit(known[:, ~later], known[:, later & (first <= last_val)], known[:, first > last_val], "time")
    split.check()
    return split


def with_edges(graph: Graph, pairs: Ints) -> Graph:
    """Return the graph with these of its edges alone; nodes, features and weights of edges are kept."""
    kept = sp.csr_array((np.ones(pairs.shape[1], np.float32), (pairs[0], pairs[1])), shape=graph.adjacency.shape)
    adjacency = sp.csr_array(graph.adjacency.multiply(kept + kept.T), dtype=np.float32)
    adjacency.sort_indices()
    return replace(graph, adjacency=adjacency)


def pair_keys(pairs: Ints, num_nodes: int) -> Ints:
    """Return one number per pair, ``[M]``: the same for both directions, another for every other pair."""
    keys: Ints = pairs.min(axis=0) * num_nodes + pairs.max(axis=0)
    return keys


def _check_ratios(val_ratio: float, test_ratio: float) -> None:
    if not (0 < val_ratio < 1 and 0 < test_ratio < 1 and val_ratio + test_ratio < 1):
        raise ConfigError(
            f"`val_ratio` and `test_ratio` must be above 0 and below 1 together, got {val_ratio:g} and {test_ratio:g}"
        )


def _first_times(graph: Graph, known: Ints, pairs: npt.NDArray[Any], times: npt.NDArray[np.float64]) -> Any:
    """Return the first time of each of the graph's edges."""
    if pairs.shape != (2, len(times)):
        raise GraphError(f"`times` must be one number per pair: {pairs.shape[-1]} pairs, got {times.shape}")
    if not np.isfinite(times).all():
        raise GraphError(f"edge {int(np.flatnonzero(~np.isfinite(times))[0])} has no time; give each edge one")
    keys, own = pair_keys(pairs.astype(np.int64), graph.num_nodes), pair_keys(known, graph.num_nodes)
    order = np.lexsort((times, keys))
    unique, starts = np.unique(keys[order], return_index=True)
    places = np.searchsorted(unique, own)
    has_time = places < len(unique)
    has_time[has_time] = unique[places[has_time]] == own[has_time]
    if not has_time.all():
        u, v = known[:, int(np.flatnonzero(~has_time)[0])]
        raise GraphError(f"the edge between nodes {u} and {v} has no time; give each edge one")
    return times[order][starts][places]
