"""A store gives back the graph that was written, and refuses files that are not what was written."""

import json
import os
import pickle
import shutil
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import scipy.sparse as sp

import nfcgcn
from nfcgcn.data.store import NodeNames, pyg_stores, verification
from nfcgcn.data.store.arrays import row_blocks
from nfcgcn.data.store.names import BATCH
from nfcgcn.errors import NFCError
from nfcgcn.graph import Graph, Split

pytest.importorskip("pyarrow")


def make_graph(*, dense=False, weights=None, n=40):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n, 6)) * (rng.random((n, 6)) < 0.4)
    return Graph.from_edges(
        rng.integers(0, n, (2, 90)),
        features if dense else sp.csr_array(features),
        labels=rng.integers(-1, 3, n),
        weights=None if weights is None else rng.random(90) + 0.5,
        name="näme",
        node_names=[f"node {i}" for i in range(n)],
        feature_names=list("abcdef"),
        class_names=["x", "y", "z"],
        test_nodes=np.array([38, 39]),
        given=Split(np.array([3, 1]), np.array([2]), np.array([5, 4])),
        encoding={"some": ["thing"]},
        reading="read from nowhere",
    )


def check_same(graph, stored):
    for name in ("adjacency", "features"):
        one, other = getattr(graph, name), getattr(stored, name)
        parts = [("", one, other)] if isinstance(one, np.ndarray) else []
        parts += [] if parts else [(p, getattr(one, p), getattr(other, p)) for p in ("indptr", "indices", "data")]
        for part, a, b in parts:
            np.testing.assert_array_equal(a, b, err_msg=f"{name} {part}")
    for name in ("labels", "test_nodes"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(stored, name))
    for name in ("name", "feature_names", "class_names", "encoding", "reading", "is_weighted", "num_classes"):
        assert getattr(graph, name) == getattr(stored, name), name
    assert list(graph.node_names) == list(stored.node_names)
    for part in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(graph.given, part), getattr(stored.given, part))
    for name in ("x", "edge_index", "y"):
        one, other = getattr(graph, name), getattr(stored, name)
        assert one.dtype == other.dtype
        assert (one.to_dense() == other.to_dense()).all()


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("weights", [None, True])
def test_the_same_graph_comes_back(tmp_path, dense, weights):
    graph = make_graph(dense=dense, weights=weights)
    nfcgcn.write_store(graph, tmp_path / "store")
    stored = nfcgcn.load(tmp_path / "store")
    assert isinstance(stored.adjacency.indices, np.memmap)
    assert stored.store == (tmp_path / "store").resolve()
    check_same(graph, stored)
    check_same(graph, pickle.loads(pickle.dumps(stored)))
    assert len(pickle.dumps(stored)) < 4000  # the path, not the arrays
    check_same(graph, nfcgcn.load(tmp_path / "store" / "meta.json"))
    nfcgcn.write_store(stored, tmp_path / "again")  # the same bytes
    files = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


def test_a_changed_graph_of_a_store_is_sent_with_its_changes(tmp_path):
    nfcgcn.write_store(make_graph(), tmp_path / "store")
    stored = nfcgcn.open_store(tmp_path / "store")
    changed = replace(stored, labels=np.zeros(40, np.int64), given=None, adjacency=sp.csr_array((40, 40), dtype="f4"))
    sent = pickle.loads(pickle.dumps(changed))
    assert not sent.labels.any()
    assert sent.given is None
    assert sent.num_edges == 0
    assert sent.node_names[3] == "node 3"


def test_a_graph_of_a_store_grows_in_memory(tmp_path):
    nfcgcn.write_store(make_graph(dense=True), tmp_path / "store")
    larger = nfcgcn.load(tmp_path / "store").extend(np.ones((1, 6)), [[0], [40]], names=["new"])
    assert larger.store is None
    assert larger.node_names[-2:] == ("node 39", "new")


def test_a_split_and_half_precision(tmp_path):
    graph = make_graph(dense=True)
    split = nfcgcn.make_split(graph, "ratio")
    nfcgcn.write_store(graph, tmp_path / "store", split=split, precision="float16")
    stored = nfcgcn.load(tmp_path / "store")
    assert stored.given.name == "ratio"
    assert stored.features.dtype == np.float16
    assert stored.x.dtype == graph.x.dtype
    np.testing.assert_array_equal(stored.x.numpy(), graph.features.astype(np.float16).astype(np.float32))
    large = replace(graph, features=np.full((40, 6), 1e5, np.float32))
    with pytest.raises(NFCError, match="beyond 65504, the largest float16"):
        nfcgcn.write_store(large, tmp_path / "large", precision="float16")
    with pytest.raises(NFCError, match="unknown precision 'float64'"):
        nfcgcn.write_store(graph, tmp_path / "large", precision="float64")
    assert not (tmp_path / "large").exists()


def test_without_anything_optional(tmp_path):
    graph = Graph.from_edges([[], []], np.zeros((0, 3)))
    nfcgcn.write_store(graph, tmp_path / "none")
    stored = nfcgcn.load(tmp_path / "none")
    assert (stored.num_nodes, stored.num_edges, stored.num_features, stored.num_classes) == (0, 0, 3, 0)
    assert (stored.node_names, stored.given, stored.encoding) == (None, None, None)


def test_names_across_batches(tmp_path):
    n = BATCH + 5
    names = [f"n{i}" for i in range(n)]
    graph = Graph.from_edges([[0], [1]], sp.csr_array((n, 1)), node_names=names)
    nfcgcn.write_store(graph, tmp_path / "store")
    found = nfcgcn.load(tmp_path / "store").node_names
    assert isinstance(found, NodeNames)
    assert (found[0], found[-1], found[BATCH], found[BATCH - 1 : BATCH + 1]) == (
        "n0", names[-1], names[BATCH], tuple(names[BATCH - 1 : BATCH + 1])
    )  # fmt: skip
    assert list(found) == names
    assert found.index("n65540") == BATCH + 4
    assert "other" not in found
    assert found.take(np.array([BATCH + 1, 3, BATCH, 3])) == [f"n{BATCH + 1}", "n3", f"n{BATCH}", "n3"]
    with pytest.raises(IndexError):
        found[n]
    for outside in (-1, n):
        with pytest.raises(IndexError):
            found.take(np.array([outside]))


def test_row_blocks():
    starts = np.array([0, 0, 3, 3, 10, 11, 12])
    assert list(row_blocks(starts, 4)) == [(0, 3), (3, 4), (4, 6)]
    assert list(row_blocks(np.array([0]), 4)) == []
    assert list(row_blocks(np.zeros(8, np.int64), 3)) == [(0, 3), (3, 6), (6, 7)]


def test_what_does_not_fit_into_memory_is_said(tmp_path, monkeypatch):
    nfcgcn.write_store(make_graph(), tmp_path / "store")
    stored = nfcgcn.load(tmp_path / "store")
    monkeypatch.setattr("nfcgcn.memory.available", lambda: 10.0)
    for what, name in (("features", "x"), ("edges", "edge_index")):
        with pytest.raises(NFCError, match=f"^all {what} of 'näme' at once would need about .* --batch-size"):
            getattr(stored, name)


# What happens to a store, and what is said. {} is the folder.
SPOILT = {
    "truncated": (lambda s: os.truncate(s / "labels.npy", 200), "{}/labels.npy is damaged: it has 200 bytes instead"),
    "longer": (lambda s: append(s / "edges_indices.npy"), "{}/edges_indices.npy is damaged: it has "),
    "missing": (lambda s: (s / "labels.npy").unlink(), "{}/labels.npy does not exist"),
    "altered": (lambda s: flip(s / "features_values.npy", -1), "{}/features_values.npy is damaged: its sha256 is not"),
    "names": (lambda s: flip(s / "node_names.arrow", 400), "{}/node_names.arrow is damaged: its sha256 is not"),
    "header": (lambda s: flip(s / "labels.npy", 20), "{}/labels.npy is "),
    "foreign": (lambda s: shutil.copy(s / "labels.npy", s / "mask.npy"), "{}/mask.npy is damaged: meta.json does not"),
    "swapped": (lambda s: (s / "split_train.npy").replace(s / "split_test.npy"), "{}/split_train.npy does not exist"),
    "folder": (lambda s: ((s / "labels.npy").unlink(), (s / "labels.npy").mkdir()), "{}/labels.npy is a folder"),
    "a pipe": (lambda s: ((s / "meta.json").unlink(), os.mkfifo(s / "meta.json")), "{}/meta.json is not a regular"),
    "without meta.json": (lambda s: (s / "meta.json").unlink(), "{}/meta.json does not exist"),
    "empty meta.json": (lambda s: os.truncate(s / "meta.json", 0), "{}/meta.json is not a valid "),
    "another meta.json": (lambda s: (s / "meta.json").write_text("{}"), "{}/meta.json does not describe a store"),
    "no json": (lambda s: (s / "meta.json").write_text('{"format": "nfcgcn store"'), "{}/meta.json is not a valid "),
}  # fmt: skip


def append(path):
    with path.open("ab") as file:
        file.write(b"more")


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_files_are_refused_by_name(tmp_path, case):
    nfcgcn.write_store(make_graph(), tmp_path / "store")
    spoil, message = SPOILT[case]
    spoil(tmp_path / "store")
    with pytest.raises(NFCError) as caught:
        nfcgcn.load(tmp_path / "store")
    assert str(caught.value).startswith(message.format(tmp_path / "store"))
    assert "\n" not in str(caught.value)


def change(folder, **changes):
    """Change meta.json, as somebody would who writes a store by hand."""
    meta = json.loads((folder / "meta.json").read_text())
    for key, value in changes.items():
        place = meta
        *path, last = key.split("/")
        for step in path:
            place = place[step]
        place[last] = value
    (folder / "meta.json").write_text(json.dumps(meta))


HOSTILE = {
    "version": ({"version": 2}, "is a store of version 2, and this version of nfcgcn reads 1"),
    "negative": ({"nodes": -1}, "`nodes` must be a whole number from 0 to"),
    "a float": ({"edges": 1.5}, "`edges` must be a whole number"),
    "true": ({"nodes": True}, "`nodes` must be a whole number"),
    "huge": ({"features": 2**70}, "`features` must be a whole number"),
    "a path": ({"files/..%2Flabels.npy": {}}, "'..%2Flabels.npy' is not a file of a store"),
    "absolute": (
        {"files": {"/etc/passwd": {"bytes": 1, "sha256": "0" * 64}}},
        "'/etc/passwd' is not a file of a store",
    ),
    "no files": ({"files": []}, "`files` has the wrong type"),
    "shape": ({"files/labels.npy/shape": [41]}, "labels.npy must have shape [40], got [41]"),
    "huge shape": ({"files/labels.npy/shape": [2**50]}, "the shape of labels.npy is [1125899906842624]"),
    "too short": ({"files/labels.npy/shape": [2**30]}, "too few for its shape"),
    "objects": ({"files/labels.npy/dtype": "|O"}, "labels.npy must have type <i8, got |O"),
    "sha256": ({"files/labels.npy/sha256": "abc"}, "the sha256 of labels.npy is not one"),
    "nodes": ({"nodes": 39}, "edges_indptr.npy must have shape [40], got [41]"),
    "classes": ({"classes": 2}, "names.json is damaged: `classes` must hold 2 names, got 3"),
    "deep": (None, "is not a valid store file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_meta(tmp_path, case):
    nfcgcn.write_store(make_graph(), tmp_path / "store")
    changes, message = HOSTILE[case]
    if changes is None:
        (tmp_path / "store" / "meta.json").write_text('{"format": "nfcgcn store", "x": ' + "[" * 200_000)
    else:
        change(tmp_path / "store", **changes)
    with pytest.raises(NFCError) as caught:
        nfcgcn.open_store(tmp_path / "store", verify=False)
    assert message in str(caught.value)


def rewrite(folder, name, edit):
    """Change an array and its sha256: only the numbers themselves can tell."""
    path = folder / name
    content = bytearray(path.read_bytes())
    start = 128
    numbers = np.frombuffer(
        content, json.loads((folder / "meta.json").read_text())["files"][name]["dtype"], offset=start
    )
    edit(numbers)
    path.write_bytes(content)
    change(folder, **{f"files/{name}/sha256": sha256(content).hexdigest()})


def put(place, value):
    return lambda numbers: numbers.__setitem__(place, value)


WRONG = {
    "neighbour": ("edges_indices.npy", put(5, 10**6), "its numbers must lie between 0 and 39"),
    "negative": ("edges_indices.npy", put(5, -7), "its numbers must lie between 0 and 39"),
    "column": ("features_indices.npy", put(0, 6), "its numbers must lie between 0 and 5"),
    "order": ("edges_indices.npy", lambda n: n[0:2].__setitem__(slice(None), n[0:2][::-1].copy()), "do not rise"),
    "falling": ("edges_indptr.npy", put(7, 10**6), "its numbers fall"),
    "end": ("edges_indptr.npy", put(-1, 3), "it must rise from 0 to"),
    "label": ("labels.npy", put(0, 3), "its numbers must lie between -1 and 2"),
    "split": ("split_val.npy", put(0, 40), "its numbers must lie between 0 and 39"),
    "value": ("features_values.npy", put(0, np.nan), "a value is not finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_numbers_with_the_right_sha256(tmp_path, case):
    nfcgcn.write_store(make_graph(), tmp_path / "store")
    name, edit, message = WRONG[case]
    rewrite(tmp_path / "store", name, edit)
    with pytest.raises(NFCError, match=rf"^{tmp_path}/store/{name} is damaged: .*{message}"):
        nfcgcn.open_store(tmp_path / "store")


def test_offsets_of_names_are_checked_before_they_are_used(tmp_path):
    nfcgcn.write_store(make_graph(), tmp_path / "store")
    path = tmp_path / "store" / "node_names.arrow"
    content = path.read_bytes()
    offsets = (np.arange(0, 3, dtype="<i8") * 6).tobytes()  # of the first names
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, np.array([0, 6, 2**40], "<i8").tobytes()))
    graph = nfcgcn.open_store(tmp_path / "store", verify=False)
    with pytest.raises(NFCError, match=r"node_names.arrow is not a valid Arrow file"):
        list(graph.node_names)


def test_a_large_store_is_read_as_a_whole_once(tmp_path, monkeypatch):
    monkeypatch.setenv("NFCGCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verification, "NOTED_FROM", 0)
    nfcgcn.write_store(make_graph(), tmp_path / "store")
    read = []
    monkeypatch.setattr("nfcgcn.data.store.reading.check_files", lambda *_: read.append(1))
    nfcgcn.load(tmp_path / "store")
    assert not read  # who wrote it knows it
    nfcgcn.open_store(tmp_path / "store", verify=True)
    assert len(read) == 1
    shutil.rmtree(tmp_path / "cache")
    nfcgcn.load(tmp_path / "store")
    nfcgcn.load(tmp_path / "store")
    assert len(read) == 2
    content = (tmp_path / "store" / "labels.npy").read_bytes()
    (tmp_path / "store" / "labels.npy").write_bytes(content)  # touched
    nfcgcn.load(tmp_path / "store")
    assert len(read) == 3


def test_options_of_tables_are_refused(tmp_path):
    nfcgcn.write_store(make_graph(), tmp_path / "store")
    with pytest.raises(NFCError, match=r"^label= is for tables of nodes and edges; .* holds a graph as it is$"):
        nfcgcn.load(tmp_path / "store", label="x")
    with pytest.raises(NFCError, match="is not the folder of a store"):
        nfcgcn.open_store(tmp_path / "nowhere")


def test_pyg_reads_a_store(tmp_path):
    torch = pytest.importorskip("torch")
    from torch_geometric.data import EdgeAttr
    from torch_geometric.loader.utils import filter_custom_hetero_store

    graph = make_graph()
    nfcgcn.write_store(graph, tmp_path / "store")
    features, edges = pyg_stores(nfcgcn.load(tmp_path / "store"))
    nodes = torch.tensor([7, 3, 3])
    x = features.get_tensor(group_name="node", attr_name="x", index=nodes)
    assert torch.equal(x, graph.x.to_dense()[nodes])
    assert torch.equal(features.get_tensor(group_name="node", attr_name="y", index=None), graph.y)
    assert features.get_tensor_size(group_name="node", attr_name="x") == (40, 6)
    row, colptr = edges.get_edge_index(EdgeAttr(("node", "to", "node"), "csc"))
    col = torch.repeat_interleave(torch.arange(40), colptr.diff())
    assert torch.equal(torch.stack([row, col]), graph.edge_index)
    kind = ("node", "to", "node")
    ends = ({kind: torch.tensor([0, 1])}, {kind: torch.tensor([1, 0])}, {kind: None})
    batch = filter_custom_hetero_store(features, edges, {"node": nodes[:2]}, *ends)
    assert torch.equal(batch["node"].x, graph.x.to_dense()[nodes[:2]])
    assert batch["node"].train_mask.tolist() == [False, True]
    with pytest.raises(NFCError, match="a store is never changed"):
        features.put_tensor(x, group_name="node", attr_name="x", index=None)


def test_train_and_inspect_as_from_tables(tmp_path):
    config = nfcgcn.make_config("nfc-gcn", settings={"epochs": 2, "split": "ratio", "kernel_size": 3, "bandwidth": 3})
    graph = make_graph(weights=True)
    nfcgcn.write_store(graph, tmp_path / "store")
    stored = nfcgcn.load(tmp_path / "store")
    (one,), (other,) = nfcgcn.repeat(graph, config, [0]), nfcgcn.repeat(stored, config, [0])
    for name, weights in one.run.state.items():
        assert (weights == other.run.state[name]).all(), name
    assert nfcgcn.inspect(stored) == nfcgcn.inspect(graph)
