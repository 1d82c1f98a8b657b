"""Graphs that are drawn, for tests of all stages."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from nfcgcn.graph import Graph


def random_graph(
    num_nodes: int = 300, num_features: int = 40, *, num_classes: int = 3, degree: int = 6, sparse: bool, seed: int = 0
) -> Graph:
    """Classes that show in the features and, less so, in the edges; nobody is without an edge, everyone has a label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num_nodes)
    labels[:num_classes] = np.arange(num_classes)
    source = np.repeat(np.arange(num_nodes), degree // 2)
    target = rng.integers(num_nodes, size=len(source))
    inside = rng.random(len(source)) < 0.5
    for label in range(num_classes):
        where = np.flatnonzero(inside & (labels[source] == label))
        target[where] = rng.choice(np.flatnonzero(labels == label), len(where))
    edges = np.concatenate([[source, target], [np.arange(num_nodes), np.roll(np.arange(num_nodes), 1)]], axis=1)
    topics = rng.random((num_classes, num_features)) < 0.3
    chance = np.where(topics[labels], 0.35, 0.12)
    x = ((rng.random((num_nodes, num_features)) < chance) * rng.uniform(0.5, 1.5, chance.shape)).astype(np.float32)
    features = sp.csr_array(x) if sparse else x
    return Graph.from_edges(edges, features, labels=labels, name="random sparse" if sparse else "random dense")
