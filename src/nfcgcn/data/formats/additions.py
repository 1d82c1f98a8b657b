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
from nfcgcn.data.formats.nodes import Gathered, Nodes, encode_nodes, gather_nodes, warn_of_unseen
from nfcgcn.data.formats.problems import Problems
from nfcgcn.data.formats.roles import make_roles
from nfcgcn.data.formats.table import Cells, Table
from nfcgcn.data.formats.tables import checked_ids, open_table
from nfcgcn.errors import GraphError, counted
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
    table: Table | None = None
    gathered: Gathered | None = None
    new_edges = EdgeList(np.zeros((2, 0), np.int64))
    problems = Problems()
    with problems.gather():
        if nodes is not None:
            table = open_table(nodes)
            roles = make_roles(table, known, has_edges=edges is not None, id=known.id)
            gathered = gather_nodes(table, roles, known)
            ids = np.concatenate([ids, _new_ids(graph, table.name, gathered, problems)])
    with problems.gather():
        if edges is not None:
            either = f"'{graph.name}'" if nodes is None else f"'{graph.name}' or {nodes}"
            further = open_table(edges)
            columns = edge_columns(further, known.source, known.target, known.weight, can_choose=False)
            remedy = "add the nodes or remove the edges"
            if nodes is None or gathered is not None:  # or the new ids are not known
                new_edges = read_edges(further, either, ids, *columns, unknown_edges="error", remedy=remedy)
    with problems.gather():
        if table is not None and gathered is not None:
            content = encode_nodes(table, gathered, known, problems)
            warn_of_unseen(table.name, content.unseen)
    problems.check()
    features = graph.features[:0] if content is None else content.features
    names = tuple(ids[graph.num_nodes :].tolist())
    larger = graph.extend(features, new_edges.pairs, weights=new_edges.weights, names=names)
    return larger if content is None else replace(larger, labels=np.concatenate([graph.labels, content.labels]))


def _new_ids(graph: Graph, table: str, gathered: Gathered, problems: Problems) -> Cells:
    """Return the ids of a table of new nodes; it is a problem if `graph` has some of them already."""
    new = checked_ids(table, gathered.roles.id or "", gathered.ids, problems)
    old = set(graph.node_names or ())
    again = np.array([name in old for name in new.tolist()], bool)
    with problems.gather():
        if again.any():
            ids = sorted(new[again].tolist())
            count = counted(len(ids), "id")
            raise GraphError(f"{table} repeats {count} of '{graph.name}': {listed(ids)}; leave these rows out")
    return np.asarray(new[~again])
