"""How far a model reads from a node, and how far nodes lie from each other."""

from __future__ import annotations

import numpy as np

from nfcgcn.baselines import GAT, GCN, MLP, SAGE, ChebNet, Fingerprint, GatedGNN, JKNet, PlanetoidI, PlanetoidT
from nfcgcn.baselines.sampled import SampledClassifier
from nfcgcn.graph import Graph, Ints
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.method.model import NFCGCN


def count_hops(graph: Graph, nodes: Ints, most: int) -> Ints:
    """Count the edges from each node to the nearest of `nodes`, ``[N]``; -1 if there are more than `most`."""
    hops = np.full(graph.num_nodes, -1, np.int64)
    hops[nodes] = 0
    ring = np.unique(nodes)
    for hop in range(1, most + 1):
        reached = np.unique(graph.adjacency[ring].indices)
        ring = reached[hops[reached] < 0]
        if not len(ring):
            break
        hops[ring] = hop
    return hops


def reach(model: NodeClassifier) -> int | None:
    """Return how many edges away features can still affect a score, or None if there is no limit."""
    if isinstance(model, MLP | PlanetoidT | PlanetoidI):
        return 0
    if isinstance(model, SampledClassifier):
        return 1
    if isinstance(model, NFCGCN):
        return len(model.layers) + 1 + len(model.stack)
    if isinstance(model, ChebNet):
        return len(model.layers) * int(model.config.order)
    if isinstance(model, GatedGNN):
        return int(model.config.steps)
    return len(model.layers) if isinstance(model, GCN | GAT | SAGE | JKNet | Fingerprint) else None
