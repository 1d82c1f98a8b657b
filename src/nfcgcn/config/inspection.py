"""A description of a graph before anything is trained on it: counts and shares as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from nfcgcn.config.registry import suggest
from nfcgcn.graph import Graph, Split


def inspect(graph: Graph, *, model: str = "nfc-gcn") -> dict[str, Any]:
    """Describe a graph in plain values, ready for JSON, with suggested settings for `model`.

    Cost: linear in the number of nodes, edges and nonzero feature values.

    >>> import nfcgcn
    >>> facts = nfcgcn.inspect(nfcgcn.load("digits"))
    >>> facts["nodes"], facts["isolated_nodes"], round(facts["homophily"], 2)
    (1797, 0, 0.96)
    """
    suggestions = suggest(graph, model)
    bandwidth = suggestions["bandwidth"].value if "bandwidth" in suggestions else None
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "degrees": _degrees(graph, bandwidth),
        "isolated_nodes": int((_degree(graph) == 0).sum()),
        "components": _components(graph),
        "homophily": homophily(graph),
        "labels": _labels(graph),
        "features": _features(graph),
        "given_split": None if graph.given is None else _sizes(graph.given),
        "model": model,
        "suggestions": {name: asdict(suggestion) for name, suggestion in suggestions.items()},
    }


def homophily(graph: Graph) -> float | None:
    """Return which share of the edges between labelled nodes join nodes of the same class; None without such edges."""
    a = graph.adjacency
    source = graph.labels[np.repeat(np.arange(graph.num_nodes), np.diff(a.indptr))]
    target = graph.labels[a.indices]
    labelled = (source >= 0) & (target >= 0)
    return float(np.mean(source[labelled] == target[labelled])) if labelled.any() else None


def _degree(graph: Graph) -> npt.NDArray[np.integer[Any]]:
    return np.asarray(np.diff(graph.adjacency.indptr))


def _degrees(graph: Graph, bandwidth: Any) -> dict[str, Any]:
    degree = _degree(graph)
    if not len(degree):
        return {"min": 0, "median": 0.0, "mean": 0.0, "max": 0, "unfilled": None}
    return {
        "min": int(degree.min()),
        "median": float(np.median(degree)),
        "mean": float(degree.mean()),
        "max": int(degree.max()),
        # The share of nodes with fewer neighbours than slots: copies of the node itself fill the other slots.
        "unfilled": None if bandwidth is None else float(np.mean(degree < bandwidth - 1)),
    }


def _components(graph: Graph) -> dict[str, int]:
    if not graph.num_nodes:
        return {"count": 0, "largest": 0}
    count, member = connected_components(graph.adjacency, directed=False)
    return {"count": int(count), "largest": int(np.bincount(member).max())}


def _labels(graph: Graph) -> dict[str, Any]:
    counts = np.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
    return {
        "classes": graph.num_classes,
        "counts": {graph.class_name(label): int(count) for label, count in enumerate(counts)},
        "unlabelled": int((graph.labels < 0).sum()),
    }


def _features(graph: Graph) -> dict[str, Any]:
    n, d = graph.num_nodes, graph.num_features
    counts: dict[str, Any] = {"count": d, "form": "sparse" if graph.is_sparse else "dense"}
    if not n or not d:
        return {**counts, "density": 0.0, "zero_rows": n, "constant_columns": d, "min": None, "max": None}
    if isinstance(graph.features, np.ndarray):
        x = graph.features
        filled = x != 0
        nonzero, per_row = int(filled.sum()), filled.any(axis=1)
        low, high = x.min(axis=0), x.max(axis=0)
    else:
        matrix = graph.features
        nonzero = int(np.count_nonzero(matrix.data))
        rows = np.repeat(np.arange(n), np.diff(matrix.indptr))[matrix.data != 0]
        per_row = np.bincount(rows, minlength=n) > 0
        low, high = (np.asarray(part.todense()).ravel() for part in (matrix.min(axis=0), matrix.max(axis=0)))
    return {
        **counts,
        "density": nonzero / (n * d),
        "zero_rows": int((~per_row).sum()),
        "constant_columns": int((low == high).sum()),
        "min": float(low.min()),
        "max": float(high.max()),
    }


def _sizes(split: Split) -> dict[str, int]:
    return {part: len(getattr(split, part)) for part in ("train", "val", "test")}
