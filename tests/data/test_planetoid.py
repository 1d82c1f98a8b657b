import hashlib
import shutil
import warnings

import numpy as np
import planetoid_writer
import pytest
import torch

from nfcgcn.data import load, planetoid


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


CONTENT = {
    "cora": "2e95d6b18b2377808c984e64846da8c75d87d5e0c7c07b4a6cd1110b53c1b621",
    "citeseer": "a6a8866058c1e2307a17d4354052c8547217d91f663d6de4ef07caf2e5649f9e",
    "pubmed": "e181bb5cebf75b11da3beff4b4978fe1f68ee5e94039011a51202e0bc07679a6",
}
"""Of the arrays that a reader gave which executed no pickle: it built each array from its bytes."""


@pytest.mark.data
@pytest.mark.parametrize("name", CONTENT)
def test_same_arrays_as_ever(planetoid_dir, name):
    graph = load(name, data_dir=planetoid_dir)
    x, a = graph.features, graph.adjacency
    content = hashlib.sha256()
    for part in (x.indptr, x.indices, x.data, a.indptr, a.indices, graph.labels, graph.test_nodes):
        content.update(f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
    assert content.hexdigest() == CONTENT[name]


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
