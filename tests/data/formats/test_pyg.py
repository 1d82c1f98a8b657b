"""PyTorch Geometric's Data from .pt files, honest and hostile."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from nfcgcn import load, structural_features
from nfcgcn.data.formats import read_pyg
from nfcgcn.errors import DatasetError, GraphError, NFCWarning


def data(**changes) -> Data:
    """Three nodes in a row, two features, two classes."""
    parts = {
        "x": torch.tensor([[1.0, 0], [0, 2], [3, 0]]),
        "edge_index": torch.tensor([[0, 1], [1, 2]]),
        "y": torch.tensor([0, 1, 0]),
    }
    return Data(**{key: value for key, value in {**parts, **changes}.items() if value is not None})


def save(tmp_path: Path, thing: object) -> Path:
    torch.save(thing, tmp_path / "own.pt")
    return tmp_path / "own.pt"


def mask(*nodes: int) -> torch.Tensor:
    return torch.isin(torch.arange(3), torch.tensor(nodes))


def test_a_data_becomes_a_graph_with_its_split(tmp_path):
    path = save(tmp_path, data(train_mask=mask(0), val_mask=mask(1), test_mask=mask(2), class_names=["u", "v"]))
    graph = load(path)
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert graph.features.tolist() == [[1, 0], [0, 2], [3, 0]]
    assert graph.labels.tolist() == [0, 1, 0]
    assert graph.class_names == ("u", "v")
    assert graph.name == "own"
    assert (graph.given.train.tolist(), graph.given.val.tolist(), graph.given.test.tolist()) == ([0], [1], [2])


def test_what_a_graph_gives_comes_back(tmp_path, sparse_graph):
    graph = load(save(tmp_path, sparse_graph.to_pyg(dense=False)))
    assert graph.is_sparse
    assert (graph.features != sparse_graph.features).nnz == 0
    assert (graph.adjacency != sparse_graph.adjacency).nnz == 0
    assert graph.given is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.bool])
def test_features_of_other_types(tmp_path, dtype):
    graph = read_pyg(save(tmp_path, data(x=torch.tensor([[1, 0], [0, 1], [1, 0]], dtype=dtype), y=None)))
    assert graph.features.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert graph.labels.tolist() == [-1, -1, -1]


def test_labels_in_a_column(tmp_path):
    assert read_pyg(save(tmp_path, data(y=torch.tensor([[0], [1], [-1]])))).labels.tolist() == [0, 1, -1]


def test_of_several_splits_the_first_is_taken(tmp_path):
    masks = {f"{part}_mask": torch.stack([mask(i), mask()], 1) for i, part in enumerate(("train", "val", "test"))}
    with pytest.warns(NFCWarning, match=r"^'own' holds 2 splits; the first is taken$"):
        graph = read_pyg(save(tmp_path, data(**masks)))
    assert graph.given.val.tolist() == [1]


def test_data_without_features():
    thing = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=5)
    text = (
        "the PyG data has no `x`: spectral features are made from the edges; `features` chooses among "
        "degree, one-hot, spectral, walk"
    )
    thing.y = torch.tensor([0, 1, 0, 1, -1])
    with pytest.warns(NFCWarning, match=f"^{text}$"):
        graph = load(thing)
    assert graph.reading == (
        "3 spectral features made from the edges; not used: directions, as every model reads an edge both ways"
    )
    assert graph.feature_names == ("spectral 1", "spectral 2", "spectral 3")
    np.testing.assert_array_equal(graph.features, structural_features(graph.adjacency, "spectral"))
    assert graph.labels.tolist() == [0, 1, 0, 1, -1]
    assert thing.x is None
    degrees = load(thing, features="degree").features
    np.testing.assert_allclose(degrees[:, 0], np.log1p([1, 2, 2, 1, 0]), rtol=1e-6)
    thing.x = torch.eye(5)
    text = "features='walk' is for PyG data without `x`; leave one of the two out"
    with pytest.raises(GraphError, match=f"^{text}$"):
        load(thing, features="walk")


class Trap:
    """Leaves a file behind wherever it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("place", ["whole", "attribute", "list"])
def test_pickled_objects_are_refused_and_nothing_runs(tmp_path, place):
    sprung = tmp_path / "sprung"
    trap = Trap(sprung)
    path = save(tmp_path, {"whole": trap, "attribute": data(note=trap), "list": [data(), trap]}[place])
    with pytest.raises(DatasetError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path} holds more than tensors in a PyG Data, or is damaged: refused, as it could run any code; "
        "save a plain torch_geometric.data.Data"
    )
    assert not sprung.exists()
    torch.load(path, weights_only=False)
    assert sprung.exists()  # the trap was a real one


def test_old_pickles_are_refused_and_nothing_runs(tmp_path):
    path = tmp_path / "own.pt"
    path.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(DatasetError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path} is not a .pt file of PyTorch 1.6 or later; save the data again with torch.save"
    )
    assert not (tmp_path / "sprung").exists()


def test_the_list_of_safe_types_is_left_as_it_was(tmp_path):
    path = save(tmp_path, data())
    read_pyg(path)
    before = set(torch.serialization.get_safe_globals())
    read_pyg(path)
    assert set(torch.serialization.get_safe_globals()) == before


OTHERS = {
    "dict": ({"x": torch.ones(1)}, "FILE holds a dict, not a torch_geometric.data.Data; save one of those"),
    "tensor": (torch.ones(1), "FILE holds a Tensor, not a torch_geometric.data.Data; save one of those"),
}
BAD = {
    "no features": (
        data(x=None),
        "the PyG data has no `x`; nfcgcn.load(data, features='spectral') makes features from the edges",
    ),
    "no edges": (data(edge_index=None), "the PyG data has no `edge_index`; a graph needs node features and edges"),
    "x text": (data(x="abc"), "`x` in FILE must be a tensor, got str"),
    "x flat": (data(x=torch.ones(3)), "`x` in FILE must be numbers [nodes, features], got torch.float32 [3]"),
    "x complex": (
        data(x=torch.ones(3, 1, dtype=torch.complex64)),
        "`x` in FILE must be numbers [nodes, features], got torch.complex64 [3, 1]",
    ),
    "x infinite": (
        data(x=torch.full((3, 1), 1e300, dtype=torch.float64)),
        "feature 0 of node 0 is inf; 3 values are not finite: fill in or drop them first",
    ),
    "regression": (
        data(y=torch.rand(3)),
        "the PyG data's `y` must be one integer class per node, got torch.float32 [3]",
    ),
    "huge class": (
        data(y=torch.tensor([0, 1, 2**40])),
        "`y` in FILE holds 1099511627776; a class is a number below 1,048,576",
    ),
    "few labels": (
        data(y=torch.tensor([0, 1])),
        "`labels` must be one per node: 3 nodes, got shape [2]",
    ),
    "edge outside": (
        data(edge_index=torch.tensor([[0], [7]])),
        "edge 0 names node 7, but the graph has 3 nodes (ids 0 to 2); correct the edge or add the node's features",
    ),
    "float edges": (data(edge_index=torch.ones(2, 1)), "`edges` must hold integer node ids, got float32"),
    "sparse labels": (
        data(y=torch.eye(3).to_sparse()),
        "`y` in FILE must be dense, got torch.sparse_coo",
    ),
    "names": (data(class_names=[1, 2]), "`class_names` in FILE must be a list of texts"),
    "few in a mask": (
        data(train_mask=mask(0), val_mask=mask(1), test_mask=torch.ones(2, dtype=torch.bool)),
        "`test_mask` of 'own' must be 3 booleans, one per node, got torch.bool [2]",
    ),
    "masks overlap": (
        data(train_mask=mask(0), val_mask=mask(0), test_mask=mask(1)),
        "the split uses node 0 twice; its parts must be disjoint",
    ),
}


@pytest.mark.parametrize("case", [*OTHERS, *BAD])
def test_other_things(tmp_path, case):
    thing, message = {**OTHERS, **BAD}[case]
    path = save(tmp_path, thing)
    with pytest.raises(DatasetError if case in OTHERS else GraphError) as caught:
        read_pyg(path)
    assert str(caught.value) == message.replace("FILE", str(path))


def test_heterogeneous_data(tmp_path):
    with pytest.raises(DatasetError, match=r"own\.pt holds "):
        read_pyg(save(tmp_path, HeteroData()))


def test_a_tensor_that_repeats_one_number_is_refused_by_size(tmp_path):
    path = save(tmp_path, data(x=torch.ones(1, 1).expand(3_000_000_000, 2)))
    with pytest.raises(DatasetError) as caught:
        read_pyg(path)
    assert str(caught.value) == f"{path} would unpack to 22.4 GiB; at most 8 GiB are read from a file"


def test_a_sparse_tensor_that_lies_is_refused(tmp_path):
    x = torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2, 3]), torch.tensor([0, 900_000, 0]), torch.ones(3), size=(3, 2), check_invariants=False
    )
    path = save(tmp_path, data(x=x))
    with pytest.raises(DatasetError, match=r"or is damaged: refused"):
        read_pyg(path)


CLAIMS = {
    "coo": lambda w: torch.sparse_coo_tensor(torch.arange(3).repeat(2, 1), torch.ones(3), (3, w)),
    "csr": lambda w: torch.sparse_csr_tensor(torch.arange(4), torch.arange(3), torch.ones(3), size=(3, w)),
    "csc": lambda w: torch.sparse_csc_tensor(
        torch.zeros(1, dtype=torch.int64).expand(w + 1),
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(0),
        size=(3, w),
        check_invariants=False,
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", CLAIMS)
def test_sparse_features_that_claim_a_huge_shape_are_refused(tmp_path, layout):
    path = save(tmp_path, data(x=CLAIMS[layout](2**31)))
    assert path.stat().st_size < 5000
    with pytest.raises(GraphError) as caught:
        read_pyg(path)
    assert str(caught.value) == (
        f"`x` in {path} must have at most 67,108,864 rows and 16,777,216 columns, got [3, 2147483648]"
    )


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "x",
    [
        lambda: torch.sparse_coo_tensor(torch.arange(3)[None], torch.ones(1, 1).expand(3, 2**28), (3, 2**28)),
        lambda: torch.eye(3).to_sparse_bsr((1, 1)),
    ],
    ids=["hybrid", "BSR"],
)
def test_other_sparse_layouts_are_named(tmp_path, x):
    with pytest.raises(GraphError, match=r"`x` in .* must be a dense, COO, CSR or CSC matrix, got torch\.sparse_"):
        read_pyg(save(tmp_path, data(x=x())))


class Filling:
    def __reduce__(self):
        return bytearray, (2**34,)


def test_a_file_that_asks_for_bytes_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"or is damaged: refused"):
        read_pyg(save(tmp_path, data(x=Filling())))


def test_a_bomb_is_refused_by_its_declared_size(tmp_path):
    path = tmp_path / "own.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("own/data.pkl", np.zeros(10_000_000))
    with pytest.raises(DatasetError, match=r"refused as a decompression bomb"):
        read_pyg(path)
