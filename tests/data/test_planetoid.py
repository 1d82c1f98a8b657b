import shutil
import warnings
from collections import defaultdict

import numpy as np
import planetoid_writer
import pytest
import torch

from nfcgcn.data import load, planetoid
from nfcgcn.errors import DatasetError


def test_order_of_nodes_by_hand():
    graph = planetoid.parse("cora", planetoid_writer.parts())
    expected = [[1, 0, 0], [0, 2, 0], [0, 0, 3], [0, 4, 0], [0, 0, 0], [5, 0, 5], [6, 6, 6]]
    np.testing.assert_array_equal(graph.features.toarray(), np.array(expected, np.float32))
    np.testing.assert_array_equal(graph.labels, [0, 1, -1, 0, -1, 1, 1])
    np.testing.assert_array_equal(graph.test_nodes, [3, 5, 6])
    assert graph.test_nodes.dtype == np.int64
    rows, columns = np.nonzero(np.triu(graph.adjacency.toarray()))
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 1), (1, 5), (3, 6)]
    assert graph.is_sparse
    assert graph.name == "cora"
    assert graph.class_names is None


def neighbours(**changes):
    return defaultdict(list, {i: [] for i in range(7)} | {int(key[1:]): value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ally": np.eye(2, dtype=np.int32)}, "ally is broken: 2 rows, where the other files need 3"),
        ({"ty": np.eye(2, dtype=np.int32)}, "ty is broken: 2 rows, where the other files need 3"),
        ({"tx": planetoid_writer.matrix([[1, 2, 3]])}, "tx is broken: 1 rows, where the other files need 3"),
        ({"tx": planetoid_writer.matrix(np.eye(3, 4))}, "tx is broken: 4 columns, where ind.cora.allx has 3"),
        ({"ally": np.ones((3, 2), np.int32)}, "ally is broken: its rows are not one-hot"),
        ({"ally": np.full((3, 2), 2, np.int32)}, "ally is broken: its rows are not one-hot"),
        ({"ally": np.zeros(3, np.int32)}, "ally is broken: its rows are not one-hot"),
        ({"index": b""}, "test.index is broken: not one node a line"),
        ({"index": b"5\nx\n6\n"}, "test.index is broken: not one node a line"),
        ({"index": b"5\n-3\n6\n"}, "test.index is broken: not one node a line"),
        ({"index": b"9" * 5000}, "test.index is broken: not one node a line"),
        ({"index": b"5\n5\n6\n"}, "test.index is broken: it names a node twice or one below 3"),
        ({"index": b"5\n2\n6\n"}, "test.index is broken: it names a node twice or one below 3"),
        (
            {"index": b"5\n3\n999999999999999\n"},
            "graph is broken: 7 nodes, where the other files need 1000000000000000",
        ),
        ({"graph": neighbours(_0=[7])}, "graph is broken: it names a node outside 0 to 6"),
        ({"graph": neighbours(_0=[-1])}, "graph is broken: it names a node outside 0 to 6"),
    ],
    ids=[
        "ally rows",
        "ty rows",
        "tx rows",
        "tx columns",
        "two ones",
        "twos",
        "one dimension",
        "no index",
        "word",
        "minus",
        "endless number",
        "twice",
        "too low",
        "far too high",
        "neighbour too high",
        "neighbour too low",
    ],
)
def test_parts_that_do_not_fit(changes, message):
    with pytest.raises(DatasetError) as caught:
        planetoid.parse("cora", planetoid_writer.parts(**changes))
    assert str(caught.value) == f"ind.cora.{message}"


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "test", "unlabelled", "isolated", "nonzeros"),
    [
        ("cora", 2708, 5278, 1433, 7, 1000, 0, 0, 18.2),
        ("citeseer", 3327, 4552, 3703, 6, 1000, 15, 48, 31.6),
        ("pubmed", 19717, 44324, 500, 3, 1000, 0, 0, 50.1),
    ],
    ids=["cora", "citeseer", "pubmed"],
)
def test_published_sizes(planetoid_dir, name, nodes, edges, features, classes, test, unlabelled, isolated, nonzeros):
    graph = load(name, data_dir=planetoid_dir)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (
        nodes,
        edges,
        features,
        classes,
    )
    assert len(graph.test_nodes) == test
    assert graph.is_sparse
    nowhere = np.flatnonzero(graph.labels < 0)
    assert len(nowhere) == unlabelled
    assert graph.features[nowhere].nnz == 0
    assert (graph.adjacency.sum(axis=0) == 0).sum() == isolated
    assert round(graph.features.nnz / nodes, 1) == nonzeros


@pytest.mark.data
@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_same_as_pytorch_geometric(planetoid_dir, tmp_path, name):
    from torch_geometric.datasets import Planetoid

    raw = tmp_path / name / "raw"
    raw.mkdir(parents=True)
    for path in planetoid_dir.glob(f"ind.{name}.*"):
        shutil.copy(path, raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its reader unpickles by names that SciPy and NumPy have deprecated
        theirs = Planetoid(str(tmp_path), name)[0]
    ours = load(name, data_dir=planetoid_dir)
    torch.testing.assert_close(ours.x.to_dense(), theirs.x.to_dense(), rtol=0, atol=0)
    labelled = ours.y >= 0
    torch.testing.assert_close(ours.y[labelled], theirs.y[labelled])
    torch.testing.assert_close(torch.from_numpy(ours.test_nodes), theirs.test_mask.nonzero().squeeze(1))

    def pairs(edge_index):
        loopless = edge_index[:, edge_index[0] != edge_index[1]]
        return {tuple(pair) for pair in loopless.T.tolist()}

    assert pairs(ours.edge_index) == pairs(theirs.edge_index)
