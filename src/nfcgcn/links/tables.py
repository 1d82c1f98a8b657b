"""Pairs of nodes, and times of edges, from a user's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nfcgcn.data.formats.edges import edge_columns, plain_ids, read_edges
from nfcgcn.data.formats.gathering import to_days, to_numbers
from nfcgcn.data.formats.table import Table, require
from nfcgcn.data.formats.tables import open_table
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph, Ints
from nfcgcn.links.scores import Doubles


def read_pairs(path: Path, graph: Graph) -> Ints:
    """Read pairs of nodes, ``[2, P]``, from the columns `source` and `target` of a table, or else from its first two.

    Nodes are named as in the graph; those of a graph without names are numbered from 0.
    """
    table = open_table(path)
    if len(table.columns) < 2:
        raise GraphError(f"{table.name} must have two columns, one per node of a pair, got {len(table.columns)}")
    named = {"source", "target"} <= set(table.columns)
    source, target = ("source", "target") if named else table.columns[:2]
    remedy = "correct or remove these pairs"
    edges = read_edges(table, f"'{graph.name}'", _ids(graph), source, target, unknown_edges="error", remedy=remedy)
    if not edges.pairs.shape[1]:
        raise GraphError(f"{table.name} has no row; give at least one pair of nodes")
    loops = np.flatnonzero(edges.pairs[0] == edges.pairs[1])
    if len(loops):
        raise GraphError(f"row {loops[0] + 1} of {table.name} joins a node to itself; leave it out")
    return edges.pairs


def read_times(path: Path, graph: Graph, time: str, *, source: str, target: str) -> tuple[Ints, Doubles]:
    """Read when each edge came to be: pairs ``[2, M]``, and one number or date per pair ``[M]``, dates as days.

    Rows that name no node of the graph, which it was read without, are left out.
    """
    import pandas as pd

    table = open_table(path)
    edge_columns(table, source, target, None, can_choose=False)
    require(table, time)
    index = pd.Index(_ids(graph))
    pairs, times, done = [np.zeros((2, 0), np.int64)], [np.zeros(0)], 0
    for chunk in table.chunks([source, target, time], texts=[source, target]):
        places = np.stack([index.get_indexer(plain_ids(chunk[end])) for end in (source, target)])
        known = (places >= 0).all(axis=0)
        pairs.append(places[:, known].astype(np.int64))
        times.append(_read_times(chunk[time], table, time, done)[known])
        done += places.shape[1]
    return np.concatenate(pairs, axis=1), np.concatenate(times)


def _read_times(cells: Any, table: Table, column: str, done: int) -> Doubles:
    numbers: Doubles = to_numbers(cells) if cells.dtype == object else cells.astype(np.float64)
    missing = np.flatnonzero(~np.isfinite(numbers))
    if len(missing):
        numbers = numbers.copy()
        numbers[missing] = to_days([str(cells[place]) for place in missing])
        missing = missing[~np.isfinite(numbers[missing])]
    if len(missing):
        text = str(cells[missing[0]])[:40]
        raise GraphError(
            f"column '{column}' of {table.name} must hold a number or a date such as 2024-05-31 for each edge, but row "
            f"{done + missing[0] + 1} says '{text}'; correct it"
        )
    return numbers


def _ids(graph: Graph) -> Any:
    return np.array(graph.node_names or [str(number) for number in range(graph.num_nodes)], dtype=object)
