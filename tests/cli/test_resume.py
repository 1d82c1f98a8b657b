"""`train --resume` after a kill: the same weights and results as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

import nfcgcn
from nfcgcn.cli import training_task
from nfcgcn.training import loop, unfinished

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a kill needs a process of its own")
SETTINGS = ("--split", "ratio", "--set", "epochs=4", "--set", "calibrate=temperature")
TRAIN = ("train", "graph.npz", "--model", "mlp", "--no-select", *SETTINGS, "--seeds", "3")
VERSION = nfcgcn.__version__
TIMES = ("seconds", "command")


@pytest.fixture
def graph(run, make_graph, monkeypatch):
    """A small graph, in the folder in which commands run; places are kept after every epoch, and no page is drawn."""
    monkeypatch.setattr(training_task, "write_run_page", lambda _: None)
    monkeypatch.setattr(unfinished, "SECONDS", 0.0)
    monkeypatch.setattr(unfinished, "SHARE", 1e9)
    graph = make_graph(num_nodes=60, sparse=False)
    nfcgcn.write_npz(graph, "graph.npz")
    return graph


@pytest.fixture
def killed(run, monkeypatch):
    """Run a command in a fork that is killed in an epoch of a seed."""

    def call(*arguments, seed, epoch):
        child = os.fork()
        if not child:
            keep = unfinished.Bookmark.keep

            def die(self, place, start):
                if (self.seed, len(place.history)) == (seed, epoch):
                    os.kill(os.getpid(), signal.SIGKILL)
                keep(self, place, start)

            unfinished.Bookmark.keep = die
            run(*arguments)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    return call


def result(folder):
    values = json.loads((Path(folder) / "result.json").read_text())
    if values["selection"]:
        del values["selection"]["seconds"]
    return {name: value for name, value in values.items() if name not in TIMES}


def assert_same_run(one, other):
    for name in ("weights.safetensors", "metrics.jsonl", "test_nodes.safetensors"):
        assert (Path(one) / name).read_bytes() == (Path(other) / name).read_bytes(), name
    assert result(one) == result(other)
    temperature, again = (json.loads((Path(f) / "config.json").read_text())["temperature"] for f in (one, other))
    assert temperature == again


@pytest.mark.parametrize("place", [(0, 3), (1, 1), (2, 4)], ids=str)
def test_after_a_kill_the_rest_is_done(run, graph, killed, place):
    assert run(*TRAIN, "--jobs", "1", "--out", "whole")[0] == 0
    killed(*TRAIN, "--jobs", "1", "--out", "here", seed=place[0], epoch=place[1])
    assert list(Path("here").iterdir()) == [Path("here/unfinished")]
    code, _, err = run(*TRAIN, "--out", "here")
    assert (code, err) == (2, "error: here holds an unfinished run; go on with --resume, or replace it with --force\n")
    code, _, err = run(*TRAIN, "--jobs", "1", "--out", "here", "--resume")
    assert code == 0
    seed, epoch = place
    under_way = f"; seed {seed} is at epoch {epoch - 1}" if epoch > 1 else ""
    assert f"resumed: {seed} of 3 seeds are done{under_way}\n" in err
    assert_same_run("here", "whole")
    assert {path.name for path in Path("here").iterdir()} == {path.name for path in Path("whole").iterdir()}


def test_chosen_settings_are_not_chosen_again(run, graph, killed, monkeypatch):
    train = (*TRAIN[:4], "--select", *TRAIN[5:], "--jobs", "1")
    assert run(*train, "--out", "whole")[0] == 0
    killed(*train, "--out", "here", seed=0, epoch=3)
    monkeypatch.setattr(training_task, "choose_settings", None)
    code, _, err = run(*train, "--out", "here", "--resume")
    assert code == 0, err
    assert result("whole")["preset"] == "selected"
    assert_same_run("here", "whole")


def test_after_ctrl_c_the_run_is_whole_and_the_rest_is_done(run, graph, monkeypatch):
    assert run(*TRAIN, "--out", "whole")[0] == 0
    check = loop.check_finite

    def interrupt(figures, config, seed):
        check(figures, config, seed)
        if (seed, figures["epoch"]) == (1, 3):
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "check_finite", interrupt)
        code, _, err = run(*TRAIN, "--jobs", "1", "--out", "here")
    assert code == 128 + signal.SIGTERM
    assert "interrupted: the best state so far was kept and scored; --resume goes on with it\n" in err
    assert result("here")["seeds"] == [0, 1]
    nfcgcn.load_model("here")
    assert run(*TRAIN, "--out", "here", "--resume")[0] == 0
    assert_same_run("here", "whole")
    assert not Path("here/unfinished").exists()
    code, _, err = run(*TRAIN, "--out", "here", "--resume")
    assert (code, err) == (
        2, "error: here holds an earlier run; choose another folder with --out, or replace it with --force\n"
    )  # fmt: skip


def test_what_differs_is_refused(run, graph, killed, monkeypatch):
    killed(*TRAIN, "--jobs", "1", "--out", "here", seed=1, epoch=2)
    ending = "; continue it as it was started, or start anew with --force"
    resume = (*TRAIN, "--out", "here", "--resume")

    def refusal(*more):
        code, _, err = run(*resume, *more)
        assert code == 2
        return err.splitlines()[-1]

    begin = "error: here cannot be resumed: "
    assert refusal("--set", "learning_rate=0.5") == f"{begin}`learning_rate` was 0.01 and is now 0.5{ending}"
    assert refusal("--seed", "1") == f"{begin}`--seed` was 0 and is now 1{ending}"
    with monkeypatch.context() as patched:
        patched.setattr(nfcgcn, "__version__", "9.9.9")
        assert refusal() == f"{begin}`version of nfcgcn` was {VERSION} and is now 9.9.9{ending}"
    labels = graph.labels.copy()
    labels[9] = (labels[9] + 1) % 3
    nfcgcn.write_npz(replace(graph, labels=labels), "graph.npz")
    assert refusal().startswith(f"{begin}`graph` was random dense ")
    assert run(*TRAIN, "--out", "here", "--force")[0] == 0
    assert not Path("here/unfinished").exists()


def test_there_must_be_something_to_resume(run, graph):
    code, _, err = run(*TRAIN, "--resume")
    assert (code, err) == (2, "error: --resume needs --out, the folder of the unfinished run\n")
    code, _, err = run(*TRAIN, "--out", "here", "--resume")
    assert code == 0
    assert "here holds no unfinished run; starting from the beginning\n" in err
    Path("mixed/unfinished").mkdir(parents=True)
    Path("mixed/letter.txt").write_text("mine")
    for more in ("--resume", "--force"):
        code, _, err = run(*TRAIN, "--out", "mixed", more)
        assert (code, err) == (2, "error: mixed exists and is not a run of nfcgcn; choose another folder with --out\n")
