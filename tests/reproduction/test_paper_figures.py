"""The figures of the reproduction: what they show, with which input they work, and that they are reproducible."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import cache

import numpy as np
import pytest
from synthetic_results import make_records, ours

from nfcgcn.reproduction.comparison import compare
from nfcgcn.reproduction.experiment import EXPERIMENTS, Axis, load_experiment, read_experiment
from nfcgcn.reproduction.figures import _beside, _places, describe, draw, spread_out

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = [name for name in EXPERIMENTS if name != "degrees"]


@cache
def shown(name):
    """An experiment in which ours are at 88 and the others at 86, or an epoch takes 20 and 10 ms."""
    experiment = load_experiment(name)
    low, high = (0.01, 0.02) if experiment.kind == "cost" else (86, 88)
    return compare(experiment, make_records(experiment, lambda e: high if ours(e) else low, seeds=3))


@cache
def drawn(name):
    return draw(shown(name))


def texts(svg):
    return ["".join(node.itertext()).strip() for node in ET.fromstring(svg.encode()).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", DRAWN)
def test_rows_and_datasets_are_named_in_the_figure(name):
    comparison = shown(name)
    shown_texts = texts(drawn(name))
    for row in comparison.experiment.rows:
        assert any(text == row.label for text in shown_texts), row.label
    if name != "curves":
        assert {"Cora", "CiteSeer", "PubMed"} <= set(shown_texts)


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_figure_twice_has_the_same_bytes(name, everything):
    svg = drawn(name)
    if name in ("accuracy", "curves", "bandwidth") or everything:
        assert draw(shown(name)) == svg
    assert "dc:date" not in svg
    assert not re.search(r"\b(nan|inf)\b", svg)


def test_degrees_have_no_figure():
    assert draw(shown("degrees")) is None


def test_nothing_run_has_no_figure():
    assert draw(compare(load_experiment("depth"), [])) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-gcn", "Without graph convolutions. Cora: GCN_5 86.0%, GAT_5 86.0%, NFC_5 88.0%; CiteSeer: "),
        ("depth", "Depth. Cora: NFC-GCN 1D from 88.0% at K = 1 to 88.0% at K = 5; CiteSeer: "),
        ("curves", "Training curves. Cora: GCN ends at validation loss 0.00 and accuracy 99.5%, GAT ends"),
        ("convergence", "Convergence. Cora: GCN 30 epochs, GAT 30 epochs, NFC-GCN 1D 30 epochs; CiteSeer: "),
        ("cost", "Cost. Cora: MLP 10.00 ms per epoch, GCN 10.00 ms per epoch, "),
    ],
)
def test_figures_are_described(name, words):
    assert describe(shown(name)).startswith(words)


def test_the_papers_numbers_are_shown_too():
    shown_texts = texts(draw(shown("depth")))
    assert shown_texts.count("paper") == 3
    assert "line: mean over seeds; band: \u00b1 one standard deviation; hollow: the paper's numbers" in shown_texts
    assert "paper" not in texts(draw(shown("depth-planetoid")))


def test_costs_are_shown_relative_to_gcn():
    shown_texts = texts(draw(shown("cost")))
    assert "2.0 \u00d7, 20.0 ms" in shown_texts
    assert "1.0 \u00d7, 10.0 ms" in shown_texts


@pytest.mark.parametrize("name", DRAWN)
def test_partial_results_are_drawn(name):
    experiment = load_experiment(name)
    value = 0.01 if experiment.kind == "cost" else 80
    row = experiment.rows[-1]
    drawn = (row.datasets or experiment.datasets)[0]
    records = make_records(experiment, lambda e: value if (e.row, e.dataset) == (row.label, drawn) else None, seeds=1)
    comparison = compare(experiment, records)
    assert row.label in texts(draw(comparison))
    assert "CiteSeer" not in describe(comparison)


def test_hostile_names_are_text():
    name = "<script>&\\u0007" + "x" * 80
    text = f'title = "t"\nabout = "a"\ndatasets = ["cora"]\n[[rows]]\nlabel = "{name}"\nmodel = "gcn"\n'
    experiment = read_experiment("toy", text)
    svg = draw(compare(experiment, make_records(experiment, lambda e: 80)))
    assert any(text.startswith("<script>& xx") for text in texts(svg))
    assert "<script" not in svg


def test_labels_are_moved_apart_as_little_as_possible():
    assert spread_out([0.1, 0.9], 0.2) == [0.1, 0.9]
    assert spread_out([0.5, 0.5], 0.2) == pytest.approx([0.4, 0.6])
    assert spread_out([0.52, 0.5, 0.9], 0.2) == pytest.approx([0.61, 0.41, 0.9])
    assert spread_out([0.5, 0.5, 0.65], 0.2) == pytest.approx([0.35, 0.55, 0.75])
    assert spread_out([], 0.2) == []
    crowd = np.sort(spread_out(list(np.linspace(0.4, 0.5, 7)), 0.1))
    np.testing.assert_allclose(np.diff(crowd), 0.1)


def test_axes_are_laid_out_by_what_they_count():
    assert _places(Axis("bandwidth", "n", (2, 8, 16))) == {2: 2, 8: 8, 16: 16}
    assert _places(Axis("labels", "labels", (5, 10, 80, "none"))) == {
        5: pytest.approx(np.log2(5)),
        10: pytest.approx(np.log2(10)),
        80: pytest.approx(np.log2(80)),
        "none": pytest.approx(np.log2(640)),
    }


def test_equal_dots_stand_beside_each_other():
    np.testing.assert_allclose(_beside(np.array([3, 5, 5, 7])), [0, -0.035, 0.035, 0], atol=1e-12)
