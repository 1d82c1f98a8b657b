"""A checksum of a graph, by which stored results know what they belong to."""

from __future__ import annotations

import hashlib

import numpy as np

from nfcgcn.graph import Graph, Ints


def fingerprint(graph: Graph, *nodes: Ints) -> str:
    """Return a checksum of features, edges, weights, labels and the split that the graph came with, and of `nodes`."""
    x, a = graph.features, graph.adjacency
    parts = [x] if isinstance(x, np.ndarray) else [x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data]
    parts += [a.indptr.astype(np.int64), a.indices.astype(np.int64), graph.labels]
    parts += [a.data] if graph.is_weighted else []
    given = () if graph.given is None else (graph.given.train, graph.given.val, graph.given.test)
    checksum = hashlib.sha256()
    for part in (*parts, *given, *nodes):
        checksum.update(f"{part.dtype} {part.shape} ".encode())
        checksum.update(np.ascontiguousarray(part).tobytes())
    return checksum.hexdigest()
