"""Explanations as tables, pictures, pages and CSV: what they show, that they add up, and hostile names."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch

from browser import CHROMIUM, look, tables_fit
from nfcgcn import NFCGCN, explain, explain_classes, from_frames
from nfcgcn.errors import GraphError
from nfcgcn.graph import Graph
from nfcgcn.inference.explanation import ClassExplanation
from nfcgcn.reports import class_reasons, figures, node_reasons, write_cell
from nfcgcn.reports.neighbourhood import RING, _place, draw_neighbourhood

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
        ("Predicted class", "yes", "probability above 99.9 %; the node's own label: yes"),
        ("Runner-up", "no", "probability below 0.1 %"),
        ("Score of yes before the softmax", "8.75", "0.25 without features, +8.5 from features"),
        ("Features that contribute", "3", "of 2 nodes"),
        ("Through the node's own map", "+8.5", "+0 through the maps of other nodes"),
    ]
    shown = texts(reasons.svg)
    assert {"me · yes · itself", "you · 1 edge away", "big", "small", "sum"} <= set(shown)
    assert {"+6.0", "+2.0", "+0.5", "+6.5", "+2.5", "+8.5"} <= set(shown)
    assert "other nodes" not in shown
    assert {"me · yes", "you"} <= set(texts(reasons.draw_around()))
    other = node_reasons(explain(model, graph, 0, target=0), graph, model="m", class_name=graph.class_name)
    assert other.title == "What speaks for class no at node me"


def test_probabilities_are_the_softmax_of_the_models_scores():
    model, graph = model_and_graph()
    e = explain(model, graph, 3)
    scores = model(graph.x, graph.edge_index)[3].double()
    torch.testing.assert_close(torch.from_numpy(e.probabilities), scores.softmax(0), rtol=1e-5, atol=1e-7)
    first, second = why(model, graph, 3).cards[:2]
    assert first[2].startswith(f"probability {100 * e.probabilities.max():.1f} %; ")
    assert second == (
        "Runner-up",
        graph.class_name(1 - e.predicted),
        f"probability {100 * e.probabilities.min():.1f} %",
    )


def test_a_third_class_has_its_own_probability():
    _, graph = model_and_graph()
    torch.manual_seed(0)
    model = NFCGCN(40, 4, 1, 3, bandwidth=2, filters=2, kernel_size=4, stride=1).eval()
    third = int(explain(model, graph, 0).probabilities.argmin())
    cards = node_reasons(explain(model, graph, 0, target=third), graph, model="m", class_name=str).cards
    assert [name for name, *_ in cards[:3]] == ["Predicted class", "Runner-up", "Explained class"]
    assert cards[2][1] == str(third)


TABLES = {
    "nodes": {"id": ["a", "b", "c", "d"], "year": [1985, 1990, 2010, None], "venue": ["X", "Y", "X", "X"],
              "text": ["star dust", "star", "leaf", "leaf soil"], "label": ["p", "q", "p", None]},
    "edges": {"source": ["a", "b", "c"], "target": ["b", "c", "d"]},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:columns of|empty cells")
def test_the_cells_of_the_table():
    nodes, edges = (pd.DataFrame(TABLES[part]) for part in ("nodes", "edges"))
    graph = from_frames(nodes, edges, text=["text"])
    torch.manual_seed(0)
    model = NFCGCN(graph.num_features, 2, 1, 2, bandwidth=2, filters=2, kernel_size=2, stride=1).eval()
    reasons = why(model, graph, 1)
    rows = list(csv.DictReader(io.StringIO(reasons.csv)))
    cells = {(row["node"], row["feature"]): row["cell of the table"] for row in rows}
    years = {node: float(cell) for (node, feature), cell in cells.items() if feature == "year"}
    assert {node: year for node, year in years.items() if node != "d"}.items() <= {
        "a": 1985,
        "b": 1990,
        "c": 2010,
    }.items()
    assert "b" in years
    assert cells["b", "venue=Y"] == "Y"
    assert cells["b", "text: star"] == ""
    assert 0 < abs(next(float(row["value"]) for row in rows if row["feature"] == "year")) < 3  # standardised
    assert "cell of the table" in reasons.html
    assert "A word of a text has no cell of its own" in reasons.html


def test_the_neighbourhood_has_the_nodes_that_count_and_the_edges_between_them():
    # A path 0 - 1 - 2 - 3 and a node without edges; node 1 has no features, and is only on the way.
    graph = Graph.from_edges(
        [[0, 1, 2], [1, 2, 3]],
        np.array([[1, 2], [0, 0], [3, 1], [1, 1], [1, 0]], np.float32),
        node_names=[HOSTILE, "way", "two", "three", "alone"],
    )
    torch.manual_seed(0)
    model = NFCGCN(2, 2, 2, 2, bandwidth=2, filters=2, kernel_size=1, stride=1).eval()
    e = explain(model, graph, 0)
    shown = [j for j in range(5) if e.contributions[[j]].nnz or j == 0]
    assert 1 not in shown
    assert 2 in shown
    assert 4 not in shown
    drawing = draw_neighbourhood(e, graph, shown, lambda j: graph.node_names[j])
    named = texts(drawing)
    assert "way" not in named
    assert "two" in named
    assert any(name.startswith("<script>") for name in named)
    root = ET.fromstring(drawing.encode())
    assert len(root.findall(f".//{SVG}g[@id='PathCollection_1']/{SVG}path")) == len(shown) + 1  # and the one between
    lines = [g for g in root.iter(f"{SVG}g") if (g.get("id") or "").startswith("line2d_")]
    assert len(lines) == len(shown)  # a path has one edge less than nodes
    assert drawing == draw_neighbourhood(e, graph, shown, lambda j: graph.node_names[j])


def test_places_of_a_neighbourhood_do_not_fall_together():
    parents = {0: -1, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 2, 7: -1}
    hops = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 2, 7: 99}
    places = _place(0, parents, hops)
    spots = np.array([places[node] for node in parents])
    apart = np.linalg.norm(spots[:, None] - spots[None], axis=2) + np.eye(len(spots))
    assert apart.min() > 0.9
    radius = np.linalg.norm(spots / RING, axis=1)
    np.testing.assert_allclose(radius, [0, 1, 1, 2, 2, 2, 2, 3])


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


def test_small_contributions_beside_large_ones_are_not_written_as_zero():
    table = np.array([[0.004, 3e-5, -2e-6, 0.0, 5.0], [0, 0, 0, 0, 0]])
    shown = texts(figures.contributions(table, [("a",)], list("wxyz"), sums="rows", meaning="m"))
    assert shown[-6:-1] == ["+0.0040", "+3e\u22125", "\u22122e\u22126", "+5.0000", "+5.0040"]


def test_contributions_of_about_one_differ_beside_one_of_more_than_ten():
    table = np.array([[15.05, 1.4, 0.7, -0.04, 0.0], [0, 0, 0, 0, 0]])
    shown = texts(figures.contributions(table, [("a",)], list("wxyz"), sums="rows", meaning="m"))
    assert shown[-6:-1] == ["+15.1", "+1.4", "+0.7", "\u22124e\u22122", "+17.1"]


@pytest.mark.parametrize(("value", "colour"), [(1.0, "#053061"), (-1.0, "#67001f")], ids=["blue for", "red against"])
def test_colours_by_sign(value, colour):
    svg = figures.contributions(np.array([[value, 0], [0, 0]]), [("a",)], ["x"], sums="rows", meaning="m")
    assert {c for c in ("#053061", "#67001f") if c in svg} == {colour}


def test_the_other_features_of_a_class_are_none_where_all_are_shown():
    added = np.array([0.1, 0.2, 0.3])
    assert added.sum() != added[::-1].sum()  # largest first, they add up to another number
    graph = Graph.from_edges([[0], [1]], np.ones((2, 3)), labels=["apples", "pears"])
    classes = [ClassExplanation(c, 1, added.sum(), 0.0, added, "exact", 0.0) for c in range(2)]
    shown = texts(class_reasons(classes, graph, model="nfc-gcn", class_name=graph.class_name, top=3).svg)
    assert "+0.3" in "".join(shown)
    assert not [text for text in shown if "e\u2212" in text]


def message(text):
    return f"^{re.escape(text)}$"


def test_finding_nodes():
    _, named = model_and_graph()
    assert named.find_node("node 7") == 7
    with pytest.raises(
        GraphError, match=message("unknown node 'nod 7'; did you mean 'node 7' or 'node 27' or 'node 17'?")
    ):
        named.find_node("nod 7")
    with pytest.raises(GraphError, match=message("unknown node 'zzz'; the first one is 'node 0'")):
        named.find_node("zzz")
    plain = Graph.from_edges([[], []], np.zeros((3, 1), np.float32), name="plain")
    assert plain.find_node("2") == 2
    for bad in ("3", "-1", "1.0", "²"):
        with pytest.raises(GraphError, match=message(f"unknown node '{bad}'; the nodes of plain are numbered 0 to 2")):
            plain.find_node(bad)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_shows_the_page(width, tmp_path):
    model, graph = model_and_graph(hostile=True)
    probe, log = look(why(model, graph).html, width, tmp_path)
    assert "CONSOLE" not in log
    assert probe["errors"] == []
    assert len(probe["images"]) == 2
    assert min(natural_width for natural_width, *_ in probe["images"]) > 300
    assert tables_fit(probe)
    assert "Runner-up" in probe["text"]
