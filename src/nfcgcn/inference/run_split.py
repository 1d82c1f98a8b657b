"""Which nodes a run was trained, validated and tested on, so that predictions can say it of any later graph.

Nodes are known by a hash of their name, or, in a graph without names, by their number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from nfcgcn.graph import Graph, Ints, Split

PARTS = ("train", "val", "test")


def remember_split(graph: Graph, split: Split) -> dict[str, Ints]:
    """Return the nodes of each part of a split, and how many nodes the graph has: 0 if they have names."""
    keys = _keys(graph)
    size = graph.num_nodes if graph.node_names is None else 0
    return {**{part: keys[getattr(split, part)] for part in PARTS}, "num_nodes": np.array([size], np.int64)}


def check_split(stored: Mapping[str, Any]) -> None:
    """Refuse arrays that :func:`remember_split` cannot have made."""
    if set(stored) != {*PARTS, "num_nodes"} or len(stored["num_nodes"]) != 1:
        raise ValueError(f"the split must hold {', '.join(PARTS)} and num_nodes, got {', '.join(stored):.80}")
    if any(array.dtype != np.int64 or array.ndim != 1 for array in stored.values()):
        raise ValueError("the split must hold lists of whole numbers")


def parts_of(graph: Graph, stored: Mapping[str, Ints] | None) -> list[str]:
    """Return for each node which part of the run's split it was in: train, val, test, or "" for none or unknown.

    Without names, only a graph with as many nodes as the run's own is taken for the same one.
    """
    parts = np.full(graph.num_nodes, "", dtype=object)
    named = graph.node_names is not None
    if stored is not None and stored["num_nodes"][0] == (0 if named else graph.num_nodes):
        keys = _keys(graph)
        for part in PARTS:
            parts[np.isin(keys, stored[part])] = part
    names: list[str] = parts.tolist()
    return names


def _keys(graph: Graph) -> Ints:
    if graph.node_names is None:
        return np.arange(graph.num_nodes)
    digests = (hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8] for name in graph.node_names)
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)
