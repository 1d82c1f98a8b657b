"""Where stderr is no terminal, long commands print a line now and then."""

from __future__ import annotations

import re

import pytest

import nfcgcn
from nfcgcn.cli import console, training_task
from nfcgcn.cli.reproduce import _ProgressBar

TRAIN = ("train", "graph.npz", "--model", "mlp", "--no-select", "--set", "epochs=3", "--split", "ratio")


@pytest.fixture
def at_once(run, make_graph, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_PER_LINE", 0.0)
    monkeypatch.setattr(training_task, "write_run_page", lambda _: None)
    nfcgcn.write_npz(make_graph(num_nodes=60, sparse=True), "graph.npz")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_train(run, at_once, jobs):
    code, _, err = run(*TRAIN, "--out", "here", "--seeds", "2", "--jobs", jobs)
    assert code == 0
    pattern = r"^\d:\d\d (\d) of 6 epochs at most; seed [01]: loss \d\.\d{3}, validation accuracy \S+%$"
    assert re.findall(pattern, err, re.M) == list("123456")


def test_lines_come_now_and_then(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.training_bar(6) as on_epoch:
        for number in range(1, 7):
            now = 4.0 * number
            on_epoch(0, {"epoch": number, "train_loss": 1.0, "val_accuracy": 0.5})
    told = [line.partition(";")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["0:12 3 of 6 epochs at most", "0:24 6 of 6 epochs at most"]


def test_compare(run, at_once):
    command = ("compare", "graph.npz", "--models", "mlp", "--seeds", "1", "--no-select", "--set", "split=ratio")
    code, _, err = run(*command, "--set", "epochs=1", "--out", "both")
    assert code == 0
    assert re.search(r"^\d:\d\d 0 of 2 done; under way: mlp on random sparse$", err, re.M)
    assert re.search(r"^1 of 2: mlp on random sparse: seed 0$", err, re.M)


def test_reproduce(monkeypatch, capsys):
    monkeypatch.setattr(console, "SECONDS_PER_LINE", 0.0)
    with _ProgressBar() as progress:
        progress.begin(60.0, 3)
        progress.waiting(["gcn on cora", "gat on cora"])
        progress.finished({"model": "gcn", "dataset": "cora", "seed": 1, "test_accuracy": 0.875}, 20.0)
    assert [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "0 of 3 runs; under way: gcn on cora, gat on cora",
        "1 of 3 runs; gcn on cora, seed 1: 87.5%",
    ]
