"""Lists and their scores against independent computations: brute force, and scikit-learn's NDCG."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from nfcgcn.errors import GraphError
from nfcgcn.recommendation import ranking
from nfcgcn.recommendation.metrics import precision_recall, score_lists
from nfcgcn.recommendation.ranking import fair_order, first_of_rows, top_items, top_of_matrix


def brute_force(scores, seen, top, among=None):
    place = {int(item): rank for rank, item in enumerate(fair_order(scores.shape[1]))}
    lists = []
    for user, row in enumerate(scores):
        left = [i for i in range(len(row)) if not seen[user, i] and (among is None or i in among)]
        left = sorted(left, key=lambda i: (-row[i], place[i]))[:top]
        lists.append(left + [-1] * (top - len(left)))
    return np.array(lists)


@given(seed=st.integers(0, 10_000), top=st.integers(1, 9), ties=st.booleans())
def test_lists_are_those_of_brute_force(seed, top, ties):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (5, 7)).astype(np.float32) if ties else rng.normal(size=(5, 7)).astype(np.float32)
    seen = rng.random((5, 7)) < 0.4
    among = np.flatnonzero(rng.random(7) < 0.7)
    for named in (None, among):
        found, values = top_of_matrix(scores, top=top, seen=sp.csr_array(seen), among=named)
        np.testing.assert_array_equal(found, brute_force(scores, seen, top, None if named is None else set(named)))
        there = found >= 0
        np.testing.assert_array_equal(values[there], np.take_along_axis(scores, found, 1)[there])


def test_blocks_and_vectors_give_the_same_lists(monkeypatch):
    rng = np.random.default_rng(0)
    users, items = (torch.from_numpy(rng.integers(-2, 3, (n, 3)).astype(np.float32)) for n in (9, 11))
    seen = sp.csr_array(rng.random((9, 11)) < 0.3)
    whole, _ = top_items(users, items, top=4, seen=seen)
    np.testing.assert_array_equal(whole, brute_force((users @ items.T).numpy(), seen.toarray(), 4))
    monkeypatch.setattr(ranking, "CELLS", 25)  # two users at a time
    np.testing.assert_array_equal(top_items(users, items, top=4, seen=seen)[0], whole)


def test_equal_scores_follow_neither_the_file_nor_popularity():
    order = fair_order(1000)
    assert sorted(order) == list(range(1000))
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.1
    places, values = first_of_rows(torch.tensor([[1.0, 2.0, 2.0, 2.0]]), 2)
    assert places.tolist() == [[1, 2]]
    assert values.tolist() == [[2, 2]]


def test_scores_by_hand():
    lists = np.array([[0, 1, 2], [3, 4, -1], [0, 1, 2]])
    test = sp.csr_array(np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]))
    scores = score_lists(lists, test)
    first = (1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3) + 1 / math.log2(4))
    second = 1 / math.log2(3)
    assert scores["ndcg"] == pytest.approx((first + second) / 2)
    assert scores["recall"] == pytest.approx((2 / 3 + 1) / 2)
    assert scores["precision"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert scores["coverage"] == 1.0  # of the two users who are judged: 0 to 4
    assert scores["users"] == 2
    with pytest.raises(GraphError, match="no user has a test interaction"):
        score_lists(lists, sp.csr_array((3, 5)))


@given(seed=st.integers(0, 10_000), top=st.integers(1, 12))
def test_ndcg_is_that_of_scikit_learn(seed, top):
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(10.0), (6, 1)), axis=1).astype(np.float32)
    test = rng.random((6, 10)) < 0.3
    seen = (rng.random((6, 10)) < 0.2) & ~test
    test[0, 0], seen[0, 0] = True, False
    found, _ = top_of_matrix(scores, top=top, seen=sp.csr_array(seen))
    judged = test.any(1)
    theirs = ndcg_score(test[judged].astype(float), np.where(seen, -99.0, scores)[judged], k=top)
    assert score_lists(found, sp.csr_array(test))["ndcg"] == pytest.approx(theirs)


def test_precision_and_recall_of_every_length():
    lists = np.array([[0, 1, 2], [2, 1, 0]])
    test = sp.csr_array(np.array([[0, 1, 0], [1, 1, 0]]))
    for length, precision, recall in precision_recall(lists, test):
        scores = score_lists(lists[:, :length], test)
        assert (precision, recall) == pytest.approx((scores["precision"], scores["recall"]))
