"""Planetoid: scores and losses against NumPy, what contexts are drawn, what labels do to the embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nfcgcn.baselines.planetoid import PlanetoidI, PlanetoidT
from nfcgcn.baselines.planetoid_contexts import Contexts, LabelledWalks, draw_triplets
from nfcgcn.config.registry import make_config
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph
from nfcgcn.inference.prediction import predict
from nfcgcn.method.sampling import adjacency_lists
from nfcgcn.training import TrainingConfig, cuda_graph, fit
from nfcgcn.training.loop import fit_in_steps

FEW = {"split": "ratio", "epochs": 3, "hidden_channels": 6}
FEWER = {"planetoid-t": {}, "planetoid-i": {"pretraining": 5, "contexts": 50}}


def softmax(scores):
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def numpy_of(layer):
    return layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()


def contexts_of(graph, nodes):
    starts, neighbours = (part.numpy() for part in adjacency_lists(graph.edge_index, graph.num_nodes))
    return Contexts(starts, neighbours, nodes, graph.labels[nodes])


@pytest.fixture
def ring():
    """Twelve nodes in a ring, then two without edges; classes 0 and 1 take turns."""
    nodes = np.arange(12)
    features = np.random.default_rng(0).random((14, 5)).astype(np.float32)
    return Graph.from_edges(np.stack([nodes, (nodes + 1) % 12]), features, labels=np.arange(14) % 2, name="ring")


@pytest.mark.parametrize("kind", ["planetoid-t", "planetoid-i"])
def test_scores_are_the_equation_s(kind, ring):
    config = make_config(kind, settings={**FEW, **FEWER[kind]})
    net, split = config.build(ring, 1), config.split.make(ring, 1)
    fit(net, ring, split, config.training, seed=1)
    x = ring.features.astype(np.float64)
    if kind == "planetoid-t":
        embedding = net.vectors.double().numpy()
        assert embedding.shape == (14, 6)
    else:
        weight, bias = numpy_of(net.first)
        embedding = np.maximum(x @ weight.T + bias, 0)
    parts = [
        softmax(read @ weight.T + bias)
        for read, (weight, bias) in ((x, numpy_of(net.of_features)), (embedding, numpy_of(net.of_embedding)))
    ]
    weight, bias = numpy_of(net.output)
    expected = np.concatenate(parts, axis=1) @ weight.T + bias
    with torch.no_grad():
        np.testing.assert_allclose(net(ring.x, ring.edge_index).numpy(), expected, rtol=1e-4, atol=1e-5)
        train = torch.from_numpy(split.train)
        loss = net.further_loss(ring.x, ring.edge_index, train, ring.y[train], None).item()
    by_labels = -sum(np.log(part[split.train, ring.labels[split.train]]).mean() for part in parts)
    if kind == "planetoid-t":
        assert loss == pytest.approx(by_labels, rel=1e-4)
    else:
        assert loss > by_labels + 1e-3


def test_the_loss_of_contexts(ring):
    net = PlanetoidI(5, 3, 2, contexts=40, negatives=4, walk_length=5, window=2).eval()
    known, rng = contexts_of(ring, np.arange(6)), np.random.default_rng
    vectors = torch.from_numpy(rng(3).normal(size=(14, 3))).float()
    i, c, n = draw_triplets(known, 40, length=5, window=2, label_share=net.config.label_share, rng=rng([7]))
    with torch.no_grad():
        found = net._context_loss(ring.x, ring.edge_index, known, vectors, seed=[7]).item()
        e, w = net.embedding(ring.x, ring.edge_index).double().numpy(), vectors.double().numpy()
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    near, far = (e[i] * w[c]).sum(1), (e[i] * w[n]).sum(1)
    assert found == pytest.approx(-np.log(sigmoid(near)).mean() - 4 * np.log(sigmoid(-far)).mean(), rel=1e-5)


def test_contexts_are_near_on_walks_or_of_one_class(ring):
    known = contexts_of(ring, np.array([0, 1, 2, 3, 12, 13]))
    centre, context, negative = draw_triplets(
        known, 4000, length=9, window=2, label_share=0.25, rng=np.random.default_rng(0)
    )
    by_label = slice(0, 1000)
    labelled = set(known.nodes.tolist())
    assert {*centre[by_label].tolist(), *context[by_label].tolist(), *negative[by_label].tolist()} == labelled
    assert (ring.labels[centre[by_label]] == ring.labels[context[by_label]]).all()
    assert (ring.labels[centre[by_label]] != ring.labels[negative[by_label]]).all()
    steps = np.abs(centre[1000:] - context[1000:])
    steps = np.minimum(steps, 12 - steps)
    assert set(steps.tolist()) == {0, 1, 2}  # 0: a walk comes back
    assert set(centre[1000:].tolist()) == set(range(12))  # nodes without edges are on no walk
    assert set(negative[1000:].tolist()) == set(range(14))


def test_contexts_where_one_of_the_two_is_missing(ring):
    rng = np.random.default_rng(1)
    bare = Graph.from_edges(np.zeros((2, 0), int), ring.features, labels=ring.labels)
    centre, context, _ = draw_triplets(
        contexts_of(bare, np.arange(4)), 50, length=3, window=1, label_share=0.1, rng=rng
    )
    assert (ring.labels[centre] == ring.labels[context]).all()
    known = contexts_of(ring, np.array([0, 2, 4]))  # one class alone
    assert len(draw_triplets(known, 20, length=3, window=1, label_share=1.0, rng=rng)[2]) == 20


@pytest.mark.parametrize(("share", "labelled"), [(0.0, 0), (0.25, 20), (1.0, 60)])
def test_a_share_of_the_sequences_is_of_one_class(ring, share, labelled):
    known = contexts_of(ring, np.array([0, 1, 5, 7]))
    source = LabelledWalks(known, length=7, passes=5, label_share=share)
    rows = np.concatenate([sequences for sequences, _ in source.sequences(seed=3)])
    assert len(rows) == len(source) == labelled + 60 * (share < 1)
    steps = np.diff(rows, axis=1) % 12
    walks = ((steps == 1) | (steps == 11)).all(1)
    assert (~walks).sum() == labelled
    for row in rows[~walks]:
        assert set(row.tolist()) <= {0} or set(row.tolist()) <= {1, 5, 7}


def test_labels_bring_the_embeddings_of_a_class_together(ring):
    def likeness(share):
        net = PlanetoidT(5, 8, 2, num_walks=60, step_size=0.1, label_share=share)
        nodes = torch.tensor([0, 4, 8, 3, 7, 11])
        net.begin_training(ring.x, ring.edge_index, nodes, torch.tensor([0, 0, 0, 1, 1, 1]))
        unit = net.vectors[nodes] / net.vectors[nodes].norm(dim=1, keepdim=True)
        both = unit @ unit.T
        return ((both[:3, :3].sum() - 3) / 6 - both[:3, 3:].mean()).item()

    assert likeness(0.7) > likeness(0.0) + 0.5


def test_only_the_inductive_form_knows_other_graphs(ring):
    other = ring.extend(np.ones((1, 5), np.float32), np.array([[14], [0]]))
    for kind in ("planetoid-i", "planetoid-t"):
        config = make_config(kind, settings={**FEW, **FEWER[kind]})
        net = config.build(ring, 0)
        fit(net, ring, config.split.make(ring, 0), config.training)
        if kind == "planetoid-i":
            assert len(predict(net, other)) == 15
            continue
        with pytest.raises(GraphError, match=r"^a PlanetoidT knows only the nodes and edges that it was trained on, "):
            predict(net, other)


def test_training_learns_from_contexts_too(ring):
    states = []
    for weight in (0.0, 1.0):
        config = make_config("planetoid-i", settings={**FEW, **FEWER["planetoid-i"], "context_weight": weight})
        net, split = config.build(ring, 0), config.split.make(ring, 0)
        parts, cpu = (split.train, split.val), torch.device("cpu")
        fit_in_steps(net, ring, parts, config.training, seed=0, device=cpu, on_epoch=None)
        states.append(net.first.weight.detach().clone())
    assert not torch.allclose(*states)


@pytest.mark.parametrize("kind", ["planetoid-t", "planetoid-i"])
def test_no_cuda_graph_forgets_the_further_loss(kind, ring):
    net = make_config(kind, settings=FEW).build(ring, 0)
    with pytest.raises(cuda_graph.Refusal, match="the loss is not that of the scores alone"):
        cuda_graph.make_net([net], ring, TrainingConfig(), torch.device("cpu"))
