"""What a search was worth on test nodes, and which settings mattered."""

import math
from dataclasses import replace

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from nfcgcn.config.registry import make_config
from nfcgcn.evaluation import paired, repeat
from nfcgcn.graph import Split
from nfcgcn.search.importance import FEWEST_TRIALS, importances
from nfcgcn.search.trials import Trial
from nfcgcn.search.tuning import Tuned, seed_splits
from nfcgcn.search.worth import Worth, score_on_test

NODES = np.arange(300)
TRIAL = Trial({}, [0.5, 0.5], 1.0, "complete", is_start=True)


@pytest.fixture(scope="module")
def graph(make_graph):
    return replace(make_graph(sparse=True), given=Split(NODES[:60], NODES[60:160], NODES[160:]))


def tuned_to(graph, rule, *, found=(("hidden_channels", 8),), state="complete"):
    start = make_config("gcn", graph=graph, settings={"epochs": 8, "split": rule})
    config = replace(start, model=replace(start.model, **dict(found)))
    return Tuned(config, start, {}, (4, 5), 100, (replace(TRIAL, state=state),), interrupted=False)


@pytest.mark.parametrize("rule", ["given", "ratio", "fastgcn"])
def test_found_and_before_are_scored_with_the_same_new_seeds_on_the_same_nodes(graph, make_graph, rule):
    if rule == "fastgcn":
        graph = replace(make_graph(700, sparse=True), test_nodes=np.arange(640, 700))
    tuned = tuned_to(graph, rule)
    tested = score_on_test(graph, tuned, count=3)
    first = tuned.config.split.make(graph, 4)
    splits = seed_splits(graph, tuned.config, first, (4, 6, 7, 8))
    if rule == "fastgcn":  # a published split is scored as published
        splits = dict.fromkeys(splits, first)
    right = {}
    for name, config, scores in (("found", tuned.config, tested.found), ("before", tuned.default, tested.before)):
        repeats = repeat(graph, config, (6, 7, 8), splits=[splits[seed] for seed in (6, 7, 8)])
        assert scores == {r.seed: r.test_accuracy for r in repeats}
        assert all(r.split.test is first.test for r in repeats)
        right[name] = np.array([r.predictions[first.test] == graph.labels[first.test] for r in repeats])
    differences = (right["found"].astype(float) - right["before"]).mean(axis=0)
    assert tested.node_error == pytest.approx(differences.std() / len(first.test) ** 0.5)
    assert tested.difference.mean == pytest.approx(differences.mean())


def test_the_interval_allows_for_seeds_and_for_nodes():
    found, before = {1: 0.5, 2: 0.75, 3: 0.75}, {1: 0.5, 2: 0.5, 3: 0.75}
    by_seeds = paired(found, before)
    mean, low, high = Worth(found, before, 0.0).difference
    assert (mean, low, high) == pytest.approx((by_seeds.mean, by_seeds.low, by_seeds.high))
    _, low, high = Worth(found, before, 0.25).difference
    assert high - mean == pytest.approx(math.hypot(by_seeds.high - mean, 0.49))
    assert mean - low == pytest.approx(high - mean)
    assert Worth({1: 0.5}, {1: 0.25}, 0.1).difference is None


def test_settings_that_did_not_change_are_scored_once(graph, monkeypatch):
    from nfcgcn.search import worth

    calls = []
    monkeypatch.setattr(worth, "repeat", lambda *args, **options: calls.append(1) or repeat(*args, **options))
    tested = score_on_test(graph, tuned_to(graph, "given", found=()), count=2)
    assert tested.found == tested.before
    assert tested.difference == (0.0, 0.0, 0.0)
    assert len(calls) == 1
    failed = score_on_test(graph, tuned_to(graph, "given", state="failed"), count=2)
    assert failed.before == {}
    assert failed.difference is None
    assert len(calls) == 2


RANGES = {
    "learning_rate": FloatDistribution(0.001, 0.1, log=True),
    "hidden_channels": IntDistribution(4, 64, log=True),
    "activation": CategoricalDistribution(("none", "tanh")),
}


def trials_of(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        params = {
            "learning_rate": float(10 ** rng.uniform(-3, -1)),
            "hidden_channels": int(rng.integers(4, 65)),
            "activation": ("none", "tanh")[rng.integers(2)],
        }
        accuracy = 0.5 + 0.2 * (math.log10(params["learning_rate"]) + 2) + 0.01 * rng.random()
        yield Trial(params, [accuracy], 1.0, "complete" if accuracy > 0.5 else "pruned")


def test_what_mattered_comes_first(graph):
    tuned = replace(tuned_to(graph, "given"), ranges=RANGES, trials=tuple(trials_of(FEWEST_TRIALS)))
    shares = importances(tuned)
    assert next(iter(shares)) == "learning_rate"
    assert shares["learning_rate"] > 0.8
    assert sum(shares.values()) == pytest.approx(1)
    assert importances(tuned) == shares


def test_few_trials_do_not_tell_what_mattered(graph):
    tuned = replace(tuned_to(graph, "given"), ranges=RANGES, trials=tuple(trials_of(FEWEST_TRIALS)))
    failed = replace(tuned.trials[-1], state="failed", accuracies=[])
    assert importances(replace(tuned, trials=(*tuned.trials[:-1], failed))) is None
    same = tuple(replace(trial, accuracies=[0.5]) for trial in tuned.trials)
    assert importances(replace(tuned, trials=same)) is None
