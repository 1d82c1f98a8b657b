"""Tables as people have them: edges to unknown ids, weights, directions, dates, and nodes without any feature."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

import nfcgcn
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.structure import STRUCTURES
from nfcgcn.errors import ConfigError, GraphError, NFCWarning
from nfcgcn.graph import Graph

NODES = pd.DataFrame(
    {
        "id": ["a", "b", "c", "d"],
        "size": [1.0, 2.0, 3.0, None],
        "kind": ["u", "v", "u", "u"],
        "label": ["x", "y", "x", None],
    }
)
DIRTY = pd.DataFrame(
    {
        "source": ["a", "b", "c", "ghost", "a", "c"],
        "target": ["b", "c", "phantom", "a", "a", "b"],
        "strength": [2.0, 0.5, 9.0, 3.0, 1.0, 4.0],
        "since": [2001, 2002, 2003, 2004, 2005, 2006],
    }
)
FILLED = "ignore:empty cells:nfcgcn.errors.NFCWarning"


@pytest.mark.filterwarnings(FILLED)
def test_edges_to_unknown_ids_are_refused_dropped_or_added():
    with pytest.raises(GraphError, match=r"names 2 ids .*, in 2 of 6 edges: 'phantom', 'ghost'; add the nodes, remove"):
        nfcgcn.from_frames(NODES, DIRTY)
    with pytest.warns(NFCWarning, match="left out 2 edges of the frame of edges to ids that no node has"):
        dropped = nfcgcn.from_frames(NODES, DIRTY, unknown_edges="drop")
    assert dropped.node_names == ("a", "b", "c", "d")
    assert dropped.adjacency.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    with pytest.warns(
        NFCWarning,
        match="added 2 nodes with empty cells, as the frame of edges names ids that no node has: 'phantom', 'ghost'",
    ):
        added = nfcgcn.from_frames(NODES, DIRTY, unknown_edges="add")
    assert added.node_names == ("a", "b", "c", "d", "phantom", "ghost")
    assert added.labels.tolist() == [0, 1, 0, -1, -1, -1]
    assert set(added.adjacency[[4]].indices) == {2}
    assert set(added.adjacency[[5]].indices) == {0}
    # An empty cell counts as the mean of its column, 2, and as no category.
    assert added.features[4].tolist() == added.features[5].tolist() == [2, 0, 0]
    with pytest.raises(ConfigError, match="unknown choice for unknown edges 'ad'"):
        nfcgcn.from_frames(NODES, DIRTY, unknown_edges="ad")


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_added_nodes_of_sparse_features_are_like_empty_rows():
    nodes = NODES.assign(about="some words")
    added = nfcgcn.from_frames(nodes, DIRTY, unknown_edges="add", text="about")
    empty = pd.DataFrame({"id": ["phantom", "ghost"], "size": np.nan, "kind": None, "about": None, "label": None})
    written = nfcgcn.from_frames(pd.concat([nodes, empty]), DIRTY, encoding=added.encoding)
    assert added.is_sparse
    assert (added.features != written.features).nnz == 0


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_edges_without_an_end_are_dropped_if_asked():
    edges = pd.DataFrame({"source": ["a", None, "b"], "target": ["b", "c", None]})
    with pytest.raises(
        GraphError, match="row 2 of the frame of edges lacks an id; an edge needs both ends: 2 rows lack"
    ):
        nfcgcn.from_frames(NODES, edges)
    with pytest.raises(GraphError, match="row 2 of the frame of edges lacks an id"):
        nfcgcn.from_frames(NODES, edges, unknown_edges="add")
    assert nfcgcn.from_frames(NODES, edges, unknown_edges="drop").num_edges == 1


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_what_was_read_and_what_was_not_used():
    graph = nfcgcn.from_frames(NODES, DIRTY, weight="strength", directed=True, unknown_edges="drop", features="degree")
    assert graph.reading == (
        "read 4 nodes and 2 edges; weights of edges from 'strength'; 5 degree features made from the edges; left out 1 "
        "loop, 1 repeated or reversed edge, 2 edges to unknown ids; not used: 'since' of the frame of edges; "
        "directions, as every model reads an edge both ways"
    )
    # Of the two directions between b and c, the larger weight counts.
    assert graph.adjacency.toarray().tolist() == [[0, 2, 0, 0], [2, 0, 4, 0], [0, 4, 0, 0], [0, 0, 0, 0]]
    assert graph.feature_names[3:] == tuple(f"degree: {w}" for w in ("own", "least", "most", "mean", "deviation"))
    again = nfcgcn.from_frames(NODES, DIRTY, encoding=graph.encoding)
    assert (again.adjacency != graph.adjacency).nnz == 0
    np.testing.assert_array_equal(again.features, graph.features)
    assert again.reading == graph.reading


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
@pytest.mark.parametrize(
    ("values", "shown"), [([1, 2, -3], "says '-3.0'"), ([1, 2, None], "is empty"), (["1", "2", "x"], "says 'x'")]
)
def test_weights_that_are_none(values, shown):
    edges = pd.DataFrame({"source": list("abc"), "target": list("bca"), "w": values})
    with pytest.raises(GraphError) as caught:
        nfcgcn.from_frames(NODES, edges, weight="w")
    assert str(caught.value) == (
        f"column 'w' of the frame of edges must hold a weight from 0 up for each edge, but row 3 {shown}; correct it"
    )


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_a_weight_needs_a_column_of_its_own():
    with pytest.raises(
        GraphError, match="column 'source' of the frame of edges holds ids, not weights; name another with weight="
    ):
        nfcgcn.from_frames(NODES, DIRTY, weight="source")
    with pytest.raises(GraphError, match="weight='w' is for a table of edges, and there is none; give edges="):
        nfcgcn.from_frames(NODES, weight="w")


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
@pytest.mark.parametrize("form", ["text", "dates", "times"])
def test_dates_become_days(form):
    texts = ["1970-01-02", "2000-01-01", None, "1969-12-31"]
    day = {
        "text": texts,
        "dates": [None if text is None else datetime.date.fromisoformat(text) for text in texts],
        "times": pd.to_datetime(pd.Series(texts)),
    }[form]
    nodes = NODES.assign(day=day)
    graph = nfcgcn.from_frames(nodes, DIRTY, unknown_edges="drop")
    days = np.array([1, 10957, np.nan, -1])  # 30 years with 7 leap days
    days[2] = np.nanmean(days)
    place = graph.feature_names.index("day")
    expected = (days - days.mean()) / days[[0, 1, 3]].std()
    np.testing.assert_allclose(graph.features[:, place], expected, rtol=1e-5)
    later = nfcgcn.from_frames(nodes, DIRTY, encoding=graph.encoding)
    np.testing.assert_array_equal(later.features, graph.features)


def test_times_of_day_count_and_zones_are_read():
    from nfcgcn.data.formats.gathering import to_days

    assert to_days(["1970-01-01T12:00", "1970-01-01T12:00:00+06:00", "1970-01-01 06:00:00Z"]).tolist() == [
        0.5,
        0.25,
        0.25,
    ]
    assert np.isnan(to_days(["2021-02-31"])).all()


@pytest.mark.filterwarnings(FILLED)
def test_names_with_a_separator_are_classes():
    nodes = NODES.assign(label=["physics, applied", "physics, nuclear", "maths", "R&D; other"])
    assert len(nfcgcn.from_frames(nodes, DIRTY[:2]).class_names) == 4


@pytest.mark.parametrize("kind", STRUCTURES)
def test_nodes_without_columns_get_features_from_the_edges(kind):
    nodes = pd.DataFrame({"id": np.arange(6)})
    edges = pd.DataFrame({"source": [0, 1, 2, 3, 4], "target": [1, 2, 0, 4, 5]})
    graph = nfcgcn.from_frames(nodes, edges, features=kind)
    expected = nfcgcn.structural_features(graph.adjacency, kind)
    assert (graph.features != expected).sum() == 0
    again = nfcgcn.from_frames(nodes, edges, encoding=graph.encoding)
    assert (again.features != expected).sum() == 0
    assert Encoding.from_json(graph.encoding).feature_names == graph.feature_names == again.feature_names
    other = edges.assign(target=[1, 2, 3, 4, 5])
    if kind in ("degree", "walk"):
        assert nfcgcn.from_frames(nodes, other, encoding=graph.encoding).num_features == graph.num_features
    else:
        with pytest.raises(GraphError, match=f"the {kind} features of training belong to its nodes and edges, and"):
            nfcgcn.from_frames(nodes, other, encoding=graph.encoding)


@pytest.mark.filterwarnings(FILLED)
def test_features_from_edges_stand_after_those_of_columns():
    graph = nfcgcn.from_frames(NODES, DIRTY[:2], features="one-hot")
    assert graph.feature_names == ("size", "kind=u", "kind=v", "node=a", "node=b", "node=c", "node=d")
    np.testing.assert_array_equal(graph.x.to_dense()[:, 3:], np.eye(4))
    with pytest.raises(ConfigError, match="unknown kind of features 'walks'; did you mean 'walk'"):
        nfcgcn.from_frames(NODES, DIRTY, features="walks")


def test_without_a_word_the_features_are_spectral():
    nodes = pd.DataFrame({"id": np.arange(4), "label": ["u", "v", "u", None]})
    edges = pd.DataFrame({"source": [0, 1, 2], "target": [1, 2, 3]})
    with pytest.warns(
        NFCWarning, match="nothing is left of the frame of nodes .*: spectral features are made from the"
    ):
        graph = nfcgcn.from_frames(nodes, edges)
    assert graph.feature_names == ("spectral 1", "spectral 2", "spectral 3")


class Part:
    """A vertex or an edge of igraph."""

    def __init__(self, attributes):
        self.attributes = lambda: attributes


class Igraph:
    """As much of igraph's ``Graph`` as is used."""

    def __init__(self, rows, pairs, edges, directed):
        self.vs, self.es = [Part(row) for row in rows], [Part(edge) for edge in edges]
        self.get_edgelist, self.is_directed = (lambda: pairs), (lambda: directed)


def check_igraph(graph):
    assert graph.node_names == ("u", "v", "w")
    assert graph.features.tolist() == [[1], [2], [3]]
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.adjacency.toarray().tolist() == [[0, 2, 0], [2, 0, 3], [0, 3, 0]]
    assert graph.reading == (
        "read 3 nodes and 2 edges; weights of edges from 'w'; not used: 'colour' of the graph; directions, as every "
        "model reads an edge both ways"
    )


def test_igraph_by_its_shape():
    rows = [{"name": n, "x": x, "label": y} for n, x, y in (("u", 1, "p"), ("v", 2, "q"), ("w", 3, None))]
    edges = [{"w": 2, "colour": "red"}, {"w": 3.0, "colour": "blue"}]
    check_igraph(nfcgcn.load(Igraph(rows, [(0, 1), (1, 2)], edges, True), weight="w"))
    unnamed = nfcgcn.from_igraph(Igraph([{"x": 1}, {"x": 2}], [(0, 1)], [{}], False))
    assert unnamed.node_names == ("0", "1")
    with pytest.raises(GraphError, match=r"the edge attribute 'w' must hold a weight from 0 up .* row 1 is empty"):
        nfcgcn.from_igraph(Igraph([{"x": 1}, {"x": 2}], [(0, 1)], [{"w": None}], False), weight="w")
    for weight in (10**400, 1j, [1.0], ["a"], {"a"}, np.ones(2), -1, "x", b"1", object()):
        with pytest.raises(GraphError, match=r"^the edge attribute 'w' (must hold a weight|holds \w+ values)"):
            nfcgcn.from_igraph(Igraph([{"x": 1}, {"x": 2}], [(0, 1)], [{"w": weight}], False), weight="w")


def test_igraph_itself():
    igraph = pytest.importorskip("igraph", reason="igraph is not installed")
    graph = igraph.Graph([(0, 1), (1, 2)], directed=True)
    graph.vs["name"], graph.vs["x"], graph.vs["label"] = list("uvw"), [1, 2, 3], ["p", "q", None]
    graph.es["w"], graph.es["colour"] = [2, 3.0], ["red", "blue"]
    check_igraph(nfcgcn.from_igraph(graph, weight="w"))


@pytest.mark.parametrize("transform", ["NormalizeFeatures", "ToSparseTensor", "AddSelfLoops", "SVDFeatureReduction"])
def test_transforms_of_pyg_read_what_to_pyg_gives(transform, sparse_graph):
    from torch_geometric import transforms

    from nfcgcn.graph import quiet_sparse

    options = {"SVDFeatureReduction": (4,)}.get(transform, ())
    before = sparse_graph.features.copy()
    with quiet_sparse():
        data = getattr(transforms, transform)(*options)(sparse_graph.to_pyg())
    assert Graph.from_pyg(data).num_nodes == sparse_graph.num_nodes
    assert (sparse_graph.features != before).nnz == 0
    if transform == "NormalizeFeatures":
        sums = sparse_graph.features.toarray().sum(axis=1, keepdims=True)
        np.testing.assert_allclose(data.x, sparse_graph.features.toarray() / np.maximum(sums, 1), rtol=1e-5)


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_bad_weights_of_a_long_table_are_counted_in_all_its_chunks(monkeypatch):
    monkeypatch.setattr("nfcgcn.data.formats.table.CHUNK", 2)
    edges = pd.DataFrame({"source": list("abcabc"), "target": list("bcabca"), "w": [1, -1, 2, None, -3, -4]})
    with pytest.raises(
        GraphError, match=r"4 of 6 rows do not: 3 below 0 \(first row 2, '-1.0'\), 1 empty \(first row 4"
    ):
        nfcgcn.from_frames(NODES, edges, weight="w")


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_what_was_read_as_dates_is_said():
    nodes = NODES.assign(joined=["2020-01-01", "2021-05-05", None, "2022-02-02"])
    graph = nfcgcn.from_frames(nodes, DIRTY, unknown_edges="drop")
    assert "; dates as days since 1970 from 'joined'; " in graph.reading


def test_classes_that_may_mean_no_label_are_named():
    nodes = NODES.assign(label=["x", "NA", "?", "?"])
    with pytest.warns(NFCWarning) as caught:
        graph = nfcgcn.from_frames(nodes, DIRTY, unknown_edges="drop")
    assert graph.class_names == ("?", "NA", "x")
    assert (
        "column 'label' of the frame of nodes has the class '?' (2 rows) and 'NA' (1 row); empty these cells if they "
        "mean that there is no label"
    ) in [str(warning.message) for warning in caught]


def test_options_that_do_not_exist_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"unknown option of a graph 'lable'; did you mean 'label'\?"):
        nfcgcn.from_frames(NODES, DIRTY, lable="x")


@pytest.mark.parametrize("several", [["a", "b"], ("a", "b"), {"a"}])
def test_lists_of_classes_are_refused_with_what_a_label_is(several):
    nodes = NODES.assign(label=[several, ["a"], ["b"], ["b"]])
    with pytest.raises(GraphError, match=r"holds \w+ values; give one text per cell, as a node has one id and"):
        nfcgcn.from_frames(nodes, DIRTY)
