"""Scores against scikit-learn and by hand; epochs chosen by them; temperature scaling."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn import metrics

from nfcgcn import GCN, fit, make_split, predict_proba
from nfcgcn.errors import ConfigError
from nfcgcn.graph import Split
from nfcgcn.training import Stopping, TrainingConfig, cuda_graph, fit_together
from nfcgcn.training.calibration import fit_temperature
from nfcgcn.training.scores import SCORES, measure_all, reliability


@pytest.fixture(scope="module")
def judged():
    """Forty nodes of four classes, of which one is never predicted, and probabilities that are mostly right."""
    rng = np.random.default_rng(1)
    labels = rng.choice(4, 40, p=[0.6, 0.2, 0.1, 0.1])
    labels[:4] = range(4)
    scores = rng.normal(size=(40, 4)) + 1.5 * np.eye(4)[labels]
    scores[:, 3] -= 9
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return labels, probabilities


def test_scores_are_those_of_scikit_learn(judged):
    labels, p = judged
    guesses = p.argmax(1)
    expected = {
        "accuracy": metrics.accuracy_score(labels, guesses),
        "macro-f1": metrics.f1_score(labels, guesses, average="macro"),
        "balanced-accuracy": metrics.balanced_accuracy_score(labels, guesses),
        "roc-auc": metrics.roc_auc_score(labels, p, multi_class="ovr", average="macro"),
        "log-loss": metrics.log_loss(labels, p),
    }
    found = measure_all(labels, p)
    assert list(found) == list(SCORES)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert 3 not in guesses  # a class that is never predicted counts, too


def test_classes_that_no_node_has():
    labels, p = np.array([0, 0, 2]), np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    found = measure_all(labels, p)
    assert found["balanced-accuracy"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["macro-f1"] == pytest.approx((2 / 3 + 0 + 1) / 3)  # class 1 is predicted, and wrong
    # Class 0 against the rest: 0.7 is above 0.2, 0.1 is below; class 2: 0.6 is above both.
    assert found["roc-auc"] == pytest.approx((1 / 2 + 1) / 2)
    assert measure_all(labels[:2], p[:2])["roc-auc"] is None


def test_calibration_error_by_hand():
    confidence = np.array([0.95, 0.95, 0.65, 0.61, 0.4])
    p = np.stack([confidence, (1 - confidence) * 0.6, (1 - confidence) * 0.4], axis=1)
    labels = np.array([0, 1, 0, 0, 2])
    # Ranges of 1/15: two nodes at 0.95, half right; 0.65 and 0.61 both in (9/15, 10/15], right; 0.4 in (5/15, 6/15].
    expected = (2 * abs(0.5 - 0.95) + 2 * abs(1 - 0.63) + abs(0 - 0.4)) / 5
    assert measure_all(labels, p)["calibration-error"] == pytest.approx(expected)
    counts, right, sure = reliability(labels == 0, confidence)
    assert {b: (counts[b], right[b], sure[b]) for b in np.flatnonzero(counts).tolist()} == {
        5: (1, 0, 0.4), 9: (2, 1, pytest.approx(0.63)), 14: (2, 0.5, 0.95),
    }  # fmt: skip
    assert reliability(np.array([True, False]), np.array([1.0, 0.0]))[0][[0, -1]].tolist() == [1, 1]


def scored(model, graph, nodes):
    return measure_all(graph.labels[nodes], predict_proba(model, graph).probabilities[nodes])


@pytest.mark.parametrize("monitor", [name for name in SCORES if name != "accuracy"])
def test_any_score_chooses_the_epoch(sparse_graph, monitor):
    split = make_split(sparse_graph, "ratio")
    torch.manual_seed(0)
    model = GCN(40, 8, 2, 3)
    run = fit(model, sparse_graph, split, TrainingConfig(epochs=8, learning_rate=0.1, monitor=monitor))
    values = [epoch["val_score"] for epoch in run.history]
    best = max(values) if SCORES[monitor].best == "highest" else min(values)
    assert run.best["val_score"] == best == pytest.approx(scored(model, sparse_graph, split.val)[monitor], abs=1e-6)
    assert len(set(values)) > 1
    assert Stopping(monitor).best_is == f"{SCORES[monitor].best} validation {SCORES[monitor].title}"


def test_a_score_that_the_validation_nodes_do_not_define(sparse_graph):
    split = make_split(sparse_graph, "ratio")
    one_class = split.val[sparse_graph.labels[split.val] == 0]
    split = Split(split.train, one_class, split.test)
    with pytest.raises(ConfigError, match=r"^`monitor` roc-auc needs validation nodes of two classes at least"):
        fit(GCN(40, 8, 2, 3), sparse_graph, split, TrainingConfig(monitor="roc-auc"))


@pytest.mark.parametrize("settings", [{"monitor": "macro-f1"}, {"class_weight": "balanced"}], ids=str)
def test_captured_epochs_leave_what_they_cannot_do_to_the_plain_loop(sparse_graph, settings):
    split, config = make_split(sparse_graph, "ratio"), TrainingConfig(epochs=2, **settings)
    parts = [(split.train, split.val)]
    with pytest.raises(cuda_graph.Refusal, match=r"macro-f1|the classes have weights"):
        cuda_graph.fit_as_graph(
            [GCN(40, 8, 2, 3)], sparse_graph, parts, config, seeds=[0], device=torch.device("cuda"), on_epoch=None
        )


@pytest.mark.parametrize("sharper", [0.25, 4.0], ids=["too unsure", "too sure"])
def test_the_temperature_is_the_one_that_labels_were_drawn_with(sharper):
    rng = np.random.default_rng(0)
    scores = 2 * rng.normal(size=(3000, 4))
    labels = (rng.random((3000, 1)) > softmax(scores).cumsum(1)).sum(1)
    found = fit_temperature(sharper * scores, labels)
    assert found == pytest.approx(sharper, rel=0.08)
    losses = [metrics.log_loss(labels, softmax(sharper * scores / t)) for t in (found, 1.0, found * 1.2, found / 1.2)]
    assert losses[0] < min(losses[1:])


def softmax(scores):
    return torch.from_numpy(scores).softmax(1).numpy()


def test_a_temperature_does_not_promise_certainty():
    """Four nodes that are all recognised: without a doubt the temperature would go to 0."""
    scores = np.eye(2)[[0, 1, 0, 1]]
    found = fit_temperature(scores, np.array([0, 1, 0, 1]))
    assert found < 1
    assert 0.8 < softmax(scores / found).max() < 0.99
    # What it would be right to be less sure of, by that doubt, is left as it is: the log loss never rises.
    assert fit_temperature(50 * scores, np.array([0, 1, 0, 1])) == 1.0


def test_temperature_scaling_keeps_classes_and_lowers_the_validation_loss(sparse_graph):
    split = make_split(sparse_graph, "ratio")
    torch.manual_seed(0)
    models = [GCN(40, 16, 2, 3, dropout=0.0) for _ in range(2)]
    plain, alone = copy.deepcopy(models[0]), copy.deepcopy(models[0])
    config = TrainingConfig(epochs=30, learning_rate=0.05, calibrate="temperature")
    fit(plain, sparse_graph, split, TrainingConfig(epochs=30, learning_rate=0.05))
    run = fit(alone, sparse_graph, split, config)
    assert plain.temperature == 1.0 != alone.temperature == run.temperature
    before, after = (predict_proba(model, sparse_graph) for model in (plain, alone))
    assert (before.classes == after.classes).all()
    losses = [metrics.log_loss(sparse_graph.labels[split.val], p.probabilities[split.val]) for p in (before, after)]
    assert losses[1] < losses[0]
    with torch.no_grad():  # the scores themselves stay
        inputs = sparse_graph.x, sparse_graph.edge_index
        assert torch.equal(plain(*inputs), alone(*inputs))
    # In processes of their own, too.
    runs = fit_together(models, sparse_graph, [split, split], config, seeds=[0, 1], jobs=2)
    assert [run.temperature for run in runs] == [model.temperature for model in models]
    assert runs[0].temperature == run.temperature
    # Trained again without it, a model forgets its temperature.
    fit(alone, sparse_graph, split, TrainingConfig(epochs=1))
    assert alone.temperature == 1.0


def test_a_temperature_needs_validation_nodes(sparse_graph):
    nodes = np.arange(30)
    config = TrainingConfig(epochs=1, calibrate="temperature")
    with pytest.raises(ConfigError, match=r"^`calibrate` temperature needs validation nodes, and there are none"):
        fit(GCN(40, 8, 2, 3), sparse_graph, Split(nodes, nodes[:0], nodes[:0]), config, choose_by="train")
