"""PyTorch Geometric's ``Explainer`` on our models: masks on features work, masks on edges are refused by PyG."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nfcgcn import GCN, NFCGCN, fit, predict
from nfcgcn.graph import Graph, Split
from nfcgcn.training import TrainingConfig

PAIRS, FEATURES, PLANTED = 120, 10, 5
MODELS = {
    "nfc-gcn K=0": lambda: NFCGCN(FEATURES, 8, 0, 2, bandwidth=2, filters=8, kernel_size=4, stride=1, map_dropout=0.0),
    "nfc-gcn": lambda: NFCGCN(FEATURES, 8, 2, 2, bandwidth=2, filters=8, kernel_size=4, stride=1, map_dropout=0.0),
    "gcn": lambda: GCN(FEATURES, 8, 2, 2, dropout=0.0),
}


@pytest.fixture(scope="module")
def pairs():
    """Nodes joined in pairs: feature 5 of the second decides about the first."""
    rng = np.random.default_rng(0)
    x = (rng.random((2 * PAIRS, FEATURES)) < 0.3).astype(np.float32)
    first = np.arange(PAIRS)
    labels = np.concatenate([x[PAIRS:, PLANTED].astype(np.int64), np.full(PAIRS, -1)])
    return Graph.from_edges([first, first + PAIRS], x, labels=labels), Split(first[:80], first[80:], first[:0])


def explainer(model, algorithm, edge_mask_type):
    from torch_geometric.explain import Explainer

    return Explainer(
        model,
        algorithm=algorithm,
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type=edge_mask_type,
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_planted_feature_is_found(name, pairs):
    from torch_geometric.explain import DummyExplainer, GNNExplainer

    graph, split = pairs
    torch.manual_seed(0)
    model = MODELS[name]()
    fit(model, graph, split, TrainingConfig(epochs=80, learning_rate=0.05))
    model.eval()
    right = split.val[predict(model, graph)[split.val] == graph.labels[split.val]]
    node = next(int(n) for n in right if graph.labels[n] == 1 and not graph.features[n, PLANTED])
    torch.manual_seed(0)
    found = explainer(model, GNNExplainer(epochs=60), None)(graph.x, graph.edge_index, index=node)
    assert int(found.node_mask[node + PAIRS].argmax()) == PLANTED
    if name != "gcn":  # to which a node and its one neighbour look the same
        assert divmod(int(found.node_mask.argmax()), FEATURES) == (node + PAIRS, PLANTED)
    with pytest.raises(ValueError, match=r"edges are used via message passing inside the model or disable it"):
        explainer(model, GNNExplainer(epochs=2), "object")(graph.x, graph.edge_index, index=node)
    dummy = explainer(model, DummyExplainer(), None)(graph.x, graph.edge_index, index=node)
    assert dummy.node_mask.shape == graph.x.shape
