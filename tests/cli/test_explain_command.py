"""`nfcgcn explain` and `nfcgcn export`, as a user meets them."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest
import torch

from nfcgcn import files, load, load_model, make_config, repeat
from nfcgcn.evaluation import describe
from nfcgcn.inference import checkpoint


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    graph, config = load("digits"), make_config("nfc-gcn", dataset="digits", settings={"epochs": 20})
    repeats = repeat(graph, config, [0])
    result = describe(graph, config, repeats, device=torch.device("cpu"), command="", dataset_options={})
    with files.new_folder(folder) as draft:
        checkpoint.save_run(draft, graph, result, {r.seed: r.run for r in repeats}, repeats[0].seed)
    return folder


def test_a_node_as_table_and_files(run, trained, tmp_path):
    code, out, err = run("explain", trained, "digits", "--node", "3", "--out", "deep/why.csv", "--top", "4")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "deep" / "why.csv").read_text().splitlines()))
    graph, model = load("digits"), load_model(trained)
    scores = model(graph.x, graph.edge_index)[3]
    assert out.startswith(f"Why node 3 is in class {int(scores.argmax())}\n")
    assert sum(float(r["contribution"]) for r in rows) == pytest.approx(scores.max().item(), rel=1e-4)
    (total,) = re.findall(r"All contributions add up to ([\d.]+),", out)
    assert float(total) == pytest.approx(scores.max().item(), abs=1e-4)
    assert rows[0]["feature"] in out
    for suffix, start in ((".html", "<!doctype html>"), (".svg", "<?xml")):
        assert run("explain", trained, "--node", "3", "--class", "4", "--out", f"why{suffix}")[0] == 0
        assert (tmp_path / f"why{suffix}").read_text().lstrip().startswith(start)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "why.html", "why.svg"]


def test_every_class(run, trained, tmp_path):
    code, out, err = run("explain", trained, "digits", "--global", "--out", "classes.csv", "--top", "20")
    assert code == 0, err
    assert out.startswith("Features that matter for each class\n")
    rows = list(csv.DictReader((tmp_path / "classes.csv").read_text().splitlines()))
    assert {r["class"] for r in rows} == {str(c) for c in range(10)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "name a node with --node ID, or explain every class with --global"),
        (("--node", "1", "--global"), "name a node with --node ID, or explain every class with --global"),
        (("--global", "--class", "1"), "--class goes with --node; --global explains every class"),
        (("--node", "9999"), "unknown node '9999'; the nodes of digits are numbered 0 to 1796"),
        (("--node", "1", "--class", "12"), "unknown class '12'; "),
        (("--node", "1", "--out", "why.png"), "--out must end in .html, .svg or .csv, got 'why.png'"),
    ],
)
def test_refusals(run, trained, tmp_path, arguments, reason):
    code, out, err = run("explain", trained, "digits", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {reason}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_graph_with_other_features(run, trained):
    code, _, err = run("explain", trained, "citations", "--node", "1")
    assert code == 2
    assert err.startswith(
        "error: 'citations' does not have the same features as the training graph: it adds column 64, "
    )


def test_no_run(run, tmp_path):
    code, _, err = run("explain", tmp_path, "digits", "--node", "1")
    assert (code, err) == (2, f"error: {tmp_path} is not a run folder: config.json is missing\n")


def test_an_exported_run(run, trained, tmp_path, monkeypatch):
    code, out, err = run("export", trained, "--out", "model.pt2")
    assert code == 0, err
    assert out == "written: model.pt2, which takes x, edge_index\n"
    graph, model = load("digits"), load_model(trained)
    scores = torch.export.load(tmp_path / "model.pt2").module()(graph.x, graph.edge_index)
    torch.testing.assert_close(scores, model(graph.x, graph.edge_index), rtol=1e-4, atol=1e-4)
    code, _, err = run("export", trained, "--out", "model.bin")
    assert (code, err) == (2, "error: --out must end in .pt2 or .onnx, got 'model.bin'\n")
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # as where it is not installed
    code, _, err = run("export", trained, "--out", "model.onnx")
    assert (code, err) == (2, "error: an ONNX file needs the package onnxscript: pip install 'nfcgcn[onnx]'\n")
    assert not Path("model.onnx").exists()
