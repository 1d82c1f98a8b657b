"""What the picture shows: all nodes and edges, or the neighbourhood of one node in a graph that is too large."""

from __future__ import annotations

from typing import Any

import numpy as np

from nfcgcn.explore.layout import Array, arrange
from nfcgcn.explore.subject import PARTS, Subject
from nfcgcn.graph import Ints
from nfcgcn.inference.reach import count_hops
from nfcgcn.reports.drawing import colour_of

MOST_NODES, MOST_EDGES = 20_000, 100_000
"""More are not drawn at once."""
MOST_AROUND = 1_500
"""Nodes in the picture of a neighbourhood."""
UNSURE = 0.6
"""A node whose most probable class has a lower probability is unsure."""
MOST_FOUND = 20
MOST_FEATURES = 50_000
"""The page gets the names of at most so many features; if there are more, it shows their numbers alone."""


def is_whole(subject: Subject) -> bool:
    """Return whether all nodes are drawn."""
    return subject.graph.num_nodes <= MOST_NODES


def describe_scene(subject: Subject, positions: dict[str, Array] | None, node: int | None = None) -> dict[str, Any]:
    """Return what is drawn: columns of nodes, pairs of edges, and the names for the legend.

    Without `positions`, for a graph that is too large, these are the nodes around `node`.
    """
    graph, run = subject.graph, subject.run
    chosen = np.arange(graph.num_nodes)
    note = None
    if positions is None:
        node = int(subject.degrees.argmax()) if node is None else node
        chosen = around(subject, node)
        positions = {"structure": arrange(graph.adjacency[chosen][:, chosen])}
        note = f"{len(chosen):,} of {graph.num_nodes:,} nodes: the neighbourhood of the chosen node"
    pairs = graph.adjacency[chosen][:, chosen].tocoo()
    one_way = pairs.row < pairs.col
    edges = np.stack([pairs.row[one_way], pairs.col[one_way]])
    if edges.shape[1] > MOST_EDGES:
        note = f"the edges of the chosen node alone, because there are {edges.shape[1]:,} edges"
        edges = edges[:, :0]
    columns: dict[str, Any] = {
        "id": chosen,
        "label": subject.labels[chosen],
        "degree": subject.degrees[chosen],
        "part": subject.parts[chosen],
    }
    if subject.predicted is not None and subject.confidence is not None:
        columns |= {"predicted": subject.predicted[chosen], "confidence": subject.confidence[chosen].round(4)}
    return {
        "graph": graph.name,
        "model": None if run is None else run.model_name,
        "has_maps": subject.convolved is not None,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "features": graph.feature_names if graph.num_features <= MOST_FEATURES else None,
        "whole": len(chosen) == graph.num_nodes,
        "note": note,
        "classes": subject.classes,
        "parts": PARTS,
        "colours": [colour_of(i) for i in range(len(subject.classes))],
        "unsure": UNSURE,
        "draws": None if subject.over_draws is None else subject.over_draws.draws,
        "names": [subject.name(i) for i in chosen.tolist()],
        "nodes": {name: column.tolist() for name, column in columns.items()},
        "positions": {name: np.asarray(p, np.float64).round(4).T.tolist() for name, p in positions.items()},
        "edges": edges.tolist(),
    }


def around(subject: Subject, node: int) -> Ints:
    """List a node and those nearest to it, `MOST_AROUND` at most, in ascending order."""
    hops = count_hops(subject.graph, np.array([node]), 1)
    for most in (2, 3):
        further = count_hops(subject.graph, np.array([node]), most)
        if (further >= 0).sum() > MOST_AROUND:
            break
        hops = further
    reached = np.flatnonzero(hops >= 0)
    order = np.argsort(hops[reached], kind="stable")[:MOST_AROUND]
    return np.sort(reached[order])


def search(subject: Subject, text: str) -> list[dict[str, Any]]:
    """List the nodes whose names hold `text`: those that are called so first, then those that begin with it."""
    wanted = text.casefold()
    names = enumerate(_folded(subject))
    matches = [(name != wanted, not name.startswith(wanted), i) for i, name in names if wanted in name]
    return [subject.brief(i) for *_, i in sorted(matches)[:MOST_FOUND]]


def _folded(subject: Subject) -> list[str]:
    return [subject.name(i).casefold() for i in range(subject.graph.num_nodes)]
