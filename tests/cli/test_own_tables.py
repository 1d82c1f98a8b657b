"""A user's own tables on the command line: dirty edges, weights, no features, and what inspect says beforehand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

import nfcgcn
from nfcgcn.config.inspection import foresee
from nfcgcn.config.registry import make_config
from nfcgcn.data.formats import write_npz
from nfcgcn.errors import NFCWarning
from nfcgcn.graph import Graph, Split
from nfcgcn.inference import checkpoint

QUICK = ("--no-select", "--set", "epochs=3", "--set", "split=ratio")
CLUB = nx.karate_club_graph()


def write_club(folder=Path()):
    """The karate club as two tables without any feature, and with an edge to nobody."""
    pd.DataFrame({"id": list(CLUB.nodes), "label": [CLUB.nodes[n]["club"] for n in CLUB.nodes]}).to_csv(
        folder / "nodes.csv", index=False
    )
    edges = [(a, b, d["weight"]) for a, b, d in CLUB.edges(data=True)]
    pd.DataFrame([*edges, (0, "stranger", 1)], columns=["source", "target", "times"]).to_csv(
        folder / "edges.csv", index=False
    )


def test_the_karate_club_in_five_lines():
    with pytest.warns(NFCWarning, match="nothing is left of the table of node attributes to make features"):
        graph = nfcgcn.from_networkx(CLUB, label="club", weight="weight")
    known = np.array([0, 1, 2, 3, 7, 8, 30, 31, 32, 33])
    classifier = nfcgcn.NFCClassifier(graph, random_state=0, select=False, epochs=60).fit(known, graph.labels[known])
    found = classifier.predict(np.arange(34))
    assert (found == graph.labels).mean() > 0.85  # the largest class has half of them
    reason = nfcgcn.explain(classifier.model_, graph, 16).top(1)[0]
    assert graph.feature_names[reason.feature].startswith("spectral")


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
def test_from_dirty_tables_to_predictions_and_reasons(run):
    write_club()
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv")
    code, _, err = run("train", *tables, *QUICK, "--out", "here")
    assert code == 2
    assert (
        "error: edges.csv names 1 id that no row of nodes.csv has, in 1 of 79 edges: 'stranger'; add the nodes" in err
    )
    how = ("--unknown-edges", "drop", "--weight", "times", "--directed", "--features", "walk")
    code, _, err = run("train", *tables, *how, *QUICK, "--out", "here")
    assert code == 0, err
    assert "warning: left out 1 edge of edges.csv to ids that no node has\n" in err
    assert (
        "read 34 nodes and 78 edges; weights of edges from 'times'; 8 walk features made from the edges; left out 1 "
        "edge to an unknown id; not used: directions, as every model reads an edge both ways\n"
    ) in err
    # The run remembers how the tables were read.
    code, _, err = run("predict", "here", *tables, "--out", "predictions.csv")
    assert code == 0, err
    saved = checkpoint.load_run("here")
    assert saved.weighted
    with pytest.warns(NFCWarning, match="left out 1 edge"):
        graph = nfcgcn.load("nodes.csv", edges="edges.csv", encoding=saved.encoding)
    with torch.no_grad():
        scores = saved.model(graph.x, graph.edges).double().softmax(1).numpy()
    written = pd.read_csv("predictions.csv").filter(regex="^p")
    np.testing.assert_allclose(written.select_dtypes("number").to_numpy()[:, :2], scores, atol=1e-5)
    code, out, err = run("explain", "here", *tables, "--node", "16")
    assert code == 0, err
    assert "back after" in out
    code, _, err = run("export", "here", "--out", "model.pt2")
    assert (code, err) == (
        2, "error: here was trained with edge weights, which an exported program cannot use\n"
    )  # fmt: skip
    code, _, err = run("train", *tables, *how, *QUICK, "--model", "gat", "--out", "there")
    assert code == 2
    assert err.endswith(
        "error: the edges of 'nodes' have weights, which a GAT cannot use; read the graph without weights, or choose "
        "another model\n"
    )


def test_a_graph_without_the_weights_of_training_is_noticed(four_nodes, tmp_path):
    saved = checkpoint.SavedGraph(
        folder=tmp_path,
        num_features=5,
        feature_names=None,
        dataset="x",
        dataset_options=None,
        encoding=None,
        weighted=True,
    )
    with pytest.warns(NFCWarning, match="the run was trained with edge weights, but 'four nodes' has none"):
        saved.check_features(four_nodes)


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
def test_inspect_says_what_stops_training(run):
    write_club()
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--unknown-edges", "drop")
    code, out, err = run("inspect", *tables, "--json", "found.json")
    assert (code, json.loads(Path("found.json").read_text())["problems"]) == (0, []), err
    assert out.endswith("\ntraining would start\n")
    code, out, _ = run("inspect", *tables, "--weight", "times", "--model", "sage-mean", "--json", "found.json")
    assert code == 2
    problem = (
        "the edges of 'nodes' have weights, which a SAGE cannot use; read the graph without weights, or choose another "
        "model"
    )
    assert out.endswith(f"\nproblem: {problem}\n`nfcgcn train --model sage-mean` would not start\n")
    assert json.loads(Path("found.json").read_text())["problems"] == [problem]
    assert "weights           1 at least, 3 median, 7 at most\n" in out


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--set class_weight=hr=3", "`class_weight`: unknown class 'hr'; choose from Mr. Hi, Officer"),
        ("--split given", "'nodes' came without a split; use 'per-class' or 'ratio', or add a column `split` to its"),
        ("--monitor macro-f1 --set bandwidth=3", ""),
    ],
)
def test_inspect_tries_the_settings_of_training(run, options, problem):
    write_club()
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--unknown-edges", "drop")
    code, out, _ = run("inspect", *tables, *options.split())
    assert code == (2 if problem else 0)
    assert f"\nproblem: {problem}" in out if problem else "\ntraining would start" in out


def test_a_figure_that_validation_nodes_do_not_define_is_foreseen():
    given = Split(np.arange(4), np.array([4, 6]), np.array([5, 7]))
    graph = Graph.from_edges([[0, 1], [1, 2]], np.eye(8), labels=[0, 1] * 4, given=given)
    config = make_config("gcn", graph=graph, settings={"split": "given", "monitor": "roc-auc"})
    problem = "`monitor` roc-auc needs validation nodes of two classes at least; choose another"
    assert foresee(graph, config)[0] == [problem]


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
def test_inspect_tells_all_that_is_wrong_with_tables(run):
    Path("nodes.csv").write_text("id,x,label\n1,5,a\n1,y,b\n2,z,a\n3,4,b\n")
    Path("edges.csv").write_text("source,to\n1,2\n")
    code, out, err = run("inspect", "--nodes", "nodes.csv", "--edges", "edges.csv")
    assert (code, out) == (2, "")
    assert err.startswith("error: 3 problems: (1) column 'id' of nodes.csv holds '1' in rows 1 and 2:")
    assert (
        "(2) edges.csv has no column 'target'; it has source, to; name another with --target (3) column "
        "'x' of nodes.csv mixes numbers" in err
    )


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
def test_inspect_tells_mistakes_of_settings_and_tables_at_once(run):
    Path("nodes.csv").write_text("id,x,kind\n1,5,a\n1,4,b\n")
    code, out, err = run("inspect", "--nodes", "nodes.csv", "--set", "epoch=3", "--set", "dropout=2")
    assert (code, out) == (2, "")
    assert err == (
        "error: 4 problems: (1) unknown setting 'epoch'; did you mean 'epochs'? (2) `dropout` must be at least 0 and "
        "below 1, got 2.0 (3) column 'id' of nodes.csv holds '1' in rows 1 and 2: make ids unique, or choose their "
        "column with --id (4) nodes.csv has no column 'label'; name the column with the classes with --label\n"
    )


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
def test_tables_without_a_column_of_labels_are_told_what_to_name(run):
    Path("nodes.csv").write_text("id,x,kind\n1,5,a\n2,4,b\n")
    told = (
        "no node of 'nodes' has a label; there is nothing to learn from; name the column with the classes with --label"
    )
    code, out, _ = run("inspect", "--nodes", "nodes.csv")
    assert (code, f"\nproblem: {told}\n" in out) == (2, True)
    assert run("train", "--nodes", "nodes.csv", "--out", "here")[2].endswith(f"error: {told}\n")


def test_rare_classes_are_foreseen_unless_the_settings_make_up_for_them():
    labels = np.repeat([0, 1, 2], [50, 20, 5])
    graph = Graph.from_edges([[0], [1]], np.eye(75), labels=labels, class_names=["fine", "late", "lost"])
    caution = "class 'fine' has 50 labels, class 'lost' has 5: accuracy says little about rare classes; "
    assert any(text.startswith(caution) for text in described(graph)[1])
    balanced = make_config("gcn", graph=graph, settings={"class_weight": "balanced"})
    assert not any(text.startswith("class 'fine'") for text in foresee(graph, balanced)[1])
    even = replace(graph, labels=np.repeat([0, 1, 2], [50, 19, 6]))
    assert not any(text.startswith("class 'fine'") for text in described(even)[1])


def described(graph, model="gcn"):
    return foresee(graph, make_config(model, graph=graph))


def test_what_is_foreseen():
    rng = np.random.default_rng(0)
    x = rng.random((40, 4), np.float32)
    x[:, 2] = 3
    x[7] = [0, 0, 3, 0]
    labels = np.array([0, 1] * 19 + [2, -1])
    problems, cautions = described(Graph.from_edges([np.arange(38), np.arange(1, 39)], x, labels=labels))
    assert problems == []
    assert cautions[-2:] == [
        "1 of 40 nodes have no edge and are judged only by their own features",
        "1 of 4 features are the same for every node",
    ]
    assert any("node has class '2'" in caution for caution in cautions)
    assert described(Graph.from_edges(np.zeros((2, 0), int), x, labels=labels))[1][-2] == (
        "there are no edges: every node is judged only by its own features"
    )


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (np.zeros(6, int), "every label of 'graph' is '0': there is nothing to tell apart"),
        (np.full(6, -1), "no node of 'graph' has a label; there is nothing to learn from"),
        (np.array([0, 1, 5, 0, 1, 5]), "has class 5, but no node has class 2"),
    ],
    ids=["one class", "no label", "a gap"],
)
def test_labels_that_stop_training_are_foreseen(labels, text):
    problems, _ = described(Graph.from_edges([[0, 1], [1, 2]], np.eye(6), labels=labels))
    assert any(text in problem for problem in problems), problems


def test_too_much_memory_is_foreseen(monkeypatch):
    monkeypatch.setattr("nfcgcn.config.registry.available", lambda: 1000.0)
    monkeypatch.setattr("nfcgcn.memory.available", lambda: 1000.0)
    monkeypatch.setattr("nfcgcn.config.sizes.available", lambda: 1000.0)
    graph = Graph.from_edges([[0, 1], [1, 2]], np.eye(8), labels=[0, 1, 0, 1, 0, 1, 0, 1])
    problems, _ = described(graph)
    assert any("of memory, but only" in problem for problem in problems), problems


def test_weights_far_from_the_loop_are_foreseen():
    edges = [np.arange(9), np.arange(1, 10)]
    graph = Graph.from_edges(edges, np.eye(10), labels=np.arange(10) % 2, weights=np.full(9, 500.0))
    assert described(graph)[1][-1] == (
        "half of the weights are above 500, while a node's own loop has weight 1; divide the weights by it, or set "
        "`self_weight`"
    )


def write_people(folder, scale, classes):
    """Forty people in a ring, whose income tells their class."""
    folder.mkdir()
    people = [f"p{i}" for i in range(40)]
    table = {"id": people, "income": [scale * (i % 4) for i in range(40)], "age": [20.0 + i for i in range(40)]}
    pd.DataFrame({**table, "label": [classes[i % 4 // 2] for i in range(40)]}).to_csv(folder / "nodes.csv", index=False)
    pd.DataFrame({"source": people, "target": people[1:] + people[:1]}).to_csv(folder / "edges.csv", index=False)


@pytest.mark.filterwarnings("default::nfcgcn.errors.NFCWarning")
def test_another_graph_is_read_as_that_of_the_run_or_refused(run):
    """Features on another scale would be judged silently, with other results."""
    write_people(Path("first"), 1000.0, "xy")
    write_people(Path("second"), 5000.0, ["low", "high"])
    assert run("train", "first", *QUICK, "--model", "gcn", "--out", "here")[0] == 0
    write_npz(nfcgcn.load("second"), "second.npz")
    for use in (("predict", "here"), ("train", *QUICK, "--model", "gcn", "--init", "here")):
        code, _, err = run(*use, "second.npz", "--out", "refused.csv")
        assert code == 2
        assert err.endswith(
            "error: 'second' was not read in the same way as the training graph: column 'income' has another mean or "
            "scale; give its tables instead, which are read as those of the run were\n"
        )
    code, _, err = run("train", "second", *QUICK, "--model", "gcn", "--init", "here", "--out", "there")
    assert code == 0, err
    first, second = (checkpoint.load_run(folder).encoding for folder in ("here", "there"))
    assert second == {**first, "classes": ["high", "low"]}
    # The one setting that is suggested for a perceptron is given.
    code, _, err = run("train", "second", *QUICK, "--model", "mlp", "--out", "mlp")
    assert code == 0, err
    assert "settings for this graph" not in err
