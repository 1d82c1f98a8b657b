"""Graphs of NetworkX and igraph: node attributes are read like the columns of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nfcgcn.data.formats.assembly import assemble
from nfcgcn.data.formats.edges import EdgeList, Weights
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.labels import listed
from nfcgcn.data.formats.nodes import encode_nodes, gather_nodes
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import Columns, make_roles
from nfcgcn.data.formats.table import CHUNK, Chunk
from nfcgcn.data.formats.values import cells_of
from nfcgcn.data.structure import Structure
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph, Ints


def from_networkx(
    graph: Any,
    *,
    label: str | None = None,
    text: Columns = (),
    words: Columns = (),
    ignore: Columns = (),
    split: str | None = None,
    weight: str | None = None,
    features: Structure | None = None,
    encoding: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Graph:
    """Build a graph from a NetworkX graph of any class; every edge counts in both directions.

    Node attributes become features, labels and the given split, as the columns of a table do in
    :func:`nfcgcn.data.formats.read_tables`; name attributes that are lists of texts in ``words``. The name of a node is
    its ``str``. ``weight`` is the edge attribute with the weights; the weights of parallel edges add up. ``features``
    adds features that follow from the edges; without any other feature, "spectral" is the default.

    >>> import networkx
    >>> from_networkx(networkx.karate_club_graph(), label="club", weight="weight", features="walk")
    Graph('Zachary's Karate Club', nodes=34, edges=78 weighted, features=8 dense, classes=2)
    """
    if not is_networkx(graph):
        raise GraphError(f"`graph` must be a graph of NetworkX, got {_kind(graph)}; nfcgcn.load takes others")
    nodes = list(graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    ends = [(place[a], place[b]) for a, b in graph.edges()]
    return graph_of_attributes(
        [graph.nodes[node] for node in nodes],
        [str(node) for node in nodes],
        np.array(ends, np.int64).reshape(-1, 2).T,
        [attributes for *_, attributes in graph.edges(data=True)],
        directed=bool(graph.is_directed()),
        name=name or str(graph.name or "graph"),
        encoding=encoding,
        label=label,
        text=text,
        words=words,
        ignore=ignore,
        split=split,
        weight=weight,
        features=features,
    )


def from_igraph(graph: Any, *, name: str = "graph", **options: Any) -> Graph:
    """Build a graph from an igraph ``Graph``; the options are those of :func:`from_networkx`.

    Vertex attributes are read like node attributes there; the attribute "name", if there is one, has the names of the
    nodes.

    >>> from_igraph(igraph.Graph.Famous("Zachary"), features="walk")  # doctest: +SKIP
    Graph('graph', nodes=34, edges=78, features=8 dense, classes=0)
    """
    if not is_igraph(graph):
        raise GraphError(f"`graph` must be a graph of igraph, got {_kind(graph)}; nfcgcn.load takes others")
    rows = [dict(vertex.attributes()) for vertex in graph.vs]
    names = [str(row.pop("name", number)) for number, row in enumerate(rows)]
    pairs = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2).T
    edges = [edge.attributes() for edge in graph.es]
    return graph_of_attributes(rows, names, pairs, edges, directed=bool(graph.is_directed()), name=name, **options)


def is_networkx(thing: Any) -> bool:
    """Return whether this is a graph of NetworkX, of any class."""
    return hasattr(thing, "is_multigraph") and hasattr(thing, "nodes")


def is_igraph(thing: Any) -> bool:
    """Return whether this is a graph of igraph."""
    return hasattr(thing, "get_edgelist") and hasattr(thing, "vs")


def _kind(thing: Any) -> str:
    library = type(thing).__module__.partition(".")[0]
    return f"{library}.{type(thing).__name__}".removeprefix("builtins.")


def graph_of_attributes(
    rows: Sequence[Mapping[Any, Any]],
    names: Sequence[str],
    pairs: Ints,
    edges: Sequence[Mapping[Any, Any]],
    *,
    name: str,
    encoding: Mapping[str, Any] | None = None,
    **options: Any,
) -> Graph:
    """Build a graph from the attributes of nodes and of edges, each a list of mappings."""
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise GraphError(f"two nodes are written '{twice[:40]}'; relabel one, as names must differ as text")
    known = None if encoding is None else Encoding.from_json(encoding)
    table, problems = _Attributes(rows), Problems()
    roles = make_roles(table, known, has_edges=bool(pairs.size), **options)
    edge_list = EdgeList(
        pairs, unused=tuple(dict.fromkeys(str(key) for edge in edges for key in edge if key != roles.weight))
    )
    with problems.gather():
        if roles.weight is not None:
            edge_list = replace(edge_list, weights=_weights(edges, roles.weight))
    content = encode_nodes(table, gather_nodes(table, roles, known, num_rows=len(rows)), known, problems)
    return assemble(content, names, edge_list, name=name, where="the graph")


def _weights(edges: Sequence[Mapping[Any, Any]], key: str) -> Any:
    if edges and not any(key in edge for edge in edges):
        others = listed(list(dict.fromkeys(str(name) for edge in edges for name in edge)))
        raise GraphError(f"no edge has the attribute '{key}'; edges have {others or 'none'}")
    where = f"the edge attribute '{key}'"
    weights = Weights(where)
    numbers = weights.read(cells_of([edge.get(key) for edge in edges], where, as_text=False))
    weights.check()
    return numbers


class _Attributes:
    """The attributes of nodes as a table."""

    name = "the table of node attributes"

    def __init__(self, rows: Sequence[Mapping[Any, Any]]) -> None:
        self.rows = rows
        keys = dict.fromkeys(key for row in rows for key in row)
        strange = next((key for key in keys if not isinstance(key, str)), None)
        if strange is not None:
            raise GraphError(f"the node attribute {strange!r} has no text as its name; rename it")
        if not rows:
            raise GraphError("the graph has no nodes")
        self.columns: tuple[str, ...] = tuple(keys)

    def chunks(self, wanted: Sequence[str], *, texts: Collection[str]) -> Iterator[Chunk]:
        for start in range(0, len(self.rows), CHUNK):
            some = self.rows[start : start + CHUNK]
            yield {
                name: cells_of([row.get(name) for row in some], f"the node attribute '{name}'", as_text=name in texts)
                for name in wanted
            }
