"""Weights of edges: what they do to the adjacency and to the draw of neighbours, on every route that scores nodes."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import nfcgcn
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.data.formats import read_npz, write_npz
from nfcgcn.data.splits import make_split
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph, WeightedEdges, quiet_sparse
from nfcgcn.method.acceleration import plain_formulas
from nfcgcn.method.operations import drop_edges, propagate
from nfcgcn.method.sampling import neighbour_table
from nfcgcn.search.fingerprint import fingerprint

TAKE_WEIGHTS = {"nfc-gcn", "nfc-gcn-2d", "gcn", "jknet", "fastgcn", "mlp"}
N, D = 30, 6


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(2)
    pairs = rng.integers(0, N, (2, 70))
    labels = np.arange(N) % 3
    features = rng.random((N, D), np.float32)
    return Graph.from_edges(pairs, features, labels=labels, weights=rng.uniform(0.1, 5, 70), name="weighted")


def made(model, graph):
    few = {"nfc-gcn": {"kernel_size": 2, "stride": 1, "filters": 3}}
    settings = {**few.get(model.removesuffix("-2d"), {}), "epochs": 3, "split": "ratio"}
    config = make_config(model, settings=settings)
    return config, config.build(graph, seed=1).eval()


def normalised(graph, self_weight=1.0):
    """The adjacency as SciPy makes it."""
    whole = graph.adjacency.astype(np.float64) + self_weight * sp.eye_array(graph.num_nodes)
    scale = sp.diags_array(np.asarray(whole.sum(axis=1)).ravel() ** -0.5)
    return scale @ whole @ scale


@pytest.mark.parametrize("self_weight", [1.0, 0.3])
@pytest.mark.parametrize("way", ["kernel", "formula"])
def test_propagation_is_that_of_scipy(graph, self_weight, way):
    h = np.random.default_rng(0).random((N, 4))
    compute = propagate if way == "kernel" else propagate.formula
    found = compute(torch.from_numpy(h), graph.edges, self_weight)
    np.testing.assert_allclose(found.numpy(), normalised(graph, self_weight) @ h, rtol=1e-6)


@pytest.mark.parametrize("weights", [[3e37, 3e37, 3e37], [2e38, 2e38, 0.5]], ids=["of a node", "of an edge"])
def test_weights_whose_sum_no_model_could_divide_by(weights):
    ends = [[0, 0, 0], [1, 2, 3]] if weights[2] > 1 else [[0, 0, 2], [1, 1, 3]]
    with pytest.raises(GraphError, match=r"^the weights of the edges of node 0 add up to .*; divide all weights by"):
        Graph.from_edges(ends, np.ones((4, 2)), weights=weights)


def test_weights_of_one_are_no_weights(four_nodes):
    pairs = four_nodes.edge_index.numpy()
    same = Graph.from_edges(pairs, four_nodes.features, weights=np.ones(pairs.shape[1]))
    assert not same.is_weighted
    assert isinstance(same.edges, torch.Tensor)
    assert (same.adjacency != four_nodes.adjacency).nnz == 0


def test_repeated_edges_add_up_and_the_larger_direction_counts():
    graph = Graph.from_edges(
        [[0, 0, 1, 2, 2, 1], [1, 1, 0, 2, 0, 2]], np.ones((3, 1)), weights=[1.0, 2.0, 0.5, 9.0, 4.0, 0.0]
    )
    assert graph.adjacency.toarray().tolist() == [[0, 3, 4], [3, 0, 0], [4, 0, 0]]
    assert repr(graph) == "Graph('graph', nodes=3, edges=2 weighted, features=1 dense, classes=0)"


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([1.0, -1.0], "must be finite and at least 0, got -1 for edge 1; correct 1 of 2 weights"),
        ([np.nan, 1.0], "must be finite and at least 0, got nan for edge 0; correct 1 of 2 weights"),
        ([1e39, 1.0], r"must be finite and at least 0, got 1e\+39 for edge 0; correct 1 of 2 weights"),
        ([1.0], r"must be 2 numbers, one per edge, got float64 \[1\]"),
        (["a", "b"], r"must be 2 numbers, one per edge, got <U1 \[2\]"),
    ],
)
def test_weights_that_are_refused(weights, text):
    with pytest.raises(GraphError, match=text):
        Graph.from_edges([[0, 1], [1, 2]], np.ones((3, 1)), weights=weights)


def star(weights):
    """Node 0 and its neighbours, with these weights."""
    ends = np.arange(len(weights)) + 1
    return Graph.from_edges([np.zeros_like(ends), ends], np.ones((len(weights) + 1, 1)), weights=weights)


def test_neighbours_are_drawn_in_proportion_to_their_weights():
    weights = np.array([1.0, 2.0, 3.0, 10.0])
    graph, draws = star(weights), 4000
    tables = [neighbour_table(graph.edges, 5, bandwidth=3, seed=7, draw=d)[0].numpy() for d in range(draws)]
    first, second = (np.array([table[slot] for table in tables]) for slot in (1, 2))
    expected = draws * weights / weights.sum()
    # Pearson's statistic: with three degrees of freedom it is above 16.3 in one of a thousand seeds.
    assert (((np.bincount(first, minlength=5)[1:] - expected) ** 2) / expected).sum() < 16.3
    # The second is drawn from those that are left.
    after = np.bincount(second[first == 4], minlength=5)[1:4]
    expected = after.sum() * weights[:3] / weights[:3].sum()
    assert (((after - expected) ** 2) / expected).sum() < 13.8
    assert (first != second).all()


def test_a_draw_depends_on_the_seed_the_node_and_its_own_edges_alone(graph):
    table = neighbour_table(graph.edges, N, bandwidth=4, seed=3)
    longer = graph.extend(np.ones((2, D), np.float32), [[N], [N + 1]], weights=[7.0])
    assert torch.equal(neighbour_table(longer.edges, N + 2, bandwidth=4, seed=3)[:N], table)
    assert not torch.equal(neighbour_table(graph.edges, N, bandwidth=4, seed=4), table)
    assert not torch.equal(neighbour_table(graph.edges, N, bandwidth=4, seed=3, draw=1), table)
    neighbours = [set(graph.adjacency[[i]].indices.tolist()) for i in range(N)]
    for node, row in enumerate(table.tolist()):
        drawn = [other for other in row[1:] if other != node]
        assert row[0] == node
        assert set(drawn) <= neighbours[node]
        assert len(drawn) == len(set(drawn)) == min(3, len(neighbours[node]))


def test_both_directions_of_a_weighted_edge_are_dropped_together(graph):
    torch.manual_seed(0)
    kept = drop_edges(graph.edges, 0.5, training=True)
    assert isinstance(kept, WeightedEdges)
    assert 0 < kept.weight.numel() < graph.edges.weight.numel()
    there = sp.coo_array((kept.weight.numpy(), kept.edge_index.numpy()), shape=(N, N)).tocsr()
    assert (there != there.T).nnz == 0
    assert ((there != 0).multiply(graph.adjacency) != there).nnz == 0


def test_which_models_take_weights():
    assert {name for name, entry in MODELS.items() if entry.model.takes_weights} == TAKE_WEIGHTS


@pytest.mark.parametrize("model", sorted(set(MODELS) - TAKE_WEIGHTS))
def test_other_models_refuse_weights(graph, model):
    with pytest.raises(
        GraphError, match=r"^the edges of 'weighted' have weights, which a \w+ cannot use; read the graph without"
    ):
        make_config(model).build(graph, seed=0)


@pytest.mark.parametrize("model", sorted(TAKE_WEIGHTS))
def test_every_route_uses_the_weights(graph, model):
    config, net = made(model, graph)
    with torch.no_grad():
        scores = net(graph.x, graph.edges)
        nodes = torch.tensor([0, 5, N - 1])
        torch.testing.assert_close(net.score_nodes(graph.x, graph.edges, nodes), scores[nodes])
        with plain_formulas():
            torch.testing.assert_close(
                copy.deepcopy(net).double()(graph.x.double(), graph.edges).float(), scores, rtol=1e-4, atol=1e-5
            )
        plain = net(graph.x, graph.edge_index)
    assert model == "mlp" or not torch.allclose(plain, scores)
    np.testing.assert_allclose(nfcgcn.embed(net, graph, "scores"), scores)
    np.testing.assert_allclose(nfcgcn.predict_proba(net, graph).probabilities, scores.double().softmax(1), rtol=1e-5)
    found = nfcgcn.explain(net, graph, 5)
    assert found.score == pytest.approx(float(scores[5].max()), rel=1e-4)
    assert found.contributions.sum() == pytest.approx(found.score - found.baseline, rel=1e-2, abs=1e-3)
    run = nfcgcn.fit(net, graph, make_split(graph, "ratio", seed=0), config.training)
    assert np.isfinite(run.history[-1]["train_loss"])


def test_two_layers_of_gcn_by_hand(graph):
    _, net = made("gcn", graph)
    first, second = (layer.weight.detach().double().numpy() for layer in net.layers)
    a = normalised(graph)
    expected = a @ np.maximum(a @ graph.features.astype(np.float64) @ first, 0) @ second
    with torch.no_grad():
        np.testing.assert_allclose(net(graph.x, graph.edges), expected, rtol=1e-4, atol=1e-6)


def test_an_estimator_uses_the_weights(graph):
    nodes = np.arange(N)
    settings = {"model": "gcn", "settings": {"epochs": 3}, "random_state": 0, "select": False}
    fitted = nfcgcn.NFCClassifier(graph, **settings).fit(nodes, graph.labels)
    with torch.no_grad():
        scores = fitted.model_(graph.x, graph.edges).double().softmax(1)
    np.testing.assert_allclose(fitted.predict_proba(nodes), scores, rtol=1e-5)


def test_weights_survive_files_and_pyg(graph, tmp_path):
    write_npz(graph, tmp_path / "graph.npz")
    again = read_npz(tmp_path / "graph.npz")
    data = graph.to_pyg()
    for other in (again, Graph.from_pyg(data, weight="edge_weight")):
        assert (other.adjacency != graph.adjacency).nnz == 0
    assert not Graph.from_pyg(data).is_weighted
    with pytest.raises(GraphError, match="the PyG data has no weights `distance`; it has "):
        Graph.from_pyg(data, weight="distance")


def test_the_values_of_adj_t_are_weights(graph):
    from torch_geometric.transforms import ToSparseTensor

    with quiet_sparse():
        data = ToSparseTensor(attr="edge_weight", remove_edge_index=True)(graph.to_pyg())
    assert (Graph.from_pyg(data, weight="adj_t").adjacency != graph.adjacency).nnz == 0


def test_scipy_entries_are_weights_if_that_is_said(graph):
    assert not Graph.from_scipy(graph.adjacency, graph.features).is_weighted
    again = Graph.from_scipy(graph.adjacency, graph.features, weighted=True)
    assert (again.adjacency != graph.adjacency).nnz == 0


def test_results_know_their_weights(graph):
    other = replace(graph, adjacency=graph.adjacency * np.float32(2))
    assert fingerprint(graph) != fingerprint(other)
