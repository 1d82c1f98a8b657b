"""A checksum of a graph, by which stored results know what they belong to."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from nfcgcn.graph import Graph, Ints


def fingerprint(graph: Graph, *nodes: Ints) -> str:
    """Return a checksum of features, edges, weights, labels and the split that the graph came with, and of `nodes`."""
    checksum = hashlib.sha256()
    if graph.store is not None:  # its description has the checksums of all files
        checksum.update((graph.store / "meta.json").read_bytes())
        parts = [graph.labels]
    else:
        parts = _arrays(graph)
    given = () if graph.given is None else (graph.given.train, graph.given.val, graph.given.test)
    for part in (*parts, *given, *nodes):
        checksum.update(f"{part.dtype} {part.shape} ".encode())
        checksum.update(np.ascontiguousarray(part).tobytes())
    return checksum.hexdigest()


def _arrays(graph: Graph) -> list[npt.NDArray[Any]]:
    x, a = graph.features, graph.adjacency
    parts: list[npt.NDArray[Any]] = (
        [x] if isinstance(x, np.ndarray) else [x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data]
    )
    parts += [a.indptr.astype(np.int64), a.indices.astype(np.int64), graph.labels]
    return [*parts, *([a.data] if graph.is_weighted else [])]
