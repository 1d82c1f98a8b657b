"""Edges are held out by a seed or by time, and pairs without an edge have none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Graph
from nfcgcn.links.negatives import NegativeSampler
from nfcgcn.links.splits import pair_keys, pairs_of, split_by_time, split_edges, with_edges


@pytest.fixture(scope="module")
def graph(make_graph):
    return make_graph(80, 8, sparse=False)


def test_85_5_10_as_kipf(graph):
    split = split_edges(graph, seed=0)
    count = graph.num_edges
    assert split.sizes == {
        "train": count - count // 20 - count // 10,
        "val": count // 20,
        "test": count // 10,
    }
    everything = np.concatenate([split.train, split.val, split.test], axis=1)
    assert sorted(pair_keys(everything, 80)) == sorted(pair_keys(pairs_of(graph), 80))
    assert (everything[0] < everything[1]).all()
    again, other = split_edges(graph, seed=0), split_edges(graph, seed=1)
    assert (again.test == split.test).all()
    assert (other.test != split.test).any()


def test_by_time_the_newest_edges_are_for_testing(graph):
    pairs = pairs_of(graph)
    rng = np.random.default_rng(0)
    times = rng.permutation(pairs.shape[1]).astype(float)
    flipped = np.concatenate([pairs[::-1], pairs[:, :1]], axis=1)  # directions do not matter; the first time counts
    split = split_by_time(graph, flipped, [*times, 1e9])
    when = dict(zip(pair_keys(pairs, 80).tolist(), times.tolist(), strict=True))
    parts = [[when[key] for key in pair_keys(getattr(split, part), 80).tolist()] for part in ("train", "val", "test")]
    assert max(parts[0]) < min(parts[1])
    assert max(parts[1]) < min(parts[2])
    assert split.sizes == split_edges(graph).sizes


def test_edges_of_the_same_time_stay_together(graph):
    pairs = pairs_of(graph)
    times = np.arange(pairs.shape[1]) // 7
    split = split_by_time(graph, pairs, times)
    when = dict(zip(pair_keys(pairs, 80).tolist(), times.tolist(), strict=True))
    parts = [{when[key] for key in pair_keys(getattr(split, part), 80).tolist()} for part in ("train", "val", "test")]
    assert not parts[0] & parts[1]
    assert not parts[1] & parts[2]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (lambda count: np.zeros(count), "the split 'time' has no val edge to choose the best epoch by"),
        (lambda count: np.full(count, np.nan), "edge 0 has no time; give each edge one"),
        (lambda count: np.zeros(count - 1), "`times` must be one number per pair"),
    ],
    ids=["all the same", "missing", "too few"],
)
def test_bad_times(graph, times, message):
    pairs = pairs_of(graph)
    with pytest.raises(GraphError, match=message):
        split_by_time(graph, pairs, times(pairs.shape[1]))


def test_an_edge_without_a_time(graph):
    pairs = pairs_of(graph)
    with pytest.raises(GraphError, match=f"the edge between nodes {pairs[0, -1]} and {pairs[1, -1]} has no time"):
        split_by_time(graph, pairs[:, :-1], np.arange(pairs.shape[1] - 1))


def test_bad_shares(graph):
    with pytest.raises(ConfigError, match=r"must be above 0 and below 1 together, got 0\.5 and 0\.6"):
        split_edges(graph, val_ratio=0.5, test_ratio=0.6)
    path = Graph.from_edges([[0, 1], [1, 2]], np.eye(3, dtype=np.float32))
    with pytest.raises(GraphError, match="has no val edge to choose the best epoch by: 2 train, 0 validation, 0 test"):
        split_edges(path)


def test_a_graph_with_some_of_its_edges_keeps_their_weights():
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]], np.eye(4), weights=[0.5, 2.0, 3.0])
    part = with_edges(graph, np.array([[0, 2], [1, 3]]))
    assert part.adjacency.toarray()[0, 1] == np.float32(0.5)
    assert part.adjacency.toarray()[3, 2] == 3
    assert part.num_edges == 2


@given(
    num_nodes=st.integers(3, 14), share=st.floats(0, 1), seed=st.integers(0, 99),
    way=st.sampled_from(["uniform", "same-degree", "two-hops"]),
)  # fmt: skip
def test_negatives_are_never_known_edges(num_nodes, share, seed, way):
    rng = np.random.default_rng(seed)
    upper = np.stack(np.triu_indices(num_nodes, 1)).astype(np.int64)
    known = upper[:, rng.random(upper.shape[1]) < share]
    if known.shape[1] == upper.shape[1]:
        with pytest.raises(GraphError, match="every two nodes have an edge"):
            NegativeSampler(known, num_nodes)
        return
    sampler = NegativeSampler(known, num_nodes)
    like = upper[:, rng.integers(upper.shape[1], size=20)]
    for pairs in (sampler.draw(like, way, rng), sampler.draw_distinct(like[:, : sampler.num_free], way, rng)):
        assert (pairs[0] != pairs[1]).all()
        assert not np.isin(pair_keys(pairs, num_nodes), pair_keys(known, num_nodes)).any()
    assert len(np.unique(pair_keys(pairs, num_nodes))) == min(20, sampler.num_free)
    with pytest.raises(GraphError, match=f"only {sampler.num_free:,} pairs of nodes have no edge"):
        sampler.draw_distinct(np.tile(like, 10), way, rng)


def test_hard_negatives_are_hard(graph):
    pairs = pairs_of(graph)
    sampler, rng = NegativeSampler(pairs, graph.num_nodes), np.random.default_rng(0)
    degrees = np.diff(graph.adjacency.indptr)
    like = pairs[:, rng.integers(pairs.shape[1], size=400)]
    turn = np.arange(400) % 2
    stays, leaves = like[turn, np.arange(400)], like[1 - turn, np.arange(400)]
    drawn = sampler.draw(like, "same-degree", rng)
    assert (drawn[0] == stays).mean() > 0.95  # the others found no such node
    assert (degrees[drawn[1]] == degrees[leaves])[drawn[0] == stays].all()
    assert len(np.unique(drawn[1])) > 30
    two_hops = (graph.adjacency @ graph.adjacency).toarray() > 0
    far = sampler.draw(like, "two-hops", rng)
    assert two_hops[far[0], far[1]].all()
    plain = sampler.draw(like, "uniform", rng)
    assert not two_hops[plain[0], plain[1]].all()
