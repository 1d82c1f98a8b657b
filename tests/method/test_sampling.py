import re
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Graph
from nfcgcn.method.node_feature_conv import NodeFeatureConv
from nfcgcn.method.sampling import (
    adjacency_lists,
    draw_rows,
    neighbour_table,
    node_scores,
    order_by_similarity,
    rank_by_score,
    sample_neighbours,
)

graphs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
)


@given(graphs, st.integers(1, 7), st.integers(0, 99), st.sampled_from(["random", "similarity", "degree", "pagerank"]))
def test_rows_hold_the_node_then_distinct_neighbours_then_copies(case, bandwidth, seed, slot_order):
    n, pairs = case
    features = np.random.default_rng(seed).random((n, 3))
    graph = Graph.from_edges(np.array(pairs, np.int64).reshape(-1, 2).T, features)
    table = sample_neighbours(graph, bandwidth=bandwidth, seed=seed, slot_order=slot_order)
    assert table.shape == (n, bandwidth)
    assert table.dtype == np.int64
    for node, row in enumerate(table.tolist()):
        around = set(graph.adjacency[[node]].indices.tolist())
        count = min(bandwidth - 1, len(around))
        drawn = row[1 : count + 1]
        assert row[0] == node
        assert len(set(drawn)) == count
        assert set(drawn) <= around
        assert row[count + 1 :] == [node] * (bandwidth - 1 - count)


def with_degree(degree, num_nodes):
    """CSR lists in which every node has the neighbours 0 to `degree` - 1."""
    return torch.arange(num_nodes + 1) * degree, torch.arange(degree).repeat(num_nodes)


@pytest.mark.parametrize("draw", [draw_rows, draw_rows.formula], ids=["as it runs", "formula"])
@pytest.mark.parametrize(("degree", "drawn"), [(5, 2), (4, 4), (7, 1)], ids=str)
def test_ordered_draws_are_uniform(draw, degree, drawn):
    num_nodes = 60_000
    table = draw(*with_degree(degree, num_nodes), size=drawn, seed=0)[:, 1:].numpy()
    code = (table * degree ** np.arange(drawn)).sum(1)
    counts = np.bincount(code, minlength=degree**drawn)
    possible = [sum(v * degree**i for i, v in enumerate(p)) for p in permutations(range(degree), drawn)]
    assert counts[possible].sum() == num_nodes
    assert chisquare(counts[possible]).pvalue > 0.001


def test_what_is_drawn_for_neighbouring_nodes_is_independent():
    table = draw_rows(*with_degree(6, 60_000), size=1, seed=0)[:, 1].numpy()
    pairs = np.bincount(table[:-1] * 6 + table[1:], minlength=36)
    assert chisquare(pairs).pvalue > 0.001


def test_one_seed_and_draw_give_one_table_and_others_differ(dense_graph):
    def table(**by):
        return sample_neighbours(dense_graph, bandwidth=4, **by)

    np.testing.assert_array_equal(table(seed=1, draw=2), table(seed=1, draw=2))
    np.testing.assert_array_equal(table(), table(seed=0, draw=0))
    for other in (table(seed=2, draw=2), table(seed=1, draw=1), table(seed=2, draw=1)):
        # Nearly all rows differ: of six neighbours or so, three have the same order in one row of a hundred.
        assert (table(seed=1, draw=2) != other).any(1).mean() > 0.9


def test_a_table_handed_out_is_the_callers_own(dense_graph):
    table = sample_neighbours(dense_graph, bandwidth=4)
    table[:] = 0
    assert sample_neighbours(dense_graph, bandwidth=4).any()


def test_a_row_depends_on_its_own_neighbours_alone(dense_graph):
    edge_index = dense_graph.edge_index
    before = neighbour_table(edge_index, 300, bandwidth=4, seed=3)
    assert torch.equal(neighbour_table(edge_index.clone(), 500, bandwidth=4, seed=3)[:300], before)
    more = torch.cat([edge_index, torch.tensor([[17], [40]])], dim=1)
    changed = (neighbour_table(more, 300, bandwidth=4, seed=3) != before).any(1).nonzero().flatten().tolist()
    assert set(changed) <= {40}
    assert not (edge_index == torch.tensor([[17], [40]])).all(0).any()


@pytest.mark.parametrize("bandwidth", [0, -3])
def test_bandwidth_below_one(four_nodes, bandwidth):
    text = f"`bandwidth` must be at least 1, got {bandwidth}; it counts the node itself"
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        sample_neighbours(four_nodes, bandwidth=bandwidth)


def test_adjacency_lists_by_hand():
    edge_index = torch.tensor([[2, 0, 2, 1, 3, 3, 0], [0, 1, 0, 0, 3, 0, 2]])
    starts, neighbours = adjacency_lists(edge_index, 5)
    assert starts.tolist() == [0, 3, 4, 5, 5, 5]
    assert neighbours.tolist() == [1, 2, 3, 0, 0]
    assert starts.dtype == neighbours.dtype == torch.int64


@pytest.mark.parametrize("edge", [[4, 0], [0, 4], [-1, 0], [0, -1]], ids=str)
def test_edges_outside_the_nodes(edge):
    text = "`edge_index` names a node outside 0 to 3; does it belong to these features?"
    with pytest.raises(GraphError, match=f"^{re.escape(text)}$"):
        adjacency_lists(torch.tensor([[0, edge[0]], [1, edge[1]]]), 4)


def cosine(a, b):
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norms) if norms else 0.0


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_similarity_order_against_brute_force(sparse):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 9)) * (rng.random((60, 9)) < 0.7)
    x[[4, 17, 33]] = 0
    edges = rng.integers(60, size=(2, 400))
    graph = Graph.from_edges(edges, sp.csr_array(x) if sparse else x)
    before = sample_neighbours(graph, bandwidth=8, seed=1)
    after = sample_neighbours(graph, bandwidth=8, seed=1, slot_order="similarity")
    assert (before != after).any()
    for node in range(60):
        drawn = [j for j in before[node, 1:].tolist() if j != node]
        expected = sorted(drawn, key=lambda j: -cosine(x[node], x[j]))  # stable, as equals keep their drawn order
        found = after[node].tolist()
        assert found[0] == node
        assert sorted(found) == sorted(before[node].tolist())
        similarities = [cosine(x[node], x[j]) for j in found[1 : len(drawn) + 1]]
        np.testing.assert_allclose(similarities, [cosine(x[node], x[j]) for j in expected], atol=1e-6)
        assert found[len(drawn) + 1 :] == [node] * (7 - len(drawn))


def test_copies_stay_last_behind_opposite_neighbours():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.1]])
    table = torch.tensor([[0, 1, 2, 0], [1, 0, 1, 1], [2, 0, 2, 2]])
    assert order_by_similarity(x, table).tolist() == [[0, 2, 1, 0], [1, 0, 1, 1], [2, 0, 2, 2]]


@pytest.mark.parametrize("power", [-110, 100])
@pytest.mark.parametrize("form", ["sparse_graph", "dense_graph"])
def test_rows_of_any_magnitude_are_ordered_alike(form, power, request):
    graph = request.getfixturevalue(form)
    extreme = replace(graph, features=(graph.features * 2.0**power).astype(np.float32))
    one, other = (sample_neighbours(g, bandwidth=6, slot_order="similarity") for g in (graph, extreme))
    assert (one == other).all()
    assert (one != sample_neighbours(graph, bandwidth=6)).any()


def test_similarity_is_an_angle_and_not_a_length():
    x = torch.tensor([[1.0, 0.0], [100.0, 100.0], [0.1, 0.01]])
    assert order_by_similarity(x, torch.tensor([[0, 1, 2]])).tolist() == [[0, 2, 1]]


@pytest.mark.parametrize(
    ("which", "slot_order"),
    [("sparse_graph", "random"), ("sparse_graph", "similarity"), ("dense_graph", "similarity")],
)
def test_a_layer_draws_the_table_of_its_seed(which, slot_order, request):
    graph = request.getfixturevalue(which)
    table = sample_neighbours(graph, bandwidth=4, seed=11, slot_order=slot_order)
    layer = NodeFeatureConv(40, 3, bandwidth=4, kernel_size=8, stride=4, slot_order=slot_order, seed=11).eval()
    drawn, given_table = layer(graph.x, graph.edge_index), layer(graph.x, neighbours=torch.from_numpy(table))
    assert torch.equal(drawn, given_table)
    layer.seed = 12
    assert not torch.equal(layer(graph.x, graph.edge_index), given_table)
    layer.seed, layer.draw = 11, 1
    other = sample_neighbours(graph, bandwidth=4, seed=11, draw=1, slot_order=slot_order)
    assert torch.equal(layer.table(graph.x, graph.edge_index), torch.from_numpy(other))


def test_pagerank_is_the_published_one(sparse_graph):
    import networkx as nx

    scores = node_scores(sparse_graph.edge_index, 300, "pagerank").numpy()
    known = nx.pagerank(nx.from_scipy_sparse_array(sparse_graph.adjacency), alpha=0.85, tol=1e-12)
    np.testing.assert_allclose(scores / scores.sum(), [known[i] for i in range(300)], rtol=1e-6)


@pytest.mark.parametrize("order", ["degree", "pagerank"])
def test_neighbours_are_sorted_by_their_rank(order, sparse_graph):
    before = sample_neighbours(sparse_graph, bandwidth=5, seed=1)
    after = sample_neighbours(sparse_graph, bandwidth=5, seed=1, slot_order=order)
    scores = node_scores(sparse_graph.edge_index, 300, order).tolist()
    for node, (one, other) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        drawn = [j for j in one[1:] if j != node]
        assert other == [node, *sorted(drawn, key=lambda j: -scores[j]), *[node] * (4 - len(drawn))]
    starts, neighbours = adjacency_lists(sparse_graph.edge_index, 300)
    ranks = rank_by_score(torch.tensor(scores), starts, neighbours)
    for node in range(300):
        part = slice(int(starts[node]), int(starts[node + 1]))
        own = [scores[j] for j in neighbours[part].tolist()]
        assert ranks[part].tolist() == [1 + len({s for s in own if s > mine}) for mine in own]


@pytest.mark.parametrize(("by", "weighted"), [("degree", False), ("similarity", True), ("importance", False)])
def test_preferred_neighbours_are_drawn_in_proportion(by, weighted):
    # Node 0 has the neighbours 1, 2 and 3, of degrees 1, 2 and 4.
    pairs = np.array([[0, 1], [0, 2], [0, 3], [2, 4], [3, 4], [3, 5], [3, 6]])
    features = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0], [1, 1, 1], [0, 1, 1]], np.float32)
    weights = np.array([1.0, 2.0, 0.5, 1, 1, 1, 1])
    given = {"weights": weights} if weighted else {}
    graph = Graph.from_edges(pairs.T, features, **given)
    plain = np.zeros((7, 7))
    plain[pairs[:, 0], pairs[:, 1]] = plain[pairs[:, 1], pairs[:, 0]] = 1
    loops = plain + np.eye(7)
    scale = np.diag(loops.sum(0) ** -0.5)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    expected = {
        "degree": plain.sum(0),
        "similarity": unit @ unit[0] + 0.01,
        "importance": ((scale @ loops @ scale) ** 2).sum(0),
    }[by][1:4] * (weights[:3] if weighted else 1)
    draws = 1000
    tables = [sample_neighbours(graph, bandwidth=3, draw=d, neighbour_draw=by)[0] for d in range(draws)]
    first = np.bincount([table[1] for table in tables], minlength=4)[1:4] / draws
    np.testing.assert_allclose(first, expected / expected.sum(), atol=0.05)
    assert all(len(set(table.tolist())) == 3 for table in tables)  # the node and two others


def test_a_preferred_draw_depends_on_the_surroundings_alone(sparse_graph):
    longer = sparse_graph.extend(np.ones((1, 40), np.float32), np.zeros((2, 0), int))
    for by in ("degree", "similarity", "importance"):
        one, other = (sample_neighbours(g, bandwidth=4, seed=3, neighbour_draw=by) for g in (sparse_graph, longer))
        assert (one == other[:-1]).all()
        assert (one != sample_neighbours(sparse_graph, bandwidth=4, seed=3)).any()
