import json
import platform
import re
import subprocess
from importlib.metadata import version

import pytest
import torch

import nfcgcn
from nfcgcn import evaluation as results
from nfcgcn.config.registry import make_config
from nfcgcn.evaluation import commit, describe, hardware, repeat, summarise
from nfcgcn.files import to_json


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
    threads(1)
    assert re.fullmatch(r".+, 1 threads", hardware(torch.device("cpu")))


def test_commit_is_what_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("NFCGCN_COMMIT", "abc123")
    assert commit() == "abc123"
    monkeypatch.setattr(results, "__file__", str(tmp_path / "a" / "b" / "results.py"))
    assert commit() == "abc123"


def test_commit_outside_a_checkout_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "__file__", str(tmp_path / "a" / "b" / "results.py"))
    monkeypatch.delenv("NFCGCN_COMMIT", raising=False)
    assert commit() is None


def test_commit_in_a_checkout_comes_from_git(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(results, "__file__", str(tmp_path / "a" / "b" / "results.py"))
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
