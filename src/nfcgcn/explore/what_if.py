"""What would the model say if a node had another feature, edge or draw of neighbours? Nothing is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.errors import GraphError
from nfcgcn.explore.subject import Subject
from nfcgcn.graph import Floats, Graph, Ints
from nfcgcn.inference.prediction import predict_draw
from nfcgcn.reports.explanation_page import node_name

MOST_CHANGES = 100
MOST_DRAW = 10_000


def what_if(
    subject: Subject,
    node: int,
    *,
    features: Mapping[int, float] | None = None,
    add: Sequence[int] = (),
    remove: Sequence[int] = (),
    draw: int = 0,
) -> dict[str, Any]:
    """Return the class probabilities of a node before and after changes to its features, its edges and its draw."""
    assert subject.run is not None  # noqa: S101
    assert subject.probabilities is not None  # noqa: S101
    graph = change(subject.graph, node, features=features or {}, add=add, remove=remove)
    if not 0 <= draw <= MOST_DRAW:
        raise GraphError(f"`draw` must be between 0 and {MOST_DRAW}, got {draw}")
    after = predict_draw(subject.run.model, graph, draw)
    flipped = np.flatnonzero(after.argmax(1) != subject.probabilities.argmax(1))
    others = flipped[flipped != node]
    answer = {
        "node": node,
        "before": subject.probabilities[node].tolist(),
        "after": after[node].tolist(),
        "others": len(others),
        "first_others": [subject.brief(int(j)) for j in others[:10]],
    }
    if subject.convolved is not None:
        slots = subject.table(graph, draw=draw)[node]
        answer["slots"] = [{"node": int(j), "name": subject.name(int(j)), "own": int(j) == node} for j in slots]
    return answer


def change(
    graph: Graph, node: int, *, features: Mapping[int, float], add: Sequence[int], remove: Sequence[int]
) -> Graph:
    """Return the graph with other features and neighbours of one node; the numbers of all nodes stay."""
    if len(features) + len(add) + len(remove) > MOST_CHANGES:
        raise GraphError(f"at most {MOST_CHANGES} changes are tried at once; undo some")
    neighbours = set(graph.adjacency.indices[slice(*graph.adjacency.indptr[node : node + 2])].tolist())
    for other in (*add, *remove):
        if not 0 <= other < graph.num_nodes or other == node:
            raise GraphError(f"an edge needs another node from 0 to {graph.num_nodes - 1}, got {other}")
    for other in add:
        if other in neighbours:
            raise GraphError(f"node {node_name(graph, other)} is a neighbour already; choose another one")
    for other in remove:
        if other not in neighbours:
            raise GraphError(f"node {node_name(graph, other)} is not a neighbour; there is no edge to remove")
    for feature, value in features.items():
        if not 0 <= feature < graph.num_features or not math.isfinite(value) or abs(value) > 1e6:
            raise GraphError(
                f"a change needs a feature from 0 to {graph.num_features - 1} and a value within a million, "
                f"got {feature} and {value}"
            )
    others: Ints = np.array([*dict.fromkeys(add), *dict.fromkeys(remove)], np.int64)
    if len(others):
        weights = graph.adjacency[[node]].toarray()[0]  # 0 without an edge
        by = np.where(weights[others] > 0, -weights[others], 1).astype(weights.dtype)
        graph = replace(graph, adjacency=_with_edges(graph.adjacency, node, others, by))
    return replace(graph, features=_with_values(graph.features, node, features)) if features else graph


def _with_edges(adjacency: sp.csr_array, node: int, others: Ints, by: Floats) -> sp.csr_array:
    ends = np.full(len(others), node), others
    step = sp.coo_array((by, ends), shape=adjacency.shape)
    changed = sp.csr_array(adjacency + step + step.T)
    changed.eliminate_zeros()
    changed.sort_indices()
    return changed


def _with_values(features: sp.csr_array | Floats, node: int, values: Mapping[int, float]) -> sp.csr_array | Floats:
    row = features[[node]]
    row = (row if isinstance(row, np.ndarray) else row.toarray()).copy()
    row[0, list(values)] = list(values.values())
    if isinstance(features, np.ndarray):
        changed = features.copy()
        changed[node] = row[0]
        return changed
    parts = (features[:node], sp.csr_array(row), features[node + 1 :])
    return sp.csr_array(sp.vstack(parts, format="csr"))
