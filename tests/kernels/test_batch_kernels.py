"""What mini-batches need of a graph: the compiled loops against the formulas, from memory and from a mapped file."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nfcgcn.graph import Graph
from nfcgcn.kernels.batches import draw_hop, draw_table, renumber, take_rows
from nfcgcn.kernels.reference import batches as reference
from nfcgcn.kernels.sparse import normalised_adjacency
from nfcgcn.method.sampling import draw_seed, neighbour_table
from random_graphs import random_graph

NODES = np.array([5, 0, 17, 88, 41])


@pytest.fixture(params=["32-bit", "64-bit", "mapped"])
def lists(request, tmp_path):
    a = random_graph(90, sparse=True, degree=12).adjacency
    if request.param == "mapped":
        for name in ("indptr", "indices"):
            np.save(tmp_path / f"{name}.npy", getattr(a, name))
        return a, *(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices"))
    dtype = np.int32 if request.param == "32-bit" else np.int64
    return a, a.indptr.astype(dtype), a.indices.astype(dtype)


def dense(rows, columns, values, num_nodes):
    out = np.zeros((len(rows) - 1, num_nodes))
    np.add.at(out, (np.repeat(np.arange(len(rows) - 1), np.diff(rows)), columns), values)
    return out


def weighted(graph):
    rng = np.random.default_rng(3)
    source, target = graph.edge_index.numpy()
    kept = source < target
    pairs = np.stack([source[kept], target[kept]])
    return Graph.from_edges(pairs, graph.features, weights=rng.uniform(0.2, 3, pairs.shape[1]))


@pytest.mark.parametrize("size", [1, 4, 200])
def test_tables_are_those_of_the_whole_graph(lists, size):
    a, starts, neighbours = lists
    graph = Graph(a, np.zeros((90, 1), np.float32), np.full(90, -1, np.int64))
    whole = neighbour_table(graph.edge_index, 90, bandwidth=size + 1, seed=7).numpy()
    drawn = draw_table(starts, neighbours, NODES, size=size, seed=draw_seed(7, 0))
    np.testing.assert_array_equal(drawn, whole[NODES])
    formula = reference.draw_table(starts, neighbours, NODES, size=size, seed=draw_seed(7, 0))
    np.testing.assert_array_equal(formula, drawn)


@pytest.mark.parametrize("size", [1, 3, None])
@pytest.mark.parametrize("with_weights", [False, True])
def test_hops_are_those_of_the_formula(size, with_weights):
    graph = random_graph(90, sparse=True, degree=12)
    graph = weighted(graph) if with_weights else graph
    a = graph.adjacency
    weights = a.data if with_weights else None
    ours = draw_hop(a.indptr, a.indices, weights, NODES, size=size, seed=11, self_weight=1.5)
    theirs = reference.draw_hop(a.indptr, a.indices, weights, NODES, size=size or 10**9, seed=11, self_weight=1.5)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    if size is None:
        whole = normalised_adjacency(graph.edges, 90, torch.float64, 1.5).matrix.to_dense().numpy()
        np.testing.assert_allclose(dense(*ours, 90), whole[NODES], rtol=1e-6)


@pytest.mark.parametrize("with_weights", [False, True])
def test_the_mean_of_many_draws_is_the_full_sum(with_weights):
    """Each cell is compared within 5 standard errors of its own mean; the seeds are fixed."""
    graph = random_graph(90, sparse=True, degree=12)
    graph = weighted(graph) if with_weights else graph
    a, weights = graph.adjacency, graph.adjacency.data if with_weights else None
    whole = normalised_adjacency(graph.edges, 90, torch.float64).matrix.to_dense().numpy()[NODES]
    draws = np.stack(
        [
            dense(*draw_hop(a.indptr, a.indices, weights, NODES, size=3, seed=seed * 7919, self_weight=1.0), 90)
            for seed in range(1500)
        ]
    )
    error = draws.std(0, ddof=1) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(0) - whole) <= 5 * error + 1e-7).all()
    assert (draws[0] != whole).any()
    h = np.random.default_rng(0).normal(size=(90, 4))  # and so of what is propagated
    sums = draws @ h
    error = sums.std(0, ddof=1) / np.sqrt(len(sums))
    assert (np.abs(sums.mean(0) - whole @ h) <= 5 * error + 1e-6).all()


def test_new_numbers_follow_the_first_appearance():
    first, others = np.array([9, 4]), np.array([4, 7, 7, 10**12, 9, 0])
    for ways in (renumber, reference.renumber):
        nodes, places = ways(first, others)
        assert nodes.tolist() == [9, 4, 7, 10**12, 0]
        assert places.tolist() == [1, 2, 2, 3, 0, 4]


def test_rows_of_features():
    x = random_graph(50, sparse=True).features
    for ways in (take_rows, reference.take_rows):
        starts, columns, values = ways(x.indptr, x.indices, x.data, np.array([3, 3, 49, 0]))
        np.testing.assert_array_equal(dense(starts, columns, values, 40), x.toarray()[[3, 3, 49, 0]])


def test_many_rows_at_once(lists):
    """So many that what comes is fetched ahead; the order is any."""
    a, starts, neighbours = lists
    nodes = np.random.default_rng(0).integers(0, 90, 5000)
    for ours, theirs in (
        (take_rows(starts, neighbours, a.data, nodes), reference.take_rows(starts, neighbours, a.data, nodes)),
        (
            [draw_table(starts, neighbours, nodes, size=4, seed=3)],
            [reference.draw_table(starts, neighbours, nodes, size=4, seed=3)],
        ),
        (renumber(nodes[:1], nodes), reference.renumber(nodes[:1], nodes)),
    ):
        for own, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(own, other)
