"""Layer by layer, a piece at a time: the same scores as those of the whole graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nfcgcn import NFCGCN, embed, open_store, predict, predict_proba, write_store
from nfcgcn.baselines import GCN, MLP
from nfcgcn.errors import WriteError
from nfcgcn.inference import pieces
from nfcgcn.inference.prediction import predict_with_confidence
from random_graphs import random_graph

NFC = {"filters": 3, "bandwidth": 4, "kernel_size": 8, "stride": 4}


def nfc(num_layers=2, **settings):
    return NFCGCN(40, 5, num_layers, 3, **{**NFC, **settings}, seed=4)


MODELS = {
    **{f"nfc-gcn K={k}": lambda k=k: nfc(k) for k in range(4)},
    "nfc-gcn tanh": lambda: nfc(3, activation="tanh"),
    "nfc-gcn 2d": lambda: nfc(1, conv="2d", kernel_width=2),
    "nfc-gcn 2d tanh": lambda: nfc(conv="2d", kernel_width=2, activation="tanh"),
    "nfc-gcn classifier": lambda: nfc(classifier="linear"),
    "nfc-gcn own features": lambda: nfc(0, own_features="mlp", feature_scale="row-norm"),
    "nfc-gcn K=2 own features": lambda: nfc(2, own_features="mlp", self_weight=2.0),
    "gcn": lambda: GCN(40, 5, 2, 3),
    "gcn K=1": lambda: GCN(40, 5, 1, 3),
    "gcn own features": lambda: GCN(40, 5, 3, 3, own_features="mlp", self_weight=0.5),
    "mlp": lambda: MLP(40, 5, 2, 3),
}


@pytest.fixture(scope="module")
def graph():
    return random_graph(90, sparse=True, degree=12)


@pytest.fixture(scope="module")
def stored(graph, tmp_path_factory):
    write_store(graph, tmp_path_factory.mktemp("stores") / "store")
    return open_store(tmp_path_factory.getbasetemp() / "stores0" / "store")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(pieces, "ROWS", 16)
    monkeypatch.setattr(pieces, "ENTRIES", 40)


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_representations_are_those_of_the_whole_graph(name, graph, stored):
    model = MODELS[name]()
    for of in (lambda g: embed(model, g, "scores"), lambda g: embed(model, g)):
        torch.testing.assert_close(of(stored), of(graph), rtol=1e-5, atol=1e-6)
    assert (predict(model, stored) == predict(model, graph)).all()
    nodes = np.array([3, 40, 89])
    ours, theirs = (predict_with_confidence(model, g, nodes) for g in (stored, graph))
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)
    assert (ours[0][nodes] == theirs[0][nodes]).all()
    assert not {"x", "edge_index", "edges"} & set(vars(stored))


def test_draws_and_the_first_layer(graph, stored):
    model = nfc()
    ours, theirs = (predict_proba(model, g, draws=3) for g in (stored, graph))
    np.testing.assert_allclose(ours.probabilities, theirs.probabilities, rtol=1e-5)
    np.testing.assert_allclose(ours.spread, theirs.spread, rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(embed(model, stored, "first"), embed(model, graph, "first"), rtol=1e-5, atol=1e-6)


def test_large_results_lie_in_a_file_that_is_gone_afterwards(stored, graph, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "IN_MEMORY", 0)
    scores = pieces.compute(nfc(), stored, folder=tmp_path)
    assert isinstance(scores, np.memmap)
    assert not list(tmp_path.iterdir())
    heard = []
    some = pieces.compute(nfc(), stored, np.array([4]), folder=tmp_path, say=lambda *given: heard.append(given))
    assert len(some) == 90
    assert heard[-1][0] == heard[-1][1] < 3 * 90


def test_without_room_one_line_says_so(tmp_path, full_disk, monkeypatch):
    monkeypatch.setattr(pieces, "IN_MEMORY", 0)
    full_disk(2**24)
    with pytest.raises(WriteError, match=r"has no room for 0\.1 GiB of temporary numbers: .*; set TMPDIR to a folder"):
        pieces.new_array((2**22, 8), tmp_path)
    assert not list(tmp_path.iterdir())
