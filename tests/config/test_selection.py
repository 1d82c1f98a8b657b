"""The choice of settings on validation nodes: what it may see, what it may cost, and what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nfcgcn
from nfcgcn.config import selection
from nfcgcn.config.registry import SELECTED, make_config
from nfcgcn.config.selection import Candidate, select, standard_error
from nfcgcn.graph import Split
from nfcgcn.training import DivergedError
from random_graphs import random_graph


@pytest.fixture(scope="module")
def graph():
    return random_graph(sparse=True, seed=3)


def config_of(graph, model="nfc-gcn", **settings):
    return make_config(model, graph=graph, settings={"epochs": 20, "split": "ratio", **settings})


def described(chosen):
    return {**chosen.describe(), "seconds": None}


@pytest.mark.parametrize("model", ["nfc-gcn", "gcn"])
def test_the_best_on_validation_nodes_is_chosen_within_the_budget(graph, model, monkeypatch):
    config = config_of(graph, model)
    assert 1 < select(graph, config).cost <= 3
    monkeypatch.setattr(selection, "COST", 30.0)  # enough for all draws
    chosen = select(graph, config)
    assert chosen.config.preset == SELECTED
    assert chosen.config.split == config.split
    assert len(chosen.candidates) == (5 if model == "nfc-gcn" else 4)
    most = max(len(c.trials) for c in chosen.candidates)
    finalists = [c for c in chosen.candidates if len(c.trials) == most]
    assert len(finalists) == 2
    assert most == 3
    assert chosen.chosen.score == max(c.score for c in finalists)
    first_scores = sorted(c.trials[0].score for c in chosen.candidates)
    assert sorted(c.trials[0].score for c in finalists) == first_scores[-2:]
    assert [c.outcome for c in chosen.candidates].count("chosen") == 1
    assert chosen.candidates[0].changes == {}
    for candidate in chosen.candidates:
        differing = {k: v for k, v in candidate.config.values.items() if v != config.values[k]}
        assert differing == candidate.changes


def test_the_first_draw_is_the_run_of_the_seed_and_its_score_as_documented(graph):
    config = config_of(graph)
    trial = select(graph, config, seed=5).candidates[0].trials[0]
    split = config.split.make(graph, 5)
    training = replace(config.training, patience=selection.PATIENCE)
    run = nfcgcn.fit(config.build(graph, 5), graph, split, training, seed=5)
    assert list(trial.history) == list(run.history)
    accuracies, losses = (np.array([e[name] for e in run.history]) for name in ("val_accuracy", "val_loss"))
    assert trial.score == pytest.approx(accuracies.max() - 0.1 * losses.min())


def test_further_draws_take_nodes_of_the_same_pool(graph):
    config = config_of(graph)
    split = config.split.make(graph, 0)
    race = selection._Race(graph, split, config, 0, "cpu", None)
    first, *others = (race._draw(number) for number in range(3))
    assert first is split
    pool = np.sort(np.concatenate([split.train, split.val]))
    for other in others:
        assert np.array_equal(np.sort(np.concatenate([other.train, other.val])), pool)
        assert np.array_equal(np.bincount(graph.labels[other.train]), np.bincount(graph.labels[split.train]))
        assert not np.array_equal(np.sort(other.val), np.sort(split.val))
    given = selection._Race(graph, split, config_of(graph, split="given"), 0, "cpu", None)
    assert given._draw(2) is split


def test_it_depends_on_the_seed_alone_and_never_on_test_labels(graph):
    config = config_of(graph)
    one, again = (described(select(graph, config, seed=2)) for _ in range(2))
    assert one == again
    test = config.split.make(graph, 2).test
    labels = graph.labels.copy()
    labels[test] = np.random.default_rng(0).permutation(labels[test])
    # The same nodes, whatever the labels by which the rule would draw them.
    given = replace(graph, labels=labels, given=config.split.make(graph, 2))
    other = select(given, config_of(graph, split="given"), seed=2)
    first, others = ([c["scores"] and c["scores"][0] for c in d["candidates"]] for d in (one, described(other)))
    assert others == first
    assert described(select(graph, config, seed=4))["candidates"] != one["candidates"]


def test_what_is_held_is_not_changed(graph):
    tried = [set(c.changes) for c in select(graph, config_of(graph), held=("dropout",)).candidates]
    assert len(tried) == 5
    assert not any("dropout" in changes for changes in tried)
    tried = [set(c.changes) for c in select(graph, config_of(graph), held=("bandwidth", "weight_decay")).candidates]
    assert tried == [set(), {"dropout", "map_dropout"}]
    everything = config_of(graph)
    fixed = select(graph, everything, held=everything.values)
    assert fixed.cost == 0
    assert fixed.config.values == everything.values
    assert fixed.reason == "the suggested settings, without a choice: all others were given"


def try_only(monkeypatch, **changes):
    def candidates(graph, config, held):
        training = {k: v for k, v in changes.items() if k in vars(config.training)}
        model = {k: v for k, v in changes.items() if k not in training}
        changed = replace(config, model=replace(config.model, **model), training=replace(config.training, **training))
        yield Candidate(changed, changes, "a try")

    monkeypatch.setattr(selection, "candidates", candidates)


def test_one_that_fails_is_noted_and_ends_nothing(graph, monkeypatch):
    try_only(monkeypatch, learning_rate=1e30)
    first, second = select(graph, config_of(graph)).candidates
    assert (first.outcome, second.outcome) == ("chosen", "failed")
    assert "training diverged in epoch" in second.describe()["note"]
    assert second.describe()["score"] is None
    monkeypatch.undo()
    with pytest.raises(DivergedError, match="lower `learning_rate`"):
        select(graph, config_of(graph, learning_rate=1e30))


def test_a_single_other_is_not_counted(graph, monkeypatch):
    try_only(monkeypatch, learning_rate=1e30)
    assert select(graph, config_of(graph)).reason.endswith("on validation nodes, and the other candidate did no better")


def test_a_budget_that_ends_leaves_candidates_compared_on_the_same_draws(graph, monkeypatch):
    for cost in (1.0, 1.7, 2.4):
        monkeypatch.setattr(selection, "COST", cost)
        chosen = select(graph, config_of(graph))
        assert chosen.cost <= cost
        draws = [len(c.trials) for c in chosen.candidates]
        assert draws.count(max(draws)) == (2 if max(draws) > 1 else draws.count(1))
        assert [c.outcome == "not tried" for c in chosen.candidates] == [not count for count in draws]


def split_with(graph, num_val, num_train):
    nodes = np.random.default_rng(0).permutation(np.flatnonzero(graph.labels >= 0))
    return Split(nodes[:num_train], nodes[num_train : num_train + num_val], nodes[:0])


@pytest.mark.parametrize(("errors", "winner"), [(0.9, 0), (1.1, 1)])
def test_with_few_validation_nodes_a_small_gain_is_no_reason(graph, monkeypatch, errors, winner):
    try_only(monkeypatch, dropout=0.4)
    true = selection.Candidate.score.fget

    def score(candidate):
        if not candidate.changes or not candidate.trials:
            return true(candidate)
        return first[0] + errors * standard_error(first[1], 40)

    monkeypatch.setattr(selection.Candidate, "score", property(score))
    few, first = split_with(graph, 40, 100), [0.0, 0.5]
    plain = select(graph, config_of(graph), split=few).candidates[0]
    first = [plain.score, plain.accuracy]
    chosen = select(graph, config_of(graph), split=few)
    assert chosen.candidates[winner].outcome == "chosen"
    assert "with 40 validation nodes" in chosen.caution
    assert "the suggested settings are replaced only for a larger gain" in chosen.caution


def test_it_says_what_few_labels_cannot_tell(graph):
    assert (
        "training labels in the rarest class"
        in select(graph, config_of(graph), split=split_with(graph, 80, 20)).caution
    )
    too_few = select(graph, config_of(graph), split=split_with(graph, 9, 100))
    assert too_few.cost == 0
    assert too_few.reason.endswith("with 9 validation nodes a choice would be chance")


def test_ctrl_c_ends_it(graph):
    def press(number, epoch):
        if number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        select(graph, config_of(graph), on_epoch=press)


@pytest.fixture
def own_file(graph, run):
    nfcgcn.write_npz(graph, Path("own.npz"))
    return run


def test_train_chooses_and_says_so(own_file):
    code, _, err = own_file("train", "own.npz", "--set", "epochs=30", "--out", "run", "--seeds", "2")
    assert code == 0, err
    assert "candidates on the validation nodes of seed 0" in err
    assert "chosen: " in err
    result = json.loads(Path("run/result.json").read_text())
    assert result["preset"] == "selected"
    chosen = [c for c in result["selection"]["candidates"] if c["outcome"] == "chosen"]
    assert len(chosen) == 1
    assert {**result["config"], **chosen[0]["changes"]} == result["config"]
    page = Path("run/report.html").read_text()
    assert "How the settings were chosen" in page
    assert result["selection"]["reason"].split(":")[0].replace("_", "_<wbr>") in page or "suggested settings" in page


def test_train_without_a_choice(own_file):
    options = ("train", "own.npz", "--set", "epochs=3")
    assert own_file(*options, "--no-select", "--out", "plain")[0] == 0
    result = json.loads(Path("plain/result.json").read_text())
    assert (result["preset"], result["selection"]) == ("suggested", None)
    assert "How the settings were chosen" not in Path("plain/report.html").read_text()
    assert own_file(*options, "--set", "bandwidth=2", "--out", "held")[0] == 0
    assert json.loads(Path("held/result.json").read_text())["config"]["bandwidth"] == 2


def test_an_estimator_chooses_on_the_nodes_it_holds_out(graph):
    nodes = np.flatnonzero(graph.labels >= 0)
    options = {"epochs": 25, "random_state": 1, "validation_fraction": 0.3}
    model = nfcgcn.NFCClassifier(graph, **options).fit(nodes, graph.labels[nodes])
    assert model.selection_.num_val >= 50
    assert model.config_.values == model.selection_.config.values
    assert model.config_.values["epochs"] == 25
    plain = nfcgcn.NFCClassifier(graph, select=False, **options).fit(nodes, graph.labels[nodes])
    assert plain.selection_ is None
    assert plain.config_.preset == "suggested"
