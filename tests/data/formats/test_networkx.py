"""NetworkX graphs: attributes as columns."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from nfcgcn import from_igraph, from_networkx
from nfcgcn.errors import GraphError, NFCWarning


@pytest.fixture
def small() -> nx.Graph:
    graph = nx.Graph(name="small")
    graph.add_node("a", size=1, kind="u", tags=["x", "y"], topic="cats", split="train", about="one word")
    graph.add_node(2, size=np.float64(2.5), kind="v", tags=("x",), topic="dogs", split="val", about="one more")
    graph.add_node((3, 4), size=0, kind="u", tags={"y", "x"}, topic="cats", split="test", about="word")
    graph.add_node(None.__class__, size=True, kind=None, tags=None, about=None)
    graph.add_edge("a", 2)
    graph.add_edge(2, (3, 4), weight=5)
    return graph


def test_attributes_are_columns_and_nodes_are_named_by_str(small):
    graph = from_networkx(small, label="topic", words="tags", text="about")
    assert graph.node_names == ("a", "2", "(3, 4)", "<class 'NoneType'>")
    assert graph.feature_names == (
        "size", "kind=u", "kind=v", "tags: x", "tags: y", "about: one", "about: word",
    )  # fmt: skip
    two = 2**-0.5
    expected = [[1, 1, 0, 1, 1, two, two], [2.5, 0, 1, 1, 0, 1, 0], [0, 1, 0, 1, 1, 0, 1], [1, 0, 0, 0, 0, 0, 0]]
    np.testing.assert_allclose(graph.features.toarray(), expected, rtol=1e-6)
    assert graph.labels.tolist() == [0, 1, 0, -1]
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0] * 4]
    assert graph.given.test.tolist() == [2]
    assert graph.name == "small"


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_every_class_of_graph(small, kind):
    other = kind(small)
    other.add_edge(2, "a")
    assert from_networkx(other, ignore=["tags", "about"], label="topic").num_edges == 2


def test_an_encoding_reads_alike(small):
    first = from_networkx(small, label="topic", words="tags", text="about")
    again = from_networkx(small, encoding=first.encoding)
    assert (again.features != first.features).nnz == 0
    assert again.labels.tolist() == first.labels.tolist()


def simple(**attributes) -> nx.Graph:
    graph = nx.Graph()
    graph.add_node(0, x=1, **attributes)
    graph.add_node(1, x=2, **attributes)
    graph.add_edge(0, 1)
    return graph


def test_no_edges_is_told():
    graph = simple()
    graph.remove_edge(0, 1)
    with pytest.warns(NFCWarning, match=r"^the graph holds no edges: every node is judged only by its own features$"):
        assert from_networkx(graph).num_edges == 0


def test_large_whole_numbers(small):
    graph = simple(huge=10**400)
    with pytest.raises(GraphError) as caught:
        from_networkx(graph)
    assert str(caught.value) == (
        "column 'huge' of the table of node attributes holds infinite values: 2, the first in row 1; correct or empty "
        "the cells"
    )


def twice() -> nx.Graph:
    graph = simple()
    graph.add_node("1", x=3)
    return graph


BAD = {
    "same name": (twice(), "two nodes are written '1'; relabel one, as names must differ as text"),
    "no attributes": (
        nx.empty_graph(3),
        "the table of node attributes has no column left to make features of; it has none",
    ),
    "no nodes": (nx.Graph(), "the graph has no nodes"),
    "objects": (simple(thing=object()), "the node attribute 'thing' holds object values; leave it out with ignore="),
    "vectors": (
        simple(thing=[1, 2]),
        "the node attribute 'thing' holds list values; make one column of each number, or leave it out with ignore=",
    ),
    "complex": (simple(thing=1j), "the node attribute 'thing' holds complex values; leave it out with ignore="),
    "lists": (
        simple(t=["a"]),
        "column 't' of the table of node attributes holds lists; name it with words= or ignore=",
    ),
    "keys": (nx.Graph([(0, 1)]), "the node attribute 5 has no text as its name; rename it"),
}
BAD["keys"][0].nodes[0][5] = 1


@pytest.mark.parametrize("case", BAD)
def test_bad_graphs(case):
    graph, message = BAD[case]
    with pytest.raises(GraphError) as caught:
        from_networkx(graph)
    assert str(caught.value) == message


def test_other_things_are_refused_by_name():
    with pytest.raises(GraphError, match=r"^`graph` must be a graph of NetworkX, got dict; nfcgcn.load takes others$"):
        from_networkx({"a": ["b"]})
    with pytest.raises(GraphError, match=r"^`graph` must be a graph of igraph, got networkx.Graph; nfcgcn.load takes"):
        from_igraph(nx.Graph())
    with pytest.raises(GraphError, match=r"^no edge has the attribute 'wait'; edges have 'weight'$"):
        from_networkx(nx.karate_club_graph(), label="club", features="degree", weight="wait")
