"""Splits of a log: sizes, order in time, and items that training never sees."""

from __future__ import annotations

import numpy as np
import pytest
from planted_tastes import planted_log

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.recommendation.interactions import Interactions
from nfcgcn.recommendation.splits import first_of_items, split_log


def keys(log):
    return set(map(tuple, log.pairs.T.tolist()))


@pytest.mark.parametrize("rule", ["random", "latest", "time", "cold-items"])
def test_both_parts_are_the_whole(rule):
    log = planted_log()
    parts = split_log(log, rule, seed=3)
    assert keys(parts.train) | keys(parts.test) == keys(log)
    assert not keys(parts.train) & keys(parts.test)
    assert parts.train.pairs.shape[1] > parts.test.pairs.shape[1] > 0


def test_a_share_of_each_user_is_held_out():
    log = planted_log()
    parts = split_log(log, "random", share=0.25, seed=0)
    counts, held = (np.bincount(part.pairs[0], minlength=60) for part in (log, parts.test))
    np.testing.assert_array_equal(held, np.floor(0.25 * counts + 0.5))
    other = split_log(log, "random", share=0.25, seed=1)
    assert keys(other.test) != keys(parts.test)
    assert keys(split_log(log, "random", share=0.25, seed=0).test) == keys(parts.test)


def test_latest_and_time_hold_out_what_came_last():
    log = planted_log()
    latest = split_log(log, "latest")
    for user in range(60):
        train, test = (part.times[part.pairs[0] == user] for part in (latest.train, latest.test))
        assert train.max() <= test.min()
    parts = split_log(log, "time")
    assert parts.train.times.max() < parts.test.times.min()


def test_a_user_with_one_interaction_keeps_it():
    log = Interactions.from_pairs([("ann", "tea"), *((u, i) for u in ("bob", "eve") for i in "abcd")])
    assert keys(split_log(log, "random", share=0.9).train) >= {(log.users.numbers["ann"], log.items.numbers["tea"])}


def test_training_never_sees_cold_items():
    log = planted_log()
    parts = split_log(log, "cold-items", seed=5)
    assert len(parts.cold) == 4
    assert not np.isin(parts.train.pairs[1], parts.cold).any()
    assert np.isin(parts.test.pairs[1], parts.cold).all()
    first = parts.test.subset(first_of_items(parts.test, parts.cold, 2))
    rest = parts.test.subset(~first_of_items(parts.test, parts.cold, 2))
    for item in parts.cold:
        assert (first.pairs[1] == item).sum() == 2
        assert first.times[first.pairs[1] == item].max() <= rest.times[rest.pairs[1] == item].min()


def test_what_cannot_be_split_is_refused():
    log = planted_log()
    bare = Interactions.from_pairs([("ann", "tea"), ("bob", "milk")])
    with pytest.raises(GraphError, match="all interactions are in the training part"):
        split_log(bare, "random")
    with pytest.raises(GraphError, match="needs to know when interactions were; name their column with --time"):
        split_log(bare, "time")
    with pytest.raises(ConfigError, match="must be above 0 and below 1, got 1; 1 would leave none to train"):
        split_log(log, "random", share=1.0)
    with pytest.raises(ConfigError, match="unknown split 'daily'"):
        split_log(log, "daily")
