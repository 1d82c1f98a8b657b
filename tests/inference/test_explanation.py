"""Explanations: by hand, against plain autograd on the whole graph, and that they add up."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nfcgcn import NFCGCN, explain, explain_classes, fit, load, make_config
from nfcgcn.baselines import GCN, MLP
from nfcgcn.config.registry import MODELS
from nfcgcn.errors import ConfigError, GraphError, NFCWarning
from nfcgcn.graph import Graph, Split
from nfcgcn.inference import feature_path, integration
from nfcgcn.inference.reach import count_hops
from nfcgcn.training import TrainingConfig
from random_graphs import random_graph


def message(text):
    return f"^{re.escape(text)}$"


def two_nodes():
    return Graph.from_edges([[0], [1]], np.array([[1, 2], [4, 0]], np.float32))


def by_hand(num_layers, first=1.0, **options):
    """Slot 0 weighs features by (1, 2), slot 1 by (3, -1); class 1 is half of it."""
    model = NFCGCN(2, 1, num_layers, 2, bandwidth=2, filters=1, kernel_size=2, stride=1, **options).eval()
    with torch.no_grad():
        model.nfc.weight.copy_(torch.tensor([[[1, 2], [3, -1]]]))
        for layer in model.layers[:-1]:
            layer.weight.fill_(first)
        half = torch.tensor([[0.0, 0.5]])
        if num_layers == 0:
            model.classifier.weight.copy_(half.mT)
            model.classifier.bias.copy_(torch.tensor([0, 0.25]))
        else:
            model.layers[-1].weight.copy_(half)
    return model


def test_two_nodes_by_hand_without_graph_convolution():
    e = explain(by_hand(0), two_nodes(), 0)
    assert (e.node, e.target, e.predicted, e.method) == (0, 1, 1, "exact")
    assert (e.score, e.baseline) == (8.75, 0.25)  # (1 + 4 + 12 - 0) / 2 + 1/4
    np.testing.assert_allclose(e.contributions.toarray(), [[0.5, 2], [6, 0]], rtol=1e-15)
    np.testing.assert_allclose(e.own_map.toarray(), [[0.5, 2], [6, 0]], rtol=1e-15)
    assert e.slots.tolist() == [0, 1]
    assert e.hops.tolist() == [0, 1]
    assert [tuple(c) for c in e.top()] == [(1, 0, 4.0, 6.0), (0, 1, 2.0, 2.0), (0, 0, 1.0, 0.5)]
    assert len(e.top(2)) == 2


@pytest.mark.parametrize("num_layers", [1, 2])
def test_two_nodes_by_hand_with_graph_convolutions(num_layers):
    """All of A_hat is 1/2, so that twice is as once: 1/4 of both maps, (x0, x1) and (x1, x0)."""
    e = explain(by_hand(num_layers), two_nodes(), 0, target=1)
    assert e.score == pytest.approx(5.5, rel=1e-6)  # (17 + 5) / 4
    assert e.baseline == 0
    np.testing.assert_allclose(e.contributions.toarray(), [[1, 0.5], [4, 0]], rtol=1e-14)
    np.testing.assert_allclose(e.own_map.toarray(), [[0.25, 1], [3, 0]], rtol=1e-14)


def test_what_a_relu_stops_adds_nothing():
    e = explain(by_hand(2, first=-1.0), two_nodes(), 0, target=1)
    assert (e.score, e.baseline, e.method) == (0, 0, "exact")
    assert e.top() == []


def test_tanh_by_hand():
    """Of tanh(a + b) the integral gives a and b their shares of tanh(a + b) / (a + b)."""
    model = by_hand(0, activation="tanh")
    with torch.no_grad():
        model.nfc.weight.mul_(0.1)
    e = explain(model, two_nodes(), 0, target=1)
    assert e.method == "integrated gradients"
    whole = 0.5 * np.tanh(1.7) / 1.7
    np.testing.assert_allclose(e.contributions.toarray(), whole * np.array([[0.1, 0.4], [1.2, 0]]), rtol=1e-4)
    np.testing.assert_allclose(e.own_map.toarray(), e.contributions.toarray(), rtol=1e-12)


def reference(model, graph, node, target, steps):
    """Integrated gradients by the midpoint rule on the whole graph, ``[N, D]``."""
    model = copy.deepcopy(model).double().eval()
    x = torch.from_numpy(np.asarray(graph.features.todense() if graph.is_sparse else graph.features)).double()
    options = {"neighbours": model.nfc.table(graph.x, graph.edge_index)} if isinstance(model, NFCGCN) else {}
    total = torch.zeros_like(x)
    for step in range(steps):
        at = ((step + 0.5) / steps * x).requires_grad_()
        (gradient,) = torch.autograd.grad(model(at, graph.edge_index, **options)[node, target], at)
        total += gradient / steps
    return (total * x).numpy()


def spoil_biases(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
    return model.eval()


@pytest.mark.parametrize(
    ("num_layers", "classifier", "conv", "activation"),
    [
        (0, "none", "1d", "none"),
        (0, "none", "2d", "tanh"),
        (1, "none", "1d", "relu"),
        (2, "none", "2d", "none"),
        (3, "none", "1d", "tanh"),
        (1, "linear", "2d", "relu"),
        (2, "linear", "1d", "tanh"),
    ],
)
def test_the_surroundings_are_enough(num_layers, classifier, conv, activation):
    """Explaining on the node's surroundings is explaining on the whole graph."""
    graph = random_graph(60, 20, degree=2, sparse=True)
    torch.manual_seed(0)
    options = {"bandwidth": 4, "filters": 3, "kernel_size": 5, "stride": 3, "conv": conv, "kernel_width": 2}
    model = spoil_biases(NFCGCN(20, 4, num_layers, 3, activation=activation, classifier=classifier, **options))
    node = 7
    e = explain(model, graph, node, target=2)
    assert e.method == ("integrated gradients" if activation == "tanh" else "exact")
    expected = reference(model, graph, node, 2, 100 if activation == "tanh" else 1)
    size = np.abs(expected).sum()
    np.testing.assert_allclose(
        e.contributions.toarray(), expected, rtol=0, atol=(1e-3 if activation == "tanh" else 1e-12) * size
    )
    assert e.score == pytest.approx(model(graph.x, graph.edge_index)[node, 2].item(), rel=1e-4, abs=1e-6)
    assert abs(e.error) <= 1e-3 * abs(e.score - e.baseline) + 1e-12
    if num_layers == 0:
        whole = np.zeros_like(expected)
        np.add.at(whole, e.slots, e.own_map.toarray())
        np.testing.assert_allclose(whole, e.contributions.toarray(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ["none", "tanh"])
def test_a_node_s_own_features_stand_in_slot_0_of_its_map(activation):
    model = by_hand(1, activation=activation, own_features="mlp")
    with torch.no_grad():
        model.nfc.weight.zero_()
        model.own[0].weight.copy_(torch.tensor([[1, 3]]))
        model.own[1].weight.copy_(torch.tensor([[0], [0.5]]))
    e = explain(model, two_nodes(), 0, target=1)
    assert (e.score, e.baseline, e.method) == (3.5, 0, "exact")  # (1 + 3 * 2) / 2
    np.testing.assert_allclose(e.contributions.toarray(), [[0.5, 3], [0, 0]], rtol=1e-15)
    np.testing.assert_allclose(e.own_map.toarray(), [[0.5, 3], [0, 0]], rtol=1e-15)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_own_map_is_the_part_of_its_own_row(num_layers):
    """Without activation: what comes through the node's map is the gradient of this row of H(0) W alone."""
    graph = random_graph(40, 12, degree=2, sparse=False)
    torch.manual_seed(0)
    model = NFCGCN(12, 4, num_layers, 2, bandwidth=3, filters=3, kernel_size=4, stride=2).eval()
    e = explain(model, graph, 5)
    table, model = model.nfc.table(graph.x, graph.edge_index), model.double()
    h = model.nfc(graph.x.double(), neighbours=table).detach().requires_grad_()
    out = h
    for layer in model.layers:
        out = layer(out if out is h else out.relu(), graph.edge_index)
    (gradient,) = torch.autograd.grad(out[5, e.target], h)
    assert e.own_map.sum() == pytest.approx((gradient * h)[5].sum().item(), rel=1e-9)
    assert e.own_map.shape == (3, 12)
    np.testing.assert_array_equal(e.slots, table[5].numpy())


@pytest.mark.parametrize(
    ("name", "sparse"),
    [
        *((s, True) for s in MODELS if MODELS[s].model.reads_features),
        ("nfc-gcn", False),
        ("gcn", False),
        ("gat-5", False),
    ],
)
def test_every_model_adds_up(name, sparse, sparse_graph, dense_graph):
    graph = sparse_graph if sparse else dense_graph
    settings = {"kernel_size": 8, "stride": 4} if name.startswith("nfc") else {}
    if name == "sage-mean":
        settings = {"hidden_channels": 8}
    model = spoil_biases(make_config(name, settings=settings).build(graph, 0))
    scores = model(graph.x, graph.edge_index)
    e = explain(model, graph, 3)
    assert e.target == int(scores[3].argmax())
    assert e.score == pytest.approx(scores[3].max().item(), rel=1e-4)
    change = e.score - e.baseline
    assert e.contributions.sum() == pytest.approx(change, rel=1e-3)
    assert e.error == pytest.approx(change - e.contributions.sum(), abs=1e-12)
    absent = np.asarray(graph.features.todense() if sparse else graph.features) == 0
    assert not e.contributions.toarray()[absent].any()
    assert not e.contributions.toarray()[e.hops < 0].any()
    assert (e.own_map is None) == (e.slots is None) == (not name.startswith("nfc"))


@pytest.mark.parametrize("make", [lambda: GCN(40, 8, 2, 3), lambda: MLP(40, 8, 2, 3)], ids=["gcn", "mlp"])
def test_other_models_against_the_whole_graph(make, sparse_graph):
    torch.manual_seed(0)
    model = spoil_biases(make())
    e = explain(model, sparse_graph, 11, target=0)
    expected = reference(model, sparse_graph, 11, 0, 200)
    np.testing.assert_allclose(e.contributions.toarray(), expected, rtol=0, atol=3e-3 * np.abs(expected).sum())


def test_divided_features_are_explained_as_the_model_reads_them(sparse_graph):
    torch.manual_seed(0)
    plain, model = GCN(40, 8, 2, 3).eval(), GCN(40, 8, 2, 3, feature_scale="row-sum").eval()
    model.load_state_dict(plain.state_dict())
    features = sparse_graph.features / sparse_graph.features.sum(axis=1)[:, None]
    divided = explain(plain, Graph.from_edges(sparse_graph.edge_index.numpy(), features), 4)
    e = explain(model, sparse_graph, 4)
    assert e.method == "exact"
    np.testing.assert_allclose(e.contributions.toarray(), divided.contributions.toarray(), rtol=1e-5, atol=1e-9)
    assert model.config.feature_scale == "row-sum"
    assert e.top(1)[0].value == sparse_graph.features[e.top(1)[0].node, e.top(1)[0].feature]


@st.composite
def problems(draw):
    num_nodes, num_features = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    pairs = st.tuples(*[st.integers(0, num_nodes - 1)] * 2)
    edges = np.array(draw(st.lists(pairs, max_size=14)), dtype=np.int64).reshape(-1, 2).T
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.normal(size=(num_nodes, num_features)) * (rng.random((num_nodes, num_features)) < draw(st.floats(0, 1)))
    bandwidth = draw(st.integers(1, 4))
    model = NFCGCN(
        num_features,
        draw(st.integers(1, 4)),
        draw(st.integers(0, 3)),
        draw(st.integers(1, 3)),
        bandwidth=bandwidth,
        filters=draw(st.integers(1, 3)),
        kernel_size=draw(st.integers(1, num_features)),
        stride=draw(st.integers(1, 3)),
        conv=draw(st.sampled_from(["1d", "2d"])),
        kernel_width=draw(st.integers(1, bandwidth)),
        activation=draw(st.sampled_from(["none", "relu", "tanh"])),
        slot_order=draw(st.sampled_from(["random", "similarity"])),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
    return Graph.from_edges(edges, x.astype(np.float32)), model, draw(st.integers(0, num_nodes - 1))


@hypothesis_settings(max_examples=30)
@given(problems())
def test_contributions_add_up(problem):
    graph, model, node = problem
    e = explain(model, graph, node)
    change, size = e.score - e.baseline, np.abs(e.contributions.data).sum()
    rounding = 1e-5 * (size + abs(e.score) + abs(e.baseline))  # of the model's own score, in float32
    assert abs(e.error) <= 1e-3 * abs(change) + rounding
    assert e.error == pytest.approx(change - e.contributions.sum(), abs=1e-9 * (1 + size))
    double = copy.deepcopy(model).double().eval()
    x, table = graph.x.double(), model.nfc.table(graph.x, graph.edge_index)
    assert e.score == pytest.approx(double(x, graph.edge_index, table)[node, e.target].item(), abs=rounding)
    empty = double(torch.zeros_like(x), graph.edge_index, table)[node, e.target].item()
    assert e.baseline == pytest.approx(empty, rel=1e-9, abs=1e-12)
    if model.config.activation != "tanh":
        assert e.method == "exact"
        assert change == pytest.approx(e.contributions.sum(), abs=rounding)


@pytest.mark.parametrize("num_layers", [0, 1])
def test_without_its_feature_the_score_falls_by_the_contribution(num_layers):
    graph = random_graph(50, 16, degree=4, sparse=False)
    torch.manual_seed(0)
    model = NFCGCN(16, 4, num_layers, 3, bandwidth=4, filters=4, kernel_size=4, stride=2).eval()
    before = explain(model, graph, 9)
    top = before.top(1)[0]
    features = graph.features.copy()
    features[top.node, top.feature] = 0
    after = explain(model, Graph.from_edges(graph.edge_index.numpy(), features), 9, target=before.target)
    assert before.score - after.score == pytest.approx(top.contribution, rel=1e-4)
    assert top.value == graph.features[top.node, top.feature]


def test_the_planted_feature_is_found():
    """Pairs of nodes: one is asked about, and feature 5 of the other one decides."""
    rng = np.random.default_rng(0)
    num_pairs, num_features = 150, 12
    x = (rng.random((2 * num_pairs, num_features)) < 0.3).astype(np.float32)
    asked, partner = np.arange(num_pairs), np.arange(num_pairs, 2 * num_pairs)
    labels = np.concatenate([x[partner, 5].astype(np.int64), np.full(num_pairs, -1)])
    graph = Graph.from_edges([asked, partner], x, labels=labels)
    model = NFCGCN(num_features, 8, 0, 2, bandwidth=2, filters=8, kernel_size=4, stride=1, map_dropout=0.0)
    fit(model, graph, Split(asked[:100], asked[100:], asked[:0]), TrainingConfig(epochs=100, learning_rate=0.05))
    having = asked[100:][x[partner[100:], 5] == 1]
    for node in having:
        e = explain(model, graph, int(node), target=1)
        assert e.predicted == 1
        assert e.top(1)[0][:2] == (node + num_pairs, 5)
    classes = explain_classes(model, graph, nodes=asked)
    assert classes[1].top(1)[0][0] == 5
    assert classes[1].num_nodes == int(labels[asked].sum())


@pytest.mark.parametrize(
    ("activation", "precision"), [("none", 1e-9), ("relu", 1e-9), ("tanh", 2e-3)], ids=["none", "relu", "tanh"]
)
def test_a_class_is_the_mean_of_its_nodes(activation, precision):
    graph = random_graph(30, 12, degree=2, sparse=True)
    torch.manual_seed(0)
    options = {"bandwidth": 3, "filters": 3, "kernel_size": 4, "stride": 2, "activation": activation}
    model = NFCGCN(12, 4, 2, 3, **options).eval()
    each = [explain(model, graph, node) for node in range(30)]
    for found in explain_classes(model, graph):
        its = [e for e in each if e.target == found.target]
        assert found.num_nodes == len(its)
        if its:
            mean = np.mean([np.asarray(e.contributions.sum(axis=0)).ravel() for e in its], axis=0)
            atol = precision * np.abs(mean).sum()
            np.testing.assert_allclose(found.contributions, mean, rtol=0, atol=atol)
            assert found.score == pytest.approx(np.mean([e.score for e in its]))
            assert abs(found.error) <= 1e-3 * abs(found.score - found.baseline)


def test_a_class_that_nobody_has():
    model = by_hand(0)
    with torch.no_grad():
        model.classifier.bias.copy_(torch.tensor([-100.0, 0]))
    none, both = explain_classes(model, two_nodes())
    assert (none.target, none.num_nodes, none.top(5)) == (0, 0, [])
    assert both.num_nodes == 2


@pytest.mark.parametrize("activation", ["none", "relu", "tanh"])
def test_the_size_of_chunks_changes_nothing(activation, sparse_graph, monkeypatch):
    torch.manual_seed(0)
    model = NFCGCN(40, 4, 2, 3, filters=4, kernel_size=8, stride=4, activation=activation).eval()
    whole = explain(model, sparse_graph, 3)
    monkeypatch.setattr(feature_path, "CHUNK", 1000)
    monkeypatch.setattr(feature_path, "MOST_KEPT", 0)
    monkeypatch.setattr(feature_path, "MOST_SEEN", 2)
    pieces = explain(model, sparse_graph, 3)
    np.testing.assert_allclose(pieces.contributions.toarray(), whole.contributions.toarray(), rtol=0, atol=1e-12)


def test_the_model_and_the_generator_stay_as_they_are(sparse_graph):
    model = NFCGCN(40, 4, 2, 3, kernel_size=8, stride=4, resample="epoch").train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    e = explain(model, sparse_graph, 0)
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert all(p.grad is None and p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])
    model.eval()
    assert e.score == pytest.approx(model(sparse_graph.x, sparse_graph.edge_index)[0].max().item(), rel=1e-4)
    assert e.contributions.sum() == pytest.approx(e.score - e.baseline, rel=1e-3)
    assert e.slots.tolist() == model.nfc.table(sparse_graph.x, sparse_graph.edge_index)[0].tolist()


def test_too_few_points_are_admitted(sparse_graph, monkeypatch):
    torch.manual_seed(0)
    model = spoil_biases(make_config("sage-mean").build(sparse_graph, 0))
    monkeypatch.setattr(integration, "MOST_POINTS", 5)
    monkeypatch.setattr(integration, "TOLERANCE", 1e-9)
    text = r"^the contributions leave \S+ of the score's change of \S+ unexplained, even with 5 integration points$"
    with pytest.warns(NFCWarning, match=text):
        explain(model, sparse_graph, 0)


def test_refusals(sparse_graph, monkeypatch):
    model = GCN(40, 8, 2, 3)
    with pytest.raises(GraphError, match=message("`node` must be between 0 and 299, got 300")):
        explain(model, sparse_graph, 300)
    with pytest.raises(ConfigError, match=message("`target` must be a class from 0 to 2, got 3")):
        explain(model, sparse_graph, 0, target=3)
    with pytest.raises(
        GraphError,
        match=message(
            "the model was made for 39 features per node, got 40; "
            "explain it on a graph with the features it was trained on"
        ),
    ):
        explain(NFCGCN(39, 8, 2, 3), sparse_graph, 0)
    monkeypatch.setattr(feature_path, "MOST_DENSE", 100)
    around = int((count_hops(sparse_graph, np.array([0]), 3) >= 0).sum())
    with pytest.raises(
        GraphError,
        match=message(
            f"the scores depend on {around} nodes with 40 features each, too many for memory; explain other nodes, or "
            "a model with fewer layers"
        ),
    ):
        explain(model, sparse_graph, 0)


def test_hops_by_hand():
    graph = Graph.from_edges([[0, 1, 2, 5], [1, 2, 3, 4]], np.ones((6, 1), np.float32))
    assert count_hops(graph, np.array([0]), 2).tolist() == [0, 1, 2, -1, -1, -1]
    assert count_hops(graph, np.array([0, 5]), 9).tolist() == [0, 1, 2, 3, 1, 0]


@pytest.mark.data
@pytest.mark.parametrize(("conv", "activation"), [("1d", "none"), ("2d", "relu"), ("1d", "tanh")])
def test_cora_adds_up(conv, activation, cora):
    hub = int(np.diff(cora.adjacency.indptr).argmax())
    for num_layers in range(4):
        torch.manual_seed(num_layers)
        model = NFCGCN(1433, 16, num_layers, 7, conv=conv, activation=activation, filters=4).eval()
        scores = model(cora.x, cora.edge_index)
        for node in (5, hub):
            e = explain(model, cora, node)
            assert e.score == pytest.approx(scores[node].max().item(), rel=1e-4)
            assert e.contributions.sum() == pytest.approx(e.score - e.baseline, rel=1e-3)


@pytest.fixture(scope="module")
def cora():
    return load("cora")


@pytest.mark.parametrize("name", ["mlp", "gcn", "gat", "sage-mean", "jknet", "lgcn", "chebnet", "gated-gnn", "gnn"])
def test_features_that_no_node_has_cost_nothing(name):
    """A star of 300 nodes: with a million features each, of which three are ever seen, 2 GiB would not do."""
    wide, used = 10**6, np.array([7, 500_000, 999_999])
    rng = np.random.default_rng(0)
    x = np.where(rng.random((300, 3)) < 0.5, rng.random((300, 3)), 0).astype(np.float32)
    entries = sp.coo_array(x)
    features = sp.csr_array((entries.data, (entries.row, used[entries.col])), shape=(300, wide))
    star, labels = np.stack([np.zeros(299, int), np.arange(1, 300)]), np.arange(300) % 2
    graph, small = (Graph.from_edges(star, f, labels=labels) for f in (features, sp.csr_array(x)))
    config = make_config(name, settings={"hidden_channels": 2})
    model, other = (config.build(g, 0).eval() for g in (graph, small))
    with torch.no_grad():
        for ours, weight in zip(other.parameters(), model.parameters(), strict=True):
            axis = list(weight.shape).index(wide) if wide in weight.shape else None
            ours.copy_(weight if axis is None else weight.index_select(axis, torch.from_numpy(used)))
    found, expected = explain(model, graph, 0), explain(other, small, 0)
    np.testing.assert_allclose(found.contributions[:, used].toarray(), expected.contributions.toarray(), atol=1e-7)
    assert found.contributions.nnz == expected.contributions.nnz
    assert found.score == pytest.approx(expected.score, abs=1e-5)
