"""NetworkX graphs: node attributes are read like the columns of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.nodes import Roles, encode_nodes
from nfcgcn.data.formats.table import CHUNK, Chunk
from nfcgcn.data.formats.tables import Columns, as_columns, warn_of_no_edges
from nfcgcn.data.formats.values import cells_of
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph


def from_networkx(
    graph: Any,
    *,
    label: str | None = None,
    text: Columns = (),
    words: Columns = (),
    ignore: Columns = (),
    split: str | None = None,
    encoding: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Graph:
    """Build a graph from a NetworkX graph of any class; directions, weights and parallel edges are dropped.

    Node attributes become features, labels and the given split, as the columns of a table do in
    :func:`nfcgcn.data.formats.read_tables`; name attributes that are lists of texts in ``words``. The name of a node is
    its ``str``.

    >>> import networkx
    >>> club = networkx.Graph([("ann", "bob"), ("bob", "eve")])
    >>> networkx.set_node_attributes(club, {"ann": 1.7, "bob": 1.8, "eve": 1.6}, "height")
    >>> networkx.set_node_attributes(club, {"ann": "chess", "bob": "go"}, "label")
    >>> graph = from_networkx(club)
    >>> graph.node_names, graph.labels
    (('ann', 'bob', 'eve'), array([ 0,  1, -1]))
    """
    nodes = list(graph.nodes)
    names = [str(node) for node in nodes]
    place = {node: i for i, node in enumerate(nodes)}
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise GraphError(f"two nodes are written '{twice[:40]}'; relabel one, as names must differ as text")
    known = None if encoding is None else Encoding.from_json(encoding)
    roles = Roles(None, label, as_columns(text), as_columns(words), as_columns(ignore), split)
    table = encode_nodes(_Attributes([graph.nodes[node] for node in nodes]), roles, known)
    pairs = np.array([(place[a], place[b]) for a, b in graph.edges()], np.int64).reshape(-1, 2).T
    warn_of_no_edges(pairs, "the graph holds no edges")
    return Graph.from_edges(
        pairs,
        table.features,
        labels=table.labels,
        name=name or str(graph.name or "graph"),
        node_names=names,
        feature_names=table.encoding.feature_names,
        class_names=table.encoding.classes,
        given=table.given,
        encoding=table.encoding.to_json(),
    )


class _Attributes:
    """The attributes of nodes as a table."""

    name = "the node attributes"

    def __init__(self, rows: Sequence[Mapping[Any, Any]]) -> None:
        self.rows = rows
        keys = dict.fromkeys(key for row in rows for key in row)
        strange = next((key for key in keys if not isinstance(key, str)), None)
        if strange is not None:
            raise GraphError(f"the node attribute {strange!r} has no text as its name; rename it")
        if not rows:
            raise GraphError("the graph has no nodes")
        if not keys:
            raise GraphError("the nodes have no attributes to make features of")
        self.columns: tuple[str, ...] = tuple(keys)

    def chunks(self, wanted: Sequence[str], *, texts: Collection[str]) -> Iterator[Chunk]:
        for start in range(0, len(self.rows), CHUNK):
            some = self.rows[start : start + CHUNK]
            yield {
                name: cells_of([row.get(name) for row in some], f"the node attribute '{name}'", as_text=name in texts)
                for name in wanted
            }
