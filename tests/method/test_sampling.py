import re
import time
from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph
from nfcgcn.method.layers import NodeFeatureConv
from nfcgcn.method.sampling import draw_lists, draw_neighbours, order_by_similarity, sample_neighbours
from nfcgcn.randomness import generator

graphs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
)


@given(graphs, st.integers(1, 7), st.integers(0, 99), st.sampled_from(["random", "similarity"]))
def test_rows_hold_the_node_then_distinct_neighbours_then_copies(case, bandwidth, seed, slot_order):
    n, pairs = case
    features = np.random.default_rng(seed).random((n, 3))
    graph = Graph.from_edges(np.array(pairs, np.int64).reshape(-1, 2).T, features)
    table = sample_neighbours(graph, bandwidth=bandwidth, rng=np.random.default_rng(seed), slot_order=slot_order)
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


@given(graphs, st.integers(1, 7), st.integers(0, 99))
def test_lists_hold_distinct_neighbours_and_no_more_than_asked_for(case, size, seed):
    n, pairs = case
    graph = Graph.from_edges(np.array(pairs, np.int64).reshape(-1, 2).T, np.zeros((n, 1)))
    rng = np.random.default_rng(seed)
    nodes = rng.integers(n, size=rng.integers(0, 9))
    starts, columns = graph.adjacency.indptr.astype(np.int64), graph.adjacency.indices.astype(np.int64)
    drawn_starts, drawn = draw_lists(starts, columns, nodes, size=size, rng=rng)
    assert (len(drawn_starts), drawn_starts[0], drawn_starts[-1]) == (len(nodes) + 1, 0, len(drawn))
    for row, node in enumerate(nodes):
        around = columns[starts[node] : starts[node + 1]].tolist()
        mine = drawn[drawn_starts[row] : drawn_starts[row + 1]].tolist()
        assert len(set(mine)) == len(mine) == min(size, len(around))
        assert set(mine) <= set(around)


def test_lists_are_drawn_uniformly():
    starts, columns = np.array([0, 0, 5]), np.array([9, 8, 7, 6, 5])
    drawn = draw_lists(starts, columns, np.ones(40_000, np.int64), size=2, rng=np.random.default_rng(0))[1]
    pairs = drawn.reshape(-1, 2) - 5
    counts = np.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25).reshape(5, 5)
    assert not counts.diagonal().any()
    assert chisquare(counts[~np.eye(5, dtype=bool)]).pvalue > 0.001


@pytest.mark.parametrize(("degree", "drawn"), [(5, 2), (4, 3), (4, 4), (7, 1)], ids=lambda v: str(v))
def test_ordered_draws_are_uniform(degree, drawn):
    num_nodes = 60_000
    starts, neighbours = np.arange(num_nodes + 1) * degree, np.tile(np.arange(degree), num_nodes)
    table = draw_neighbours(starts, neighbours, bandwidth=drawn + 1, rng=np.random.default_rng(0))[:, 1:]
    code = (table * degree ** np.arange(drawn)).sum(1)
    counts = np.bincount(code, minlength=degree**drawn)
    possible = [sum(v * degree**i for i, v in enumerate(p)) for p in permutations(range(degree), drawn)]
    assert counts[possible].sum() == num_nodes
    assert chisquare(counts[possible]).pvalue > 0.001


def test_same_generator_same_table_and_others_differ(dense_graph):
    tables = [sample_neighbours(dense_graph, bandwidth=4, rng=generator(s, "neighbours")) for s in (1, 1, 2)]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert not np.array_equal(tables[0], tables[2])


@pytest.mark.parametrize("bandwidth", [0, -3])
def test_bandwidth_below_one(four_nodes, bandwidth):
    text = f"`bandwidth` must be at least 1, got {bandwidth}; it counts the node itself"
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        sample_neighbours(four_nodes, bandwidth=bandwidth, rng=np.random.default_rng(0))


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
    before = sample_neighbours(graph, bandwidth=8, rng=np.random.default_rng(1))
    after = sample_neighbours(graph, bandwidth=8, rng=np.random.default_rng(1), slot_order="similarity")
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
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.1]], np.float32)
    table = np.array([[0, 1, 2, 0], [1, 0, 1, 1], [2, 0, 2, 2]])
    assert order_by_similarity(table, x).tolist() == [[0, 2, 1, 0], [1, 0, 1, 1], [2, 0, 2, 2]]


def test_similarity_is_an_angle_and_not_a_length():
    x = np.array([[1.0, 0.0], [100.0, 100.0], [0.1, 0.01]], np.float32)
    assert order_by_similarity(np.array([[0, 1, 2]]), x).tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("slot_order", ["random", "similarity"])
@pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])
def test_a_layer_draws_the_table_of_its_seed(which, slot_order, request):
    graph = request.getfixturevalue(which)
    table = sample_neighbours(graph, bandwidth=4, rng=generator(11, "neighbours"), slot_order=slot_order)
    layer = NodeFeatureConv(40, 3, bandwidth=4, kernel_size=8, stride=4, slot_order=slot_order, seed=11).eval()
    drawn, given_table = layer(graph.x, graph.edge_index), layer(graph.x, neighbours=torch.from_numpy(table))
    assert torch.equal(drawn, given_table)
    layer.seed = 12
    layer._table = type(layer._table)()
    assert not torch.equal(layer(graph.x, graph.edge_index), given_table)


def test_drawing_is_fast():
    num_nodes, degree = 400_000, 10  # a million nodes a second and more on one core
    starts = np.arange(num_nodes + 1) * degree
    neighbours = np.random.default_rng(0).integers(num_nodes, size=num_nodes * degree)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        draw_neighbours(starts, neighbours, bandwidth=6, rng=np.random.default_rng(0))
        seconds.append(time.perf_counter() - start)
    assert num_nodes / min(seconds) > 200_000
