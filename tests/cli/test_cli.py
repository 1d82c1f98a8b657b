"""The command line, as a user meets it: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

import nfcgcn
from nfcgcn import data as datasets
from nfcgcn.config.registry import MODELS
from nfcgcn.graph import Graph

QUICK = ("--set", "epochs=3", "--set", "num_test=100")  # the picture of few nodes is drawn soon


def test_train_without_arguments_learns_the_digits_and_writes_a_complete_folder(run, tmp_path):
    code, out, err = run("train", "--set", "epochs=40", "--seeds", "2", "--json", "deep/out.json", "--out", "here")
    assert code == 0, err
    result = json.loads((tmp_path / "deep" / "out.json").read_text())
    assert {
        "dataset", "model", "preset", "split", "seeds", "test_accuracy", "val_accuracy", "epochs", "seconds", "device",
        "versions",
    } <= set(result)  # fmt: skip
    assert (result["dataset"], result["model"], result["split"]) == ("digits", "nfc-gcn", "per-class")
    assert result["seeds"] == [0, 1]
    assert len(result["test_accuracy"]["runs"]) == 2
    assert result["test_accuracy"]["mean"] == pytest.approx(np.mean(result["test_accuracy"]["runs"]))
    assert result["test_accuracy"]["std"] == pytest.approx(np.std(result["test_accuracy"]["runs"], ddof=1))
    assert result["test_accuracy"]["mean"] > 0.9
    assert result["config"]["epochs"] == 40
    assert f"test accuracy {100 * result['test_accuracy']['mean']:.2f} ± " in out
    assert "report: here/report.html" in out

    folder = tmp_path / "here"
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json", "metrics.jsonl", "report.html", "result.json", "split.safetensors", "test_nodes.safetensors",
        "weights.safetensors",
    ]  # fmt: skip
    assert json.loads((folder / "result.json").read_text()) == result
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(e["seed"], e["epoch"]) for e in epochs] == [(s, e) for s in (0, 1) for e in range(1, 41)]
    for seed, best, val in zip((0, 1), result["epochs"], result["val_accuracy"]["runs"], strict=True):
        assert (
            epochs[40 * seed + best - 1]["val_accuracy"]
            == val
            == max(e["val_accuracy"] for e in epochs[40 * seed :][:40])
        )

    # The weights kept are those of the seed that was best on validation: they give its test accuracy again.
    seed = json.loads((folder / "config.json").read_text())["seed"]
    assert result["val_accuracy"]["runs"][seed] == max(result["val_accuracy"]["runs"])
    graph = nfcgcn.load("digits")
    split = nfcgcn.make_split(graph, "per-class", seed=seed)
    predictions = nfcgcn.predict(nfcgcn.load_model(folder), graph)
    assert nfcgcn.accuracy(predictions, graph, split.test) == result["test_accuracy"]["runs"][seed]


@pytest.mark.parametrize("model", ["nfc-gcn-2d", "gcn"])
def test_train_takes_every_model(run, model):
    code, _, err = run("train", "digits", "--model", model, *QUICK, "--json", "out.json", "--out", "here")
    assert code == 0, err
    assert json.loads(Path("out.json").read_text())["model"] == model


def test_train_takes_dataset_options_and_a_first_seed(run):
    arguments = ("--set", "nodes=400", "--set", "homophily=1", "--set", "num_val=50", *QUICK)
    code, _, err = run("train", "citations", *arguments, "--seed", "5", "--split", "ratio", "--json", "out.json")
    assert code == 0, err
    result = json.loads(Path("out.json").read_text())
    assert result["graph"]["nodes"] == 400
    assert result["dataset_options"] == {"nodes": 400, "homophily": 1}
    assert result["seeds"] == [5]
    assert result["split"] == "ratio"
    assert len(list(Path("runs").glob("citations-nfc-gcn-*/report.html"))) == 1


BAD_INPUT = {
    "coda": "unknown dataset 'coda'; did you mean 'cora'?",
    "--model nfcgcn": "unknown model 'nfcgcn'; did you mean 'nfc-gcn' or 'nfc-gcn-2d' or 'gcn'?",
    "--preset papr": "unknown preset 'papr'; did you mean 'paper' or 'nfc-paper'?",
    "--preset paper": "preset 'paper' of model 'nfc-gcn' has no settings for 'digits'; "
    "it covers cora, citeseer, pubmed",
    "--split fastgcn": "split 'fastgcn' is defined for cora, citeseer and pubmed only, not for 'digits'; "
    "use 'per-class' or 'ratio'",
    "--split ration": "`split` must be fastgcn | planetoid | per-class | ratio | given, got 'ration'",
    "--set bandwith=3": "unknown setting 'bandwith'; did you mean 'bandwidth'?",
    "--set bandwidth": "`--set` takes key=value, got 'bandwidth'",
    "--set bandwidth=many": "`bandwidth` must be a whole number, got 'many'",
    "--set bandwidth=0": "`bandwidth` must be at least 1, got 0",
    "--set kernel_size=65": "`kernel_size` must be at most the number of features, 64, got 65; lower it",
    "--set activation=sigmoid": "`activation` must be none | tanh | relu, got 'sigmoid'",
    "--set conv=2d": "`conv` is 1d in model 'nfc-gcn'; choose another --model instead",
    "--set epochs=0": "`epochs` must be at least 1, got 0",
    "--set learning_rate=1e30": "training diverged in epoch 1 with seed 0: the loss is not finite; "
    "lower `learning_rate`, now 1e+30",
    "--set neighbours=0": "`neighbours` must be between 1 and 1796, got 0",
    "--device tpu": "unknown device 'tpu'; did you mean 'cpu'?",
    "--out .": ". exists and is not a run of nfcgcn; choose another folder with --out",
    "--out a-file": "a-file exists and is not a run of nfcgcn; choose another folder with --out",
}


@pytest.mark.parametrize("arguments", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_nothing(run, tmp_path, arguments):
    Path("a-file").write_text("mine")
    code, out, err = run("train", *arguments.split())
    assert code == 2
    assert err.splitlines()[-1] == f"error: {BAD_INPUT[arguments]}"
    assert "Traceback" not in err
    assert out == ""
    assert [p.name for p in tmp_path.iterdir()] == ["a-file"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_cuda_device_is_said(run):
    code, _, err = run("train", "--device", "cuda")
    assert (code, err) == (2, "error: device 'cuda' is not available to this PyTorch; use device 'cpu'\n")


def given(monkeypatch, **parts):
    """Let `load` give a small graph of our own making."""
    rng = np.random.default_rng(0)
    parts = {"labels": rng.integers(0, 3, 60), "features": rng.random((60, 40)), **parts}
    graph = Graph.from_edges(rng.integers(0, 60, (2, 150)), parts["features"], labels=parts["labels"], name="digits")
    monkeypatch.setattr(datasets, "load", lambda *_, **__: graph)


def test_no_labelled_node_is_said(run, monkeypatch):
    given(monkeypatch, labels=np.full(60, -1))
    code, _, err = run("train")
    assert code == 2
    assert err.splitlines()[-1] == "error: no node of 'digits' has a label; there is nothing to learn from"


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
def test_a_class_without_a_training_node_is_warned_of_once(run, monkeypatch):
    labels = np.arange(60) % 2
    labels[7] = 2
    given(monkeypatch, labels=labels)
    code, _, err = run("train", *QUICK, "--split", "ratio", "--set", "train_ratio=0.2", "--seeds", "2", "--out", "here")
    assert code == 0
    assert err.count("warning: no training node has class '2'; the model can never predict it\n") == 1


def test_markup_in_names_stays_text(run, monkeypatch):
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, 60, (2, 150)), rng.random((60, 40)), labels=np.arange(60) % 2, name="[red]digits[/red]",
        class_names=["<script>alert(1)</script>", "b"],
    )  # fmt: skip
    monkeypatch.setattr(datasets, "load", lambda *_, **__: graph)
    code, _, err = run("train", *QUICK, "--out", "here")
    assert code == 0
    assert "[red]digits[/red]" in err
    assert "<script>" not in Path("here/report.html").read_text()


def test_an_earlier_run_is_replaced_by_force_alone(run):
    assert run("train", *QUICK, "--out", "here")[0] == 0
    before = Path("here/result.json").read_text()
    code, _, err = run("train", *QUICK, "--out", "here")
    assert (code, err) == (
        2,
        "error: here holds an earlier run; choose another folder with --out, or replace it with --force\n",
    )
    assert Path("here/result.json").read_text() == before
    assert run("train", *QUICK, "--set", "epochs=2", "--out", "here", "--force")[0] == 0
    assert json.loads(Path("here/result.json").read_text())["config"]["epochs"] == 2
    assert [p.name for p in Path().iterdir()] == ["here"]


def test_a_json_file_that_cannot_be_written_is_refused_before_training(run):
    Path("file").write_text("")
    code, _, err = run("train", *QUICK, "--json", "file/out.json", "--out", "here")
    assert code == 2
    assert err.splitlines()[-1].startswith("error: cannot write file/out.json: ")
    assert not Path("here").exists()


def test_debug_shows_the_traceback(run):
    with pytest.raises(nfcgcn.NFCError):
        run("train", "coda", "--debug")


def test_datasets_lists_sizes_sources_and_what_is_at_hand(run, monkeypatch, tmp_path):
    monkeypatch.delenv("NFCGCN_DATA", raising=False)
    monkeypatch.setenv("NFCGCN_CACHE", str(tmp_path))
    code, out, _ = run("datasets")
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert rows["citeseer"] == ["3,327", "4,552", "3,703", "6", "to", "download"]
    assert rows["digits"] == ["1,797", "9,929", "64", "10", "bundled"]
    assert "cora: machine-learning papers" in out
    assert "github.com/kimiyoung/planetoid" in out


def test_models_lists_every_model(run):
    code, out, _ = run("models")
    assert code == 0
    blocks = dict(block.split("  ", 1) for block in re.split(r"\n(?=\S)", out.rstrip()))
    assert list(blocks) == list(MODELS)
    for name, entry in MODELS.items():
        summary, paper, parameters, _ = (line.strip() for line in blocks[name].splitlines())
        assert (summary, paper) == (entry.summary, entry.paper)
        values = asdict(nfcgcn.make_config(name).model)
        assert dict(p.split("=") for p in parameters.split()) == {key: str(value) for key, value in values.items()}
    assert (
        "presets default (digits), nfc-paper (cora, citeseer, pubmed), paper (cora, citeseer, pubmed)" in blocks["gcn"]
    )


def test_settings_lists_every_setting(run):
    code, out, _ = run("settings", "--model", "nfc-gcn-2d")
    assert code == 0
    listed = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert set(nfcgcn.make_config("nfc-gcn-2d").values) <= listed


def test_the_version_is_told(run):
    assert run("--version") == (0, f"{nfcgcn.__version__}\n", "")


@pytest.mark.thorough  # `test_keeping.py` does so within one process, `training/test_processes.py` with several
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_keeps_the_best_state_so_far_and_says_so(tmp_path, number):
    settings = ["--set=epochs=100000", "--set=num_test=100", "--no-select", "--no-baselines"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nfcgcn", "train", "digits", *settings, "--out", "here"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    shown = ""
    while "seed 0: loss" not in shown:  # the bar of a terminal: an epoch has ended
        shown += process.stderr.read(1)
        assert process.poll() is None, shown
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 128 + number
    assert "interrupted: the best state so far was kept and scored" in err
    assert "test accuracy" in out
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    assert result["interrupted"]
    assert 0 < result["epochs"][0] <= result["epochs_run"][0] < 100000
    assert "Interrupted" in (tmp_path / "here" / "report.html").read_text()
    nfcgcn.load_model(tmp_path / "here")


COMMANDS_WITH_OPTIONS = ["", "train", "predict", "explain", "inspect", "links train", "recommend train", "bench step"]


@pytest.mark.parametrize("command", COMMANDS_WITH_OPTIONS)
def test_help_says_in_plain_words_what_options_take(run, command):
    code, out, _ = run(*command.split(), "--help")
    assert code == 0
    assert not re.findall(r"<[\w\[\] ]+>|list\[|TYPE|bool", out)
    if command == "train":
        lines = [" ".join(line.strip("│ ").split()) for line in out.splitlines()]
        assert any(line.startswith("--label COLUMN Column with") for line in lines)
        assert any(line.startswith("--nodes PATH Table of nodes") for line in lines)
        assert any(line.startswith("--force Replace an earlier") for line in lines)
        assert out.index(" Options ") < out.index(" Tables of your own ") < out.index("--nodes")
