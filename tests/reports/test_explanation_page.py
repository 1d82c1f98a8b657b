"""Explanations as tables, pictures, pages and CSV: what they show, that they add up, and hostile names."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from nfcgcn import NFCGCN, explain, explain_classes
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph
from nfcgcn.reports import class_reasons, figures, find_node, node_reasons, write_cell

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>alert(1)</script> & "quotes" $x^2$ [red]\x1b[31m,=1+1'


def texts(svg):
    return ["".join(node.itertext()).strip() for node in ET.fromstring(svg.encode()).iter(f"{SVG}text")]


def model_and_graph(num_nodes=30, num_features=40, hostile=False):
    rng = np.random.default_rng(0)
    x = (rng.random((num_nodes, num_features)) < 0.4) * rng.normal(size=(num_nodes, num_features))
    names = [f"node {i}" for i in range(num_nodes)]
    features = [f"word {d}" for d in range(num_features)]
    classes = ["apples", "pears"]
    if hostile:
        names[0] = features[0] = classes[0] = HOSTILE
    graph = Graph.from_edges(
        rng.integers(num_nodes, size=(2, 2 * num_nodes)),
        x.astype(np.float32),
        labels=rng.integers(2, size=num_nodes),
        node_names=names,
        feature_names=features,
        class_names=classes,
    )
    torch.manual_seed(0)
    return NFCGCN(num_features, 4, 2, 2, bandwidth=3, filters=4, kernel_size=4, stride=1).eval(), graph


def why(model, graph, node=0, **options):
    return node_reasons(explain(model, graph, node), graph, model="nfc-gcn", class_name=graph.class_name, **options)


def test_a_node_by_hand():
    graph = Graph.from_edges(
        [[0], [1]],
        np.array([[1, 2], [4, 0]], np.float32),
        labels=[1, -1],
        node_names=["me", "you"],
        feature_names=["big", "small"],
        class_names=["no", "yes"],
    )
    model = NFCGCN(2, 1, 0, 2, bandwidth=2, filters=1, kernel_size=2, stride=1).eval()
    with torch.no_grad():
        model.nfc.weight.copy_(torch.tensor([[[1, 2], [3, -1]]]))
        model.classifier.weight.copy_(torch.tensor([[0.0], [0.5]]))
        model.classifier.bias.copy_(torch.tensor([0, 0.25]))
    reasons = why(model, graph)
    assert reasons.title == "Why node me is in class yes"
    assert reasons.csv == (
        "node,class,edges away,feature,value,contribution\n"
        "you,,1,big,4.0,6.0\n"
        "me,yes,0,small,2.0,2.0\n"
        "me,yes,0,big,1.0,0.5\n"
    )
    assert reasons.cards == [
        ("Predicted class", "yes", "the node's own label: yes"),
        ("Score of yes before the softmax", "8.75", "0.25 without features, +8.5 from features"),
        ("Features that contribute", "3", "of 2 nodes"),
        ("Through the node's own map", "+8.5", "+0 through the maps of other nodes"),
    ]
    shown = texts(reasons.svg)
    assert {"me · yes · itself", "you · 1 edge away", "big", "small", "sum"} <= set(shown)
    assert {"+6.0", "+2.0", "+0.5", "+6.5", "+2.5", "+8.5"} <= set(shown)
    assert "other nodes" not in shown
    other = node_reasons(explain(model, graph, 0, target=0), graph, model="m", class_name=graph.class_name)
    assert other.title == "What speaks for class no at node me"


def test_what_is_not_shown_is_counted():
    model, graph = model_and_graph()
    reasons = why(model, graph, top=5)
    shown = texts(reasons.svg)
    assert {"other nodes", "other features", "sum"} <= set(shown)
    assert len(reasons.top) == 5 < len(reasons.rows)
    e = explain(model, graph, 0)
    total = next(t for t in reversed(shown) if re.fullmatch(r"[+\u2212][\d.]+", t))
    assert float(total.replace("\u2212", "-")) == pytest.approx(e.score - e.baseline, abs=0.01)
    assert sum(float(row["contribution"]) for row in csv.DictReader(io.StringIO(reasons.csv))) == pytest.approx(
        e.score - e.baseline
    )
    assert sum(text.startswith("node ") for text in shown) == 14


def test_classes():
    model, graph = model_and_graph()
    explanations = explain_classes(model, graph)
    reasons = class_reasons(explanations, graph, model="nfc-gcn", class_name=graph.class_name, top=6)
    assert reasons.columns == ("class", ">nodes", "feature", ">contribution")
    present = [c for c in explanations if c.num_nodes]
    best = present[0].top(1)[0]
    assert reasons.rows[0] == (graph.class_name(present[0].target), present[0].num_nodes, f"word {best[0]}", best[1])
    assert len(reasons.top) == 6 // len(present) * len(present)
    assert f"word {best[0]}" in texts(reasons.svg)
    assert "sum" in texts(reasons.svg)


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.outside = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and not v.startswith("data:")]


@pytest.mark.parametrize("kind", ["node", "classes"])
def test_hostile_names_are_text(kind):
    model, graph = model_and_graph(hostile=True)
    reasons = (
        why(model, graph, top=40)
        if kind == "node"
        else class_reasons(explain_classes(model, graph), graph, model="m", class_name=graph.class_name, top=40)
    )
    page = Page()
    page.feed(reasons.html)
    assert "script" not in page.tags
    assert page.outside == []
    assert "&lt;script&gt;" in reasons.html
    assert "\x1b" not in reasons.svg
    ET.fromstring(reasons.svg.encode())
    assert any(text.startswith("<script>alert") for text in texts(reasons.svg))
    assert HOSTILE in {cell for row in csv.reader(io.StringIO(reasons.csv)) for cell in row}
    assert write_cell(HOSTILE) == HOSTILE.replace("\x1b", " ")


def test_the_same_picture_twice():
    model, graph = model_and_graph()
    assert why(model, graph).svg == why(model, graph).svg


def test_a_node_without_a_reason():
    graph = Graph.from_edges([[], []], np.zeros((1, 4), np.float32))
    reasons = why(NFCGCN(4, 2, 1, 2, bandwidth=2, filters=2, kernel_size=2, stride=1), graph)
    assert reasons.rows == []
    assert "0 · itself" in texts(reasons.svg)
    assert "<td" not in reasons.html


@pytest.mark.parametrize(
    ("largest", "unit", "text"), [(3e-6, ", in units of 1e-6", "+3.0"), (4e5, ", in units of 1e5", "+4.0")]
)
def test_very_small_and_very_large_contributions(largest, unit, text):
    svg = figures.contributions(np.array([[largest, 0], [0, 0]]), [("a",)], ["x"], sums="rows", meaning="m")
    assert f"m{unit}" in texts(svg)
    assert text in texts(svg)


@pytest.mark.parametrize(("value", "colour"), [(1.0, "#053061"), (-1.0, "#67001f")], ids=["blue for", "red against"])
def test_colours_by_sign(value, colour):
    svg = figures.contributions(np.array([[value, 0], [0, 0]]), [("a",)], ["x"], sums="rows", meaning="m")
    assert {c for c in ("#053061", "#67001f") if c in svg} == {colour}


def message(text):
    return f"^{re.escape(text)}$"


def test_finding_nodes():
    _, named = model_and_graph()
    assert find_node(named, "node 7") == 7
    with pytest.raises(
        GraphError, match=message("unknown node 'nod 7'; did you mean 'node 7' or 'node 27' or 'node 17'?")
    ):
        find_node(named, "nod 7")
    with pytest.raises(GraphError, match=message("unknown node 'zzz'; the first one is 'node 0'")):
        find_node(named, "zzz")
    plain = Graph.from_edges([[], []], np.zeros((3, 1), np.float32), name="plain")
    assert find_node(plain, "2") == 2
    for bad in ("3", "-1", "1.0", "²"):
        with pytest.raises(GraphError, match=message(f"unknown node '{bad}'; the nodes of plain are numbered 0 to 2")):
            find_node(plain, bad)
