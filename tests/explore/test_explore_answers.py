"""Answers about a graph and a run: they are those of `predict`, `explain` and the method, and nothing is changed."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from small_run import HOSTILE, small_graph

from nfcgcn import NFCGCN, explain, explain_classes, predict_proba
from nfcgcn.baselines import GCN
from nfcgcn.errors import NFCError
from nfcgcn.explore import Explorer, Subject, layout, mistakes, scene, to_gexf
from nfcgcn.explore.node import answers_of, map_of
from nfcgcn.explore.what_if import change
from nfcgcn.graph import Graph
from nfcgcn.inference.prediction import embed, predict_draw
from nfcgcn.method.node_feature_conv import feature_map


def ask(explorer, kind, **question):
    return explorer.answer({"ask": kind, **question})


def with_model(explorer, model):
    """The same run with another model."""
    subject = explorer.subject
    return Explorer(Subject(subject.graph, replace(subject.run, model=model.eval()), draws=2))


def test_probabilities_are_those_of_predict(explorer, run_folder, run):
    graph, saved = explorer.subject.graph, explorer.subject.run
    code, _, err = run("predict", run_folder, run_folder.parent / "small.npz", "--out", "p.csv")
    assert code == 0, err
    with Path("p.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    over = predict_proba(saved.model, graph, draws=4)
    for node in range(graph.num_nodes):
        answer = ask(explorer, "node", node=node)
        assert answer["name"] == rows[node][0]
        assert explorer.subject.classes[answer["predicted"]] == rows[node][1]
        assert [f"{p:.6g}" for p in answer["probabilities"]] == rows[node][6:]
        assert (answer["mean"], answer["spread"]) == (over.probabilities[node].tolist(), over.spread[node].tolist())
    assert any(max(ask(explorer, "node", node=n)["spread"]) > 0 for n in range(40))


@pytest.mark.parametrize("target", [0, 1])
def test_reasons_are_those_of_explain(explorer, target):
    graph, model = explorer.subject.graph, explorer.subject.run.model
    e, answer = explain(model, graph, 4, target=target), ask(explorer, "why", node=4, target=target)
    assert (answer["score"], answer["baseline"]) == (e.score, e.baseline)
    listed = [(r["node"], r["feature"], r["value"], r["contribution"]) for r in answer["reasons"]]
    assert listed == [tuple(c) for c in e.top(40)]
    assert answer["count"] == len(e.top())
    assert np.allclose(answer["slots"], e.own_map.sum(axis=1))
    assert {(j, d): c for j, d, c in answer["cells"]} == {
        (j, d): e.own_map[j, d] for j, d in zip(*e.own_map.nonzero(), strict=True)
    }


def test_the_map_and_its_windows_are_those_of_the_method(explorer):
    subject, node = explorer.subject, 4
    model, answer = subject.convolved, ask(explorer, "node", node=4)["map"]
    table = model.nfc.table(subject.graph.x, subject.graph.edge_index)
    assert [slot["node"] for slot in answer["slots"]] == table[node].tolist()
    x = model.scale(subject.graph.x)
    cells = feature_map(x, table)[node].numpy()
    shown = [f["feature"] for f in answer["features"]]
    assert shown == np.flatnonzero(cells.any(axis=0)).tolist()
    assert np.array_equal(answer["cells"], cells[:, shown])
    with torch.no_grad():
        h = model.nfc(x, subject.graph.edge_index)[node].numpy()
    assert np.allclose(answers_of(model, cells).ravel(), h, atol=1e-6)
    strongest = answer["windows"][0]
    assert abs(strongest["answer"]) == pytest.approx(np.abs(h).max(), abs=1e-6)
    assert strongest["last"] - strongest["first"] == 3
    assert subject.feature(strongest["first"])[:4] in ("word", "<scr")
    for window in ask(explorer, "node", node=39)["map"]["windows"]:  # the node is in every slot
        causes = window["mostly"].split("; ")
        assert len(causes) == len(set(causes))


@pytest.mark.filterwarnings("ignore:columns of the frame")  # ages are standardised
def test_a_value_comes_with_the_cell_of_the_table(explorer):
    nodes = pd.DataFrame({"id": ["a", "b", "c"], "age": [20.0, 30.0, 70.0], "town": ["Ulm", "Bonn", "Ulm"]})
    edges = pd.DataFrame({"source": ["a"], "target": ["b"]})
    alone = Explorer(Subject(Graph.from_frames(nodes, edges)))
    cells = {column["name"]: column["cell"] for column in ask(alone, "node", node=0)["columns"]}
    assert cells == {"age": "20", "town=Ulm": "Ulm"}
    assert all("cell" not in column for column in ask(explorer, "node", node=4)["columns"])
    assert all("cell" not in reason for reason in ask(explorer, "why", node=4, target=0)["reasons"])


def test_what_if_is_a_prediction_on_the_changed_graph(explorer):
    subject, node = explorer.subject, 4
    graph, model = subject.graph, subject.run.model
    neighbours = graph.adjacency.indices[slice(*graph.adjacency.indptr[node : node + 2])].tolist()
    new = next(j for j in range(40) if j not in (*neighbours, node))
    answer = ask(explorer, "what if", node=node, features={"3": 2.5, "0": 0}, add=[new], remove=neighbours[:1])
    pairs = graph.adjacency.tocoo()
    keep = ~(
        ((pairs.row == node) & (pairs.col == neighbours[0])) | ((pairs.col == node) & (pairs.row == neighbours[0]))
    )
    edges = np.concatenate([[pairs.row[keep], pairs.col[keep]], [[node], [new]]], axis=1)
    x = np.array(graph.features.toarray() if graph.is_sparse else graph.features)
    x[node, [3, 0]] = 2.5, 0
    by_hand = predict_proba(model, Graph.from_edges(edges, x)).probabilities
    assert answer["after"] == pytest.approx(by_hand[node].tolist(), abs=1e-6)
    assert answer["before"] == predict_proba(model, graph).probabilities[node].tolist()
    assert answer["after"] != answer["before"]
    flipped = by_hand.argmax(1) != subject.predicted
    flipped[node] = False
    assert answer["others"] == flipped.sum()
    assert predict_proba(model, graph).probabilities[node].tolist() == answer["before"]  # nothing was changed


def test_other_draws_are_those_of_the_model(explorer):
    subject = explorer.subject
    answers = [ask(explorer, "what if", node=4, draw=draw) for draw in range(4)]
    assert answers[0]["before"] == answers[0]["after"]
    draws = [predict_draw(subject.run.model, subject.graph, draw) for draw in range(4)]
    assert [answer["after"] for answer in answers] == [draw[4].tolist() for draw in draws]
    assert np.allclose(np.mean(draws, axis=0), subject.over_draws.probabilities)
    assert len({str(answer["slots"]) for answer in answers}) > 1


def test_an_edge_is_removed_whatever_its_weight():
    ends = [[0, 0, 0, 1], [1, 2, 3, 2]]
    graph = Graph.from_edges(ends, np.eye(5), weights=[0.3, 1, 2.5, 4], node_names=[*"abcde"])
    changed = change(graph, 0, features={}, add=[4], remove=[1, 3])
    by_hand = Graph.from_edges([[0, 1, 0], [2, 2, 4]], np.eye(5), weights=[1, 4, 1])
    assert np.array_equal(changed.adjacency.toarray(), by_hand.adjacency.toarray())
    assert changed.num_edges == 3
    for word, others in (("b is a neighbour already", {"add": [1]}), ("e is not a neighbour", {"remove": [4]})):
        with pytest.raises(NFCError, match=f"node {word}"):
            change(graph, 0, features={}, **{"add": [], "remove": [], **others})


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_changes_of_sparse_and_dense_features(make_graph, sparse):
    graph = make_graph(20, 6, sparse=sparse)
    changed = change(graph, 0, features={0: 9.0, 5: 0.0}, add=[], remove=[])
    x, y = ((g.features.toarray() if sparse else g.features) for g in (graph, changed))
    assert y[0, [0, 5]].tolist() == [9, 0]
    assert np.array_equal(np.delete(x, 0, axis=0), np.delete(y, 0, axis=0))
    assert changed.is_sparse == sparse


def test_filters(explorer):
    subject = explorer.subject
    answer = ask(explorer, "filters")
    first = np.abs(embed(subject.run.model, subject.graph, "first")).reshape(40, 3, -1).max(axis=2)
    assert {f["filter"]: f["answer"] for f in answer["filters"]} == pytest.approx(
        dict(enumerate(first.mean(axis=0).tolist())), rel=1e-5
    )
    one = ask(explorer, "filter", filter=2)
    assert np.allclose(one["weights"], subject.run.model.nfc.weight.detach()[2])
    best = int(first[:, 2].argmax())
    assert one["places"][0]["node"] == best
    assert abs(one["places"][0]["answer"]) == pytest.approx(first[best, 2], rel=1e-5)
    cells = map_of(subject, subject.table(subject.graph)[best])
    assert abs(answers_of(subject.convolved, cells)[:, 2]).max() == pytest.approx(first[best, 2], rel=1e-5)


@pytest.mark.parametrize("part", ["test", "all"])
def test_the_matrix_is_a_door(explorer, part):
    subject, answer = explorer.subject, ask(explorer, "mistakes", part=part)
    counted = (subject.labels >= 0) & ((subject.parts == 2) if part == "test" else True)
    assert answer["num_nodes"] == counted.sum() == np.sum(answer["matrix"])
    assert counted.sum() == (10 if part == "test" else 39)
    for true in range(2):
        for predicted in range(2):
            inside = np.flatnonzero(counted & (subject.labels == true) & (subject.predicted == predicted))
            assert answer["matrix"][true][predicted] == len(inside)
            assert sorted(answer["cells"].get(f"{true}-{predicted}", [])) == inside.tolist()
    sure = [answer["nodes"][str(node)]["confidence"] for node in answer["confident"]]
    assert sure == sorted(sure, reverse=True)
    assert answer["num_wrong"] == (counted & (subject.labels != subject.predicted)).sum()


def test_a_cell_of_the_matrix_holds_all_its_nodes_and_names_the_first(explorer, monkeypatch):
    whole = ask(explorer, "mistakes", part="all")
    monkeypatch.setattr(mistakes, "MOST_LISTED", 2)
    answer = ask(Explorer(explorer.subject), "mistakes", part="all")
    assert answer["cells"] == whole["cells"]
    assert max(map(len, answer["cells"].values())) > 2
    assert all(str(node) in answer["nodes"] for cell in answer["cells"].values() for node in cell[:2])
    assert len(answer["nodes"]) <= 2 * 4
    monkeypatch.setattr(scene, "MOST_NODES", 10)  # a neighbourhood is drawn, and a list of names is enough
    assert max(map(len, ask(Explorer(explorer.subject), "mistakes", part="all")["cells"].values())) == 2


def test_what_separates_two_classes_is_that_of_explain(explorer):
    classes = explain_classes(explorer.subject.run.model, explorer.subject.graph)
    answer = ask(explorer, "separate", one=0, other=1)
    for feature in answer["features"]:
        assert feature["one"] == classes[0].contributions[feature["feature"]]
        assert feature["other"] == classes[1].contributions[feature["feature"]]
    gaps = [abs(f["one"] - f["other"]) for f in answer["features"]]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0


def test_the_scene(explorer):
    subject, answer = explorer.subject, ask(explorer, "scene")
    assert answer["names"][0] == HOSTILE
    assert answer["nodes"]["label"] == subject.labels.tolist()
    assert answer["nodes"]["predicted"] == subject.predicted.tolist()
    pairs = {tuple(sorted(pair)) for pair in zip(*subject.graph.adjacency.nonzero(), strict=True)}
    assert {tuple(pair) for pair in zip(*answer["edges"], strict=True)} == pairs
    assert answer["whole"]
    assert [answer["nodes"]["part"].count(part) for part in (0, 1, 2)] == [16, 8, 10]
    for x, y in answer["positions"].values():
        assert len(x) == len(y) == 40
        assert max(map(abs, (*x, *y))) <= 1


def test_joined_nodes_are_near_each_other():
    ring = np.arange(60)
    cliques = [(a, b) for group in np.split(ring, 3) for a in group for b in group if a < b]
    graph = Graph.from_edges(np.array([*cliques, (0, 20), (20, 40)]).T, np.ones((60, 1), np.float32))
    points = layout.arrange(graph.adjacency)
    gaps = np.linalg.norm(points[:, None] - points, axis=2)
    same = ring[:, None] // 20 == ring // 20
    assert gaps[same].mean() < 0.5 * gaps[~same].mean()
    assert np.array_equal(points, layout.arrange(graph.adjacency))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_tiny_graphs_are_arranged(count):
    graph = Graph.from_edges([[], []], np.ones((count, 2), np.float32))
    assert layout.arrange(graph.adjacency).shape == (count, 2)
    assert np.isfinite(layout.arrange(graph.adjacency)).all()


def test_the_layout_is_kept_with_the_run(explorer, tmp_path, monkeypatch):
    subject = explorer.subject
    found = layout.positions(subject, tmp_path)
    monkeypatch.setattr(layout, "arrange", None)
    again = layout.positions(subject, tmp_path)
    assert all(np.array_equal(again[name], found[name]) for name in ("structure", "learned"))
    monkeypatch.undo()
    other = Subject(replace(subject.graph, features=subject.graph.features * 2), subject.run)
    assert layout._read(tmp_path / layout.CACHE, layout._key(other), 40) is None
    (tmp_path / layout.CACHE).write_bytes(b"damaged")
    assert layout.positions(subject, tmp_path).keys() == found.keys()


def test_a_large_graph_shows_a_neighbourhood(monkeypatch, explorer):
    monkeypatch.setattr(scene, "MOST_NODES", 10)
    monkeypatch.setattr(scene, "MOST_AROUND", 8)
    large = Explorer(explorer.subject)
    answer = ask(large, "scene", node=4)
    assert 4 in answer["nodes"]["id"]
    assert len(answer["names"]) <= 8
    assert not answer["whole"]
    assert answer["note"] == f"{len(answer['names'])} of 40 nodes: the neighbourhood of the chosen node"
    assert [n["node"] for n in ask(large, "search", text="NODE 1")] == [1, *range(10, 20)]


def test_the_node_that_is_called_so_is_found_first(explorer):
    graph = replace(explorer.subject.graph, node_names=(*(f"ab{i}" for i in range(38)), "xab", "ab"))
    found = [n["name"] for n in ask(Explorer(Subject(graph)), "search", text="AB")]
    assert found == ["ab", *(f"ab{i}" for i in range(19))]


def test_too_many_edges_are_not_drawn(monkeypatch, explorer):
    monkeypatch.setattr(scene, "MOST_EDGES", 10)
    answer = ask(Explorer(explorer.subject), "scene")
    assert answer["edges"] == [[], []]
    count = explorer.subject.graph.num_edges
    assert answer["note"] == f"the edges of the chosen node alone, because there are {count} edges"


BAD = {
    "no question": {},
    "no text": {"ask": 7},
    "unknown": {"ask": "nodes"},
    "no node": {"ask": "node"},
    "outside": {"ask": "node", "node": 40},
    "negative": {"ask": "node", "node": -1},
    "not whole": {"ask": "node", "node": True},
    "class": {"ask": "why", "node": 1, "target": 2},
    "part": {"ask": "mistakes", "part": "exam"},
    "long search": {"ask": "search", "text": "x" * 201},
    "features": {"ask": "what if", "node": 1, "features": {"x": 1}},
    "no number": {"ask": "what if", "node": 1, "features": {"1": "1"}},
    "not finite": {"ask": "what if", "node": 1, "features": {"1": float("nan")}},
    "no feature": {"ask": "what if", "node": 1, "features": {"12": 1}},
    "itself": {"ask": "what if", "node": 1, "add": [1]},
    "no neighbour": {"ask": "what if", "node": 39, "remove": [1]},
    "no list": {"ask": "what if", "node": 1, "add": 3},
    "draw": {"ask": "what if", "node": 1, "draw": 20_000},
    "many": {"ask": "what if", "node": 39, "add": list(range(2, 38)) * 3},
}


@pytest.mark.parametrize("question", BAD.values(), ids=BAD)
def test_bad_questions_are_refused(explorer, question):
    with pytest.raises(NFCError, match=r"must|unknown|needs|not a neighbour|at most"):
        explorer.answer(question)


def test_a_graph_before_training():
    before = Explorer(Subject(small_graph()))
    answer = ask(before, "node", node=4)
    assert answer["predicted"] is None
    assert "probabilities" not in answer
    assert ask(before, "scene")["model"] is None
    with pytest.raises(NFCError, match=re.escape("'why' needs a trained run; `nfcgcn train` makes one")):
        ask(before, "why", node=4, target=0)


def test_a_model_without_maps(explorer):
    torch.manual_seed(0)
    plain = with_model(explorer, GCN(12, 4, 2, 2))
    assert "map" not in ask(plain, "node", node=4)
    assert ask(plain, "node", node=4)["draws"] == 1
    assert ask(plain, "why", node=4, target=1)["reasons"]
    assert "slots" not in ask(plain, "what if", node=4, features={"1": 1})
    with pytest.raises(NFCError, match="no filters"):
        ask(plain, "filters")


def test_a_2d_model_with_an_activation_and_scaled_features(explorer):
    torch.manual_seed(0)
    options = {"conv": "2d", "kernel_width": 2, "activation": "tanh", "feature_scale": "row-norm"}
    other = with_model(explorer, NFCGCN(12, 4, 2, 2, bandwidth=3, filters=2, kernel_size=4, stride=2, **options))
    model, graph = other.subject.run.model, other.subject.graph
    answer = ask(other, "node", node=4)["map"]
    h = embed(model, graph, "first")
    assert max(abs(w["after"]) for w in answer["windows"]) == pytest.approx(np.abs(h[4]).max(), abs=1e-6)
    assert answer["windows"][0]["slots"][1] - answer["windows"][0]["slots"][0] == 1
    strongest = np.tanh([[f["answer"] for f in sorted(ask(other, "filters")["filters"], key=lambda f: f["filter"])]])
    assert strongest.shape == (1, 2)
    assert np.tanh(other.filters.strongest) == pytest.approx(np.abs(h).reshape(40, 2, 2, -1).max(axis=(1, 3)), abs=1e-6)


def test_gexf_holds_the_graph(explorer):
    text = to_gexf(explorer)
    root = ET.fromstring(text.encode())
    space = "{http://gexf.net/1.3}"
    nodes = list(root.iter(f"{space}node"))
    assert [node.get("label") for node in nodes] == list(explorer.subject.graph.node_names)
    values = {v.get("for"): v.get("value") for v in nodes[4].iter(f"{space}attvalue")}
    assert values["class"] == "apples"
    assert values["predicted"] == explorer.subject.classes[explorer.subject.predicted[4]]
    assert float(values["confidence"]) == explorer.subject.confidence[4]
    assert len(list(root.iter(f"{space}edge"))) == explorer.subject.graph.num_edges
    control = replace(explorer.subject.graph, node_names=("a\x00\x1b\ud800", *explorer.subject.graph.node_names[1:]))
    ET.fromstring(to_gexf(Explorer(Subject(control))).encode())


def test_gexf_holds_the_weights_of_edges(tmp_path):
    networkx = pytest.importorskip("networkx")
    weights = [0.25, 1.5, 2]
    graph = Graph.from_edges([[0, 0, 1], [1, 2, 3]], np.eye(4), weights=weights, node_names=["a", "b", "<c>", "d & e"])
    (tmp_path / "graph.gexf").write_text(to_gexf(Explorer(Subject(graph))), encoding="utf-8")
    read = networkx.read_gexf(tmp_path / "graph.gexf", relabel=True)
    assert {(*sorted(ends), size) for *ends, size in read.edges(data="weight")} == {
        ("a", "b", 0.25),
        ("<c>", "a", 1.5),
        ("b", "d & e", 2),
    }


def test_notebooks_show_runs_and_explanations(explorer):
    saved, graph = explorer.subject.run, explorer.subject.graph
    shown = saved._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; pears" in shown
    reasons = explain(saved.model, graph, 0)
    page = reasons._repr_html_()
    assert "<th>contribution</th>" in page
    assert "<script" not in page
    assert "Node &lt;script&gt;" in page
    assert f"{reasons.top(1)[0].contribution:+.4g}" in page
