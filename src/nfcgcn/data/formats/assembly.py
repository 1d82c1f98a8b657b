"""Put a graph together: the content of a table of nodes, and edges, however they were read."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from nfcgcn.data.formats.columns import Number
from nfcgcn.data.formats.edges import EdgeList
from nfcgcn.data.formats.encoding import Encoding, of_one_graph
from nfcgcn.data.formats.labels import listed
from nfcgcn.data.formats.nodes import Nodes
from nfcgcn.data.structure import OF_ONE_GRAPH, structural_features, structural_names
from nfcgcn.errors import GraphError, NFCWarning, counted
from nfcgcn.graph import DIRECTIONS, Floats, Graph


def assemble(
    nodes: Nodes, names: Sequence[str], edges: EdgeList, *, name: str, where: str, no_edges: str = ""
) -> Graph:
    """Build the graph; `names` are those of the rows of `nodes`, and `where` the place the edges were read from.

    Without any edge, a warning gives `no_edges` as the reason.
    """
    encoding, added = nodes.encoding, len(edges.added)
    graph = Graph.from_edges(
        edges.pairs,
        _with_rows(nodes.features, encoding, added),
        labels=np.concatenate([nodes.labels, np.full(added, -1, np.int64)]),
        weights=edges.weights,
        name=name,
        node_names=[*names, *edges.added],
        class_names=encoding.classes,
        given=nodes.given,
    )
    if not edges.pairs.size:
        _warn(f"{no_edges or f'{where} holds no edges'}: every node is judged only by its own features")
    if encoding.structure:
        graph, encoding = _with_structure(graph, encoding)
    if edges.dropped:
        _warn(dropped_edges(edges.dropped, where))
    if added:
        _warn(added_nodes(edges.added, added, where))
    return replace(
        graph,
        feature_names=encoding.feature_names,
        encoding=encoding.to_json(),
        reading=_describe(graph, edges, encoding, where),
    )


def _with_rows(features: sp.csr_array | Floats, encoding: Encoding, count: int) -> sp.csr_array | Floats:
    """Append `count` nodes whose cells are empty: numbers at their column's mean, nothing else."""
    if not count:
        return features
    row = empty_row(encoding)
    if isinstance(features, np.ndarray):
        return np.concatenate([features, np.tile(row, (count, 1))])
    rows = sp.kron(np.ones((count, 1), np.float32), sp.csr_array(row[None]), format="csr")
    return sp.csr_array(sp.vstack([features, rows], format="csr"), dtype=np.float32)


def empty_row(encoding: Encoding) -> Floats:
    """Return the features of a node whose cells are all empty."""
    parts = []
    for column in encoding.columns:
        parts.append(np.zeros(len(column.feature_names), np.float32))
        if isinstance(column, Number):
            parts[-1][0] = (column.fill - column.shift) / column.scale
    return np.concatenate([np.zeros(0, np.float32), *parts])


def _with_structure(graph: Graph, encoding: Encoding) -> tuple[Graph, Encoding]:
    """Add the features that follow from the edges, after those of the columns."""
    kind = encoding.structure or ""
    checksum = _checksum(graph)
    if encoding.edges_sha256 is not None and kind in OF_ONE_GRAPH and checksum != encoding.edges_sha256:
        raise GraphError(of_one_graph(kind, graph.name))
    made = structural_features(graph.adjacency, kind)  # type: ignore[arg-type]
    names = structural_names(kind, made.shape[1], graph.node_names or ())
    features = graph.features
    if not features.shape[1]:
        features = made
    elif isinstance(features, np.ndarray) and isinstance(made, np.ndarray):
        features = np.hstack([features, made])
    else:
        features = sp.csr_array(sp.hstack([sp.csr_array(features), sp.csr_array(made)], format="csr"), dtype=np.float32)
    return replace(graph, features=features), replace(encoding, structure_names=tuple(names), edges_sha256=checksum)


def _checksum(graph: Graph) -> str:
    a = graph.adjacency
    parts = [a.indptr.astype(np.int64), a.indices.astype(np.int64), *([a.data] if graph.is_weighted else [])]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def dropped_edges(count: int, where: str) -> str:
    """Say how many edges of a table were left out."""
    return f"left out {counted(count, 'edge')} of {where} to ids that no node has"


def added_nodes(names: Sequence[str], count: int, where: str) -> str:
    """Say how many nodes were added for the edges of a table; `names` are the first of them."""
    nodes = counted(count, "node")
    return f"added {nodes} with empty cells, as {where} names ids that no node has: {listed(names, count=count)}"


def _describe(graph: Graph, edges: EdgeList, encoding: Encoding, where: str) -> str:
    source, target = edges.pairs
    loops = int((source == target).sum())
    return describe_reading(
        encoding,
        where,
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        loops=loops,
        repeated=edges.pairs.shape[1] - loops - graph.num_edges,
        dropped=edges.dropped,
        added=len(edges.added),
        unused=edges.unused,
    )


def describe_reading(
    encoding: Encoding,
    where: str,
    *,
    nodes: int,
    edges: int,
    loops: int,
    repeated: int,
    dropped: int,
    added: int,
    unused: Sequence[str],
) -> str:
    """Return what was read and what was not used; `where` is the table of edges, and `unused` are columns of it."""
    parts = [f"read {counted(nodes, 'node')} and {counted(edges, 'edge')}"]
    if encoding.weight is not None:
        parts.append(f"weights of edges from '{encoding.weight}'")
    if encoding.structure:
        parts.append(f"{len(encoding.structure_names)} {encoding.structure} features made from the edges")
    if dates := [column.name for column in encoding.columns if isinstance(column, Number) and column.dates]:
        parts.append(f"dates as days since 1970 from {listed(dates)}")
    counts = [
        (loops, "loop", "loops"),
        (repeated, "repeated or reversed edge", "repeated or reversed edges"),
        (dropped, "edge to an unknown id", "edges to unknown ids"),
    ]
    if left_out := [counted(*each) for each in counts if each[0]]:
        parts.append(f"left out {', '.join(left_out)}")
    if added:
        parts.append(f"added {counted(added, 'node')} that only edges name")
    not_used = [f"{listed(unused)} of {where}"] if unused else []
    if encoding.directed:
        not_used.append(DIRECTIONS)
    if not_used:
        parts.append(f"not used: {'; '.join(not_used)}")
    return "; ".join(parts)


def _warn(message: str) -> None:
    warnings.warn(message, NFCWarning, stacklevel=3)
