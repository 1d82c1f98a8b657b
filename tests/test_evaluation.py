import json
import platform
import re
import subprocess
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

import nfcgcn
from nfcgcn import training
from nfcgcn.config.registry import make_config
from nfcgcn.errors import GraphError, NFCWarning
from nfcgcn.evaluation import (
    accuracy,
    class_scores,
    commit,
    confusion,
    describe,
    hardware,
    origin,
    repeat,
    summarise,
)
from nfcgcn.files import to_json
from nfcgcn.graph import Graph
from nfcgcn.inference.prediction import predict

SETTINGS = {"split": "ratio", "epochs": 5, "kernel_size": 10, "stride": 5, "filters": 4}


@pytest.fixture
def config():
    return make_config("nfc-gcn", settings=SETTINGS)


def graph_with(labels, **options):
    return Graph.from_edges([], np.ones((len(labels), 1)), labels=labels, **options)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60), st.integers(1, 60))
def test_scores_against_counts(pairs, count):
    truth, guesses = np.array(pairs, np.int64).T
    graph = graph_with(truth, class_names=["a", "b", "c", "d", "e"])
    nodes = np.arange(len(truth))[:count]
    seen = pairs[:count]
    matrix = confusion(truth[nodes], guesses[nodes], 5)
    assert matrix.tolist() == [[seen.count((y, p)) for p in range(5)] for y in range(5)]
    assert accuracy(guesses, graph, nodes) == pytest.approx(np.trace(matrix) / len(seen), abs=1e-15)
    scores = class_scores(truth[nodes], guesses[nodes], graph.class_names)
    assert [s["name"] for s in scores] == ["a", "b", "c", "d", "e"]
    for c, score in enumerate(scores):
        hits, real, guessed = seen.count((c, c)), matrix[c].sum(), matrix[:, c].sum()
        assert score["support"] == real
        assert score["recall"] == (hits / real if real else 0)
        assert score["precision"] == (hits / guessed if guessed else 0)
        assert score["f1"] == pytest.approx(2 * hits / (real + guessed) if real + guessed else 0, abs=1e-15)
        assert {type(value) for value in score.values()} == {str, float, int}  # ready for JSON


def test_rows_are_true_classes():
    assert confusion(np.array([0, 0, 1]), np.array([1, 0, 1]), 2).tolist() == [[1, 1], [0, 1]]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12).filter(lambda v: np.ptp(v) > 1e-3))
def test_interval_against_scipy(values):
    found = summarise(values)
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=scipy.stats.sem(values))
    np.testing.assert_allclose(found["ci95"], (low, high), rtol=1e-9, atol=1e-12)
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["std"] == pytest.approx(np.std(values, ddof=1))
    assert found["runs"] == values


def test_a_single_run_has_no_deviation():
    assert summarise([np.float32(0.5)]) == {"mean": 0.5, "std": None, "ci95": None, "runs": [0.5]}


def test_predict_is_the_largest_score_in_evaluation(sparse_graph, config):
    model = config.build(sparse_graph, 0).train()
    found = predict(model, sparse_graph)
    assert not model.training
    with torch.no_grad():
        expected = model(sparse_graph.x, sparse_graph.edge_index).argmax(1)
    assert found.tolist() == expected.tolist()
    assert found.dtype == np.int64
    assert not torch.is_grad_enabled() or model.nfc.weight.grad is None


def test_repeat_trains_once_per_seed(sparse_graph, config):
    calls = []
    found = repeat(sparse_graph, config, [3, 5], on_epoch=lambda seed, epoch: calls.append((seed, epoch["epoch"])))
    assert calls == [(seed, number) for seed in (3, 5) for number in range(1, 6)]
    assert [r.seed for r in found] == [3, 5]
    for r in found:
        assert r.predictions.tolist() == predict(r.model, sparse_graph).tolist()
        assert r.test_accuracy == np.mean(r.predictions[r.split.test] == sparse_graph.labels[r.split.test])
        assert r.split.train.tolist() == config.split.make(sparse_graph, r.seed).train.tolist()
    assert found[0].split.train.tolist() != found[1].split.train.tolist()
    assert found[0].model is not found[1].model


def test_a_repeat_does_not_depend_on_those_before_it(sparse_graph, config):
    both, alone = repeat(sparse_graph, config, [3, 5])[1], repeat(sparse_graph, config, [5])[0]
    assert both.run.history == alone.run.history
    assert both.predictions.tolist() == alone.predictions.tolist()
    for name, tensor in both.run.state.items():
        assert torch.equal(tensor, alone.run.state[name])


def test_an_interrupted_repeat_is_scored_and_the_last(sparse_graph, config):
    def interrupt(seed, epoch):
        if (seed, epoch["epoch"]) == (5, 2):
            raise KeyboardInterrupt

    found = repeat(sparse_graph, config, [3, 5, 7], on_epoch=interrupt)
    assert [(r.seed, r.run.interrupted, len(r.run.history)) for r in found] == [(3, False, 5), (5, True, 2)]
    assert found[1].test_accuracy == accuracy(found[1].predictions, sparse_graph, found[1].split.test)


@pytest.fixture
def interrupted_fit(monkeypatch):
    """Lets `fit` be interrupted before its first epoch at the call of this number."""

    def at(number):
        real, calls = training.fit, []

        def fit(*args, **kwargs):
            calls.append(1)
            if len(calls) == number:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        monkeypatch.setattr(training, "fit", fit)

    return at


def test_an_interrupt_before_the_first_epoch_keeps_the_seeds_before(sparse_graph, config, interrupted_fit):
    interrupted_fit(2)
    assert [r.seed for r in repeat(sparse_graph, config, [3, 5, 7])] == [3]


def test_an_interrupt_before_anything_is_done_is_raised(sparse_graph, config, interrupted_fit):
    interrupted_fit(1)
    with pytest.raises(KeyboardInterrupt):
        repeat(sparse_graph, config, [3, 5, 7])


def test_a_warning_is_given_once_for_all_seeds(sparse_graph, config):
    labels = sparse_graph.labels.copy()
    labels[0] = 3  # the only node of its class, which may not train
    graph = replace(sparse_graph, labels=labels)
    config = make_config("nfc-gcn", settings={**SETTINGS, "train_ratio": 0.3, "epochs": 1})
    with pytest.warns(NFCWarning) as caught:
        repeat(graph, config, [0, 1, 2])
    text = "no training node has class '3'; the model can never predict it"
    assert [str(w.message) for w in caught] == [text]


def test_a_split_without_test_nodes_is_refused_before_training():
    graph = Graph.from_edges([], np.ones((4, 40)), labels=[0, 0, 1, 1])
    config = make_config(settings={"split": "ratio", "train_ratio": 0.6, "val_ratio": 0.35})
    with pytest.raises(GraphError, match=r"^the split 'ratio' leaves no labelled node to test on; change its sizes$"):
        repeat(graph, config, [0])


# What a result tells


@pytest.fixture(scope="module")
def case(sparse_graph):
    config = make_config("gcn", settings={"split": "ratio", "epochs": 4, "learning_rate": 0.1})
    repeats = repeat(sparse_graph, config, [2, 9])
    return sparse_graph, config, repeats


def test_a_result_tells_the_run(case):
    graph, config, repeats = case
    found = describe(graph, config, repeats, device=torch.device("cpu"), command="nfcgcn train x")
    assert json.loads(to_json(found)) == json.loads(json.dumps(found))
    assert found["test_accuracy"] == summarise([r.test_accuracy for r in repeats])
    assert found["val_accuracy"]["runs"] == [r.run.best["val_accuracy"] for r in repeats]
    assert found["epochs"] == [r.run.best["epoch"] for r in repeats]
    assert found["seconds"] == pytest.approx(sum(r.run.seconds for r in repeats))
    assert found["config"] == config.values
    split = repeats[0].split
    expected = {
        "dataset": "random sparse",
        "model": "gcn",
        "preset": "default",
        "split": "ratio",
        "seeds": [2, 9],
        "epochs_run": [4, 4],
        "interrupted": False,
        "parameters": 40 * 16 + 16 * 3,
        "graph": {"nodes": 300, "edges": graph.num_edges, "features": 40, "classes": 3, "sparse": True},
        "split_sizes": {"train": len(split.train), "val": len(split.val), "test": len(split.test)},
        "device": "cpu",
        "command": "nfcgcn train x",
    }
    assert {key: found[key] for key in expected} == expected
    versions = dict(found["versions"])
    assert versions.pop("python") == platform.python_version()
    assert versions.pop("nfcgcn") == nfcgcn.__version__
    assert {"torch", "numpy", "scipy"} <= set(versions)
    assert versions == {package: version(package) for package in versions}


def test_an_interrupted_series_says_so(case):
    graph, config, _ = case

    def interrupt(seed, epoch):
        if (seed, epoch["epoch"]) == (9, 2):
            raise KeyboardInterrupt

    repeats = repeat(graph, config, [2, 9, 4], on_epoch=interrupt)
    found = describe(graph, config, repeats, device=torch.device("cpu"))
    assert (found["interrupted"], found["seeds"], found["epochs_run"]) == (True, [2, 9], [4, 2])


def test_hardware_counts_threads(threads):
    for count, words in ((1, "1 thread"), (2, "2 threads")):
        threads(count)
        assert re.fullmatch(rf".+, {words}", hardware(torch.device("cpu")))


def test_commit_is_what_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("NFCGCN_COMMIT", "abc123")
    assert commit() == "abc123"
    monkeypatch.setattr(origin, "__file__", str(tmp_path / "a" / "b" / "c" / "origin.py"))
    assert commit() == "abc123"


def test_commit_outside_a_checkout_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "__file__", str(tmp_path / "a" / "b" / "c" / "origin.py"))
    monkeypatch.delenv("NFCGCN_COMMIT", raising=False)
    assert commit() is None


def test_commit_in_a_checkout_comes_from_git(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(origin, "__file__", str(tmp_path / "a" / "b" / "c" / "origin.py"))
    monkeypatch.delenv("NFCGCN_COMMIT", raising=False)
    asked = []

    def run(command, **options):
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="0123456789ab-dirty\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert commit() == "0123456789ab-dirty"
    assert asked[0][:3] == ["git", "-C", str(tmp_path)]
    assert "--dirty" in asked[0]


def test_commit_without_git(tmp_path, monkeypatch):
    def run(*args, **options):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.delenv("NFCGCN_COMMIT", raising=False)
    assert commit() is None
