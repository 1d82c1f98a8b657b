"""The commands that use a trained run, as a user meets them: predict, embed and inspect."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

import nfcgcn
from nfcgcn import data as datasets
from nfcgcn.cli import prediction_files
from nfcgcn.cli.sources import GraphSource
from nfcgcn.config.inspection import inspect
from nfcgcn.config.registry import make_config
from nfcgcn.evaluation import describe, repeat
from nfcgcn.files import new_folder
from nfcgcn.graph import Graph
from nfcgcn.inference.checkpoint import load_run, save_run
from nfcgcn.inference.prediction import embed, predict_proba

KNOWN = ["confidence", "margin", "true_label", "split"]


def save(folder, graph, *, model="nfc-gcn", options=None, **settings):
    """Train `model` on a graph for a few epochs and write its run folder."""
    settings = {"split": "ratio", "epochs": 15, **settings}
    if model.startswith("nfc-gcn"):
        settings = {"kernel_size": 10, "stride": 5, "filters": 4, **settings}
    config = make_config(model, settings=settings)
    repeats = repeat(graph, config, [2])
    result = describe(graph, config, repeats, device=torch.device("cpu"), dataset_options=options)
    with new_folder(folder) as draft:
        save_run(draft, graph, result, {r.seed: r.run for r in repeats}, repeats[0].seed)
    return folder


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    return save(
        tmp_path_factory.mktemp("digits") / "run", nfcgcn.load("digits", neighbours=5), options={"neighbours": 5}
    )


@pytest.fixture
def own(monkeypatch, make_graph):
    """Let the name "digits" give a graph of our own making, with names of nodes and classes."""

    def give(**parts):
        base = make_graph(60, 40, sparse=True, seed=1)
        parts = {"labels": base.labels, "class_names": ["a", "b", "c"], "features": base.features, **parts}
        graph = Graph.from_edges(np.stack(base.adjacency.nonzero()), name="mine", **parts)
        monkeypatch.setattr(datasets, "load", lambda *_, **__: graph)
        return graph

    return give


def read(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predict_writes_one_row_per_node(run, digits_run):
    code, out, err = run("predict", str(digits_run), "digits", "--out", "deep/p.csv")
    assert (code, err) == (0, "")
    graph = nfcgcn.load("digits", neighbours=5)  # as in training, which the run remembers
    expected = predict_proba(nfcgcn.load_model(digits_run), graph)
    rows = read("deep/p.csv")
    assert list(rows[0]) == ["id", "label", *KNOWN, *(f"p_{c}" for c in range(10))]
    assert [row["id"] for row in rows] == [str(i) for i in range(1797)]
    assert [int(row["label"]) for row in rows] == expected.classes.tolist()
    found = np.array([[float(row[f"p_{c}"]) for c in range(10)] for row in rows])
    np.testing.assert_allclose(found, expected.probabilities, rtol=1e-5)
    counts = ", ".join(f"{c}: {n}" for c, n in enumerate(np.bincount(expected.classes, minlength=10)))
    met = int((expected.classes == graph.labels).sum())
    assert out.splitlines() == [
        f"1797 nodes; {counts}",
        f"{met} of the 1797 labelled nodes get their own label, {100 * met / 1797:.2f} %; "
        "this is no test accuracy if the run was trained on some of them",
        "predictions: deep/p.csv",
    ]


def test_draws_add_an_uncertainty(run, digits_run):
    assert run("predict", str(digits_run), "digits", "--draws", "4", "--out", "p.csv")[0] == 0
    expected = predict_proba(nfcgcn.load_model(digits_run), nfcgcn.load("digits", neighbours=5), draws=4)
    rows = read("p.csv")
    assert list(rows[0])[-1] == "uncertainty"
    np.testing.assert_allclose([float(row["uncertainty"]) for row in rows], expected.uncertainty, rtol=1e-5)
    np.testing.assert_allclose([float(row["p_3"]) for row in rows], expected.probabilities[:, 3], rtol=1e-5)


def test_without_a_name_the_runs_own_dataset_is_meant_with_its_options(run, digits_run):
    assert run("predict", str(digits_run), "--out", "one.csv")[0] == 0
    assert run("predict", str(digits_run), "digits", "--out", "two.csv")[0] == 0
    assert run("predict", str(digits_run), "digits", "--set", "neighbours=3", "--out", "other.csv")[0] == 0
    one, two, other = (Path(f"{name}.csv").read_bytes() for name in ("one", "two", "other"))
    assert one == two != other


def test_a_folder_that_was_moved_is_complete(digits_run, tmp_path):
    """In a process of its own, where nothing but the folder is at hand."""
    (tmp_path / "far").mkdir()
    moved = shutil.move(shutil.copytree(digits_run, tmp_path / "copy"), tmp_path / "far" / "away")
    (Path(moved) / "result.json").unlink()  # the figures of the training are not needed
    (Path(moved) / "metrics.jsonl").unlink()
    command = [sys.executable, "-m", "nfcgcn", "predict", "away", "digits", "--out", "p.csv"]
    done = subprocess.run(command, cwd=tmp_path / "far", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = predict_proba(nfcgcn.load_model(digits_run), nfcgcn.load("digits", neighbours=5)).classes
    assert [int(row["label"]) for row in read(tmp_path / "far" / "p.csv")] == expected.tolist()
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == ["away", "p.csv"]


def test_nodes_and_edges_that_training_never_saw(run, own, tmp_path, make_graph):
    folder = save(tmp_path / "run", make_graph(200, 40, sparse=True), epochs=60)
    graph = own(labels=np.full(60, -1), class_names=None)
    code, out, err = run("predict", str(folder), "digits", "--out", "p.csv")
    assert (code, err) == (0, "")
    assert [row["label"] for row in read("p.csv")] == [
        str(c) for c in predict_proba(nfcgcn.load_model(folder), graph).classes
    ]
    assert "get their own label" not in out


def test_a_model_that_reads_all_neighbours_says_so(run, own, tmp_path):
    folder = save(tmp_path / "run", own(), model="gcn")
    code, _, err = run("predict", str(folder), "digits", "--draws", "3", "--out", "p.csv")
    assert (code, err) == (0, "gcn reads all neighbours: there is nothing to draw, and the uncertainty is 0\n")
    assert {row["uncertainty"] for row in read("p.csv")} == {"0"}


def test_names_are_quoted_and_formulas_told(run, own, tmp_path):
    names = [f"n{i}" for i in range(60)]
    names[:5] = ['=cmd|"/c calc"!A1', "a,b", "two\nlines", "-7", "[red]x"]
    graph = own(node_names=names, class_names=["+a", "b", "ü"])
    folder = save(tmp_path / "run", graph)
    code, out, err = run("predict", str(folder), "digits", "--out", "p.csv")
    assert code == 0
    rows = read("p.csv")
    assert [row["id"] for row in rows] == names
    assert list(rows[0]) == ["id", "label", *KNOWN, "p_+a", "p_b", "p_ü"]
    risky = 1 + sum((row["label"] == "+a") + (row["true_label"] == "+a") for row in rows)
    assert err == (
        f"warning: {risky} ids or labels begin like formulas, first '=cmd|\"/c calc\"!A1'; "
        "in a spreadsheet, open the file as text only\n"
    )
    assert "+a: " in out


def test_labels_are_compared_by_the_names_of_their_classes(run, own, tmp_path):
    folder = save(tmp_path / "run", own())
    graph = own()
    found = predict_proba(nfcgcn.load_model(folder), graph).classes
    turned = own(labels=2 - graph.labels, class_names=["c", "b", "a"])
    met = int((found == graph.labels).sum())
    out = run("predict", str(folder), "digits", "--out", "p.csv")[1]
    assert f"{met} of the 60 labelled nodes get their own label" in out
    own(labels=turned.labels, class_names=["c", "b", "z"])
    out = run("predict", str(folder), "digits", "--out", "p.csv")[1]
    foreign = int((turned.labels == 2).sum())
    met = int(((found == graph.labels) & (turned.labels != 2)).sum())
    assert f"{met} of the 60 labelled nodes get their own label" in out
    assert f"{foreign} of the labels are classes that the run does not know, and count as wrong\n" in out


BAD_INPUT = {
    "predict {run} digits --out here": "`--out` must end in .csv or .parquet, got 'here'",
    "predict {run} digits --out p.xlsx": "`--out` must end in .csv or .parquet, got 'p.xlsx'",
    "predict nowhere digits --out p.csv": "nowhere is not a run folder: config.json is missing",
    "predict {run} coda --out p.csv": "unknown dataset 'coda'; did you mean 'cora'?",
    "predict {run} digits --set stride=3 --out p.csv": "`--set` takes only options of the dataset here, got 'stride'",
    "predict {run} digits --device tpu --out p.csv": "unknown device 'tpu'; did you mean 'cpu'?",
    "predict {run} citations --set nodes=200 --set features=40 --out p.csv": "'citations' does not have "
    "the same features as the training graph: it lacks 'row 6, column 1', 'row 6, column 2', 'row 6, column 3' and "
    "21 more; give it the same columns",
    "embed {run} digits --out e.txt": "`--out` must end in .npz, .parquet or .csv, got 'e.txt'",
    "embed {run} digits --layer lats --out e.npz": "unknown layer 'lats'; did you mean 'last'?",
    "inspect coda": "unknown dataset 'coda'; did you mean 'cora'?",
    "inspect digits --model gnc": "unknown model 'gnc'; did you mean 'gnn' or 'gcn'?",
    "inspect digits --set strid=3": "unknown setting 'strid'; did you mean 'stride'?",
}


@pytest.mark.parametrize("arguments", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_nothing(run, tmp_path, digits_run, arguments):
    Path("here").mkdir()
    code, out, err = run(*arguments.format(run=digits_run).split())
    assert (code, out, err) == (2, "", f"error: {BAD_INPUT[arguments]}\n")
    assert [p.name for p in tmp_path.iterdir()] == ["here"]


def test_a_run_of_an_own_graph_wants_the_graph_named(run, own, tmp_path):
    folder = save(tmp_path / "run", own())
    code, _, err = run("predict", str(folder), "--out", "p.csv")
    assert (code, err) == (2, "error: name the GRAPH; nfcgcn does not include that of the run, 'mine'\n")


def test_an_old_file_stays_when_writing_fails(run, digits_run, monkeypatch):
    Path("p.csv").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, out, err = run("predict", str(digits_run), "digits", "--out", "p.csv")
    assert (code, out) == (2, "")
    assert err == "error: cannot write p.csv: No space left on device; choose another place\n"
    assert [(p.name, p.read_text()) for p in Path().iterdir()] == [("p.csv", "old")]


# embed


@pytest.mark.parametrize("layer", ["last", "first", "scores"])
def test_embed_writes_npz(run, digits_run, layer):
    code, out, _ = run("embed", str(digits_run), "digits", "--layer", layer, "--out", "e.npz")
    expected = embed(nfcgcn.load_model(digits_run), nfcgcn.load("digits", neighbours=5), layer)
    assert (code, out) == (0, f"embedding: e.npz, 1797 nodes x {expected.shape[1]} numbers\n")
    with np.load("e.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["embedding"], expected)
        assert found["ids"].tolist() == list(range(1797))


@pytest.mark.parametrize("named", [False, True])
def test_embed_writes_csv(run, own, tmp_path, named):
    names = ["=1+2", *(f"n,{i}" for i in range(1, 60))]
    graph = own(node_names=names if named else None)
    folder = save(tmp_path / "run", graph)
    code, out, err = run("embed", str(folder), "digits", "--out", "e.csv")
    expected = embed(nfcgcn.load_model(folder), graph)
    assert (code, out) == (0, f"embedding: e.csv, 60 nodes x {expected.shape[1]} numbers\n")
    assert ("begin like formulas, first '=1+2'" in err) == named
    header, *rows = csv.reader(Path("e.csv").read_text().splitlines())
    assert header == ["id", *(f"h{i}" for i in range(expected.shape[1]))]
    assert [row[0] for row in rows] == (names if named else [str(i) for i in range(60)])
    found = np.array([row[1:] for row in rows]).astype(np.float32)
    np.testing.assert_array_equal(found, expected)  # to the bit


@pytest.mark.parametrize("named", [False, True])
def test_embed_writes_parquet(run, own, tmp_path, named):
    import pandas as pd

    names = [f"n{i}" for i in range(60)]
    graph = own(node_names=names if named else None)
    folder = save(tmp_path / "run", graph)
    assert run("embed", str(folder), "digits", "--out", "e.parquet")[0] == 0
    table = pd.read_parquet("e.parquet")
    expected = embed(nfcgcn.load_model(folder), graph)
    assert list(table) == ["id", *(f"h{i}" for i in range(expected.shape[1]))]
    assert table["id"].tolist() == (names if named else list(range(60)))
    np.testing.assert_array_equal(table.iloc[:, 1:].to_numpy(), expected)


def test_parquet_without_pyarrow_is_refused_before_any_work(run, monkeypatch):
    monkeypatch.setattr(prediction_files, "find_spec", lambda _: None)
    text = "error: Parquet files need pyarrow: pip install 'nfcgcn[parquet]', or write another kind of file\n"
    for command in ("embed", "predict"):
        code, _, err = run(command, "nowhere", "digits", "--out", "e.parquet")
        assert (code, err) == (2, text)


def test_ids_that_would_swell_an_npz_file(run, own, tmp_path):
    graph = own(node_names=["x" * 1001, *(f"n{i}" for i in range(59))])
    folder = save(tmp_path / "run", graph)
    code, _, err = run("embed", str(folder), "digits", "--out", "e.npz")
    text = "error: an id of 1001 characters is too long for .npz, 1000 are allowed; use .parquet\n"
    assert (code, err) == (2, text)
    assert run("embed", str(folder), "digits", "--out", "e.parquet")[0] == 0


def test_a_layer_the_model_does_not_have(run, own, tmp_path):
    folder = save(tmp_path / "run", own(), model="gcn")
    code, _, err = run("embed", str(folder), "digits", "--layer", "first", "--out", "e.npz")
    text = "error: GCN has no node-feature convolution and so no layer 'first'; choose 'last'\n"
    assert (code, err) == (2, text)


# inspect


CAUTIONS = ["3 of 64 features are the same for every node"]


def test_inspect_prints_what_was_understood(run):
    code, out, err = run("inspect", "digits", "--json", "deep/i.json")
    assert (code, err) == (0, "")
    found = inspect(nfcgcn.load("digits"))
    assert json.loads(Path("deep/i.json").read_text()) == {**found, "problems": [], "cautions": CAUTIONS}
    assert out.splitlines()[-1] == "training would start"
    for line in (
        "nodes             1,797, 0 of them isolated",
        "edges             9,929, without loops and duplicates, each counted once",
        "degrees           8 at least, 10 median, 11.05 mean, 26 at most",
        "components        1, the largest of 1,797 nodes",
        "homophily         96.1% of labelled edges",
        "features          64, dense, 51.07% of the values not 0",
        "given split       none",
    ):
        assert line in out.splitlines()
    for name, suggestion in found["suggestions"].items():
        assert f"{name:<18}{suggestion['value']!s:<10}{suggestion['reason']}" in out.splitlines()


def test_inspect_takes_options_and_a_model(run):
    assert run("inspect", "citations", "--set", "nodes=300", "--model", "gcn", "--json", "i.json")[0] == 0
    found = json.loads(Path("i.json").read_text())
    assert (found["nodes"], found["model"]) == (300, "gcn")
    assert "bandwidth" not in found["suggestions"]


def test_inspect_shows_names_as_text(run, own):
    own(class_names=["[red]x", "two\nlines", "c"])
    code, out, _ = run("inspect", "digits")
    assert code == 0
    assert "3 classes: '[red]x' " in out
    assert "'two\\nlines' " in out


def test_a_saved_run_knows_its_classes(digits_run):
    found = load_run(digits_run)
    assert found.num_classes == 10
    assert set(asdict(make_config("nfc-gcn").model)) <= set(found.settings)


# train on a graph that no preset knows


@pytest.mark.parametrize(("more", "kept"), [((), True), (("--set", "bandwidth=4"), False)], ids=["all", "one set"])
def test_train_says_which_settings_it_took_from_the_graph(run, own, monkeypatch, more, kept):
    monkeypatch.setattr(GraphSource, "dataset", None)
    graph = own()
    code, _, err = run(
        "train", "digits", "--split", "ratio", "--set", "epochs=2", "--no-select", *more, "--out", "here"
    )
    assert code == 0, err
    text = " ".join(err.split())
    listed = text.partition("settings for this graph: ")[2].partition("; `nfcgcn inspect` says why")[0]
    expected = [f"{name} {s.value}" for name, s in nfcgcn.suggest(graph).items() if name not in ("split", "epochs")]
    assert listed.split(", ") == [text for text in expected if kept or not text.startswith("bandwidth")]
    result = json.loads(Path("here/result.json").read_text())
    assert result["preset"] == "suggested"
    assert result["config"]["feature_scale"] == "row-norm"
    assert run("predict", "here", "digits", "--out", "p.csv")[0] == 0
    model = nfcgcn.load_model("here")
    assert model.config.feature_scale == "row-norm"
    assert [row["label"] for row in read("p.csv")] == [graph.class_name(c) for c in nfcgcn.predict(model, graph)]
