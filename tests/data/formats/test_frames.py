"""Data frames: the same graph as from the same tables in files, in pandas and Polars."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import nfcgcn
from nfcgcn.errors import GraphError, NFCWarning

NODES = pd.DataFrame(
    {
        "id": [10, 20, 30, 40, 50],
        "size": [1.5, None, 2.5, 0.5, 1.0],
        "kind": ["a", "b", None, "a", "b"],
        "abstract": ["graphs and nodes", "nodes of graphs", "stars", "stars and graphs", "moons"],
        "flag": [True, False, True, True, False],
        "label": ["x", "y", None, "x", "y"],
    }
)
EDGES = pd.DataFrame({"source": [10, 20, 30], "target": [20, 30, 50], "weight": [1.0, 2.0, 3.0]})
COLUMNS = {"label": "label", "text": "abstract"}


def same(one, other):
    assert one.feature_names == other.feature_names
    assert one.class_names == other.class_names
    assert one.node_names == other.node_names
    assert one.labels.tolist() == other.labels.tolist()
    assert one.edge_index.tolist() == other.edge_index.tolist()
    np.testing.assert_array_equal(one.x.to_dense(), other.x.to_dense())


@pytest.fixture
def expected(tmp_path):
    NODES.assign(flag=NODES.flag.astype(int)).to_csv(tmp_path / "n.csv", index=False)
    EDGES.to_csv(tmp_path / "e.csv", index=False)
    with pytest.warns(NFCWarning, match="filled"):
        return nfcgcn.load(tmp_path / "n.csv", edges=tmp_path / "e.csv", **COLUMNS)


def quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NFCWarning)
        return nfcgcn.from_frames(*arguments, **options)


FORMS = {
    "pandas": lambda frame: frame,
    "pandas, other index": lambda frame: frame.set_index(frame.index[::-1]),
    "pandas, nullable": lambda frame: frame.convert_dtypes(),
    "pandas, categories": lambda frame: frame.astype(dict.fromkeys({"kind", "label"} & set(frame), "category")),
    "arrow": lambda frame: pytest.importorskip("pyarrow").Table.from_pandas(frame),
    "polars": lambda frame: pytest.importorskip("polars").from_pandas(frame),
    "polars, lazy": lambda frame: pytest.importorskip("polars").from_pandas(frame).lazy(),
}


@pytest.mark.parametrize("form", FORMS)
def test_frames_give_the_graph_of_the_same_files(expected, form):
    make = FORMS[form]
    same(quietly(make(NODES), make(EDGES), **COLUMNS), expected)


def test_the_named_index_is_a_column(expected):
    same(quietly(NODES.set_index("id"), EDGES, **COLUMNS), expected)


def test_named_levels_of_an_index_are_columns(expected):
    ends = list(EDGES.columns[:2])
    counted = EDGES.groupby(ends, sort=False).size().to_frame("calls")  # its index has both ends
    same(quietly(NODES, counted, **COLUMNS), expected)


def test_load_takes_frames_too(expected):
    with pytest.warns(NFCWarning, match="filled"):
        same(nfcgcn.load(NODES, edges=EDGES, **COLUMNS), expected)


def test_later_frames_are_read_as_those_before(expected):
    graph = quietly(NODES, EDGES, **COLUMNS)
    later = pd.concat([NODES, NODES.iloc[:1].assign(id=60, kind="new", abstract="unseen words")], ignore_index=True)
    again = quietly(later, EDGES, encoding=graph.encoding)
    assert again.feature_names == graph.feature_names
    np.testing.assert_array_equal(again.x.to_dense()[:5], graph.x.to_dense())


BAD = {
    "no frame": (
        (3, EDGES),
        "the frame of nodes must be a data frame of pandas or Polars, got int",
    ),
    "numbers as names": (
        (NODES.set_axis(range(6), axis=1), EDGES),
        "column 0 of the frame of nodes has no text as its name; rename it",
    ),
    "two of a name": (
        (NODES.set_axis(["id", "a", "a", "b", "c", "d"], axis=1), EDGES),
        "the frame of nodes has two columns called 'a'; rename one",
    ),
    "objects": (
        (NODES.assign(odd=[{}] * 5), EDGES),
        "column 'odd' of the frame of nodes holds dict values; leave it out with ignore=",
    ),
    "unknown ids": (
        (NODES, EDGES.assign(target=[20, 30, 99])),
        "the frame of edges names 1 id that no row of the frame of nodes has, in 1 of 3 edges: '99'; add the nodes, "
        "remove the edges, or choose unknown_edges='drop' or 'add'",
    ),
    "no known id at all": (
        (NODES, EDGES.assign(target=[7, 8, 99])),
        "the frame of edges names 3 ids that no row of the frame of nodes has, in 3 of 3 edges: '7', '8', '99'; if the "
        "ids are in another column, name it with id=; otherwise add the nodes, remove the edges, or choose "
        "unknown_edges='drop' or 'add'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_frames_are_named(case):
    frames, message = BAD[case]
    with pytest.raises(GraphError) as caught:
        quietly(*frames)
    assert str(caught.value) == message


def test_from_frames_to_predictions_and_reasons():
    rng = np.random.default_rng(0)
    is_red = np.arange(60) % 2 == 0
    label = np.where(is_red, "red", "blue")
    nodes = pd.DataFrame({"id": np.arange(60), "warmth": 2.0 * is_red - 1 + rng.normal(0, 0.1, 60), "label": label})
    nodes.loc[:9, "label"] = None
    edges = pd.DataFrame({"source": np.arange(60), "target": (np.arange(60) + 2) % 60})
    graph = nfcgcn.from_frames(nodes, edges)
    known, missing = np.flatnonzero(graph.labels >= 0), np.flatnonzero(graph.labels < 0)
    model = nfcgcn.NFCClassifier(graph, random_state=0, epochs=60).fit(known, nodes.label[known])
    assert (model.predict(missing) == label[missing]).mean() >= 0.8
    assert nfcgcn.explain(model.model_, graph, int(missing[0])).top(1)


def test_the_same_by_a_method_of_graph(expected):
    with pytest.warns(NFCWarning, match="filled"):
        same(nfcgcn.Graph.from_frames(NODES, EDGES, **COLUMNS), expected)
