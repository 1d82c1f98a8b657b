"""Which nodes a run was trained, validated and tested on, so that predictions can say it of any later graph.

Nodes are known by a hash of their name, or, in a graph without names, by their number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from nfcgcn.data.store.names import take_names
from nfcgcn.graph import Graph, Ints, Split

PARTS = ("train", "val", "test")


def remember_split(graph: Graph, split: Split) -> dict[str, Ints]:
    """Return the nodes of each part of a split, and how many nodes the graph has: 0 if they have names."""
    size = graph.num_nodes if graph.node_names is None else 0
    parts = {part: _keys(graph, getattr(split, part)) for part in PARTS}
    return {**parts, "num_nodes": np.array([size], np.int64)}


def check_split(stored: Mapping[str, Any]) -> None:
    """Refuse arrays that :func:`remember_split` cannot have made."""
    if set(stored) != {*PARTS, "num_nodes"} or len(stored["num_nodes"]) != 1:
        raise ValueError(f"the split must hold {', '.join(PARTS)} and num_nodes, got {', '.join(stored):.80}")
    if any(array.dtype != np.int64 or array.ndim != 1 for array in stored.values()):
        raise ValueError("the split must hold lists of whole numbers")


class Parts:
    """What a run used the nodes of a graph for: train, val or test, or "" for none or unknown.

    Without names, only a graph with as many nodes as the run's own is taken for the same one.
    """

    def __init__(self, graph: Graph, stored: Mapping[str, Ints] | None) -> None:
        size = graph.num_nodes if graph.node_names is None else 0
        known = stored is not None and stored["num_nodes"][0] == size
        self._graph = graph
        self._keys = {part: np.sort(stored[part]) for part in PARTS if len(stored[part])} if known and stored else {}

    def of(self, nodes: Ints) -> list[str]:
        """Return the parts of some nodes."""
        parts = np.full(len(nodes), "", dtype=object)
        keys = _keys(self._graph, nodes) if self._keys else nodes
        for part, known in self._keys.items():
            places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            parts[known[places] == keys] = part
        names: list[str] = parts.tolist()
        return names


def _keys(graph: Graph, nodes: Ints) -> Ints:
    if graph.node_names is None:
        return np.asarray(nodes, np.int64)
    names = take_names(graph.node_names, nodes)
    digests = [hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8] for name in names]
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)
