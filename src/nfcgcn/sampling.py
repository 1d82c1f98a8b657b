"""The neighbour table: which nodes stand side by side in each node's feature map."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Floats, Graph, Ints

SlotOrder = Literal["random", "similarity"]


def draw_neighbours(starts: Ints, neighbours: Ints, *, bandwidth: int, rng: np.random.Generator) -> Ints:
    """Draw the table ``[N, n]`` for an adjacency in CSR form (``starts [N + 1]``, ``neighbours [E]``).

    Slot 0 holds the node itself, the next ones ``n - 1`` distinct neighbours, drawn uniformly and in random order. A
    node with fewer neighbours has all of them, and copies of itself in the slots left over.

    Cost: O(N n^2), whatever the degrees: only the first ``n - 1`` steps of a Fisher-Yates shuffle are made, on the
    positions alone. Step t swaps position t with one drawn from those not yet passed; what stands there by now follows
    from the earlier draws.
    """
    if bandwidth < 1:
        raise ConfigError(f"`bandwidth` must be at least 1, got {bandwidth}; it counts the node itself")
    degrees = np.diff(starts)
    num_nodes = len(degrees)
    centre = np.arange(num_nodes)
    table = np.repeat(centre[:, None], bandwidth, axis=1)
    draws: list[Ints] = []
    for step in range(min(bandwidth - 1, int(degrees.max(initial=0)))):
        drawn = step + (rng.random(num_nodes) * (degrees - step)).astype(np.int64)
        position = drawn
        for earlier in reversed(range(step)):
            position = np.where(position == draws[earlier], earlier, position)
        draws.append(drawn)
        has = degrees > step
        table[has, step + 1] = neighbours[(starts[:-1] + position)[has]]
    return table


def sample_neighbours(
    graph: Graph, *, bandwidth: int, rng: np.random.Generator, slot_order: SlotOrder = "random"
) -> Ints:
    """Draw the neighbour table of a graph; see :func:`draw_neighbours`.

    ``slot_order="similarity"`` puts the drawn neighbours in order of falling cosine similarity to the node.
    """
    a = graph.adjacency
    table = draw_neighbours(a.indptr.astype(np.int64), a.indices.astype(np.int64), bandwidth=bandwidth, rng=rng)
    return order_by_similarity(table, graph.features) if slot_order == "similarity" else table


def order_by_similarity(table: Ints, features: sp.csr_array | Floats) -> Ints:
    """Sort each row's drawn neighbours by falling cosine similarity to slot 0; copies of the node stay last."""
    unit = _normalised(features)
    similarity = np.full(table.shape, -np.inf)
    similarity[:, 0] = np.inf
    for slot in range(1, table.shape[1]):
        drawn = np.flatnonzero(table[:, slot] != table[:, 0])
        product = unit[drawn] * unit[table[drawn, slot]]
        similarity[drawn, slot] = product.sum(axis=1)
    return np.take_along_axis(table, np.argsort(-similarity, axis=1, kind="stable"), axis=1)


def _normalised(features: sp.csr_array | Floats) -> sp.csr_array | Floats:
    if isinstance(features, np.ndarray):
        norms = np.linalg.norm(features, axis=1, keepdims=True)
        return np.asarray(features / np.where(norms > 0, norms, 1), dtype=np.float32)
    norms = np.sqrt(features.multiply(features).sum(axis=1))
    return sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ features)
