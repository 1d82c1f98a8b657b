import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import nfcgcn
from nfcgcn.config.inspection import homophily, inspect
from nfcgcn.graph import Graph, Split


@pytest.fixture
def small():
    r"""Two components and a node alone, three classes of which one is empty, one node without a label.

    Edges 0-1 (same class), 0-2 (other class), 1-2 (other), 2-3 (an end without label), 4-5 (same); node 6 alone.
    """
    x = np.array(
        [[1, 0, 2, 0], [0, 0, 2, 0], [1, 0, 2, -3], [0, 0, 2, 0], [5, 0, 2, 0], [1, 0, 2, 0], [0, 0, 2, 0]], np.float32
    )
    return Graph.from_edges(
        [[0, 0, 1, 2, 4], [1, 2, 2, 3, 5]], x, labels=[0, 0, 1, -1, 1, 1, 0], class_names=["a", "b", "c"], name="small"
    )


def test_a_small_graph_by_hand(small):
    found = inspect(small)
    assert found["homophily"] == 2 / 4
    assert (found["nodes"], found["edges"], found["isolated_nodes"]) == (7, 5, 1)
    assert found["components"] == {"count": 3, "largest": 4}
    degrees = {key: found["degrees"][key] for key in ("min", "median", "mean", "max")}
    assert degrees == {"min": 0, "median": 1, "mean": 10 / 7, "max": 3}
    assert found["labels"] == {"classes": 3, "counts": {"a": 3, "b": 3, "c": 0}, "unlabelled": 1}
    assert found["features"] == {
        "count": 4, "form": "dense", "density": 12 / 28, "zero_rows": 0, "constant_columns": 2, "min": -3, "max": 5,
    }  # fmt: skip
    assert found["given_split"] is None
    assert (found["name"], found["model"]) == ("small", "nfc-gcn")


def test_sparse_features_are_counted_like_dense_ones(small):
    matrix = sp.csr_array(small.features)
    matrix.data[matrix.indptr[3] : matrix.indptr[5]] = 0  # zeros that are stored are zeros
    dense = matrix.toarray()
    assert inspect(replace(small, features=matrix))["features"]["zero_rows"] == 2
    found, expected = (inspect(replace(small, features=x))["features"] for x in (matrix, dense))
    assert found.pop("form") == "sparse"
    assert expected.pop("form") == "dense"
    assert found == expected


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.sampled_from([0, 0, 1, -2]), min_size=3, max_size=3), min_size=n, max_size=n)
    )
)
def test_features_of_any_kind(rows):
    x = np.array(rows, np.float32)
    for form in (x, sp.csr_array(x)):
        found = inspect(Graph.from_edges([], form))["features"]
        assert found["density"] == np.mean(x != 0)
        assert found["zero_rows"] == (~x.any(axis=1)).sum()
        assert found["constant_columns"] == (x == x[0]).all(axis=0).sum()
        assert (found["min"], found["max"]) == (x.min(), x.max())


def test_homophily_is_unknown_without_labelled_edges(small):
    assert homophily(replace(small, labels=np.array([0, -1, -1, 0, 1, -1, 1]))) is None
    assert homophily(Graph.from_edges([], np.ones((3, 1)), labels=[0, 1, 0])) is None


def test_a_given_split_is_counted(small):
    split = Split(np.array([0, 1]), np.array([2]), np.array([], np.int64))
    assert inspect(replace(small, given=split))["given_split"] == {"train": 2, "val": 1, "test": 0}


def test_maps_that_neighbours_do_not_fill(small):
    found = inspect(small)
    slots = found["suggestions"]["bandwidth"]["value"] - 1
    degree = np.array([2, 2, 3, 1, 1, 1, 0])
    assert found["degrees"]["unfilled"] == np.mean(degree < slots)
    assert inspect(small, model="gcn")["degrees"]["unfilled"] is None


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (1, 1), (2, 0)])
def test_graphs_of_next_to_nothing(shape):
    found = inspect(Graph.from_edges([], np.zeros(shape)))
    assert found["nodes"] == shape[0]
    json.dumps(found, allow_nan=False)


def test_a_hundred_thousand_nodes():
    found = inspect(nfcgcn.load("citations", nodes=100_000))
    assert found["nodes"] == sum(found["labels"]["counts"].values()) == 100_000
    json.dumps(found, allow_nan=False)
