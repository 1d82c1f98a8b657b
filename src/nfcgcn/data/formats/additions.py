"""New nodes and edges for a graph that was read from tables: from tables of the same columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.data.formats.edges import EdgeList, edge_columns, read_edges
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.labels import listed
from nfcgcn.data.formats.nodes import Nodes, encode_nodes, gather_nodes, warn_of_unseen
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import make_roles
from nfcgcn.data.formats.tables import checked_ids, open_table
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph


def add_tables(graph: Graph, nodes: Path | None, edges: Path | None, *, encoding: Mapping[str, Any]) -> Graph:
    """Return `graph` with the rows of a table as new nodes, and with further edges between any of its nodes.

    Columns are read by the `encoding` of the graph. Old nodes keep their numbers; new ones follow. Texts and words that
    the encoding does not know are left out, with a warning that counts them.
    """
    known = Encoding.from_json(encoding)
    if known.structure:
        raise GraphError(
            f"'{graph.name}' has {known.structure} features, which depend on all edges, so nodes and edges cannot be "
            "added to it; add them to its tables and read those"
        )
    ids = np.array(graph.node_names or (), dtype=object)
    content: Nodes | None = None
    problems = Problems()
    if nodes is not None:
        table = open_table(nodes)
        roles = make_roles(table, known, has_edges=edges is not None, id=known.id)
        gathered = gather_nodes(table, roles, known)
        new = checked_ids(table.name, known.id or "", gathered.ids, problems)
        content = encode_nodes(table, gathered, known, problems)
        warn_of_unseen(table.name, content.unseen)
        again = sorted(set(new.tolist()) & set(graph.node_names or ()))
        if again:
            raise GraphError(
                f"{len(again)} ids of {table.name} are nodes of '{graph.name}' already: {listed(again)}; "
                "leave these rows out"
            )
        ids = np.concatenate([ids, new])
    new_edges = EdgeList(np.zeros((2, 0), np.int64))
    if edges is not None:
        either = f"'{graph.name}'" if nodes is None else f"'{graph.name}' or {nodes}"
        table = open_table(edges)
        columns = edge_columns(table, known.source, known.target, known.weight, can_choose=False)
        remedy = "add the nodes or remove the edges"
        new_edges = read_edges(table, either, ids, *columns, unknown_edges="error", remedy=remedy)
    features = graph.features[:0] if content is None else content.features
    names = tuple(ids[graph.num_nodes :].tolist())
    larger = graph.extend(features, new_edges.pairs, weights=new_edges.weights, names=names)
    return larger if content is None else replace(larger, labels=np.concatenate([graph.labels, content.labels]))
