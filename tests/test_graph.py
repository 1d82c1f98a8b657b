import copy
import pickle
import re
import warnings
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from nfcgcn.errors import GraphError, NFCWarning
from nfcgcn.graph import Graph, Split, csr_tensor, quiet_sparse


def ids(*nodes):
    return np.array(nodes, np.int64)


def message(text):
    return f"^{re.escape(text)}$"


def test_loops_duplicates_and_directions_are_cleaned():
    edges = [[0, 1, 1, 2, 2, 0], [1, 0, 1, 1, 1, 0]]
    graph = Graph.from_edges(edges, np.eye(4))
    expected = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(graph.adjacency.toarray(), expected)
    assert graph.adjacency.dtype == np.float32
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (4, 2, 4, 0)
    assert graph.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    )
)
def test_any_edge_list_gives_the_set_of_its_pairs(case):
    n, pairs = case
    graph = Graph.from_edges(np.array(pairs, np.int64).reshape(-1, 2).T, np.ones((n, 1)))
    oracle = {(a, b) for a, b in pairs if a != b} | {(b, a) for a, b in pairs if a != b}
    a = graph.adjacency
    assert set(zip(*(part.tolist() for part in a.nonzero()), strict=True)) == oracle
    assert (a != a.T).nnz == 0
    assert not a.diagonal().any()
    assert (a.data == 1).all()
    assert a.has_canonical_format
    assert graph.num_edges == len(oracle) // 2
    assert {(t, s) for s, t in graph.edge_index.T.tolist()} == oracle
    targets = graph.edge_index[1].tolist()
    assert targets == sorted(targets)


@pytest.mark.parametrize("edges", [[], [[], []], np.zeros((2, 0), np.int64)], ids=["list", "pair", "array"])
def test_no_edges_at_all(edges):
    graph = Graph.from_edges(edges, np.ones((3, 2)))
    assert graph.num_edges == 0
    assert graph.edge_index.shape == (2, 0)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.coo_array, sp.csc_array, sp.csr_array], ids=lambda f: f.__name__)
def test_sparse_features_stay_sparse(form):
    x = np.array([[0, 1.5], [2, 0], [0, 0]])
    graph = Graph.from_edges([[0], [1]], form(x))
    assert isinstance(graph.features, sp.csr_array)
    assert graph.features.dtype == np.float32
    assert graph.is_sparse
    assert graph.x.layout == torch.sparse_csr
    assert graph.x is graph.x
    np.testing.assert_array_equal(graph.x.to_dense().numpy(), x.astype(np.float32))


def test_sparse_entries_at_the_same_place_add_up():
    x = sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(1, 2))
    assert Graph.from_edges([], x).features.toarray().tolist() == [[0, 3]]


def test_dense_features_stay_dense(four_nodes):
    assert isinstance(four_nodes.features, np.ndarray)
    assert not four_nodes.is_sparse
    assert four_nodes.x.dtype == torch.float32
    assert four_nodes.x is four_nodes.x
    assert four_nodes.edge_index is four_nodes.edge_index


def test_repr(four_nodes, sparse_graph):
    assert repr(four_nodes) == "Graph('four nodes', nodes=4, edges=4, features=5 dense, classes=2)"
    assert "features=40 sparse, classes=3" in repr(sparse_graph)


def test_a_graph_is_frozen(four_nodes):
    with pytest.raises(FrozenInstanceError):
        four_nodes.labels = ids(0, 0, 0, 0)


def test_class_names_count_the_classes(four_nodes):
    graph = replace(four_nodes, class_names=("a", "b", "c"))
    assert graph.num_classes == 3
    assert [graph.class_name(c) for c in range(3)] == ["a", "b", "c"]
    assert four_nodes.class_name(1) == "1"


BAD_EDGES = [
    pytest.param(
        [[0, 1, 0], [1, 4, 9]],
        "edge 1 names node 4, but the graph has 4 nodes (ids 0 to 3); correct the edge or add the node's features",
        id="too large",
    ),
    pytest.param(
        [[0, -2], [1, 0]],
        "edge 1 names node -2, but the graph has 4 nodes (ids 0 to 3); correct the edge or add the node's features",
        id="negative",
    ),
    pytest.param(
        [[0, 1]], "`edges` must have shape [2, number of edges], got [1, 2]; give its transpose", id="one row"
    ),
    pytest.param(
        [[0, 1], [1, 2], [2, 3]],
        "`edges` must have shape [2, number of edges], got [3, 2]; give its transpose",
        id="three rows",
    ),
    pytest.param([0, 1], "`edges` must have shape [2, number of edges], got [2]", id="flat"),
    pytest.param([[0.0], [1.0]], "`edges` must hold integer node ids, got float64", id="float"),
]


@pytest.mark.parametrize(("edges", "text"), BAD_EDGES)
def test_bad_edges(edges, text):
    with pytest.raises(GraphError, match=message(text)):
        Graph.from_edges(edges, np.ones((4, 2)))


def broken(value, sparse, *, at=(2, 1)):
    x = np.ones((4, 3))
    x[0] = 0
    x[1, 1] = 0
    x[at] = value
    return sp.csr_array(x) if sparse else x


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_features_that_are_not_finite(value, sparse):
    text = f"feature 1 of node 2 is {value}; 1 values are not finite: fill in or drop them first"
    with pytest.raises(GraphError, match=message(text)):
        Graph.from_edges([[0], [1]], broken(value, sparse))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("at", [(0, 2), (1, 0), (2, 0), (3, 2)], ids=str)
def test_the_place_of_a_value_that_is_not_finite(at, sparse):
    with pytest.raises(GraphError, match=f"^feature {at[1]} of node {at[0]} is nan; 1 values are not finite"):
        Graph.from_edges([[0], [1]], broken(np.nan, sparse, at=at))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_all_values_that_are_not_finite_are_counted(sparse):
    x = np.ones((3, 2))
    x[1, 1] = x[2, 0] = np.nan
    with pytest.raises(
        GraphError, match=message("feature 1 of node 1 is nan; 2 values are not finite: fill in or drop them first")
    ):
        Graph.from_edges([], sp.csr_array(x) if sparse else x)


def test_features_need_two_dimensions():
    with pytest.raises(GraphError, match=message("`features` must have two dimensions [nodes, features], got 1")):
        Graph.from_edges([], [1.0, 2.0])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param(
            {"features": np.ones((3, 5), np.float32)},
            "`features` must have one row per node: 4 nodes, got 3 rows",
            id="rows",
        ),
        pytest.param({"features": np.ones((4, 5))}, "`features` must be float32, got float64", id="float64"),
        pytest.param(
            {"labels": ids(0, 1)},
            "`labels` must be 4 int64 numbers, one per node, got int64 of shape (2,)",
            id="too few labels",
        ),
        pytest.param(
            {"labels": np.zeros(4, np.int32)},
            "`labels` must be 4 int64 numbers, one per node, got int32 of shape (4,)",
            id="int32 labels",
        ),
        pytest.param(
            {"labels": ids(0, -1, -3, 1)},
            "`labels` must be classes from 0 up, or -1 for none, got -3",
            id="negative label",
        ),
        pytest.param({"node_names": ("a",)}, "`node_names` must hold 4 names, got 1", id="node names"),
        pytest.param({"feature_names": ("a", "b")}, "`feature_names` must hold 5 names, got 2", id="feature names"),
        pytest.param({"class_names": ("a",)}, "`class_names` holds 1 names, but a node has label 1", id="class names"),
    ],
)
def test_parts_that_do_not_fit(four_nodes, changes, text):
    with pytest.raises(GraphError, match=message(text)):
        replace(four_nodes, **changes)


NOT_CLEAN = (
    "`adjacency` must be symmetric, of weights above 0, without loops or duplicates; `Graph.from_edges` makes it so"
)


@pytest.mark.parametrize(
    ("adjacency", "text"),
    [
        pytest.param(sp.csr_array(np.ones((2, 3), np.float32)), "`adjacency` must be square, got 2 x 3", id="oblong"),
        pytest.param(sp.csr_array(np.array([[0, 1], [0, 0]], np.float32)), NOT_CLEAN, id="one way"),
        pytest.param(sp.csr_array(np.array([[1, 1], [1, 0]], np.float32)), NOT_CLEAN, id="loop"),
        pytest.param(sp.csr_array(np.array([[0, -2], [-2, 0]], np.float32)), NOT_CLEAN, id="negative weights"),
        pytest.param(
            sp.csr_array((np.ones(4, np.float32), [1, 1, 0, 0], [0, 2, 4]), shape=(2, 2)), NOT_CLEAN, id="duplicates"
        ),
        pytest.param(
            sp.csr_array((np.ones(2, np.float32), [1, 2], [0, 1, 2]), shape=(2, 2)),
            "`adjacency` names a node outside 0 to 1",
            id="outside",
        ),
    ],
)
def test_the_constructor_takes_a_clean_adjacency_only(adjacency, text):
    with pytest.raises(GraphError, match=message(text)):
        Graph(adjacency, np.ones((adjacency.shape[0], 1), np.float32), np.zeros(adjacency.shape[0], np.int64))


@pytest.mark.parametrize(
    ("labels", "numbers", "names"),
    [
        (["b", None, "a", "b"], [1, -1, 0, 1], ("a", "b")),
        (np.array([1.0, np.nan, 0, 1]), [1, -1, 0, 1], None),
        (pd.Series([1, None, 0, 1], dtype="Int64"), [1, -1, 0, 1], None),
        (pd.Series(["b", pd.NA, "a", "b"], dtype="string"), [1, -1, 0, 1], ("a", "b")),
    ],
    ids=["text", "floats", "nullable numbers", "nullable text"],
)
def test_labels_may_be_names_and_missing(labels, numbers, names):
    for graph in (
        Graph.from_edges([[0], [1]], np.ones((4, 1)), labels=labels),
        Graph.from_scipy(sp.csr_array((4, 4)), np.ones((4, 1)), labels),
    ):
        assert graph.labels.tolist() == numbers
        assert graph.class_names == names


def test_labels_by_given_class_names():
    graph = Graph.from_edges([[0], [1]], np.ones((2, 1)), labels=["a", "b"], class_names=["b", "a", "c"])
    assert graph.labels.tolist() == [1, 0]
    with pytest.raises(GraphError, match=message("`labels` holds 'x', which is not among `class_names`; add it")):
        Graph.from_edges([[0], [1]], np.ones((2, 1)), labels=["a", "x"], class_names=["b", "a"])


@pytest.mark.parametrize("labels", [[0.5, 1.0], ["a", 1], [[0], [1]], [True, False]], ids=repr)
def test_other_labels_are_refused(labels):
    array = np.asarray(labels, object if labels == ["a", 1] else None)
    with pytest.raises(GraphError, match=r"^`labels` must be "):
        Graph.from_edges([[0], [1]], np.ones((2, 1)), labels=array)


def test_a_matrix_without_features_says_how_to_make_some():
    text = "`features` are missing; nfcgcn.structural_features(adjacency) makes some from the edges"
    with pytest.raises(GraphError, match=message(text)):
        Graph.from_scipy(sp.csr_array((4, 4)), None)


def test_csr_tensor_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1), (1, 1))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_pyg_round_trip(sparse):
    x = np.array([[0, 1.5], [2, 0], [0, 0]], np.float32)
    graph = Graph.from_edges(
        [[0, 1], [1, 2]], sp.csr_array(x) if sparse else x, labels=[0, -1, 1], name="toy",
        node_names=["n", "m", "o"], feature_names=["f", "g"], class_names=["yes", "no"],
    )  # fmt: skip
    split = Split(ids(0), ids(2), ids())
    data = graph.to_pyg(split, dense=False)
    assert data.num_nodes == 3
    assert data.x.layout == (torch.sparse_csr if sparse else torch.strided)
    assert data.train_mask.tolist() == [True, False, False]
    assert data.val_mask.tolist() == [False, False, True]
    assert data.test_mask.tolist() == [False, False, False]
    back = Graph.from_pyg(data)
    assert (back.adjacency != graph.adjacency).nnz == 0
    assert back.is_sparse == sparse
    torch.testing.assert_close(back.x.to_dense(), torch.from_numpy(x), rtol=0, atol=0)
    np.testing.assert_array_equal(back.labels, graph.labels)
    for what in ("name", "node_names", "feature_names", "class_names"):
        assert getattr(back, what) == getattr(graph, what)
    again = Split.from_pyg(data)
    for part in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(again, part), getattr(split, part))


def test_pyg_data_without_split_or_names(four_nodes):
    data = four_nodes.to_pyg()
    assert set(data.keys()) == {"x", "edge_index", "y", "num_nodes", "name"}


def test_from_pyg_cleans_and_names():
    from torch_geometric.data import Data

    data = Data(x=torch.eye(3).to_sparse(), edge_index=torch.tensor([[0, 0, 1, 2], [1, 1, 1, 1]]))
    graph = Graph.from_pyg(data, name="mine")
    assert (graph.name, graph.num_edges, graph.is_sparse, graph.labels.tolist()) == ("mine", 2, True, [-1, -1, -1])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param(
            {"x": None},
            "the PyG data has no `x`; nfcgcn.load(data, features='spectral') makes features from the edges",
            id="no x",
        ),
        pytest.param(
            {"edge_index": None},
            "the PyG data has no `edge_index`; a graph needs node features and edges",
            id="no edges",
        ),
        pytest.param(
            {"y": torch.zeros(4)},
            "the PyG data's `y` must be one integer class per node, got torch.float32 [4]",
            id="float y",
        ),
        pytest.param(
            {"y": torch.zeros(4, 2, dtype=torch.long)},
            "the PyG data's `y` must be one integer class per node, got torch.int64 [4, 2]",
            id="2D y",
        ),
    ],
)
def test_pyg_data_that_is_no_graph_of_ours(four_nodes, changes, text):
    data = four_nodes.to_pyg()
    for key, value in changes.items():
        data[key] = value
    with pytest.raises(GraphError, match=message(text)):
        Graph.from_pyg(data)


def test_a_split_from_pyg_needs_plain_masks(four_nodes):
    data = four_nodes.to_pyg(Split(ids(0), ids(1), ids(2)))
    data.val_mask = torch.zeros(4, 10, dtype=torch.bool)
    with pytest.raises(GraphError, match=message("the PyG data needs a one-dimensional `val_mask` to give a split")):
        Split.from_pyg(data)
    del data.train_mask
    with pytest.raises(GraphError, match=message("the PyG data needs a one-dimensional `train_mask` to give a split")):
        Split.from_pyg(data)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        pytest.param(
            (ids(0, 1), ids(3, 1), ids()), "the split uses node 1 twice; its parts must be disjoint", id="two"
        ),
        pytest.param((ids(2, 2), ids(), ids()), "the split uses node 2 twice; its parts must be disjoint", id="within"),
        pytest.param((ids(0), ids(1), ids(0)), "the split uses node 0 twice; its parts must be disjoint", id="test"),
        pytest.param(
            (np.array([True, False]), ids(), ids()),
            "the split's `train` must be a list of node ids, got bool (2,)",
            id="mask",
        ),
        pytest.param(
            (ids(0), ids(1).reshape(1, 1), ids()),
            "the split's `val` must be a list of node ids, got int64 (1, 1)",
            id="matrix",
        ),
    ],
)
def test_a_split_whose_parts_are_wrong(parts, text):
    with pytest.raises(GraphError, match=message(text)):
        Split(*parts)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        pytest.param((ids(0, 4), ids(1), ids()), "the split's `train` names a node outside 0 to 3", id="outside"),
        pytest.param((ids(0), ids(-1), ids()), "the split's `val` names a node outside 0 to 3", id="negative"),
        pytest.param(
            (ids(0, 1), ids(2), ids(3)),
            "the split's `test` holds node 3, which has no label; leave it out",
            id="unlabelled",
        ),
        pytest.param(
            (ids(), ids(1), ids(2)),
            "the split 'given' has no labelled train node to learn from; label nodes or change the split",
            id="no train",
        ),
        pytest.param(
            (ids(0, 1), ids(), ids(2)),
            "the split 'given' has no labelled val node to choose the best epoch by; label nodes or change the split",
            id="no val",
        ),
    ],
)
def test_a_split_that_does_not_fit_its_graph(four_nodes, parts, text):
    graph = replace(four_nodes, labels=ids(0, 1, 0, -1))
    with pytest.raises(GraphError, match=message(text)):
        Split(*parts).check(graph)


def test_a_class_without_training_node_is_a_warning(four_nodes):
    graph = replace(four_nodes, labels=ids(0, 1, 2, 1), class_names=("red", "green", "blue", "never used"))
    with pytest.warns(NFCWarning) as caught:
        Split(ids(0), ids(1), ids(2, 3)).check(graph)
    text = "no training node has class 'green', 'blue'; the model can never predict it"
    assert [str(w.message) for w in caught] == [text]


def test_a_good_split_passes_in_silence(four_nodes):
    split = Split(ids(0, 1), ids(2), ids(3))
    split.check(four_nodes)
    assert repr(split) == "Split('given', train=2, val=1, test=1)"


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_graph_is_pickled_without_its_tensors_and_never_copied(form, sparse_graph, dense_graph):
    graph = replace(sparse_graph if form == "sparse" else dense_graph)
    before = len(pickle.dumps(graph))
    tensors = graph.x, graph.edge_index, graph.y
    assert len(pickle.dumps(graph)) == before
    again = pickle.loads(pickle.dumps(graph))
    assert (again.adjacency != graph.adjacency).nnz == 0
    for mine, theirs in zip((again.x, again.edge_index, again.y), tensors, strict=True):
        torch.testing.assert_close(mine.to_dense(), theirs.to_dense())
    assert copy.deepcopy(graph) is graph


# Nodes that came later


@st.composite
def grown(draw):
    """A graph in two parts: how many nodes are old, edges among those, edges of all."""
    old, new = draw(st.integers(0, 6)), draw(st.integers(0, 4))

    def pairs(n):
        ids = st.integers(0, max(n - 1, 0))
        return draw(st.lists(st.tuples(ids, ids), max_size=12)) if n else []

    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = (rng.random((old + new, 3)) < 0.5) * rng.random((old + new, 3))
    return old, x.astype(np.float32), pairs(old), pairs(old + new)


@given(grown(), st.sampled_from(["dense", "sparse"]), st.sampled_from(["dense", "sparse"]))
def test_an_extended_graph_is_the_one_built_at_once(parts, form, new_form):
    old, x, before, after = parts
    make = {"dense": np.asarray, "sparse": sp.csr_array}
    graph = Graph.from_edges(np.array(before, int).reshape(-1, 2).T, make[form](x[:old]), labels=np.zeros(old, int))
    found = graph.extend(make[new_form](x[old:]), np.array(after, int).reshape(-1, 2).T)
    whole = Graph.from_edges(np.array(before + after, int).reshape(-1, 2).T, make[form](x))
    assert (found.adjacency != whole.adjacency).nnz == 0
    assert found.adjacency.has_canonical_format
    assert found.is_sparse == (form == "sparse")
    dense = found.features.toarray() if found.is_sparse else found.features
    np.testing.assert_array_equal(dense, x)
    assert found.labels.tolist() == [0] * old + [-1] * (len(x) - old)
    assert torch.equal(found.edge_index, whole.edge_index)
    assert graph.num_nodes == old


def test_an_extended_graph_keeps_what_is_known(four_nodes):
    split = Split(np.array([0]), np.array([1]), np.array([2]))
    graph = replace(
        four_nodes, node_names=("a", "b", "c", "d"), class_names=("x", "y"), given=split, encoding={"a": 1},
        test_nodes=np.array([3]), feature_names=tuple("fghij"),
    )  # fmt: skip
    found = graph.extend(np.ones((1, 5)), [[4], [0]], names=["e"])
    assert found.node_names == ("a", "b", "c", "d", "e")
    kept = ("name", "class_names", "feature_names", "given", "encoding", "test_nodes")
    assert all(getattr(found, key) is getattr(graph, key) for key in kept)
    assert found.adjacency[[4]].indices.tolist() == [0]


@pytest.mark.parametrize(
    ("named", "features", "edges", "names", "text"),
    [
        pytest.param(False, np.ones((1, 4)), [], None, "`features` must have the graph's 5 columns, got 4", id="width"),
        pytest.param(
            False,
            np.ones((1, 5)),
            [[0], [5]],
            None,
            "edge 0 names node 5, but the graph has 5 nodes (ids 0 to 4); correct the edge or add the node's features",
            id="edge",
        ),
        pytest.param(True, np.ones((2, 5)), [], None, "`names` must be 2 names, one per node, got None", id="no names"),
        pytest.param(True, np.ones((2, 5)), [], ["e"], "`names` must be 2 names, one per node, got 1", id="few names"),
        pytest.param(
            False, np.ones((1, 5)), [], ["e"], "`names` must be None, as the graph's nodes have none, got 1", id="names"
        ),
    ],
)
def test_bad_extensions(four_nodes, named, features, edges, names, text):
    graph = replace(four_nodes, node_names=("a", "b", "c", "d")) if named else four_nodes
    with pytest.raises(GraphError, match=message(text)):
        graph.extend(features, edges, names=names)


def test_from_scipy_takes_every_entry_that_is_not_zero():
    entries = np.zeros((4, 4))
    entries[0, 1], entries[1, 2], entries[2, 1], entries[3, 3] = 0.5, -2.0, 7.0, 1.0
    stored_zero = sp.coo_array(([0.0], ([0], [3])), shape=(4, 4))
    for form in (sp.csr_array, sp.csc_matrix, sp.coo_array):
        graph = Graph.from_scipy(form(sp.coo_array(entries) + stored_zero), np.eye(4), [0, 1, 0, -1], name="mine")
        assert graph.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
        assert (graph.name, graph.labels.tolist()) == ("mine", [0, 1, 0, -1])


@pytest.mark.parametrize(
    ("adjacency", "features", "message"),
    [
        (
            np.eye(3),
            np.eye(3),
            "`adjacency` must be a square SciPy matrix, got ndarray; scipy.sparse.csr_array makes one of an array",
        ),
        (sp.csr_array((3, 4)), np.eye(3), "`adjacency` must be a square SciPy matrix, got [3, 4]"),
        (sp.csr_array((4, 4)), np.eye(3), "`features` must have one row per node: 4 nodes, got 3 rows"),
    ],
)
def test_from_scipy_refuses_what_does_not_fit(adjacency, features, message):
    with pytest.raises(GraphError) as caught:
        Graph.from_scipy(adjacency, features)
    assert str(caught.value) == message


def test_from_pyg_keeps_the_masks(four_nodes):
    split = Split(*(np.array(nodes) for nodes in ([0, 1], [2], [3])))
    back = Graph.from_pyg(four_nodes.to_pyg(split))
    for part in ("train", "val", "test"):
        assert getattr(back.given, part).tolist() == getattr(split, part).tolist()
    assert Graph.from_pyg(four_nodes.to_pyg()).given is None


def test_from_pyg_masks_of_several_splits_beside_one_for_all(four_nodes):
    """As WikiCS has them."""
    data = four_nodes.to_pyg(Split(ids(0), ids(1), ids(2, 3)))
    for key in ("train_mask", "val_mask"):
        data[key] = torch.stack([data[key], ~data[key]], 1)
    with pytest.warns(NFCWarning, match=r"^'four nodes' holds 2 splits; the first is taken$"):
        given = Graph.from_pyg(data).given
    assert [part.tolist() for part in (given.train, given.val, given.test)] == [[0], [1], [2, 3]]


def test_from_pyg_leaves_nodes_without_a_label_out_of_the_split(four_nodes):
    data = four_nodes.to_pyg(Split(ids(0, 1), ids(2), ids(3)))
    data.y = torch.tensor([0, -1, 1, 1])
    assert Graph.from_pyg(data).given.train.tolist() == [0]


def test_from_pyg_says_what_is_not_used(four_nodes):
    data = four_nodes.to_pyg(Split(ids(0), ids(1), ids(2)))
    del data.val_mask
    text = "not used: `train_mask` and `test_mask`, as there is no `val_mask`"
    assert Graph.from_pyg(data).reading == text
    data.edge_weight = torch.full((data.num_edges,), 2.0)
    weights = "not used: `edge_weight` as weights; weight='edge_weight' uses it; "
    assert Graph.from_pyg(data).reading == weights + text.removeprefix("not used: ")


@pytest.mark.parametrize("value", [1.0, 2.0])
def test_from_pyg_says_that_values_of_a_sparse_matrix_are_not_used(value):
    from torch_geometric.data import Data

    with quiet_sparse():
        matrix = torch.tensor([[0, value], [value, 0]]).to_sparse_csr()
    reading = Graph.from_pyg(Data(x=torch.eye(2), adj_t=matrix)).reading
    assert reading == (None if value == 1 else "not used: `adj_t` as weights; weight='adj_t' uses it")


def test_from_pyg_reads_the_sparse_tensor_of_a_transform():
    from torch_geometric.data import Data
    from torch_geometric.transforms import ToSparseTensor

    edges = torch.tensor([[0, 1, 3], [1, 2, 0]])
    with quiet_sparse():
        data = ToSparseTensor(layout=torch.sparse_csr)(Data(x=torch.eye(4), edge_index=edges.clone()))
    assert data.edge_index is None
    assert torch.equal(Graph.from_pyg(data).edge_index, Graph.from_edges(edges, np.eye(4)).edge_index)


def test_from_pyg_refuses_several_types_of_nodes_by_name():
    from torch_geometric.data import HeteroData

    with pytest.raises(GraphError, match=r"^nodes of several types are not supported, got a HeteroData; give"):
        Graph.from_pyg(HeteroData())


def test_a_notebook_shows_a_small_table():
    graph = Graph.from_edges(
        [[0, 1], [1, 2]],
        np.ones((4, 2), np.float32),
        labels=[1, 1, 0, -1],
        name="<b>mine</b>",
        class_names=["a & b", "<script>alert(1)</script>"],
    )
    shown = graph._repr_html_()
    assert "<script" not in shown
    assert "<b>" not in shown
    assert "<caption>&lt;b&gt;mine&lt;/b&gt;</caption>" in shown
    assert "<th>nodes</th><td>4</td>" in shown
    assert "<th>edges</th><td>2</td>" in shown
    assert "<td>2, dense</td>" in shown
    assert "<td>2: &lt;script&gt;alert(1)&lt;/script&gt; (2), a &amp; b (1)</td>" in shown
    assert "<th>without a label</th><td>1</td>" in shown
    many = Graph.from_edges([[], []], np.ones((20, 1), np.float32), labels=np.arange(20))._repr_html_()
    assert "20: 0 (1), 1 (1)" in many
    assert many.endswith("7 (1) and 12 more</td></tr><tr><th>without a label</th><td>0</td></tr></table>")
    assert "0: </td>" in Graph.from_edges([[], []], np.ones((2, 1), np.float32))._repr_html_()


@pytest.mark.parametrize(
    ("entries", "weighted", "said"),
    [
        ([[0, 1, 0], [1, 0, 1], [0, 1, 0]], False, None),
        ([[5, 1, 0], [1, 0, 1], [0, 1, 0]], True, None),  # loops have no direction
        ([[0, 1, 0], [0, 0, 1], [0, 0, 0]], False, "not used: {directions}"),
        ([[0, 2, 0], [1, 0, 1], [0, 1, 0]], True, "not used: {directions}"),
        (
            [[0, 2, 0], [0, 0, 1], [0, 0, 0]],
            False,
            "not used: the entries of the matrix as weights; weighted=True uses them; {directions}",
        ),
    ],
)
def test_directions_that_are_not_used_are_said(entries, weighted, said):
    matrix, x = sp.csr_array(entries, dtype=np.float32), np.eye(3, dtype=np.float32)
    said = said and said.format(directions="directions, as every model reads an edge both ways")
    assert Graph.from_scipy(matrix, x, weighted=weighted).reading == said
    source, target = (torch.from_numpy(ends.astype(np.int64)) for ends in matrix.tocoo().coords)
    data = Data(x=torch.eye(3), edge_index=torch.stack([source, target]), weight=torch.from_numpy(matrix.data))
    read = Graph.from_pyg(data, weight="weight" if weighted else None).reading
    assert read == (said and said.replace("the entries of the matrix as weights; weighted=True uses them; ", ""))


def test_the_columns_of_a_data_frame_name_the_features():
    x = pd.DataFrame({"age": [1.0, 2.0], "size": [3.0, 4.0]})
    assert Graph.from_edges([[0], [1]], x).feature_names == ("age", "size")
    assert Graph.from_scipy(sp.csr_array([[0, 1], [1, 0]]), x).feature_names == ("age", "size")
    assert Graph.from_edges([[0], [1]], x, feature_names=["a", "b"]).feature_names == ("a", "b")
    assert Graph.from_edges([[0], [1]], x.to_numpy()).feature_names is None
    assert Graph.from_edges([[0], [1]], pd.DataFrame(x.to_numpy())).feature_names is None  # numbers are no names


def test_features_and_labels_that_cannot_be_are_refused_in_our_words():
    with pytest.raises(
        GraphError, match="`features` must hold numbers: could not convert string to float: 'Ulm'; nfcg"
    ):
        Graph.from_edges([[0], [1]], pd.DataFrame({"town": ["Ulm", "Bern"]}))
    with pytest.raises(GraphError, match=r"`labels` must be one per node: 2 nodes, got shape \[2, 2\]; a node has one"):
        Graph.from_edges([[0], [1]], np.eye(2), labels=np.eye(2, dtype=int))
    with pytest.raises(GraphError, match=r"`labels` must be one per node: 2 nodes, got shape \[1\]$"):
        Graph.from_edges([[0], [1]], np.eye(2), labels=["a"])
