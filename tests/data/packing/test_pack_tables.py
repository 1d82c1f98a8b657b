"""A store packed from tables is the graph that the same tables are in memory, to the bit."""

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import nfcgcn
from nfcgcn.data.formats import read_tables
from nfcgcn.data.packing import pack_tables
from nfcgcn.errors import NFCError, NFCWarning

pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
WORDS = ["graph", "Node", "édge", "naïve", "the", "a", "x_1", "CONV", "İstanbul", "straße", "nan", "map2d"]
NODES = {
    "id": [f"p{i}" for i in range(60)],
    "about": [" ".join(WORDS[(i * k) % len(WORDS)] for k in range(i % 7)) for i in range(60)],
    "tags": ["; ".join(WORDS[(i + k) % 9] for k in range(i % 4)) for i in range(60)],
    "year": [str(1990 + i % 30) if i % 11 else "" for i in range(60)],
    "share": [f"{i / 60:.3f}" for i in range(60)],
    "venue": [["ICML", "KDD", "", "WWW"][i % 4] for i in range(60)],
    "seen": [f"2024-05-{1 + i % 28:02}" for i in range(60)],
    "open": [["true", "false"][i % 2] for i in range(60)],
    "label": [["ml", "db", ""][i % 3] for i in range(60)],
    "split": [["train", "val", "test", ""][i % 4] for i in range(60)],
}
EDGES = {
    "source": [f"p{i % 60}" for i in range(150)] + ["p3", "p4", " p5 "],
    "target": [f"p{(i * 7 + 1) % 60}" for i in range(150)] + ["p3", "p1", "p6"],
    "weight": [str([0.5, 2, 0, 1.25][i % 4]) for i in range(153)],
}
OPTIONS = {"text": ("about",), "words": ("tags",)}


def write_csv(path, columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def write_parquet(path, columns, **arrays):
    from pyarrow import parquet

    table = {name: [None if cell == "" else cell for cell in cells] for name, cells in columns.items()}
    parquet.write_table(pa.table({**table, **arrays}), path, row_group_size=16)


def same(one, other):
    for name in ("adjacency", "features"):
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            continue
        for part in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(a, part), getattr(b, part), err_msg=f"{name} {part}")
    np.testing.assert_array_equal(one.labels, other.labels)
    for name in ("node_names", "feature_names", "class_names"):
        assert list(getattr(one, name) or ()) == list(getattr(other, name) or ()), name
    assert (one.given is None) == (other.given is None)
    for part in ("train", "val", "test") if one.given else ():
        np.testing.assert_array_equal(getattr(one.given, part), getattr(other.given, part))
    assert one.encoding == other.encoding
    assert one.reading == other.reading
    assert one.name == other.name
    assert one.is_weighted == other.is_weighted


def both(tmp_path, nodes, edges, **options):
    """The graph in memory and the packed one, and what each warned of."""
    graphs, said = [], []
    for read in (
        lambda: read_tables(nodes, edges, **options),
        lambda: pack_tables(nodes, edges, tmp_path / "store", **options) and nfcgcn.load(tmp_path / "store"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graphs.append(read())
        said.append(sorted(str(w.message) for w in caught if issubclass(w.category, NFCWarning)))
    return graphs, said


@pytest.fixture
def tables(tmp_path):
    write_csv(tmp_path / "nodes.csv", NODES)
    write_csv(tmp_path / "edges.csv", EDGES)
    return tmp_path / "nodes.csv", tmp_path / "edges.csv"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("weight", [None, "weight"])
def test_the_same_graph(tmp_path, tables, kind, weight, monkeypatch):
    monkeypatch.setattr("nfcgcn.data.packing.engine.ROWS", 16)
    nodes, edges = tables
    if kind == "parquet":
        nodes, edges = tmp_path / "nodes.parquet", tmp_path / "edges.parquet"
        write_parquet(nodes, NODES, year=[float(y) if y else None for y in NODES["year"]])
        write_parquet(edges, EDGES, weight=[float(w) for w in EDGES["weight"]])
    (graph, stored), said = both(tmp_path, nodes, edges, weight=weight, **OPTIONS)
    same(graph, stored)
    assert said[0] == said[1]
    assert stored.store == (tmp_path / "store").resolve()
    assert not [path for path in tmp_path.rglob("*") if "draft" in path.name or path.name == "tmp"]


def test_dense_features_and_whole_ids(tmp_path):
    write_parquet(tmp_path / "n.parquet", {"a": [1.5, 2, 300], "b": ["x", "y", "x"]}, id=np.array([7, 2**40, -3]))
    write_parquet(tmp_path / "e.parquet", {}, source=np.array([7, -3]), target=np.array([-3, 2**40]))
    (graph, stored), _ = both(tmp_path, tmp_path / "n.parquet", tmp_path / "e.parquet")
    same(graph, stored)
    assert stored.node_names[1] == str(2**40)
    assert not stored.is_sparse


@pytest.mark.parametrize("choice", ["drop", "add", "error"])
def test_unknown_ids(tmp_path, tables, choice):
    write_csv(tmp_path / "edges.csv", {"source": ["p1", "zz", "p2", "yy"], "target": ["p2", "p1", "aa", "zz"]})
    options = {**OPTIONS, "unknown_edges": choice}
    if choice == "error":
        with pytest.raises(NFCError) as expected:
            read_tables(*tables, **options)
        with pytest.raises(NFCError) as found:
            pack_tables(*tables, tmp_path / "store", **options)
        assert str(found.value) == str(expected.value)
        assert "names 3 ids that no row of nodes.csv has, in 3 of 4 edges" in str(found.value)
        assert not (tmp_path / "store").exists()
        return
    (graph, stored), said = both(tmp_path, *tables, **options)
    same(graph, stored)
    assert said[0] == said[1]
    assert stored.num_nodes == (63 if choice == "add" else 60)


SPOILT = {
    "ids twice": ({"id": ["p1", *NODES["id"][1:]]}, {}, {}),
    "no id": ({"id": ["", *NODES["id"][1:]]}, {}, {}),
    "half an edge": ({}, {"source": ["", *EDGES["source"][1:]]}, {}),
    "weights": ({}, {"weight": ["-1", *EDGES["weight"][1:]]}, {"weight": "weight"}),
    "no column": ({}, {}, {"label": "class"}),
    "mixed": ({"year": ["soon", *NODES["year"][1:]]}, {}, {}),
    "split": ({"split": ["holdout", *NODES["split"][1:]]}, {}, {}),
    "one class": ({"label": ["ml"] * 60}, {}, {}),
    "same column": ({}, {}, {"target": "source"}),
}


@pytest.mark.parametrize("case", SPOILT)
def test_bad_tables_are_refused_in_the_same_words(tmp_path, case):
    nodes, edges, options = SPOILT[case]
    write_csv(tmp_path / "nodes.csv", {**NODES, **nodes})
    write_csv(tmp_path / "edges.csv", {**EDGES, **edges})
    options = {**OPTIONS, **options}
    with pytest.raises(NFCError) as expected:
        read_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", **options)
    with pytest.raises(NFCError) as found:
        pack_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "store", **options)
    assert str(found.value) == str(expected.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "nodes.csv"]


def test_several_files(tmp_path, tables):
    for part, rows in enumerate((slice(0, 25), slice(25, 60))):
        write_csv(tmp_path / f"part-{part}.csv", {name: cells[rows] for name, cells in NODES.items()})
    pack_tables(tmp_path / "part-*.csv", tables[1], tmp_path / "store", **OPTIONS)
    graph, stored = read_tables(*tables, **OPTIONS, name="store"), nfcgcn.load(tmp_path / "store")
    same(graph, stored)


def test_hashed_text(tmp_path, tables):
    pack_tables(*tables, tmp_path / "store", hash_text=8, **OPTIONS)
    stored = nfcgcn.load(tmp_path / "store")
    graph = read_tables(*tables, encoding=stored.encoding)  # as a later table is read
    np.testing.assert_array_equal(graph.x.to_dense(), stored.x.to_dense())
    assert stored.feature_names[:2] == ("about #0", "about #1")
    lengths = stored.x.to_dense()[:, :8].square().sum(1)
    assert lengths[7] == 0  # no word
    np.testing.assert_allclose(lengths[1:7], 1, rtol=1e-6)


REFUSED = {
    "pattern": ({"nodes": "no-*.csv"}, "no file is called {tmp}/no-*.csv"),
    "suffix": ({"nodes": "nodes.txt"}, "{tmp}/nodes.txt cannot be read as a table; its name must end in"),
    "missing": ({"nodes": "gone.csv"}, "{tmp}/gone.csv does not exist"),
    "kinds": ({"nodes": "nodes.*"}, "{tmp}/nodes.* names files of several kinds: .csv, .tsv; give one kind at a time"),
    "columns": ({"nodes": "*.csv"}, "{tmp}/nodes.csv does not have the columns of {tmp}/edges.csv"),
    "memory": ({"memory": 1000}, "--memory must be at least 256 MB, got 0 MB"),
    "buckets": ({"hash_text": 0}, "`hash_text` must be between 1 and 1048576, got 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_packed(tmp_path, tables, case):
    (tmp_path / "nodes.tsv").write_text("id\n1\n")
    changes, message = REFUSED[case]
    nodes = tmp_path / changes.pop("nodes", "nodes.csv") if "nodes" in changes else tables[0]
    with pytest.raises(NFCError) as caught:
        pack_tables(nodes, tables[1], tmp_path / "store", **{**OPTIONS, **changes})
    assert str(caught.value).startswith(message.format(tmp=tmp_path))
    assert not (tmp_path / "store").exists()


BROKEN = {
    "short": ("p0,p1\np2\n", "edges.csv cannot be read: line 3 has 1 cells instead of 2; correct it, or quote cells"),
    "quote": ('p0,p1\np0,"p2\n', "edges.csv cannot be read: line 3 opens a quote that is never closed"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_lines(tmp_path, tables, case):
    lines, message = BROKEN[case]
    (tmp_path / "edges.csv").write_text(f"source,target\n{lines}")
    with pytest.raises(NFCError) as caught:
        pack_tables(*tables, tmp_path / "store", **OPTIONS)
    assert str(caught.value).startswith(message)


def test_no_room_on_the_disk(tmp_path, tables, monkeypatch):
    monkeypatch.setattr("nfcgcn.data.packing.space.PER_EDGE", 2**60)
    with pytest.raises(NFCError, match=r"^packing 60 nodes and 153 edges needs about .*, but only .* are free"):
        pack_tables(*tables, tmp_path / "store", **OPTIONS)


def test_an_earlier_store_is_replaced_by_force_alone(tmp_path, tables):
    pack_tables(*tables, tmp_path / "store", **OPTIONS)
    before = json.loads((tmp_path / "store" / "meta.json").read_text())
    with pytest.raises(NFCError, match="holds an earlier store"):
        pack_tables(*tables, tmp_path / "store", **OPTIONS)
    pack_tables(*tables, tmp_path / "store", **OPTIONS, force=True)
    assert json.loads((tmp_path / "store" / "meta.json").read_text()) == before
    with pytest.raises(NFCError, match="exists and is not a store of nfcgcn"):
        pack_tables(*tables, Path(tmp_path), **OPTIONS, force=True)


@pytest.mark.thorough
def test_rows_of_very_long_text(tmp_path):
    """In the file they are small: one text, and 3,000 times its place."""
    import pyarrow as pa
    from pyarrow import parquet

    long = pa.array(["x" * 2**20]).dictionary_encode().take(pa.array([0] * 3000))
    nodes = pa.table({"id": [str(i) for i in range(3000)], "text": long})
    parquet.write_table(nodes, tmp_path / "nodes.parquet", store_schema=False)
    write_csv(tmp_path / "edges.csv", {"source": ["0"], "target": ["1"]})
    with pytest.raises(NFCError) as caught:
        pack_tables(tmp_path / "nodes.parquet", tmp_path / "edges.csv", tmp_path / "store", memory=2**31)
    message = "32,768 rows of a column hold more than 2 GiB of text; shorten it, or leave the column out with ignore="
    assert str(caught.value) == f"nodes.parquet cannot be read: {message}"
