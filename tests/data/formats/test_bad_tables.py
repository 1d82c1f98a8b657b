"""Tables that are not what they should be: each refused in one line that says what to do."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from nfcgcn import NFCError, load
from nfcgcn.data.formats import read_tables
from nfcgcn.data.formats.tables import open_table
from nfcgcn.errors import DatasetError, GraphError

NODES = "id,x,topic\na,1,cats\nb,2,dogs\nc,3,\n"
EDGES = "source,target\na,b\n"
REAL = "id,x,price\n" + "".join(f"{i},1,{i * 1.7:.2f}\n" for i in range(500))
CODES = "id,x,price\n" + "".join(f"{i},1,{i * 3}\n" for i in range(500))
TITLES = "id,x,title\n" + "".join(f"{i},1,Paper {i}\n" for i in range(500))

BAD_NODES = {
    "empty file": ("", {}, "nodes.csv is empty; its first line must name the columns"),
    "blank lines": ("\n\n\n", {}, "nodes.csv is empty; its first line must name the columns"),
    "header only": ("id,x\n", {}, "nodes.csv has no rows; a graph needs at least one node"),
    "semicolons": (
        NODES.replace(",", ";"),
        {},
        "nodes.csv has one column only, 'id;x;topic'; it looks delimited by semicolons instead of commas: "
        "write it with commas",
    ),
    "tabs": (
        NODES.replace(",", "\t"),
        {},
        "nodes.csv has one column only, 'id\tx\ttopic'; it looks delimited by tabs instead of commas: "
        "rename it to .tsv",
    ),
    "bars": (
        NODES.replace(",", "|"),
        {},
        "nodes.csv has one column only, 'id|x|topic'; it looks delimited by bars instead of commas: "
        "write it with commas",
    ),
    "ids only": ("id\na\nb\n", {}, "nodes.csv has no column left to make features of; it has id"),
    "ids and labels only": (
        "id,topic\na,u\nb,v\n",
        {"label": "topic"},
        "nodes.csv has no column left to make features of; it has id, topic",
    ),
    "duplicate ids": (
        "id,x\na,1\nb,2\na,3\nb,4\na,5\n",
        {},
        "column 'id' of nodes.csv holds 'a' in rows 1 and 3; 3 rows repeat an id: make ids unique, "
        "or choose their column with id=",
    ),
    "first column no ids": (
        "x,y\n1,1\n1,2\n",
        {},
        "column 'x' of nodes.csv holds '1' in rows 1 and 2: make ids unique, or choose their column with id=",
    ),
    "id empty": ("id,x\na,1\n,2\n", {}, "row 2 of nodes.csv has no id in column 'id'; fill it in, or choose id="),
    "mixed types": (
        "id,x\na,1\nb,2\nc,three\nd,4\n",
        {},
        "column 'x' of nodes.csv mixes numbers and text: 3 numbers, but row 3 says 'three'; correct it, "
        "leave the column out with ignore=, or take its cells as words with words=",
    ),
    "regression target": (
        REAL,
        {"label": "price"},
        "column 'price' of nodes.csv holds 500 different numbers in 500 rows: it looks like a regression target; "
        "nfcgcn learns classes, so sort the numbers into a few, or choose another column with label=",
    ),
    "years": (
        "id,x,year\n" + "".join(f"n{i},1,{1990 + i % 35}\n" for i in range(240)),
        {"label": "year"},
        "column 'year' of nodes.csv holds 35 different numbers in 240 rows: it looks like a regression target; "
        "nfcgcn learns classes, so sort the numbers into a few, or choose another column with label=",
    ),
    "whole regression target": (
        CODES,
        {"label": "price"},
        "column 'price' of nodes.csv holds 500 different numbers in 500 rows: it looks like a regression target; "
        "nfcgcn learns classes, so sort the numbers into a few, or choose another column with label=",
    ),
    "titles as labels": (
        TITLES,
        {"label": "title"},
        "column 'title' of nodes.csv holds 500 different texts in 500 rows, too many to be classes; "
        "choose another column with label=",
    ),
    "all labels equal": (
        NODES.replace("dogs", "cats"),
        {"label": "topic"},
        "every label in column 'topic' of nodes.csv is 'cats': there is nothing to tell apart; "
        "choose another column with label=",
    ),
    "titles as categories": (
        TITLES,
        {},
        "column 'title' of nodes.csv holds more than 256 different texts in 500 rows, too many to be categories; "
        "read it as text with text='title', or leave it out with ignore='title'",
    ),
    "names of few rows": (
        "id,x,name\n" + "".join(f"{i},1,n{i}\n" for i in range(20)),
        {},
        "column 'name' of nodes.csv holds 20 different texts in 20 rows, too many to be categories; "
        "read it as text with text='name', or leave it out with ignore='name'",
    ),
    "some dates": (
        "id,day\na,2020-01-05\nb,2021-02-03T10:00\nc,soon\nd,2021-02-31\n",
        {},
        "column 'day' of nodes.csv holds dates, but row 3 says 'soon': 2 cells without a date such as 2024-05-31; "
        "correct them, or leave the column out with ignore=",
    ),
    "several classes": (
        "id,x,label\na,1,red;blue\nb,2,red\nc,3,blue\n",
        {},
        "column 'label' of nodes.csv names several classes in 1 row, such as 'red;blue'; nfcgcn learns one class per "
        "node: keep the main one, replace ';' by + to make each combination a class, or train one model per class on a "
        "column of yes and no",
    ),
    "several classes with commas": (
        'id,x,label\na,1,"red, blue"\nb,2,red\nc,3,blue\n',
        {},
        "column 'label' of nodes.csv names several classes in 1 row, such as 'red, blue'; nfcgcn learns one class per "
        "node: keep the main one, replace ',' by + to make each combination a class, or train one model per class on a "
        "column of yes and no",
    ),
    "several columns of classes": (
        "id,x,red,blue\na,1,yes,no\nb,2,no,no\n",
        {"label": ["red", "blue"]},
        "`label` must be one column, as a node has one class, got 'red', 'blue'; train one model per column, or make "
        "one column of them",
    ),
    "all that is wrong": (
        "id,x,day,label\na,1,2020-01-01,5.5\na,x,2020-01-02,\n,2,soon,5.5\n",
        {},
        "5 problems: (1) row 3 of nodes.csv has no id in column 'id'; fill it in, or choose id= (2) column 'id' of "
        "nodes.csv holds 'a' in rows 1 and 2: make ids unique, or choose their column with id= "
        "(3) every label in column 'label' of nodes.csv is '5.5': there is nothing to tell apart; choose another "
        "column with label= (4) column 'x' of nodes.csv mixes numbers and text: 2 numbers, but row 2 says 'x'; "
        "correct it, leave the column out with ignore=, or take its cells as words with words= (5) column 'day' of "
        "nodes.csv holds dates, but row 3 says 'soon': 1 cell without a date such as 2024-05-31; "
        "correct them, or leave the column out with ignore=",
    ),
    "infinite": (
        "id,x\na,1\nb,inf\nc,-Infinity\n",
        {},
        "column 'x' of nodes.csv holds infinite values: 2, the first in row 2; correct or empty the cells",
    ),
    "huge": (
        f"id,x\na,1\nb,{10**60}\n",
        {},
        "column 'x' of nodes.csv holds values beyond 3e+38: 1, the first in row 2; correct or empty the cells",
    ),
    "name twice": ("id,x,x\na,1,2\n", {}, "nodes.csv has two columns called 'x'; rename one"),
    "no name": (
        ",id,x\n0,a,1\n",
        {},
        "column 1 of nodes.csv has no name; name it, or leave it out (pandas: to_csv(index=False))",
    ),
    "long row": (
        "id,x\na,1\nb,2,3\n",
        {},
        "row 2 of nodes.csv has 3 cells, but the first line names 2 columns; correct the row, "
        "or quote cells that hold a delimiter",
    ),
    "short row": (
        "id,x\na\nb,2\n",
        {},
        "row 1 of nodes.csv has 1 cell, but the first line names 2 columns; correct the row, "
        "or quote cells that hold a delimiter",
    ),
    "long rows": (
        "id,x\na,1\nb,2,3\nc,3\nd\ne\n",
        {},
        "row 2 of nodes.csv has 3 cells, but the first line names 2 columns, and 2 later rows of another length; "
        "correct them, or quote cells that hold a delimiter",
    ),
    "decimal commas": (
        "id,x,size\n" + "".join(f'{i},1,"1.0{i},5"\n' for i in range(40)),
        {},
        "column 'size' of nodes.csv holds 40 different texts in 40 rows, too many to be categories; if '1.00,5' in row "
        "1 is a number, write it with a point and no other separator; read it as text with text='size', or leave it "
        "out with ignore='size'",
    ),
    "other dates": (
        "id,x,day\n" + "".join(f"{i},1,{i % 28 + 1}.{i // 28 + 1}.1999\n" for i in range(40)),
        {},
        "column 'day' of nodes.csv holds 40 different texts in 40 rows, too many to be categories; if '1.1.1999' in "
        "row 1 is a date, write it as 2024-05-31; read it as text with text='day', or leave it out with ignore='day'",
    ),
    "no such label": (NODES, {"label": "topics"}, "nodes.csv has no column 'topics'; it has id, x, topic"),
    "no such text": (NODES, {"text": "abstract"}, "nodes.csv has no column 'abstract'; it has id, x, topic"),
    "no such id": (NODES, {"id": "key"}, "nodes.csv has no column 'key'; it has id, x, topic"),
    "no such ignored": (NODES, {"ignore": ["y"]}, "nodes.csv has no column 'y'; it has id, x, topic"),
    "two meanings": (
        NODES,
        {"label": "topic", "text": "topic"},
        "column 'topic' of nodes.csv is given two meanings; name it once",
    ),
    "split of other words": (
        "id,x,split\na,1,train\nb,2,left\n",
        {},
        "column 'split' of nodes.csv says 'left' in row 2; a split is train, val, test or nothing: correct it, "
        "or leave the column out with ignore=",
    ),
    "nothing but empty columns": (
        "id,x,y\na,,\nb,,\n",
        {},
        "all columns of nodes.csv that could be features are empty: 'x', 'y'",
    ),
}


def write(folder: Path, nodes: str | bytes, edges: str | bytes = EDGES) -> Path:
    for name, content in (("nodes.csv", nodes), ("edges.csv", edges)):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.parametrize("case", BAD_NODES)
def test_bad_nodes(tmp_path, case):
    content, options, message = BAD_NODES[case]
    with pytest.raises(GraphError) as caught:
        load(write(tmp_path, content) / "nodes.csv", **options)
    assert str(caught.value) == message


BAD_EDGES = {
    "all that is wrong": (
        "source,target,w\na,x,1\nb,,2\na,b,much\na,,1\n",
        {"weight": "w"},
        "3 problems: (1) column 'w' of edges.csv must hold a weight from 0 up for each edge, but row 3 says 'much'; "
        "correct it (2) row 2 of edges.csv lacks an id; an edge needs both ends: 2 rows lack one; unknown_edges='drop' "
        "leaves them out (3) edges.csv names 1 id that no row of nodes.csv has, in 1 of 4 edges: 'x'; add the nodes, "
        "remove the edges, or choose unknown_edges='drop' or 'add'",
    ),
    "weights wrong in several ways": (
        "source,target,w\na,b,\na,b,-1\na,b,x\nb,a,1\nb,a,inf\na,b,-2\n",
        {"weight": "w"},
        "column 'w' of edges.csv must hold a weight from 0 up for each edge, but 5 of 6 rows do not: 1 empty (first "
        "row 1), 2 below 0 (first row 2, '-1'), 1 no number (first row 3, 'x'), 1 too large (first row 5, 'inf'); "
        "correct them",
    ),
    "ids of no node": (
        "source,target\na,x\ny,z\nu,v\na,x\na,b\n",
        {},
        "edges.csv names 5 ids that no row of nodes.csv has, in 4 of 5 edges: 'x', 'y', 'z' and 2 more; "
        "add the nodes, remove the edges, or choose unknown_edges='drop' or 'add'",
    ),
    "one id of no node": (
        "source,target\na,b\nb,nobody\n",
        {},
        "edges.csv names 1 id that no row of nodes.csv has, in 1 of 2 edges: 'nobody'; "
        "add the nodes, remove the edges, or choose unknown_edges='drop' or 'add'",
    ),
    "other columns": (
        "from,to,weight\na,b,1\n",
        {},
        "2 problems: (1) edges.csv has no column 'source'; it has from, to, weight; name another with source= (2) "
        "edges.csv has no column 'target'; it has from, to, weight; name another with target=",
    ),
    "one column twice": (
        EDGES,
        {"target": "source"},
        "edges cannot go from column 'source' of edges.csv to itself; choose target=",
    ),
    "an end missing": ("source,target\na,b\na,\n", {}, "row 2 of edges.csv lacks an id; an edge needs both ends"),
    "empty file": ("", {}, "edges.csv is empty; its first line must name the columns"),
    "semicolons": (
        EDGES.replace(",", ";"),
        {},
        "edges.csv has one column only, 'source;target'; it looks delimited by semicolons instead of commas: "
        "write it with commas",
    ),
}


@pytest.mark.parametrize("case", BAD_EDGES)
def test_bad_edges(tmp_path, case):
    content, options, message = BAD_EDGES[case]
    with pytest.raises(GraphError) as caught:
        load(write(tmp_path, NODES, content), label="topic", **options)
    assert str(caught.value) == message


BAD_BYTES = {
    "UTF-16": (NODES.encode("utf-16"), "FILE is UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (NODES.encode("utf-16-le"), "FILE holds zero bytes: it is not a text table in UTF-8"),
    "Latin-1": (NODES.replace("cats", "chatée").encode("latin-1"), "FILE is not UTF-8 (byte 0xe9); save it as UTF-8"),
    "Latin-1 far down": (
        b"id,x\n" + b"".join(b"%d,1\n" % i for i in range(200_000)) + b"\xe9,1\n",
        "FILE is not UTF-8 (byte 0xe9); save it as UTF-8",
    ),
    "an open quote": (b'id,x\na,"1\nb,2\n', "FILE cannot be read as a table: a quote is never closed"),
    "a quote inside": (b'id,x\na,"1"2\n', "FILE cannot be read as a table: ',' expected after '\"'"),
    "a long cell": (
        b"id,x\na," + b"y" * 200_000,
        "FILE cannot be read as a table: a cell is longer than 131,072 characters, or a quote is never closed",
    ),
    "an image": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "FILE holds zero bytes: it is not a text table in UTF-8"),
}


@pytest.mark.parametrize("case", BAD_BYTES)
def test_bad_bytes(tmp_path, case):
    content, message = BAD_BYTES[case]
    with pytest.raises(DatasetError) as caught:
        load(write(tmp_path, content))
    assert str(caught.value) == message.replace("FILE", str(tmp_path / "nodes.csv"))


def test_a_gzip_bomb_is_refused_while_it_unpacks(tmp_path):
    path = tmp_path / "nodes.csv.gz"
    path.write_bytes(gzip.compress(b"id,x\n" + (b"a," + b"y" * 100_000 + b"\n") * 800))
    with pytest.raises(DatasetError, match=r"times its size: refused as a decompression bomb \(at most 200 times\)$"):
        read_tables(path)


def test_a_damaged_gzip_file(tmp_path):
    path = tmp_path / "nodes.csv.gz"
    path.write_bytes(gzip.compress(NODES.encode())[:-12])
    with pytest.raises(DatasetError, match=r"nodes\.csv\.gz is not a valid text table file: Compressed file ended"):
        read_tables(path)
    path.write_bytes(b"plain")
    with pytest.raises(DatasetError, match=r"^cannot read .*nodes\.csv\.gz: Not a gzipped file"):
        read_tables(path)


def arrow(path: Path, **columns) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def test_bad_parquet(tmp_path):
    path = tmp_path / "nodes.parquet"
    path.write_bytes(b"PAR1 and more PAR1")
    with pytest.raises(DatasetError, match=r"nodes\.parquet"):
        read_tables(path)
    for column, message in (
        (pa.array([1, 2], pa.time32("ms")), "column 'c' of nodes.parquet holds time32[ms], not numbers or text"),
        (pa.array([{"u": 1}, {"u": 2}]), "column 'c' of nodes.parquet holds struct<u: int64>, not numbers or text"),
        (pa.array([["a"], ["b"]]), "column 'c' of nodes.parquet holds lists; name it with words= or ignore="),
        (pa.array([b"a", b"b"]), "column 'c' of nodes.parquet holds binary, not numbers or text"),
    ):
        arrow(path, id=[1, 2], c=column)
        with pytest.raises(GraphError) as caught:
            read_tables(path)
        assert str(caught.value).startswith(message)
    arrow(path, id=[[1], [2]], c=[1, 2])
    with pytest.raises(GraphError) as caught:
        read_tables(path)
    assert str(caught.value) == (
        "column 'id' of nodes.parquet holds list<element: int64>, not text or numbers; choose another"
    )


def test_parquet_bombs(tmp_path):
    path = arrow(tmp_path / "nodes.parquet", x=pa.array(np.zeros(30_000_000, np.int8)))
    assert path.stat().st_size < 200_000
    with pytest.raises(DatasetError, match=r"refused as a decompression bomb"):
        read_tables(path)
    long = pa.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), ["y" * 1_000_000])
    arrow(path, id=np.arange(20_000), x=long)
    with pytest.raises(DatasetError, match=r"refused as a decompression bomb"):
        read_tables(path)


READER = """
import json, os, resource, sys, warnings
import nfcgcn, pandas, sklearn.feature_extraction.text, nfcgcn.data.formats.parquet, pyarrow.parquet
warnings.simplefilter("ignore")
for line in sys.stdin:
    limit, path, options = json.loads(line)
    child = os.fork()
    if not child:
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
        try:
            print(nfcgcn.load(path, **options), flush=True)
        except nfcgcn.NFCError as error:
            print(error, flush=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        print("ended with", os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.fixture(scope="module")
def read_within():
    """Read files in a process that may take so many bytes beyond its imports; return the graph or the error."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", READER], text=True, **pipes) as process:

        def read(limit: int, path: Path, **options) -> str:
            process.stdin.write(json.dumps([limit, str(path), options]) + "\n")
            process.stdin.flush()
            return process.stdout.readline()

        yield read


@pytest.mark.parametrize("kind", ["bytes", "bytes of one length", "bytes in a table", "bytes in lists"])
def test_long_values_that_are_no_text_are_refused_before_they_are_read(tmp_path, kind, read_within):
    of = pa.binary(1_000_000) if kind == "bytes of one length" else pa.binary()
    long = pa.DictionaryArray.from_arrays(np.zeros(3_000, np.int32), pa.array([b"y" * 1_000_000], of))
    if kind == "bytes in a table":
        long = pa.StructArray.from_arrays([long], ["a"])
    if kind == "bytes in lists":
        long = pa.ListArray.from_arrays(np.arange(3_001, dtype=np.int32), long)
    path = tmp_path / "nodes.parquet"
    for with_types_of_arrow in (True, False):  # else the values are not even known to be repeated
        table = pa.table({"id": np.arange(3_000), "label": np.arange(3_000) % 2, "x": long})
        parquet.write_table(table, path, store_schema=with_types_of_arrow)
        assert path.stat().st_size < 2_000_000
        message = read_within(2**31, path, edges=None, features="degree")
        assert message.startswith("column 'x' of nodes.parquet holds "), message
        assert message.endswith(", not numbers or text; leave it out with ignore=\n")


def test_lists_that_repeat_text_are_refused(tmp_path):
    path = tmp_path / "nodes.parquet"
    for words, length in ((50_000, 4_000), (500_000, 10)):
        one = pa.DictionaryArray.from_arrays(np.zeros(words * 30, np.int32), ["y" * length])
        lists = pa.ListArray.from_arrays(np.arange(31, dtype=np.int32) * words, one)
        arrow(path, id=np.arange(30), x=lists)
        assert path.stat().st_size < 30_000
        with pytest.raises(DatasetError, match=r"refused as a decompression bomb"):
            read_tables(path, words="x")


def test_of_lists_no_more_text_is_unfolded_than_a_piece_holds(tmp_path, read_within):
    one = pa.DictionaryArray.from_arrays(np.zeros(200 * 500, np.int32), ["y" * 10_000])  # 1 GB of text in all
    lists = pa.ListArray.from_arrays(np.arange(201, dtype=np.int32) * 500, one)
    path = arrow(tmp_path / "nodes.parquet", id=np.arange(200), x=lists)
    assert "refused as a decompression bomb" in read_within(512 * 2**20, path, words="x")


@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_much_text_is_read_in_pieces(tmp_path):
    texts = ["w" * (6_000 + i) for i in range(40)]
    repeated = pa.DictionaryArray.from_arrays(np.arange(20_000, dtype=np.int32) % 40, texts)
    noise = np.random.default_rng(0).integers(0, 2**62, 100_000).reshape(20_000, 5)  # so that the file is no bomb
    others = {f"n{i}": column for i, column in enumerate(noise.T)}
    path = arrow(tmp_path / "nodes.parquet", id=np.arange(20_000), x=repeated, **others)
    read = read_tables(path, text="x", ignore=list(others))
    assert read.features.indices.tolist() == (np.arange(20_000) % 40).tolist()
    assert sum(1 for _ in open_table(path).chunks(["x"], texts=["x"])) > 1


def test_a_wide_table_needs_little_more_than_its_features(tmp_path, read_within):
    rows, columns = 1_000, 1_500
    line = "," + ",".join(f"{i / 7:.6f}" for i in range(columns)) + "\n"
    path = tmp_path / "nodes.csv"
    path.write_text(
        ",".join(["id", *(f"c{i}" for i in range(columns))]) + "\n" + "".join(f"{i}{line}" for i in range(rows))
    )
    assert "features=1500 dense" in read_within(3 * 4 * rows * columns + 160 * 2**20, path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = arrow(tmp_path / "nodes.parquet", id=[1], x=[1])
    monkeypatch.delitem(sys.modules, "nfcgcn.data.formats.parquet", raising=False)
    monkeypatch.delattr("nfcgcn.data.formats.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    line = f"reading {path} needs pyarrow: `pip install nfcgcn[parquet]`, or save the table as .csv"
    with pytest.raises(NFCError, match=f"^{re.escape(line)}$"):
        load(path)


def test_later_tables_must_have_the_columns(tmp_path):
    encoding = load(write(tmp_path, "id,x,y,kind\na,1,2,u\nb,2,3,v\nc,3,4,u\n")).encoding
    for content, message in (
        (
            "id,x,kind\na,1,u\nb,2,v\n",
            "nodes.csv has no column 'y', which the features were made of; it has id, x, kind",
        ),
        ("x,y,kind\n1,1,u\n", "nodes.csv has no column 'id'; it has x, y, kind"),
        (
            "id,x,y,kind\na,1,2,u\nb,two,3,v\n",
            "column 'x' of nodes.csv must hold numbers, but row 2 says 'two'; correct it",
        ),
        (
            "id,x,y,kind\na,1,2,u\nb,inf,3,v\n",
            "column 'x' of nodes.csv holds infinite values: 1, the first in row 2; correct or empty the cells",
        ),
    ):
        with pytest.raises(GraphError) as caught:
            load(write(tmp_path, content), encoding=encoding)
        assert str(caught.value) == message


def test_scaled_beyond_what_a_feature_can_be(tmp_path):
    with pytest.warns(UserWarning, match="standardised"):
        encoding = load(write(tmp_path, "id,x\na,1e-10\nb,2e-10\n")).encoding
    with pytest.raises(GraphError) as caught:
        load(write(tmp_path, "id,x\na,1\nb,1e38\n"), encoding=encoding)
    assert str(caught.value) == (
        "column 'x' of nodes.csv, scaled as in training, holds values beyond 3e+38: 1, the first in row 2; "
        "correct or empty the cells"
    )


def test_paths_that_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.xlsx").write_text("")
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "both").mkdir()
    for name in ("nodes.csv", "nodes.parquet"):
        (tmp_path / "both" / name).write_text("")
    known = "give a folder with nodes and edges, or a file that ends in " + (
        ".npz, .pt, .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .pq"
    )
    for name, message in (
        ("missing.csv", "missing.csv does not exist"),
        ("missing.npz", "missing.npz does not exist"),
        ("missing.pt", "missing.pt does not exist"),
        ("missing.parquet", "missing.parquet does not exist"),
        ("missing.xlsx", "missing.xlsx does not exist"),
        ("some/where", "some/where does not exist"),
        ("some/", "some does not exist"),
        ("file.xlsx", f"file.xlsx cannot be read as a graph; {known}"),
        ("plain", f"plain cannot be read as a graph; {known}"),
        ("empty", "empty holds no table of nodes; it must be called nodes.csv, nodes.tsv or nodes.parquet"),
        ("both", "both holds both nodes.csv and nodes.parquet; keep one, or name it by path"),
        ("coral", "unknown dataset 'coral'; did you mean 'cora'?"),
    ):
        with pytest.raises(DatasetError) as caught:
            load(name)
        assert str(caught.value) == message
    with pytest.raises(DatasetError) as caught:
        read_tables("folder.csv")
    assert str(caught.value) == "folder.csv is a folder, not a file"
    with pytest.raises(DatasetError) as caught:
        load("a.npz", label="topic")
    assert str(caught.value) == "label= is for tables of nodes and edges; a.npz holds a graph as it is"


def test_a_dataset_wins_over_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert load("digits").num_nodes == 1797
    with pytest.raises(DatasetError, match=r"^digits holds no table of nodes"):
        load(Path("digits"))


@contextmanager
def nobody():
    """Be a user without rights, as root may read everything."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)


@pytest.mark.skipif(sys.platform == "win32", reason="rights are others there")
@pytest.mark.parametrize("name", ["nodes.csv", "nodes.parquet", "g.npz", "g.pt", "plain", "folder"])
def test_no_permission_to_read(tmp_path, name):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"id,x\na,1\n")
    path.chmod(0)
    with pytest.raises(NFCError):  # loads what reading needs, while it may
        load(tmp_path / f"no{name}")
    with nobody(), pytest.raises(DatasetError) as caught:
        load(path)
    path.chmod(0o755)
    assert str(caught.value).startswith(f"cannot read {path}: ")
    assert str(caught.value).endswith("Permission denied")


def test_frames_of_pandas_are_not_taken_for_paths():
    with pytest.raises(TypeError):
        read_tables(pd.DataFrame({"id": [1]}))


def test_both_tables_are_told_of_at_once(tmp_path):
    nodes, edges = "id,x\na,1\na,2\nb,inf\n", "source,target,w\na,b,-1\nb,c,1\n"
    with pytest.raises(GraphError) as caught:
        load(write(tmp_path, nodes, edges) / "nodes.csv", edges=tmp_path / "edges.csv", weight="w")
    told = str(caught.value)
    assert told.startswith("4 problems: (1) column 'id' of nodes.csv holds 'a' in rows 1 and 2: make")
    for part in ("row 1 says '-1'", "that no row of nodes.csv has, in 1 of 2 edges: 'c'", "holds infinite values: 1"):
        assert part in told


def test_delimiters_of_both_tables_are_told_of_at_once(tmp_path):
    (tmp_path / "nodes.csv").write_text("id;x\na;1\n")
    (tmp_path / "edges.csv").write_text("source;target\na;b\n")
    with pytest.raises(
        GraphError, match=r"2 problems: \(1\) nodes.csv has one column .* \(2\) edges.csv has one column"
    ):
        read_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv")
