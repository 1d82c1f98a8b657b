"""Whatever is read, it becomes a valid graph or one of our errors; what is written is read again."""

from __future__ import annotations

import csv
import gzip
import io
import json
from contextlib import suppress
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch_geometric.data import Data

from nfcgcn import Graph, NFCError, Split, from_networkx, load, write_npz
from nfcgcn.data.formats import read_npz

pytestmark = pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")


def relaxed(examples: int) -> settings:
    """Let examples share the test's folder: each writes its files anew."""
    return settings(max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(graph: Graph) -> None:
    """Build it anew from its parts, which checks them."""
    Graph(graph.adjacency, graph.features, graph.labels, class_names=graph.class_names, node_names=graph.node_names)
    assert graph.num_classes >= 0
    assert graph.features.dtype == np.float32
    if graph.given is not None:
        parts = np.concatenate([graph.given.train, graph.given.val, graph.given.test])
        assert ((parts >= 0) & (parts < graph.num_nodes)).all()


CELLS = st.one_of(
    st.sampled_from(
        ["", "a", "b", "1", "2.5", "-3", "NA", "nan", "inf", "1e400", "true", "False", "x;y", "2020-01-01"]
    ),
    st.sampled_from(
        ["train", "val", "test", "<script>", "9" * 400, "1.0", "\ufeff", "0x1", "1_000", " 7 ", "٣", "\x1f"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(str),
)
NAMES = st.one_of(
    st.sampled_from(["id", "label", "split", "x", "y", "about", "source", "target", "a.b", "", "x "]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
)
USUAL = ["x", "y", "label", "split", "about", "a.b", "é"]
KINDS = (
    st.floats(-1e6, 1e6).map(str),
    st.integers(-3, 3).map(str),
    st.sampled_from(["", "1", "2.5", "NA", "nan"]),
    st.sampled_from(["true", "False", ""]),
    st.sampled_from(["u", "v", "", "<b>", "None"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
SPLITS = st.sampled_from(["train", "val", "test", "", "Valid"])


@st.composite
def tables(draw):
    """Columns by name: either any at all, or such as real ones are, with one kind of cell each."""
    rows = draw(st.integers(1, 8))
    if draw(st.integers(0, 3)) == 0:
        names = draw(st.lists(NAMES, min_size=1, max_size=5))
        return names, [draw(st.lists(CELLS, min_size=rows, max_size=rows)) for _ in names]
    names = ["id", *draw(st.lists(st.sampled_from(USUAL), min_size=1, max_size=5, unique=True))]
    columns = [[str(i) for i in range(rows)]]
    for name in names[1:]:
        cells = SPLITS if name == "split" else draw(st.sampled_from(KINDS))
        columns.append(draw(st.lists(cells, min_size=rows, max_size=rows)))
    return names, columns


def roles(draw, names):
    """What columns are said to mean, mostly one thing each."""
    options = {key: [] for key in ("text", "words", "ignore")}
    for name in names:
        role = draw(st.sampled_from(["none", "none", "none", "text", "words", "ignore"]))
        if role != "none" and name not in ("id", "split", "label"):
            options[role].append(name)
    if draw(st.integers(0, 5)) == 0:
        options[draw(st.sampled_from(["id", "label", "split"]))] = draw(st.sampled_from(names))
    return options


def write_csv(path: Path, names, columns) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    path.write_bytes(text.getvalue().encode())


@relaxed(200)
@given(st.data())
def test_any_csv_table(tmp_path, data):
    names, columns = data.draw(tables())
    known = st.sampled_from(columns[0])
    ends = data.draw(st.lists(st.tuples(known, known), max_size=4))
    if data.draw(st.integers(0, 5)) == 0:
        ends += data.draw(st.lists(st.tuples(CELLS, CELLS), max_size=4))
    write_csv(tmp_path / "nodes.csv", names, columns)
    write_csv(tmp_path / "edges.csv", ["source", "target"], [[a for a, _ in ends], [b for _, b in ends]])
    options = roles(data.draw, names)
    edges = data.draw(st.sampled_from([None, tmp_path / "edges.csv"]))
    with suppress(NFCError):
        graph = load(tmp_path / "nodes.csv", edges=edges, **options)
        check(graph)
        assert graph.num_nodes == len(columns[0])
        again = load(tmp_path / "nodes.csv", edges=edges, encoding=json.loads(json.dumps(graph.encoding)))
        assert again.feature_names == graph.feature_names
        assert (again.features != graph.features).sum() == 0
        assert (again.labels == graph.labels).all()


def test_most_plain_tables_are_read(tmp_path):
    """The property above would hold if all were refused; these must not be."""
    plain = st.sampled_from(["1", "2.5", "-3", "0"])
    read = []

    @settings(max_examples=40)
    @given(st.lists(st.lists(plain, min_size=4, max_size=4), min_size=1, max_size=3))
    def try_one(columns):
        write_csv(tmp_path / "nodes.csv", ["id", *(f"f{i}" for i in range(len(columns)))], [list("abcd"), *columns])
        graph = load(tmp_path / "nodes.csv")
        assert graph.features.shape == (4, len(columns))
        wanted = np.array(columns, np.float32).T
        assert ((graph.features.toarray() if graph.is_sparse else graph.features) == wanted).all()
        read.append(graph)

    try_one()
    assert len(read) >= 40


TYPED = (
    st.one_of(st.none(), st.floats(-1e30, 1e30)),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), st.booleans()),
    st.sampled_from([None, "u", "v", "", "<b>"]),
    st.one_of(st.none(), st.lists(st.one_of(st.none(), CELLS), max_size=3)),
)
ODD = (
    st.floats(), CELLS, st.one_of(st.none(), st.datetimes(), st.dates()), st.binary(max_size=3),
    st.lists(st.floats(), max_size=2), st.fixed_dictionaries({"u": st.integers(0, 9)}),
)  # fmt: skip


@relaxed(100)
@given(st.data())
def test_any_parquet_table(tmp_path, data):
    import pyarrow as pa
    from pyarrow import parquet

    odd = data.draw(st.integers(0, 3)) == 0
    names = data.draw(st.lists(NAMES if odd else st.sampled_from(USUAL[:3]), min_size=1, max_size=4, unique=not odd))
    kinds = [data.draw(st.sampled_from((*TYPED, *ODD) if odd else TYPED)) for _ in names]
    cells = [data.draw(st.lists(kind, min_size=12, max_size=12)) for kind in kinds]
    try:
        columns = [pa.array(range(12)), *(pa.array(values) for values in cells)]
        parquet.write_table(pa.table(columns, names=["id", *names]), tmp_path / "nodes.parquet")
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return
    options = roles(data.draw, names)
    if not odd:
        options["words"] = [
            n for n, kind in zip(names, kinds, strict=True) if kind is TYPED[-1] and data.draw(st.integers(0, 3))
        ]
        options["text"] = options["ignore"] = []
    with suppress(NFCError):
        graph = load(tmp_path / "nodes.parquet", **options)
        check(graph)
        again = load(tmp_path / "nodes.parquet", encoding=graph.encoding)
        assert (again.features != graph.features).sum() == 0


@relaxed(100)
@given(st.binary(max_size=200), st.sampled_from([".csv", ".tsv", ".csv.gz", ".parquet", ".npz", ".pt"]))
def test_any_bytes(tmp_path, content, suffix):
    path = tmp_path / f"nodes{suffix}"
    for blob in (content, gzip.compress(content)) if suffix.endswith(".gz") else (content,):
        path.write_bytes(blob)
        with suppress(NFCError):
            check(load(path))


def originals(folder: Path) -> None:
    graph = Graph.from_edges(
        [[0, 1], [1, 2]], sp.csr_array(np.eye(4, 6, dtype=np.float32)), labels=[0, 1, 0, -1],
        node_names=list("abcd"), class_names=["u", "v"], given=Split(np.array([0]), np.array([1]), np.array([2])),
    )  # fmt: skip
    write_npz(graph, folder / "a.npz")
    with np.load(folder / "a.npz") as file:
        np.savez(folder / "b.npz", **file)
    torch.save(graph.to_pyg(graph.given), folder / "c.pt")
    torch.save(Data(x=torch.eye(3), edge_index=torch.tensor([[0], [1]])), folder / "d.pt")
    pd.DataFrame({"id": list("abcd"), "x": [1.0, 2, 3, 4], "kind": list("uvuv")}).to_parquet(folder / "e.parquet")


@pytest.mark.parametrize("name", ["a.npz", "b.npz", "c.pt", "d.pt", "e.parquet"])
def test_any_damage(tmp_path, name):
    originals(tmp_path)
    whole = (tmp_path / name).read_bytes()
    check(load(tmp_path / name))
    path = tmp_path / f"damaged{Path(name).suffix}"

    @settings(max_examples=80)
    @given(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=4), st.integers(0, 40))
    def damage(changes, cut):
        blob = bytearray(whole)
        for place, value in changes:
            blob[place] = value
        path.write_bytes(blob[: len(blob) - cut])
        with suppress(NFCError):
            check(load(path))

    damage()


ARRAYS = hnp.arrays(
    dtype=st.one_of(
        hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(), hnp.boolean_dtypes(),
        hnp.unicode_string_dtypes(), hnp.byte_string_dtypes(), hnp.datetime64_dtypes(), hnp.complex_number_dtypes(),
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=5),
)  # fmt: skip
KEYS = st.sampled_from([
    "adj_data", "adj_indices", "adj_indptr", "adj_shape", "attr_data", "attr_indices", "attr_indptr", "attr_shape",
    "attr_matrix", "labels", "node_names", "attr_names", "class_names", "name", "test_nodes", "given_train",
    "given_val", "given_test", "encoding",
])  # fmt: skip


@relaxed(100)
@given(st.dictionaries(KEYS, ARRAYS, min_size=1, max_size=3))
def test_any_arrays(tmp_path, changes):
    sound = {
        "adj_data": np.ones(2), "adj_indices": np.array([1, 2]), "adj_indptr": np.array([0, 1, 2, 2]),
        "adj_shape": np.array([3, 3]), "attr_matrix": np.ones((3, 2)), "labels": np.array([0, 1, -1]),
    }  # fmt: skip
    np.savez(tmp_path / "a.npz", **{**sound, **changes})
    with suppress(NFCError):
        check(read_npz(tmp_path / "a.npz"))


@st.composite
def graphs(draw):
    n, d = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=8)) if n else []
    values = st.floats(-100, 100, width=32)
    x = draw(hnp.arrays(np.float32, (n, d), elements=values))
    names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)

    def named(count):
        return draw(st.one_of(st.none(), st.lists(names, min_size=count, max_size=count)))

    order = draw(st.permutations(range(n)))
    cuts = sorted(draw(st.lists(st.integers(0, n), min_size=3, max_size=3)))
    parts = [np.array(order[a:b], np.int64) for a, b in zip([0, *cuts], cuts, strict=False)]
    labels = draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    return Graph.from_edges(
        np.array(pairs, np.int64).reshape(-1, 2).T,
        sp.csr_array(x) if draw(st.booleans()) else x,
        labels=np.array(labels, np.int64),
        name=draw(names),
        node_names=named(n),
        feature_names=named(d),
        class_names=named(4),
        given=Split(*parts) if draw(st.booleans()) else None,
        test_nodes=parts[0] if draw(st.booleans()) else None,
        encoding=draw(st.one_of(st.none(), st.dictionaries(names, st.one_of(st.integers(), names, st.none())))),
    )


@relaxed(100)
@given(graphs())
def test_what_is_written_is_read_again(tmp_path, graph):
    write_npz(graph, tmp_path / "g.npz")
    again = read_npz(tmp_path / "g.npz")
    assert (again.adjacency != graph.adjacency).nnz == 0
    assert again.is_sparse == graph.is_sparse
    assert again.features.shape == graph.features.shape
    assert (again.features != graph.features).sum() == 0
    assert again.labels.tolist() == graph.labels.tolist()
    for field in ("name", "node_names", "feature_names", "class_names", "encoding"):
        assert getattr(again, field) == getattr(graph, field), field
    assert (again.test_nodes is None) == (graph.test_nodes is None)
    for part in ("train", "val", "test") if graph.given else ():
        assert getattr(again.given, part).tolist() == getattr(graph.given, part).tolist()


VALUES = (
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-5, 5)),
    st.sampled_from([None, "u", "v"]),
    st.one_of(st.integers(), st.floats(), st.just(np.int8(3))),
    st.one_of(CELLS, st.integers(-9, 9)),
    st.one_of(st.none(), st.lists(CELLS, max_size=2), st.tuples(CELLS), st.sets(CELLS, max_size=2)),
    st.one_of(st.dates(), st.complex_numbers(), st.binary(max_size=2), st.just(np.datetime64("2020-01-01"))),
    hnp.arrays(np.float32, (2,)),
)


@settings(max_examples=100)
@given(st.data())
def test_any_networkx_graph(data):
    keys = data.draw(
        st.lists(st.sampled_from(["x", "y", "label", "split", 5, ""]), min_size=1, max_size=3, unique=True)
    )
    some = st.sampled_from(VALUES[:2] if data.draw(st.booleans()) else VALUES)
    kinds = {key: SPLITS if key == "split" else data.draw(some) for key in keys}
    nodes = data.draw(st.lists(st.one_of(st.integers(0, 9), CELLS, st.tuples(st.integers(0, 3))), max_size=5))
    graph = nx.MultiDiGraph()
    for node in nodes:
        graph.add_node(node)
        graph.nodes[node].update({key: data.draw(kind) for key, kind in kinds.items()})
    for _ in range(3 if nodes else 0):
        graph.add_edge(data.draw(st.sampled_from(nodes)), data.draw(st.sampled_from(nodes)))
    words = [key for key, kind in kinds.items() if kind is VALUES[4] and data.draw(st.integers(0, 3))]
    with suppress(NFCError):
        check(from_networkx(graph, words=words))


@st.composite
def tensors(draw):
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.float16]))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    tensor = torch.from_numpy(draw(hnp.arrays(np.int64, tuple(shape), elements=st.integers(-2, 5)))).to(dtype)
    return draw(st.sampled_from([tensor, tensor.to_sparse() if tensor.dim() else tensor]))


@relaxed(100)
@given(
    st.dictionaries(
        st.sampled_from(["x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "class_names", "num_nodes"]),
        st.one_of(
            tensors(), st.none(), st.integers(0, 5), st.text(max_size=3), st.lists(st.text(max_size=2), max_size=3)
        ),
        max_size=2,
    )
)
def test_any_pyg_data(tmp_path, changes):
    masks = {f"{part}_mask": torch.arange(3) == i for i, part in enumerate(("train", "val", "test"))}
    sound = {"x": torch.eye(3), "edge_index": torch.tensor([[0], [1]]), "y": torch.tensor([0, 1, -1]), **masks}
    data = Data()
    for key, value in {**sound, **changes}.items():
        data[key] = value
    torch.save(data, tmp_path / "d.pt")
    with suppress(NFCError):
        check(load(tmp_path / "d.pt"))
