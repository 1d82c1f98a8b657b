"""Graphs from tables: what each kind of column becomes, and the same columns read again."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from nfcgcn import load
from nfcgcn.data.formats import read_tables
from nfcgcn.data.formats.columns import Category, Number, Text, Words
from nfcgcn.data.formats.encoding import Encoding
from nfcgcn.data.formats.table import CHUNK
from nfcgcn.errors import GraphError, NFCWarning, UnseenWarning

NODES = """id,size,colour,about,tags,topic,split,fresh
a,1,red,"graphs, and graphs",x;y z,cats,train,true
b,2,blue,words and graphs,x,dogs,val,false
c,0.5,red,"a <b>bold</b>
line",y z;y z,cats,test,true
d,-3,,,,,,false
"""
EDGES = "source,target,weight\na,b,0.5\nc,a,2\nb,a,1\nc,c,1\n"


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES, encoding="utf-8")
    (tmp_path / "edges.csv").write_text(EDGES, encoding="utf-8")
    return tmp_path


def dense(graph):
    return graph.features.toarray() if graph.is_sparse else graph.features


def test_every_kind_of_column(folder):
    graph = load(folder, label="topic", text="about", words="tags")
    assert graph.node_names == ("a", "b", "c", "d")
    assert graph.adjacency.toarray().tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0] * 4]
    assert graph.class_names == ("cats", "dogs")
    assert graph.labels.tolist() == [0, 1, 0, -1]
    assert (graph.given.train.tolist(), graph.given.val.tolist(), graph.given.test.tolist()) == ([0], [1], [2])
    assert graph.is_sparse
    assert graph.feature_names == (
        "size", "colour=blue", "colour=red", "about: and", "about: graphs", "tags: x", "tags: y z", "fresh",
    )  # fmt: skip
    # "and" is in two of four texts, "graphs" too, so that their weights are equal: 1 to 2 in the first text.
    five, two = 5**-0.5, 2**-0.5
    expected = [
        [1, 0, 1, five, 2 * five, 1, 1, 1],
        [2, 1, 0, two, two, 1, 0, 0],
        [0.5, 0, 1, 0, 0, 0, 2, 1],
        [-3, 0, 0, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(dense(graph), expected, rtol=1e-6)
    assert graph.name == folder.name


def test_text_is_what_scikit_learn_makes_of_it(tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(f"Word{w}" for w in rng.zipf(1.5, 20) if w < 500) for _ in range(300)]
    pd.DataFrame({"id": range(300), "about": texts}).to_csv(tmp_path / "nodes.csv", index=False)
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    graph = load(tmp_path, text=["about"])
    oracle = TfidfVectorizer(min_df=2)
    expected = oracle.fit_transform(texts).toarray()
    assert graph.feature_names == tuple(f"about: {word}" for word in oracle.get_feature_names_out())
    np.testing.assert_allclose(dense(graph), expected, rtol=1e-5)


def test_the_most_frequent_words_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("nfcgcn.data.formats.words.MOST_WORDS", 30)
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{w}" for w in rng.zipf(1.3, 40) if w < 5000) for _ in range(400)]
    pd.DataFrame({"id": range(400), "about": texts}).to_csv(tmp_path / "nodes.csv", index=False)
    with pytest.warns(NFCWarning, match=r"^no edges were given"):
        graph = load(tmp_path / "nodes.csv", text="about")
    counter = CountVectorizer(min_df=2)
    totals = np.asarray(counter.fit_transform(texts).sum(axis=0)).ravel()
    least = sorted(totals)[-30]
    kept = {name.removeprefix("about: ") for name in graph.feature_names}
    assert len(kept) == 30
    assert {word for word, n in zip(counter.get_feature_names_out(), totals, strict=True) if n > least} <= kept
    assert all(totals[counter.vocabulary_[word]] >= least for word in kept)


def test_words_that_one_row_has_are_kept_where_no_word_has_two(folder):
    (folder / "nodes.csv").write_text("id,about\na,one\nb,two\nc,three\n")
    assert load(folder, text="about").feature_names == ("about: one", "about: three", "about: two")


@pytest.mark.parametrize("cell", ["u;v w", "u,v w", "u v"], ids=["semicolons", "commas", "spaces"])
def test_separators_of_words(folder, cell):
    (folder / "nodes.csv").write_text(f'id,tags\na,"{cell}"\nb,u\nc,\n')
    graph = load(folder, words="tags")
    second = "v" if cell == "u v" else "v w"
    assert graph.feature_names == ("tags: u", f"tags: {second}")
    assert dense(graph).tolist() == [[1, 1], [1, 0], [0, 0]]


def test_suffixes_and_types_do_not_matter(folder, tmp_path):
    expected = load(folder, label="topic", text="about", words="tags")
    frame = pd.read_csv(folder / "nodes.csv")
    frame["tags"] = [None if isinstance(t, float) else t.split(";") for t in frame["tags"]]
    frame["colour"] = frame["colour"].astype("category")
    edges = pd.read_csv(folder / "edges.csv")
    other = tmp_path / "other"
    other.mkdir()
    frame.to_parquet(other / "nodes.parquet")
    (other / "edges.csv.gz").write_bytes(gzip.compress(EDGES.encode()))
    tabs = tmp_path / "tabs"
    tabs.mkdir()
    pd.read_csv(folder / "nodes.csv").to_csv(tabs / "nodes.tsv", sep="\t", index=False)
    edges.to_parquet(tabs / "edges.parquet")
    for place in (other, tabs):
        graph = load(place, label="topic", text="about", words="tags")
        torch.testing.assert_close(torch.tensor(dense(graph)), torch.tensor(dense(expected)), rtol=0, atol=0)
        assert graph.feature_names == expected.feature_names
        assert graph.labels.tolist() == expected.labels.tolist()
        assert (graph.adjacency != expected.adjacency).nnz == 0
        assert graph.given.val.tolist() == [1]
        with pytest.warns(UnseenWarning, match=r"left out: about \(\d+ of \d+ words\)"):  # words of one row alone
            known = load(place, encoding=expected.encoding)
        assert (known.features != expected.features).nnz == 0


def test_few_features_that_are_mostly_filled_are_dense(folder):
    graph = load(folder, label="topic", ignore=["about", "tags"])
    assert not graph.is_sparse
    assert graph.features.dtype == np.float32


def test_many_categories_are_sparse(tmp_path):
    rows = "".join(f"{i},c{i % 50}\n" for i in range(200))
    (tmp_path / "nodes.csv").write_text("id,kind\n" + rows)
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    graph = load(tmp_path)
    assert graph.is_sparse
    assert graph.features.nnz == 200
    assert graph.num_features == 50


def test_numbers_of_another_scale_are_standardised_and_told(folder):
    (folder / "nodes.csv").write_text(
        "id,year,tiny,rare,same,usual\na,2000,0.001,0,7000,1\nb,2010,0.003,0,7000,2\nc,2020,0.002,50,7000,10\n"
    )
    with pytest.warns(NFCWarning) as caught:
        graph = load(folder)
    assert [str(w.message) for w in caught] == [
        "columns of nodes.csv whose largest value is not between 0.01 and 10 were standardised: "
        "'year', 'tiny', 'rare' and 1 more"
    ]
    root = 1.5**0.5
    expected = [[-root, -root, 0, 0, 1], [0, root, 0, 0, 2], [root, 0, 1, 0, 10]]
    np.testing.assert_allclose(dense(graph), expected, atol=1e-6)


def test_empty_cells_of_numbers_take_the_mean_and_are_told(folder):
    (folder / "nodes.csv").write_text("id,x,y,void\na,1,0,\nb,NA,0,\nc,4,,\n")
    with pytest.warns(NFCWarning) as caught:
        graph = load(folder)
    assert [str(w.message) for w in caught] == [
        "columns of nodes.csv without a value or word were left out: 'void'",
        "empty cells of nodes.csv were filled with their column's mean: x (1), y (1)",
    ]
    assert graph.features.tolist() == [[1, 0], [2.5, 0], [4, 0]]


def test_labels_that_are_numbers_are_in_their_order_and_written_alike(folder):
    (folder / "nodes.csv").write_text("id,x,label\na,1,10\nb,1,9.0\nc,1,\nd,1,9\n")
    graph = load(folder)
    assert graph.class_names == ("9", "10")
    assert graph.labels.tolist() == [1, 0, -1, 0]


def test_ids_may_be_numbers_written_in_two_ways(tmp_path):
    pd.DataFrame({"key": [3, 10**17 + 1, 10**17 + 2], "x": [1.0, 2, 3]}).to_parquet(tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("to, from\n3.0, 100000000000000001\n100000000000000002,3\n")
    graph = load(tmp_path, source="from", target="to")
    assert graph.node_names == ("3", "100000000000000001", "100000000000000002")
    assert graph.adjacency.toarray().tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert graph.feature_names == ("x",)


def test_a_byte_order_mark_and_windows_lines_are_accepted(folder):
    (folder / "nodes.csv").write_bytes(b"\xef\xbb\xbfid,x\r\na,1\r\n\r\nb,2\r\nc,3\r\n")
    graph = load(folder)
    assert graph.feature_names == ("x",)
    assert graph.features.tolist() == [[1], [2], [3]]


def test_no_edges_at_all_works_with_a_warning(folder):
    (folder / "edges.csv").write_text("source,target\n")
    with pytest.warns(NFCWarning, match=r"^edges\.csv holds no edges: every node is judged only by its own features$"):
        graph = load(folder, label="topic", ignore=["about", "tags"])
    assert graph.num_edges == 0
    (folder / "edges.csv").unlink()
    with pytest.warns(NFCWarning, match=r"^no edges were given: every node is judged only by its own features$"):
        assert load(folder, label="topic", ignore=["about", "tags"]).num_edges == 0


def test_a_split_without_labels_is_left_out_and_told(folder):
    text = NODES.replace("c,0.5,red", "c,0.5,red").replace('line",y z;y z,cats,test', 'line",y z;y z,,test')
    (folder / "nodes.csv").write_text(text)
    with pytest.warns(NFCWarning) as caught:
        graph = load(folder, label="topic", ignore=["about", "tags"])
    assert [str(w.message) for w in caught] == [
        "1 of the rows that column 'split' of nodes.csv puts into a part of the split have no label and were left out "
        "of it"
    ]
    assert (graph.given.train.tolist(), graph.given.val.tolist(), graph.given.test.tolist()) == ([0], [1], [])


def test_an_ignored_split_column_is_no_split(folder):
    assert load(folder, label="topic", ignore=["about", "tags", "split"]).given is None


@pytest.mark.parametrize("word", ["Validation", "VALID", "val "])
def test_words_for_the_validation_part(folder, word):
    (folder / "nodes.csv").write_text(NODES.replace(",val,", f",{word},"))
    assert load(folder, label="topic", ignore=["about", "tags"]).given.val.tolist() == [1]


def test_an_encoding_reads_new_tables_alike(folder, tmp_path):
    first = load(folder, label="topic", text="about", words="tags")
    new = tmp_path / "new"
    new.mkdir()
    (new / "nodes.csv").write_text(
        "extra,fresh,tags,about,colour,size,id\n9,false,q;x,graphs and unknown,green,,n1\n9,TRUE,,,blue,4,n2\n"
    )
    (new / "edges.csv").write_text("source,target\nn1,n2\n")
    stored = json.loads(json.dumps(first.encoding))
    with pytest.warns(NFCWarning) as caught:
        graph = load(new, encoding=stored)
    assert [str(warning.message) for warning in caught] == [
        "empty cells of nodes.csv were filled with their column's mean: size (1)",
        "nodes.csv holds values that are not among the features, and were left out: colour (1 of 2 cells), "
        "about (1 of 3 words), tags (1 of 2 words)",
    ]
    assert graph.feature_names == first.feature_names
    assert graph.class_names == first.class_names
    assert graph.labels.tolist() == [-1, -1]
    assert graph.given is None
    two = 2**-0.5
    np.testing.assert_allclose(dense(graph), [[0.125, 0, 0, two, two, 1, 0, 0], [4, 1, 0, 0, 0, 0, 0, 1]], rtol=1e-6)
    assert graph.encoding == first.encoding
    assert graph.is_sparse


def test_more_unseen_categories_than_could_be_learned_are_left_out(folder):
    encoding = load(folder, label="topic", ignore=["about", "tags", "fresh"]).encoding
    rows = "".join(f"{i},1,c{i}\n" for i in range(1000))
    (folder / "nodes.csv").write_text("id,size,colour\n" + rows + "x,2,red\n")
    (folder / "edges.csv").write_text("source,target\n1,x\n")
    with pytest.warns(UnseenWarning, match=r"left out: colour \(1000 of 1001 cells\)$"):
        graph = load(folder, encoding=encoding)
    assert dense(graph)[:, 1:].sum() == 1
    assert dense(graph)[-1].tolist() == [2, 0, 1]


def test_classes_that_were_not_seen_are_told(folder):
    encoding = load(folder, label="topic", ignore=["about", "tags"]).encoding
    (folder / "nodes.csv").write_text(NODES.replace("dogs", "mice"))
    with pytest.warns(NFCWarning) as caught:
        graph = load(folder, encoding=encoding)
    assert str(caught[0].message) == (
        "column 'topic' of nodes.csv holds 1 classes that training did not see, read as no label: 'mice'"
    )
    assert graph.labels.tolist() == [0, -1, 0, -1]


def test_a_single_class_is_fine_in_later_tables(folder):
    encoding = load(folder, label="topic", ignore=["about", "tags"]).encoding
    (folder / "nodes.csv").write_text(NODES.replace("dogs", "cats"))
    assert load(folder, encoding=encoding).labels.tolist() == [0, 0, 0, -1]


def test_chunks_do_not_show(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n = 57
    frame = pd.DataFrame(
        {
            "id": [f"n{i}" for i in range(n)],
            "x": rng.normal(size=n),
            "kind": rng.choice(["a", "b", "c"], n),
            "about": [" ".join(rng.choice(["red", "green", "blue", "grey"], 5)) for _ in range(n)],
            "tags": [";".join(rng.choice(["u", "v", "w"], 2)) for _ in range(n)],
            "label": rng.choice(["p", "q"], n),
        }
    )
    frame.loc[50:, "kind"] = "late"
    frame.to_csv(tmp_path / "nodes.csv", index=False)
    edges = rng.integers(0, n, (2, 90))
    pd.DataFrame({"source": frame.id.values[edges[0]], "target": frame.id.values[edges[1]]}).to_csv(
        tmp_path / "edges.csv", index=False
    )
    whole = load(tmp_path, text="about", words="tags")
    for size in (1, 10, 56):
        monkeypatch.setattr("nfcgcn.data.formats.table.CHUNK", size)
        parts = load(tmp_path, text="about", words="tags")
        assert parts.encoding == whole.encoding
        assert (parts.features != whole.features).nnz == 0
        assert (parts.adjacency != whole.adjacency).nnz == 0
        again = load(tmp_path, encoding=whole.encoding)
        assert (again.features != whole.features).nnz == 0
        assert (again.labels == whole.labels).all()


def test_large_tables_stream(tmp_path):
    """A tenth of what must take less than 60 s and 4 GiB: 100,000 edges, 10,000 nodes with 75 words each."""
    rng = np.random.default_rng(0)
    n, m = 10_000, 100_000
    vocabulary = np.array([f"word{i}" for i in range(50_000)])
    words = vocabulary[np.minimum(rng.zipf(1.2, (n, 75)), 50_000) - 1]
    rows = [f"p{i},{i % 7},c{i % 5},{' '.join(row)}\n" for i, row in enumerate(words)]
    (tmp_path / "nodes.csv").write_text("id,x,label,about\n" + "".join(rows))
    ends = rng.integers(0, n, (m, 2)).tolist()
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"p{a},p{b}\n" for a, b in ends))
    code = (
        "import resource, sys, time, nfcgcn, pandas, sklearn.feature_extraction\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20\n"
        "before, start = peak(), time.process_time()\n"
        "graph = nfcgcn.load(sys.argv[1], text='about')\n"
        "print(graph.num_nodes, graph.num_edges > 99_000, graph.is_sparse)\n"
        "print(time.process_time() - start, peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    nodes, edges, sparse, seconds, gib = done.stdout.split()
    assert (nodes, edges, sparse) == ("10000", "True", "True")
    assert float(seconds) < 12
    assert float(gib) < 0.4
    assert CHUNK < 100_000  # so that the edges came in parts


def test_encoding_survives_json(folder):
    encoding = load(folder, label="topic", text="about", words="tags").encoding
    value = Encoding.from_json(json.loads(json.dumps(encoding)))
    assert [type(column) for column in value.columns] == [Number, Category, Text, Words, Number]
    assert value.to_json() == encoding
    assert value.classes == ("cats", "dogs")


SPOILT = {
    "no object": ([], "the encoding is damaged: it is not a JSON object; train anew"),
    "format": ({"format": 7}, "the encoding has format 7, this version of nfcgcn reads 1; train anew"),
    "columns": ({"columns": "x"}, "the encoding is damaged: `columns` must be a list of columns; train anew"),
    "kind": (
        {"columns": [{"kind": "exec"}]},
        "the encoding is damaged: a column must be of kind number, category, text, words, hashed, got 'exec'; "
        "train anew",
    ),
    "field": (
        {"columns": [{"kind": "category", "name": "x"}]},
        "the encoding is damaged: `values` is missing; train anew",
    ),
    "type": (
        {"columns": [{"kind": "category", "name": "x", "values": [1]}]},
        "the encoding is damaged: `values` is '[1]'; train anew",
    ),
    "scale": (
        {"columns": [{"kind": "number", "name": "x", "fill": 0, "shift": 0, "scale": 0}]},
        "the encoding is damaged: column 'x' has scale 0, which must be above 0; train anew",
    ),
    "infinite": (
        {"columns": [{"kind": "number", "name": "x", "fill": float("nan"), "shift": 0, "scale": 1}]},
        "the encoding is damaged: `fill` is 'nan'; train anew",
    ),
    "weights": (
        {"columns": [{"kind": "text", "name": "x", "vocabulary": ["a", "b"], "idf": [1]}]},
        "the encoding is damaged: column 'x' has 2 words, but 1 weights; train anew",
    ),
    "words twice": (
        {"columns": [{"kind": "words", "name": "x", "vocabulary": ["a", "a"], "separator": ";"}]},
        "the encoding is damaged: column 'x' holds the same word twice; train anew",
    ),
    "categories twice": (
        {"columns": [{"kind": "category", "name": "x", "values": ["a", "a"]}]},
        "the encoding is damaged: column 'x' holds the same word twice; train anew",
    ),
    "separator": (
        {"columns": [{"kind": "words", "name": "x", "vocabulary": ["a"], "separator": ""}]},
        "the encoding is damaged: column 'x' has an empty separator; train anew",
    ),
    "buckets": (
        {"columns": [{"kind": "hashed", "name": "x", "buckets": 0}]},
        "the encoding is damaged: column 'x' must have 1 to 1,048,576 buckets, got 0; train anew",
    ),
    "column twice": (
        {"columns": [{"kind": "category", "name": "x", "values": ["a"]}] * 2},
        "the encoding is damaged: `columns` names a column twice; train anew",
    ),
    "form": ({"form": "cubic"}, "the encoding is damaged: `form` is 'cubic'; train anew"),
    "classes": ({"classes": "ab"}, "the encoding is damaged: `classes` is 'ab'; train anew"),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_encodings(folder, case):
    changes, message = SPOILT[case]
    encoding = load(folder, label="topic", text="about", words="tags").encoding
    with pytest.raises(GraphError) as caught:
        read_tables(
            folder / "nodes.csv", folder / "edges.csv", encoding={**encoding, **changes} if changes else changes
        )
    assert str(caught.value) == message


def test_reading_says_nothing_without_a_reason(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(folder, label="topic", text="about", words="tags")
