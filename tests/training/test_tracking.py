"""Trackers hear of every epoch and every end, whatever the number of processes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import nfcgcn
from nfcgcn.errors import ConfigError
from random_graphs import random_graph

EXAMPLE = Path(__file__).parents[2] / "examples" / "tracking.py"


def figures(epoch):
    return {name: value for name, value in epoch.items() if name != "epoch"}


class Recorder:
    def __init__(self):
        self.epochs, self.runs = {}, {}

    def on_epoch(self, seed, epoch):
        assert seed not in self.runs
        self.epochs.setdefault(seed, []).append(epoch)

    def on_end(self, seed, run):
        self.runs[seed] = run


@pytest.fixture(scope="module")
def graph():
    return random_graph(60, sparse=True)


@pytest.fixture(scope="module")
def config():
    return nfcgcn.make_config("mlp", settings={"epochs": 3, "split": "ratio"})


@pytest.mark.parametrize("jobs", [1, 2])
def test_repeat(graph, config, jobs):
    recorder = Recorder()
    repeats = nfcgcn.repeat(graph, config, [4, 5, 6], jobs=jobs, track=recorder)
    alone = nfcgcn.repeat(graph, config, [4, 5, 6])
    for one, other in zip(repeats, alone, strict=True):
        assert recorder.epochs[one.seed] == list(one.run.history)
        assert recorder.runs[one.seed].best == one.run.best
        assert one.run.history == other.run.history


def test_fit_and_the_estimator(graph, config):
    recorder = Recorder()
    run = nfcgcn.fit(
        config.build(graph, 7), graph, config.split.make(graph, 7), config.training, seed=7, track=recorder
    )
    assert recorder.runs == {7: run}
    classifier = nfcgcn.NFCClassifier(graph, model="mlp", epochs=2, random_state=8, select=False)
    classifier.fit(np.arange(60), graph.labels, track=recorder)
    assert recorder.epochs[8] == list(classifier.history_)


def test_an_error_of_a_tracker_ends_training(graph, config):
    class Broken(Recorder):
        def on_epoch(self, seed, epoch):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nfcgcn.repeat(graph, config, [0, 1], jobs=2, track=Broken())


@pytest.fixture
def board(monkeypatch):
    """A stand-in for TensorBoard's writer, called as the real one is; it records the calls by folder."""
    written = {}

    class SummaryWriter:
        def __init__(self, log_dir=None, comment="", purge_step=None):
            self.calls = written[log_dir] = [("begin", purge_step)]

        def add_scalar(self, tag, scalar_value, global_step=None):
            self.calls.append((tag, scalar_value, global_step))

        def add_text(self, tag, text_string, global_step=None):
            self.calls.append((tag, text_string, global_step))

        def close(self):
            self.calls.append(("end",))

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return written


def test_tensorboard_gets_every_figure(graph, config, board, tmp_path):
    tracker = nfcgcn.TensorBoardTracker(tmp_path, settings={"epochs": 3})
    repeats = nfcgcn.repeat(graph, config, [0, 1], track=tracker)
    assert list(board) == [str(tmp_path / "seed-0"), str(tmp_path / "seed-1")]
    begin, text, *scalars, best, end = board[str(tmp_path / "seed-1")]
    run = repeats[1].run
    assert (begin, end) == (("begin", 1), ("end",))
    assert text == ("settings", "| setting | value |\n| --- | --- |\n| epochs | 3 |", 1)
    assert best == ("best epoch", run.best["epoch"], 3)
    told = [(value, epoch["epoch"]) for epoch in run.history for value in figures(epoch).values()]
    assert [scalar[1:] for scalar in scalars] == told
    assert {"loss/train", "accuracy/train", "loss/val", "accuracy/val"} <= {scalar[0] for scalar in scalars}


def test_the_command_tracks(graph, run, board, monkeypatch):
    from nfcgcn.cli import training_task

    monkeypatch.setattr(training_task, "write_run_page", lambda _: None)
    nfcgcn.write_npz(graph, "graph.npz")
    command = ("train", "graph.npz", "--model", "mlp", "--no-select", "--set", "epochs=2", "--split", "ratio")
    assert run(*command, "--seeds", "2", "--out", "here", "--track", "logs")[0] == 0
    assert sorted(board) == ["logs/seed-0", "logs/seed-1"]
    assert "| learning_rate | 0.01 |" in board["logs/seed-0"][1][1]
    Path("logs/seed-0").mkdir(parents=True)  # as TensorBoard's writer leaves it
    assert run(*command, "--out", "there", "--track", "logs")[0] == 0
    code, _, err = run(*command, "--out", "elsewhere", "--track", "graph.npz/logs")
    assert code == 2
    assert err == "error: cannot write graph.npz/logs/seed-0/events: Not a directory; choose another place\n"


def test_a_missing_package_is_told_before_anything_else(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # to import it is an error then
    with pytest.raises(ConfigError, match=r"^tracking needs the package tensorboard: pip install 'nfcgcn\[track\]'$"):
        nfcgcn.TensorBoardTracker("logs")
    code, out, err = run("train", "no-such-graph.npz", "--track", "logs")
    assert (code, out) == (2, "")
    assert err == "error: tracking needs the package tensorboard: pip install 'nfcgcn[track]'\n"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("tracking_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_for_mlflow(graph, config, example, monkeypatch):
    """Against a stand-in with the calls that MLflow documents."""
    calls = []

    class MlflowClient:
        def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
            return SimpleNamespace(info=SimpleNamespace(run_id=f"{experiment_id} {run_name}"))

        def log_param(self, run_id, key, value):
            calls.append((run_id, key, value))

        def log_metric(self, run_id, key, value, timestamp=None, step=None):
            calls.append((run_id, key, value, step))

        def set_terminated(self, run_id, status=None, end_time=None):
            calls.append((run_id,))

    module = ModuleType("mlflow")
    module.MlflowClient = MlflowClient
    module.set_experiment = lambda name: SimpleNamespace(experiment_id=f"id of {name}")
    monkeypatch.setitem(sys.modules, "mlflow", module)
    repeats = nfcgcn.repeat(graph, config, [0], track=example.MLflowTracker("mine", {"epochs": 3}))
    first, *metrics, best, last = calls
    assert best == ("id of mine seed 0", "best_epoch", repeats[0].run.best["epoch"], None)
    assert first == ("id of mine seed 0", "epochs", 3)
    assert last == ("id of mine seed 0",)
    assert [call[1:] for call in metrics] == [
        (name, value, epoch["epoch"]) for epoch in repeats[0].run.history for name, value in figures(epoch).items()
    ]


def test_the_example_for_wandb(graph, config, example, monkeypatch):
    """Against a stand-in with the calls that Weights & Biases documents."""
    runs = []

    class WandbRun:
        def __init__(self, **options):
            self.options, self.summary, self.logged, self.finished = options, {}, [], False
            runs.append(self)

        def log(self, data, step=None):
            self.logged.append((step, data))

        def finish(self):
            self.finished = True

    module = ModuleType("wandb")
    module.init = WandbRun
    monkeypatch.setitem(sys.modules, "wandb", module)
    repeats = nfcgcn.repeat(graph, config, [0, 1], jobs=2, track=example.WandbTracker("mine", {"epochs": 3}))
    assert len(runs) == 2
    for one in runs:
        repeat = repeats[int(one.options["name"].split()[1])]
        assert one.options["reinit"] == "create_new"
        assert one.logged == [(epoch["epoch"], figures(epoch)) for epoch in repeat.run.history]
        assert one.summary == {"best_epoch": repeat.run.best["epoch"]}
        assert one.finished


def test_the_example_prints(example, monkeypatch, capsys, graph, config):
    monkeypatch.setattr(nfcgcn, "load", lambda _: graph)
    monkeypatch.setattr(nfcgcn, "make_config", lambda *_, **__: config)
    example.main()
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["seed 0", "seed 1"]
