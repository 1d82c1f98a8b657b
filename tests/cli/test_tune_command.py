"""`nfcgcn tune`, as a user meets it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nfcgcn
from nfcgcn.cli import console
from nfcgcn.cli import tune as command
from nfcgcn.cli.console import Console
from nfcgcn.errors import NFCError
from nfcgcn.graph import Split

NUMBER = r"\d+\.\d\d"
DIFFERENCE = r"difference [+\u2212]?\d+\.\d \([+\u2212]?\d+\.\d to [+\u2212]?\d+\.\d\)"
SMALL = ("citations", "--set", "nodes=200", "--set", "num_val=50", "--set", "epochs=4", "--model", "gcn")


def test_a_search_writes_a_preset_that_train_takes(run):
    code, out, err = run("tune", *SMALL, "--trials", "3", "--test-seeds", "2")
    assert code == 0, err
    found = re.search(
        r"validation accuracy (\S+) %, before (\S+) %; 3 trials \((\d) stopped early, 0 failed\) in 0\.\d minutes\n",
        out,
    )
    assert float(found[1]) >= float(found[2])
    assert re.search(rf"test accuracy {NUMBER} %, before {NUMBER} %; {DIFFERENCE} over 2 further seeds\n", out)
    assert out.endswith("preset: citations-gcn.toml\npage: citations-gcn.html\n")
    written = ["citations-gcn.html", "citations-gcn.study.jsonl", "citations-gcn.toml"]
    assert sorted(p.name for p in Path().iterdir()) == written
    preset = Path("citations-gcn.toml").read_text()
    assert "\nepochs = 4\n" in preset
    assert "\nnum_val = 50\n" in preset

    # The same command has nothing left to do, and a longer one goes on.
    before = Path("citations-gcn.study.jsonl").read_text()
    assert run("tune", *SMALL, "--trials", "3", "--test-seeds", "2") == (0, out, err)
    assert Path("citations-gcn.study.jsonl").read_text() == before
    assert Path("citations-gcn.toml").read_text() == preset
    assert run("tune", *SMALL, "--trials", "4", "--no-test")[0] == 0
    assert Path("citations-gcn.study.jsonl").read_text().count('"result":') == 4


def test_training_with_the_preset_is_what_the_search_saw(run):
    """Of one seed, whose split is the search's, and with nothing else told."""
    places = ("--out", "a/b.toml", "--study", "c/d.json", "--page", "e/f.html")
    code, out, err = run("tune", *SMALL, "--trials", "4", *places, "--seeds", "1", "--no-test")
    assert code == 0, err
    assert out.endswith("preset: a/b.toml\npage: e/f.html\n")
    assert "test accuracy" not in out
    assert "The test nodes were not scored." in Path("e/f.html").read_text()
    assert sorted(str(p) for p in Path().rglob("*.*")) == ["a/b.toml", "c/d.json", "e/f.html"]
    code, _, err = run(
        "train", *SMALL[:3], "--model", "gcn", "--preset", "a/b.toml", "--out", "here", "--json", "out.json"
    )
    assert code == 0, err
    result = json.loads(Path("out.json").read_text())
    assert result["preset"] == "a/b.toml"
    found = re.search(r"# (\S+) % on validation", Path("a/b.toml").read_text())[1]
    assert f"{100 * result['val_accuracy']['mean']:.2f}" == found


BAD_INPUT = {
    "tune coda": "unknown dataset 'coda'; did you mean 'cora'?",
    "tune --model gnc": "unknown model 'gnc'; did you mean 'gnn' or 'gcn'?",
    "tune --set bandwith=3": "unknown setting 'bandwith'; did you mean 'bandwidth'?",
    "tune --minutes 0": "`minutes` must be above 0, got 0",
    "tune --seconds 0": "`seconds` must be above 0, got 0",
    "tune --trials 0": "`trials` must be at least 1, got 0",
    "tune --seconds 9 --minutes 1": "give --minutes or --seconds, not both; got 1 and 9",
    "tune --page mine.toml": "mine.toml exists and was not written by `nfcgcn tune`; choose another file with --page",
    "tune --minutes nan": "`minutes` must be above 0, got nan",
    "tune --out mine.json": "a preset's name must end in .toml, got mine.json; choose another with --out",
    "tune --out mine.toml": "mine.toml exists and was not written by `nfcgcn tune`; choose another file with --out",
    "tune --study mine.toml": "mine.toml is damaged or not a study of `nfcgcn tune`: Expecting value: line 1 column 2 "
    "(char 1); choose another file with --study",
    "train --preset mine.toml": "mine.toml has no settings for model 'nfc-gcn'; it covers no known model",
    "train --preset no.toml": "no.toml is not a file; give the path of a preset that `nfcgcn tune` wrote",
}


@pytest.mark.parametrize("arguments", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_nothing(run, arguments):
    Path("mine.toml").write_text("[project]\n")
    code, out, err = run(*arguments.split())
    assert code == 2
    assert err.splitlines()[-1] == f"error: {BAD_INPUT[arguments]}"
    assert "Traceback" not in err
    assert out == ""
    assert [p.name for p in Path().iterdir()] == ["mine.toml"]
    assert Path("mine.toml").read_text() == "[project]\n"


def test_a_terminal_sees_how_far_it_is(run, monkeypatch):
    monkeypatch.setattr(command, "err", Console(stderr=True, force_terminal=True, width=100))
    code, _, err = run("tune", *SMALL, "--trials", "2", "--no-test")
    assert code == 0
    assert "trial 2, epoch" in err
    assert "best so far" in err


def test_an_interrupted_search_keeps_its_best(run, monkeypatch):
    """Ctrl-C in the third trial."""
    ticks = []

    def press(done, *_):
        ticks.append(1)
        if len(done) == 2:
            raise KeyboardInterrupt

    from contextlib import contextmanager

    @contextmanager
    def bar(*_):
        yield press

    monkeypatch.setattr(command, "_search_bar", bar)
    code, out, err = run("tune", *SMALL, "--trials", "5")
    assert code == 130
    assert "2 trials" in out
    assert err.endswith("interrupted: the best settings so far were written; the same command goes on\n")
    assert Path("citations-gcn.toml").exists()
    assert "<strong>Interrupted.</strong>" in Path("citations-gcn.html").read_text()
    assert "test accuracy" not in out


def test_an_interruption_while_test_nodes_are_scored_keeps_the_rest(run, monkeypatch):
    def press(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "score_on_test", press)
    code, out, err = run("tune", *SMALL, "--trials", "1")
    assert code == 130
    assert "test accuracy" not in out
    assert err.endswith("interrupted: the best settings so far were written; the same command goes on\n")
    assert "The test nodes were not scored." in Path("citations-gcn.html").read_text()


def test_while_other_processes_search_the_test_nodes_are_left_to_the_last(run, monkeypatch):
    search = command.tuning.tune
    monkeypatch.setattr(command.tuning, "tune", lambda *args, **options: replace(search(*args, **options), elsewhere=1))
    code, out, err = run("tune", *SMALL, "--trials", "1")
    assert code == 0
    assert err.endswith(
        "other processes still have 1 of the trials under way; the last of them to end scores the test nodes, as does "
        "the same command later\n"
    )
    assert "test accuracy" not in out
    assert "The test nodes were not scored." in Path("citations-gcn.html").read_text()
    assert "under way" not in run("tune", *SMALL, "--trials", "1", "--no-test")[2]


def test_settings_that_fail_on_test_nodes_are_still_written(run, monkeypatch):
    def fail(*_, **__):
        raise NFCError("training diverged")

    monkeypatch.setattr(command, "score_on_test", fail)
    code, out, err = run("tune", *SMALL, "--trials", "1")
    assert code == 0
    assert "the test nodes could not be scored: training diverged\n" in err
    assert "no better settings were found\n" in out
    assert Path("citations-gcn.html").exists()


def test_without_a_terminal_there_is_a_line_now_and_then(run, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_PER_LINE", 0.0)
    code, _, err = run("tune", *SMALL, "--trials", "2", "--seeds", "1", "--no-test", "--jobs", "1")
    assert code == 0
    assert err.count("trial 1, epoch ") == 4
    assert re.search(r"\n\d:\d\d trial 2, epoch 1: validation \S+%, best so far \S+%\n", err)


def test_graphs_that_cannot_be_tuned_are_refused_and_nothing_is_written(run, make_graph):
    graph, nodes = make_graph(num_nodes=60, sparse=True), np.arange(60)
    quick = ("--model", "mlp", "--set", "epochs=1", "--trials", "1", "--no-test")
    without = replace(graph, given=Split(nodes[:30], nodes[:0], nodes[30:]))
    one = replace(graph, labels=np.zeros(60, np.int64), name="mine")
    reasons = ("the split 'given' has no labelled val node to choose the best epoch by", "every label of 'mine' is")
    for bad, reason in zip((without, one), reasons, strict=True):
        nfcgcn.write_npz(bad, "graph.npz")
        code, out, err = run("tune", "graph.npz", *quick)
        assert (code, out) == (2, "")
        assert err.splitlines()[-1].startswith(f"error: {reason}"), err
        assert [p.name for p in Path().iterdir()] == ["graph.npz"]

    nfcgcn.write_npz(replace(graph, given=Split(nodes[:30], nodes[30:40], nodes[:0])), "graph.npz")
    code, out, err = run("tune", "graph.npz", *[a for a in quick if a != "--no-test"])  # without test nodes
    assert code == 0, err
    assert "test accuracy" not in out
    before = {p.name: p.read_bytes() for p in Path().iterdir()}
    nfcgcn.write_npz(make_graph(num_nodes=70, sparse=True), "graph.npz")
    code, out, err = run("tune", "graph.npz", *quick)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        "error: graph-mlp.study.jsonl holds a study with another `graph`; "
        "choose another file with --study, or delete it"
    )
    assert {p.name: p.read_bytes() for p in Path().iterdir() if p.name != "graph.npz"}.items() <= before.items()
