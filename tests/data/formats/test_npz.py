"""Graphs as .npz: the published files, our own, and hostile ones."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from nfcgcn import load, write_npz
from nfcgcn.data.formats import read_npz
from nfcgcn.errors import DatasetError, GraphError, NFCError
from nfcgcn.graph import Graph, Split

GRAPHS = Path(os.environ.get("NFCGCN_DATA", "")).resolve() / "graphs"


def arrays(**changes):
    """A directed triangle with a tail and five features, as gnn-benchmark would store it."""
    parts = {
        "adj_data": np.ones(4, np.float32),
        "adj_indices": np.array([1, 2, 0, 0], np.int32),
        "adj_indptr": np.array([0, 1, 2, 3, 4], np.int32),
        "adj_shape": np.array([4, 4]),
        "attr_data": np.array([1, 2, 3], np.float32),
        "attr_indices": np.array([0, 4, 2], np.int32),
        "attr_indptr": np.array([0, 1, 2, 3, 3], np.int32),
        "attr_shape": np.array([4, 5]),
        "labels": np.array([0, 1, 0, -1]),
    }
    return {key: value for key, value in {**parts, **changes}.items() if value is not None}


def entries(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def assert_same(a: Graph, b: Graph) -> None:
    assert (a.adjacency.toarray() == b.adjacency.toarray()).all()
    assert a.is_sparse == b.is_sparse
    dense = [g.features.toarray() if g.is_sparse else g.features for g in (a, b)]
    assert dense[0].shape == dense[1].shape
    assert (dense[0] == dense[1]).all()
    assert a.labels.tolist() == b.labels.tolist()
    for field in ("name", "node_names", "feature_names", "class_names", "encoding"):
        assert getattr(a, field) == getattr(b, field), field
    assert (a.test_nodes is None) == (b.test_nodes is None)
    if a.test_nodes is not None:
        assert a.test_nodes.tolist() == b.test_nodes.tolist()
    assert (a.given is None) == (b.given is None)
    if a.given is not None:
        for part in ("train", "val", "test"):
            assert getattr(a.given, part).tolist() == getattr(b.given, part).tolist()


def test_reads_gnn_benchmark_arrays_and_forgets_directions(tmp_path):
    np.savez(tmp_path / "small.npz", **arrays())
    graph = load(tmp_path / "small.npz")
    assert graph.adjacency.toarray().tolist() == [[0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]
    assert graph.features.toarray().tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 2], [0, 0, 3, 0, 0], [0] * 5]
    assert graph.labels.tolist() == [0, 1, 0, -1]
    assert (graph.name, graph.is_sparse, graph.given) == ("small", True, None)


def test_stored_zeros_are_no_edges(tmp_path):
    np.savez(tmp_path / "a.npz", **arrays(adj_data=np.array([1, 0, 1, 1])))
    assert load(tmp_path / "a.npz").num_edges == 3


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("amazon_photo", (7650, 119081, 745, 8)), ("coauthor_cs", (18333, 81894, 6805, 15))],
)
def test_published_files(name, sizes):
    if not GRAPHS.is_dir():
        pytest.skip("NFCGCN_DATA holds no graphs/")
    graph = load(GRAPHS / f"{name}.npz")
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == sizes
    assert graph.is_sparse
    assert graph.name == name


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_what_is_written_is_read_again(tmp_path, make_graph, sparse):
    graph = make_graph(40, 12, sparse=sparse)
    full = Graph(
        graph.adjacency, graph.features, graph.labels, name="ünïcode",
        node_names=(*(f"n{i}" for i in range(39)), ""), feature_names=tuple(f"<f{i}>" for i in range(12)),
        class_names=("a", "b", "c", "d"), test_nodes=np.array([38, 39]),
        given=Split(np.array([3, 1]), np.array([2]), np.array([], np.int64)), encoding={"format": 1, "x": ["é", None]},
    )  # fmt: skip
    for g in (graph, full):
        write_npz(g, tmp_path / "deep" / "g.npz")
        assert_same(read_npz(tmp_path / "deep" / "g.npz"), g)
    assert entries(tmp_path / "deep") == ["g.npz"]


def test_the_same_graph_is_the_same_file_and_others_can_read_it(tmp_path, sparse_graph):
    write_npz(sparse_graph, tmp_path / "a.npz")
    write_npz(sparse_graph, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        matrix = sp.csr_array((file["attr_data"], file["attr_indices"], file["attr_indptr"]), shape=file["attr_shape"])
        assert (matrix != sparse_graph.features).nnz == 0
        assert (file["labels"] == sparse_graph.labels).all()


def test_features_that_pack_too_well_are_stored_as_they_are(tmp_path):
    graph = Graph.from_edges([[0], [1]], np.zeros((2000, 10_000), np.float32))
    write_npz(graph, tmp_path / "zeros.npz")
    assert read_npz(tmp_path / "zeros.npz").num_features == 10_000


def test_names_that_no_array_could_keep_are_refused(tmp_path):
    def named(name):
        return Graph.from_edges([[0], [1]], np.ones((2, 1)), node_names=["a", name])

    with pytest.raises(GraphError) as caught:
        write_npz(named("b\0"), tmp_path / "g.npz")
    assert str(caught.value) == "`node_names` holds 'b\\x00', whose last character NumPy would drop; rename it"
    with pytest.raises(GraphError) as caught:
        write_npz(named("\ud800"), tmp_path / "g.npz")
    assert str(caught.value) == "a name in `node_names` is not valid text: '\\ud800'; rename it"
    assert entries(tmp_path) == []


BAD_ARRAYS = {
    "no features": (
        {f"attr_{part}": None for part in ("data", "indices", "indptr", "shape")},
        "FILE holds no `attr_data`; a graph needs `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`, and `attr_*` "
        "alike or `attr_matrix`",
    ),
    "not square": ({"adj_shape": np.array([4, 5])}, "`adj_shape` in FILE must be square, got [4, 5]"),
    "falling starts": (
        {"adj_indptr": np.array([0, 3, 2, 3, 4])},
        "the matrix `adj_*` in FILE is damaged: `adj_indptr` must rise from 0 to 4 in 4 steps",
    ),
    "few starts": (
        {"attr_indptr": np.array([0, 3])},
        "the matrix `attr_*` in FILE is damaged: `attr_indptr` must rise from 0 to 3 in 4 steps",
    ),
    "index outside": (
        {"adj_indices": np.array([1, 2, 0, 4])},
        "the matrix `adj_*` in FILE is damaged: `adj_indices` must lie between 0 and 3",
    ),
    "negative index": (
        {"attr_indices": np.array([0, -4, 2])},
        "the matrix `attr_*` in FILE is damaged: `attr_indices` must lie between 0 and 4",
    ),
    "few values": (
        {"attr_data": np.ones(2)},
        "the matrix `attr_*` in FILE is damaged: 3 indices, but 2 values",
    ),
    "not a number": (
        {"attr_data": np.array([1, np.nan, 1])},
        "`attr_data` in FILE holds values that are not finite or too large; correct them",
    ),
    "too large": (
        {"attr_data": np.array([1, 1e300, 1])},
        "`attr_data` in FILE holds values that are not finite or too large; correct them",
    ),
    "complex": (
        {"attr_data": np.ones(3, complex)},
        "`attr_data` in FILE must be numbers in 1 dimensions, got complex128 of shape [3]",
    ),
    "labels a table": (
        {"labels": np.eye(4, dtype=int)},
        "`labels` in FILE must be whole numbers in 1 dimensions, got int64 of shape [4, 4]",
    ),
    "float labels": (
        {"labels": np.ones(4)},
        "`labels` in FILE must be whole numbers in 1 dimensions, got float64 of shape [4]",
    ),
    "huge label": (
        {"labels": np.array([0, 1, 0, 2**40])},
        "`labels` in FILE holds 1099511627776; a class is a number below 1,048,576",
    ),
    "huge shape": (
        {"attr_shape": np.array([4, 2**40])},
        "the matrix `attr_*` in FILE must have at most 67,108,864 rows and 16,777,216 columns, got [4, 1099511627776]",
    ),
    "more features than nodes": (
        {"attr_matrix": np.ones((5, 2))},
        "FILE has 4 nodes, but features of 5",
    ),
    "names of numbers": (
        {"class_names": np.array([1, 2])},
        "`class_names` in FILE must be text in 1 dimensions, got int64 of shape [2]",
    ),
    "split outside": (
        {"given_train": np.array([7]), "given_val": np.array([1]), "given_test": np.array([2])},
        "`given_train` in FILE names a node outside 0 to 3",
    ),
    "encoding a list": ({"encoding": np.array("[1]")}, "`encoding` in FILE must be a JSON object"),
    "unsigned": (
        {"adj_indices": np.array([1, 2, 0, 2**64 - 1], np.uint64)},
        "`adj_indices` in FILE holds 18446744073709551615, more than any node or class can be",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays(tmp_path, case):
    changes, message = BAD_ARRAYS[case]
    np.savez(tmp_path / "bad.npz", **arrays(**changes))
    with pytest.raises(GraphError) as caught:
        read_npz(tmp_path / "bad.npz")
    assert str(caught.value) == message.replace("FILE", str(tmp_path / "bad.npz"))


class Trap:
    """Leaves a file behind wherever it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("key", ["labels", "node_names", "adj_data"])
def test_pickled_objects_are_refused_and_nothing_runs(tmp_path, key):
    sprung = tmp_path / "sprung"
    trap = np.empty(4, dtype=object)
    trap[:] = [Trap(sprung)] * 4
    path = tmp_path / "trap.npz"
    np.savez(path, **arrays(**{key: trap}))
    with pytest.raises(DatasetError) as caught:
        load(path)
    assert str(caught.value) == (
        f"`{key}` in {path} holds pickled Python objects, which could run any code: refused; "
        "store numbers or text arrays"
    )
    assert not sprung.exists()
    np.load(path, allow_pickle=True)[key]
    assert sprung.exists()  # the trap was a real one


def bomb(path: Path, declared: int, *, packed: int = 1000) -> None:
    """A zip whose one array declares so many bytes, whatever there is."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("adj_data.npy", os.urandom(packed))
    blob = bytearray(path.read_bytes())
    end = blob.rfind(b"PK\x01\x02")
    blob[end + 24 : end + 28] = declared.to_bytes(4, "little")
    path.write_bytes(blob)


def test_a_zip_bomb_is_refused_by_its_size_before_reading(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, **arrays(attr_matrix=np.zeros((4, 5_000_000), np.float32)))
    with pytest.raises(DatasetError) as caught:
        read_npz(path)
    ratio = 80_003_008 // path.stat().st_size
    assert str(caught.value).startswith(f"{path} would unpack to 76 MiB, {ratio}")
    assert str(caught.value).endswith("times its size: refused as a decompression bomb (at most 200 times)")


def test_declared_sizes_alone_are_enough_to_refuse(tmp_path):
    path = tmp_path / "bomb.npz"
    bomb(path, 2**32 - 1)  # there is nothing of that size to read
    size = path.stat().st_size
    with pytest.raises(DatasetError) as caught:
        read_npz(path)
    assert str(caught.value) == (
        f"{path} would unpack to 4096 MiB, {(2**32 - 1) // size} times its size: "
        "refused as a decompression bomb (at most 200 times)"
    )


def test_more_than_is_ever_read(tmp_path):
    path = tmp_path / "large.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(3):
            archive.writestr(f"{i}.npy", b"")
    blob = bytearray(path.read_bytes())
    at = -1
    for _ in range(3):
        at = blob.find(b"PK\x01\x02", at + 1)
        blob[at + 24 : at + 28] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(blob)
    with pytest.raises(DatasetError) as caught:
        read_npz(path)
    assert str(caught.value) == f"{path} would unpack to 12.0 GiB; at most 8 GiB are read from a file"


def npy(header: bytes, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    size = len(header).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + version + size + header + data


HEADERS = {
    "larger than it is": b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,)}",
    "smaller than it is": b"{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}",
    "negative": b"{'descr': '<i8', 'fortran_order': False, 'shape': (-4,)}",
    "of records": b"{'descr': [('a', '<i8'), ('b', '<i8')], 'fortran_order': False, 'shape': (2,)}",
    "nested": b"(" * 5000 + b")" * 5000,
    "long": b"{'descr': '<i8', 'fortran_order': False, 'shape': (4,)}" + b" " * 60000,
    "no dictionary": b"[1, 2]",
    "of no type": b"{'descr': 'no', 'fortran_order': False, 'shape': (4,)}",
    "of no size": b"{'descr': '<U0', 'fortran_order': False, 'shape': (4,)}",
    "code": b"__import__('os').system('touch sprung')",
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_that_lie(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", **arrays(labels=None))
    with zipfile.ZipFile("a.npz", "a") as archive:
        archive.writestr("labels.npy", npy(HEADERS[case], np.arange(4).tobytes()))
    with pytest.raises(NFCError):
        read_npz("a.npz")
    assert entries(Path()) == ["a.npz"]


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04rest", pickle.dumps([1])])
def test_no_zip_at_all(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"a\.npz is not a valid \.npz file: File is not a zip file$"):
        read_npz(tmp_path / "a.npz")


def test_a_damaged_member(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays())
    blob = bytearray(buffer.getvalue())
    blob[blob.find(b"\x93NUMPY") + 140] ^= 255
    (tmp_path / "a.npz").write_bytes(blob)
    with pytest.raises(DatasetError, match=r"is not a valid \.npz file: Bad CRC-32"):
        read_npz(tmp_path / "a.npz")


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, make_graph, full_disk):
    path = tmp_path / "g.npz"
    write_npz(make_graph(20, 5, sparse=True), path)
    before = path.read_bytes()
    graph = Graph.from_edges([[0], [1]], np.random.default_rng(0).random((500, 100)))
    full_disk(4096)
    with pytest.raises(NFCError) as caught:
        write_npz(graph, path)
    assert str(caught.value) == f"cannot write {path}: File too large; choose another place"
    assert path.read_bytes() == before
    assert entries(tmp_path) == ["g.npz"]


def test_encoding_survives_as_json(tmp_path):
    graph = Graph.from_edges([[0], [1]], np.ones((2, 1)), encoding={"format": 1, "columns": []})
    write_npz(graph, tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as file:
        assert json.loads(str(file["encoding"])) == graph.encoding
