"""New nodes and edges for a graph that was read from tables: from tables of the same columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.labels import listed
from nfcgcn.data.formats.nodes import Nodes, Roles, encode_nodes, warn_of_unseen
from nfcgcn.data.formats.tables import checked_ids, open_table, read_edges
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph


def add_tables(graph: Graph, nodes: Path | None, edges: Path | None, *, encoding: Mapping[str, Any]) -> Graph:
    """Return `graph` with the rows of a table as new nodes, and with further edges between any of its nodes.

    Columns are read by the `encoding` of the graph. Old nodes keep their numbers; new ones follow. Texts and words that
    the encoding does not know are left out, with a warning that counts them.
    """
    known = Encoding.from_json(encoding)
    roles = Roles(known.id, None, (), (), (), None, known.source, known.target)
    ids = np.array(graph.node_names or (), dtype=object)
    content: Nodes | None = None
    if nodes is not None:
        table = open_table(nodes)
        content = encode_nodes(table, roles, known)
        warn_of_unseen(table.name, content.unseen)
        new = checked_ids(table.name, known.id or "", content.ids)
        again = sorted(set(new.tolist()) & set(graph.node_names or ()))
        if again:
            raise GraphError(
                f"{len(again)} ids of {table.name} are nodes of '{graph.name}' already: {listed(again)}; "
                "leave these rows out"
            )
        ids = np.concatenate([ids, new])
    pairs = np.zeros((2, 0), np.int64)
    if edges is not None:
        either = f"'{graph.name}'" if nodes is None else f"'{graph.name}' or {nodes}"
        pairs = read_edges(open_table(edges), either, roles, ids)
    features = graph.features[:0] if content is None else content.features
    larger = graph.extend(features, pairs, names=tuple(ids[graph.num_nodes :].tolist()))
    return larger if content is None else replace(larger, labels=np.concatenate([graph.labels, content.labels]))
