"""Models side by side: the numbers are those of single runs, nothing finished is lost, and bad input is one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import ttest_1samp

import nfcgcn
from nfcgcn.config.registry import make_config
from nfcgcn.reports.comparison_page import render
from nfcgcn.reproduction.experiment import Setup
from nfcgcn.reproduction.ledger import FILE, Ledger, read
from nfcgcn.reproduction.schedule import Task
from nfcgcn.search.series import Series
from random_graphs import random_graph

QUICK = {"epochs": 4}
MODELS = ("gcn", "mlp")


@pytest.fixture(scope="module")
def graph():
    return random_graph(sparse=True, seed=1)


@pytest.fixture(scope="module")
def comparison(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    return nfcgcn.compare(graph, MODELS, seeds=3, settings=QUICK, folder=folder, jobs=2), folder


def test_the_numbers_are_those_of_single_runs(graph, comparison):
    result, _ = comparison
    assert not result.failed
    scores = {}
    for row, model in zip(result.rows, MODELS, strict=True):
        assert (row["graph"], row["model"], row["seeds"]) == (graph.name, model, [0, 1, 2])
        start, runs = make_config(model, graph=graph, settings=QUICK), []
        for seed in range(3):  # the split is random: the validation nodes of one seed are test nodes of others
            chosen = nfcgcn.select(graph, start, seed=seed, held=QUICK).config
            assert row["configs"][str(seed)] == chosen.values
            runs += nfcgcn.repeat(graph, chosen, [seed])
        scores[model] = np.array([run.test_accuracy for run in runs])
        assert row["test_accuracy"]["runs"] == scores[model].tolist()
        assert row["val_accuracy"]["runs"] == [run.run.best["val_accuracy"] for run in runs]
        assert row["parameters"] == sum(p.numel() for p in runs[0].model.parameters())
        assert row["ms_per_epoch"] > 0
    assert result.rows[0]["difference"] is None
    difference, oracle = result.rows[1]["difference"], ttest_1samp(scores["mlp"] - scores["gcn"], 0)
    interval = oracle.confidence_interval(0.95)
    assert difference["mean"] == pytest.approx(np.mean(scores["mlp"] - scores["gcn"]))
    assert (difference["low"], difference["high"]) == pytest.approx((interval.low, interval.high), abs=1e-6)
    assert difference["p"] == pytest.approx(oracle.pvalue, abs=1e-6)
    low, high = (f"{100 * end:+.2f}" for end in (interval.low, interval.high))
    assert f"({low} to {high})" in result.rows[1]["verdict"]


def test_what_a_folder_has_is_not_done_again(graph, comparison):
    result, folder = comparison
    before = (folder / FILE).read_bytes()
    again = nfcgcn.compare(graph, MODELS, seeds=3, settings=QUICK, folder=folder)
    assert again.rows == result.rows
    assert (folder / FILE).read_bytes() == before
    more = nfcgcn.compare(graph, MODELS, seeds=4, settings=QUICK, folder=folder)
    assert (folder / FILE).read_bytes().startswith(before)
    assert len(read(folder)) == len(before.splitlines()) + 4
    assert more.rows[0]["test_accuracy"]["runs"][:3] == result.rows[0]["test_accuracy"]["runs"]


def test_a_wait_names_what_is_under_way(graph, tmp_path, monkeypatch):
    """Between two parts nothing is; what another process is doing is named too."""
    waits = []
    start = make_config("mlp", graph=graph, settings=QUICK).values
    tasks = [Task(Setup("selection", graph.name, "mlp", start), (seed,), history=False) for seed in (0, 1)]
    with Ledger(tmp_path) as ledger:
        claims = iter([False, False])  # another process has both, once
        monkeypatch.setattr(ledger, "claim", lambda key, claim=ledger.claim: next(claims, True) and claim(key))
        series = Series(
            ledger,
            {graph.name: graph},
            torch.device("cpu"),
            jobs=1,
            on_record=None,
            on_wait=lambda names, done, total: waits.append((names, done)),
            total=2,
        )
        series.run(tasks)
    assert waits[0] == ([f"mlp on {graph.name} in another process"] * 2, 0)
    assert all(names for names, _ in waits)
    assert series.done == 2


def test_a_fixed_split_needs_one_choice(graph, tmp_path):
    labelled = np.flatnonzero(graph.labels >= 0)
    split = nfcgcn.Split(train=labelled[::3], val=labelled[1::3], test=labelled[2::3])
    (row,) = nfcgcn.compare(
        replace(graph, given=split), ["gcn"], seeds=2, settings={**QUICK, "split": "given"}, folder=tmp_path
    ).rows
    assert list(row["selections"]) == ["0"]
    assert row["configs"]["0"] == row["configs"]["1"]
    assert "settings chosen: " in render({**nfcgcn.compare(graph, ["gcn"], seeds=1, settings=QUICK).values})


def test_the_page_says_which_seeds_chose_what(comparison):
    values = json.loads(json.dumps(comparison[0].values))
    for row in values["results"]:
        for seed, selection in row["selections"].items():
            for number, candidate in enumerate(selection["candidates"]):
                candidate |= {"outcome": "chosen" if number == (seed == "1") else "not better", "val_accuracy": 0.5}
    page = render(values)
    assert "gcn, settings chosen for each of 3 seeds" in page
    assert page.count("<td>0, 2</td>") == page.count("<td>1</td>") == len(MODELS)


def test_a_choice_depends_on_what_is_held(graph, tmp_path):
    """Also if it is held at the value that would be suggested."""
    rows = [
        nfcgcn.compare(graph, ["gcn"], seeds=1, settings={"epochs": 30, **held}, folder=tmp_path).rows[0]
        for held in ({}, {"dropout": 0.5})
    ]
    tried = [{name for c in row["selections"]["0"]["candidates"] for name in c["changes"]} for row in rows]
    assert "dropout" in tried[0]
    assert "dropout" not in tried[1]


def test_another_graph_of_the_same_name_shares_nothing(graph, comparison):
    _, folder = comparison
    labels = graph.labels.copy()
    labels[:2] = labels[1::-1]
    other = replace(graph, labels=labels)
    count = len(read(folder))
    nfcgcn.compare(other, ["mlp"], seeds=1, settings=QUICK, folder=folder, select=False)
    assert len(read(folder)) == count + 2


def test_several_graphs_and_a_model_that_fails(graph, tmp_path):
    other = replace(random_graph(sparse=False, seed=2), name="other")
    result = nfcgcn.compare(
        [graph, other],
        ["mlp", "gcn"],
        seeds=2,
        settings={**QUICK, "learning_rate": 1e30},
        folder=tmp_path,
        select=False,
    )
    assert result.rows == []
    assert len(result.failed) == 4
    assert result.failed[0].startswith(f"mlp on {graph.name}: training diverged")
    good = nfcgcn.compare([graph, other], ["mlp", "gcn"], seeds=2, settings=QUICK, folder=tmp_path, select=False)
    assert [(row["graph"], row["model"]) for row in good.rows] == [
        (g.name, model) for g in (graph, other) for model in ("mlp", "gcn")
    ]
    assert [row["selections"] for row in good.rows] == [{}] * 4
    page = render(good.values)
    assert "other" in page
    assert "settings chosen" not in page


COMMAND = ("compare", "own.npz", "--models", "gcn,mlp", "--seeds", "3", "--set", "epochs=5", "--out", "here")


def test_killed_and_started_again_it_loses_no_finished_run(graph, tmp_path, run):
    nfcgcn.write_npz(graph, tmp_path / "own.npz")
    command = [sys.executable, "-m", "nfcgcn", *COMMAND]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    ledger = tmp_path / "here" / FILE
    while not ledger.exists() or ledger.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = ledger.read_bytes()
    whole = kept[: kept.rfind(b"\n") + 1]
    code, out, err = run(*COMMAND, "--json", "out.json")
    assert code == 0, err
    assert ledger.read_bytes().startswith(whole)
    keys = [(r["setup"], r["seed"]) for r in read(ledger.parent)]
    assert len(keys) == len(set(keys)) == 2 * (3 + 3 + 1)
    result = json.loads(Path("out.json").read_text())
    assert result == json.loads(Path("here/comparison.json").read_text())
    assert "against gcn" in out
    page = Path("here/comparison.html").read_text()
    Path("here/comparison.html").unlink()
    assert run("report", "here")[0] == 0
    assert Path("here/comparison.html").read_text() == page
    Path("here/comparison.json").write_text('{"graphs": 3}')
    code, _, err = run("report", "here")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("error: here/comparison.json is not a valid comparison file: ")
    alone = nfcgcn.compare(nfcgcn.load("own.npz"), MODELS, seeds=3, settings={"epochs": 5}, jobs=1)
    strip = ("ms_per_epoch", "peak_mib", "seconds", "selections")
    for one, other in zip(alone.rows, result["results"], strict=True):
        for name in one.keys() - set(strip):
            assert json.loads(json.dumps(one[name])) == other[name], name


BAD = {
    "compare own.npz --models gcn,nfc": "unknown model 'nfc'; did you mean 'nfc-gcn'?",
    "compare own.npz --set bandwith=3": "unknown setting 'bandwith'; did you mean 'bandwidth'?",
    "compare own.npz --split planetoid": None,
    "compare one.npz": "every label of 'random sparse' is '0': there is nothing to tell apart",
    "compare own.npz --also own.npz": "two of the graphs have the same name; give each its own",
    "compare own.npz --preset paper": "preset 'paper' of model 'nfc-gcn' has no settings for 'random sparse'; it "
    "covers cora, citeseer, pubmed",
    "compare own.npz --models ,": "a comparison needs at least one graph, one model and one seed",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(graph, run, arguments):
    nfcgcn.write_npz(graph, Path("own.npz"))
    nfcgcn.write_npz(replace(graph, labels=np.zeros(graph.num_nodes, np.int64)), Path("one.npz"))
    code, out, err = run(*arguments.split())
    assert code == 2
    line = err.splitlines()[-1]
    assert line.startswith("error: ")
    assert BAD[arguments] is None or line == f"error: {BAD[arguments]}"
    assert "Traceback" not in err
    assert out == ""
    assert sorted(p.name for p in Path().iterdir()) == ["one.npz", "own.npz"]


def test_a_page_escapes_names(comparison):
    result, _ = comparison
    text = json.dumps(result.values).replace("random sparse", "<script>alert(1)</script>")
    page = render(json.loads(text))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
