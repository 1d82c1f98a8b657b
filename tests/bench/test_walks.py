import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import nfcgcn
from nfcgcn.bench import walks as benchmark
from random_graphs import random_graph

SMALL = ("--num-walks", 2, "--walk-length", 5, "--width", 4, "--window", 2, "--threads", 1)


@pytest.fixture
def graph(tmp_path, threads):
    nfcgcn.write_npz(random_graph(30, 4, sparse=False), tmp_path / "own.npz")
    yield
    threads(1)


@pytest.mark.usefixtures("graph")
def test_without_gensim_it_says_so(run, monkeypatch):
    monkeypatch.setattr(benchmark, "find_spec", lambda _: None)
    code, out, _ = run("bench", "walks", "own.npz", *SMALL, "--json", "b.json")
    assert code == 0
    assert "no comparison: gensim is not installed (`pip install gensim`)" in out
    result = json.loads(Path("b.json").read_text(encoding="utf-8"))
    assert result["gensim_s"] is None
    assert result["ours_s"] > 0
    assert (result["nodes"], result["num_walks"], result["threads"]) == (30, 2, 1)


@pytest.mark.usefixtures("graph")
def test_gensim_gets_the_same_walks(run, monkeypatch):
    given = {}

    def word2vec(sentences, **settings):
        given.update(settings, sentences=sentences)

    monkeypatch.setattr(benchmark, "find_spec", lambda _: object())
    monkeypatch.setitem(sys.modules, "gensim", types.ModuleType("gensim"))
    monkeypatch.setitem(sys.modules, "gensim.models", types.SimpleNamespace(Word2Vec=word2vec))
    code, out, _ = run("bench", "walks", "own.npz", *SMALL)
    assert code == 0
    assert "gensim's word2vec" in out
    assert (given["vector_size"], given["window"], given["workers"], given["sg"], given["negative"]) == (4, 2, 1, 1, 5)
    assert np.shape(given["sentences"]) == (60, 5)
