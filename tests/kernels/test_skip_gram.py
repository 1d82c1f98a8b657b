"""Walks and skip-gram: the kernels say what the reference says, for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from nfcgcn.kernels import skip_gram
from nfcgcn.kernels.contract import THREADS
from nfcgcn.kernels.cpu import skip_gram as cpu
from nfcgcn.kernels.cpu import walks as cpu_walks
from nfcgcn.kernels.reference import skip_gram as reference
from nfcgcn.kernels.reference import walks as reference_walks
from nfcgcn.kernels.skip_gram import Source, draw_negatives, learn_vectors, negative_table, window_pairs
from random_graphs import random_graph

ALL = (2**32, 2**32, 2**32)
BIASED = (2**30, 2**32, 2**31)


@pytest.fixture(scope="module")
def lists():
    adjacency = random_graph(80, sparse=False).adjacency
    return adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)


def walks(make, lists, limits=ALL, number=5, count=80, length=12):
    first = np.arange(count, dtype=np.int32) % 80
    return make(*lists, first, length=length, seed=11, number=number, limits=limits)


@pytest.mark.parametrize("limits", [ALL, BIASED, (1, 1, 2**32)], ids=["plain", "biased", "hardly any"])
def test_walks_are_those_of_the_reference(lists, limits, threads):
    expected = walks(reference_walks.walk, lists, limits)
    for count in THREADS:
        threads(count)
        np.testing.assert_array_equal(walks(cpu_walks.walk, lists, limits), expected)


def test_walks_follow_edges_and_depend_on_their_number_alone(lists):
    starts, neighbours = lists
    found = walks(skip_gram.walk, lists)
    for one, other in zip(found[:, :-1].ravel(), found[:, 1:].ravel(), strict=True):
        assert other in neighbours[starts[one] : starts[one + 1]]
    first = np.arange(3, 10, dtype=np.int32)
    some = skip_gram.walk(*lists, first, length=12, seed=11, number=8, limits=ALL)
    np.testing.assert_array_equal(some, found[3:10])


def test_steps_are_taken_in_proportion_to_their_limits():
    """From 0 by 1 in a triangle 0, 1, 2 with a tail 1 - 3: back to 0, on to 2, which 0 knows, or to 3."""
    starts, neighbours = np.array([0, 2, 5, 7, 8]), np.array([1, 2, 0, 2, 3, 0, 1, 1])
    found = skip_gram.walk(
        starts, neighbours, np.zeros(40_000, np.int32), length=3, seed=0, number=0, limits=(2**30, 2**32, 2**31)
    )
    third = found[found[:, 1] == 1, 2]
    shares = np.bincount(third, minlength=4) / len(third)
    np.testing.assert_allclose(shares, [1 / 7, 0, 4 / 7, 2 / 7], atol=0.01)


def test_pairs_count_as_often_as_a_drawn_window_takes_them():
    pairs = window_pairs(6, 2, segment=3, negatives=5)
    expected = np.zeros((6, 6))
    for i, j in ((0, 1), (1, 2), (3, 4), (4, 5)):
        expected[i, j] = expected[j, i] = 1
    for i, j in ((0, 2), (3, 5)):
        expected[i, j] = expected[j, i] = 0.5
    np.testing.assert_array_equal(pairs.weights, expected)
    assert pairs.reach == 2


@pytest.mark.parametrize("tied", [False, True], ids=["apart", "tied"])
@pytest.mark.parametrize(("width", "window"), [(1, 1), (7, 3), (20, 2), (64, 30), (130, 9)])
def test_a_round_is_that_of_the_reference(lists, tied, width, window, threads):
    rng = np.random.default_rng(0)
    length = 9 if window < 30 else 45  # so that more rows are near each other than a primitive takes at a time
    sequences = walks(reference_walks.walk, lists, count=11, length=length)
    lengths = np.array([length] * 10 + [4])
    drawn = draw_negatives(negative_table(np.diff(lists[0])), 3, np.arange(11))
    pairs = window_pairs(length, window, segment=length, negatives=3)
    vectors, contexts = rng.normal(size=(2, 80, width)).astype(np.float32) / width**0.5

    def result(make_round):
        u = vectors.copy()
        v = u if tied else contexts.copy()
        make_round(u, v, sequences, lengths, drawn, pairs=pairs, step=0.05)
        return np.stack([u, v])

    expected = result(reference.skip_gram_round)
    assert abs(expected[0] - vectors).max() > 0.01
    found = []
    for count in THREADS:
        threads(count)
        found.append(result(cpu.skip_gram_round))
        np.testing.assert_allclose(found[-1], expected, atol=2e-5)
        np.testing.assert_array_equal(found[-1], found[0])


def test_a_round_by_hand():
    """Two nodes, one pair in either direction, no weight on negative nodes."""
    u, v = np.array([[0.5], [1.0]], np.float32), np.array([[0.2], [0.4]], np.float32)
    pairs = window_pairs(2, 1, segment=2, negatives=0)
    drawn = np.zeros((1, reference.SHARED), np.int32)
    cpu.skip_gram_round(u, v, np.array([[0, 1]], np.int32), np.array([2]), drawn, pairs=pairs, step=0.1)
    first = 0.1 * (1 - 1 / (1 + np.exp(-0.5 * 0.4)))
    second = 0.1 * (1 - 1 / (1 + np.exp(-1.0 * 0.2)))
    np.testing.assert_allclose(u[:, 0], [0.5 + first * 0.4, 1.0 + second * 0.2], rtol=1e-5)
    np.testing.assert_allclose(v[:, 0], [0.2 + second * 1.0, 0.4 + first * 0.5], rtol=1e-5)


def test_negative_nodes_are_drawn_by_degree():
    table = negative_table(np.array([0, 1, 16, 81]))
    drawn = draw_negatives(table, 0, np.arange(2000))
    shares = np.bincount(drawn.ravel(), minlength=4) / drawn.size
    np.testing.assert_allclose(shares, np.array([0, 1, 8, 27]) / 36, atol=0.01)


@pytest.mark.parametrize("limits", [ALL, None], ids=["walks", "edges"])
def test_vectors_have_the_same_bits_for_any_number_of_threads(lists, limits, threads, monkeypatch):
    monkeypatch.setattr(skip_gram, "NODES_EACH", 10)
    monkeypatch.setattr(skip_gram, "CHUNK", 30)
    source = Source(*lists, length=8, passes=2, limits=limits)
    pairs = window_pairs(8, 3, segment=8 if limits else 2, negatives=5)
    found = []
    for count in THREADS:
        threads(count)
        found.append(learn_vectors(source, pairs, width=20, step=0.05, seed=4))
    assert all(np.array_equal(each, found[0]) for each in found)
    assert np.isfinite(found[0]).all()
    assert not np.array_equal(found[0], learn_vectors(source, pairs, width=20, step=0.05, seed=5))
    monkeypatch.setattr(skip_gram, "numba_refusal", lambda: "none")
    np.testing.assert_allclose(learn_vectors(source, pairs, width=20, step=0.05, seed=4), found[0], atol=1e-4)


def test_every_edge_is_seen_in_both_directions(lists):
    source = Source(*lists, length=8, passes=1, limits=None)
    chunks = [zip(*chunk, strict=True) for chunk in source.sequences(0)]
    seen = np.concatenate([nodes[:length].reshape(-1, 2) for chunk in chunks for nodes, length in chunk])
    owners = np.repeat(np.arange(80), np.diff(lists[0]))
    assert sorted(map(tuple, seen.tolist())) == sorted(zip(owners.tolist(), lists[1].tolist(), strict=True))
    assert len(source) == sum(len(sequences) for sequences, _ in source.sequences(0))
