"""Mini-batches: the same model, and the same losses however the work is divided."""

from __future__ import annotations

import os
import re
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from nfcgcn import NFCGCN, TrainingConfig, fit, make_split
from nfcgcn.baselines import GCN, MLP, SAGE
from nfcgcn.data.store import open_store, write_store
from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph
from nfcgcn.kernels.threads import available
from nfcgcn.training import batch_steps, unfinished
from nfcgcn.training.batches import NodeReader, ahead
from nfcgcn.training.fan_out import FanOut
from nfcgcn.training.processes import without_fork_warnings
from nfcgcn.training.unfinished import Unfinished
from random_graphs import random_graph

NODES = np.array([5, 0, 17, 88, 41])
NFC = {"filters": 3, "bandwidth": 4, "kernel_size": 8, "stride": 4, "map_dropout": 0.0, "dropout": 0.0}


def nfc(num_layers=2, **settings):
    return NFCGCN(40, 5, num_layers, 3, **{**NFC, **settings}, seed=4)


MODELS = {
    **{f"nfc-gcn K={k}": lambda k=k: nfc(k) for k in range(4)},
    "nfc-gcn tanh": lambda: nfc(activation="tanh"),
    "nfc-gcn 2d": lambda: nfc(conv="2d", kernel_width=2),
    "nfc-gcn 2d tanh": lambda: nfc(3, conv="2d", kernel_width=2, activation="tanh"),
    "nfc-gcn classifier": lambda: nfc(classifier="linear"),
    "nfc-gcn own features": lambda: nfc(own_features="mlp", self_weight=2.0, feature_scale="row-norm"),
    "gcn": lambda: GCN(40, 5, 2, 3, dropout=0.0),
    "gcn own features": lambda: GCN(40, 5, 3, 3, dropout=0.0, own_features="mlp", self_weight=0.5),
    "mlp": lambda: MLP(40, 5, 2, 3, dropout=0.0),
}


def make_weighted():
    graph = random_graph(90, sparse=True, degree=12)
    source, target = graph.edge_index.numpy()
    pairs = np.stack([source, target])[:, source < target]
    weights = np.random.default_rng(3).uniform(0.2, 3, pairs.shape[1])
    return Graph.from_edges(pairs, graph.features, weights=weights, labels=graph.labels)


GRAPHS = {
    "sparse": lambda: random_graph(90, sparse=True, degree=12),
    "dense": lambda: random_graph(90, sparse=False, degree=12),
    "weighted": make_weighted,
}


CASES = [("sparse", name) for name in MODELS]
CASES += [(kind, name) for kind in ("dense", "weighted") for name in ("nfc-gcn own features", "gcn own features")]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_with_all_neighbours_scores_and_gradients_are_those_of_the_whole_graph(kind, name):
    graph, model = GRAPHS[kind](), MODELS[name]()
    batch = NodeReader(model, graph, seed=1).batch(NODES, [None] * model.num_hops)
    y = torch.from_numpy(graph.labels[NODES])
    gradients = []
    for scores in (model(graph.x, graph.edges)[NODES], model(batch.x, batch.hops)[: len(NODES)]):
        model.zero_grad()
        torch.nn.functional.cross_entropy(scores, y).backward()
        gradients.append([scores, *(p.grad.clone() for p in model.parameters())])
    assert torch.equal(batch.labels, y)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)


def test_a_batch_reads_no_more_than_it_needs():
    graph, model = random_graph(2000, sparse=True, degree=4), nfc(1)
    batch = NodeReader(model, graph).batch(NODES, [2])
    assert batch.hops.matrices[0].shape[1] <= 15  # five nodes, and two neighbours of each
    assert len(batch.x) <= 60


def test_draws_change_with_epoch_and_layer_but_not_with_the_batch():
    graph, model = random_graph(90, sparse=True, degree=12), nfc()
    reader = NodeReader(model, graph, seed=1)
    here, there = reader.hop(NODES, 3, 1, 0), reader.hop(NODES[::-1].copy(), 3, 1, 0)
    assert here[1].reshape(5, 4).tolist() == there[1].reshape(5, 4)[::-1].tolist()
    for other in (reader.hop(NODES, 3, 2, 0), reader.hop(NODES, 3, 1, 1)):
        assert (here[1] != other[1]).any()


def test_resample_draws_other_maps_in_every_epoch_of_training_only():
    graph, model = random_graph(90, sparse=True, degree=12), nfc(resample="epoch")
    reader = NodeReader(model, graph)
    one, other = (reader.features_of(NODES, epoch)[1] for epoch in (1, 2))
    assert not torch.equal(one, other)
    model.eval()
    one, other = (reader.features_of(NODES, epoch)[1] for epoch in (1, 2))
    assert torch.equal(one, other)


def train(graph, *, seed=0, keep=None, model=None, on_epoch=None, **settings):
    model = model or nfc(2, map_dropout=0.5, dropout=0.5)
    torch.manual_seed(5)
    model.reset_parameters()
    split = make_split(graph, "ratio", seed=0)
    config = TrainingConfig(**{"epochs": 3, "fan_out": "4", "batch_size": 16, **settings})
    return fit(model, graph, split, config, seed=seed, keep=keep, on_epoch=on_epoch)


@pytest.fixture(scope="module")
def graph():
    return random_graph(90, sparse=True, degree=12)


def test_a_store_gives_the_same_bits_as_memory(graph, tmp_path):
    write_store(graph, tmp_path / "store")
    stored = open_store(tmp_path / "store")
    one, other = train(graph), train(stored)
    assert one.history == other.history
    assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)
    assert "x" not in vars(stored)
    assert "edge_index" not in vars(stored)


def test_training_learns(graph):
    run = train(graph, model=nfc(), epochs=20, learning_rate=0.02)
    assert run.history[-1]["train_loss"] < 0.7 * run.history[0]["train_loss"]
    assert run.best["val_accuracy"] > 0.7


def test_one_batch_with_all_neighbours_is_a_full_step(graph):
    settings = {"batch_size": 1000, "epochs": 4, "class_weight": "balanced"}
    batches = train(graph, model=nfc(), fan_out=1000, **settings)
    whole = train(graph, model=nfc(), fan_out=None, **{**settings, "batch_size": None})
    for one, other in zip(batches.history, whole.history, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_parts_of_a_batch_add_up(graph):
    one, other = (train(graph, model=nfc(), batch_parts=parts, class_weight="balanced") for parts in (1, 3))
    for first, second in zip(one.history, other.history, strict=True):
        assert first == pytest.approx(second, rel=1e-4)


def test_sampled_validation_is_said_and_the_same_in_every_epoch(graph, monkeypatch, caplog):
    monkeypatch.setattr(batch_steps, "MOST_EXACT", 20)
    with caplog.at_level("INFO", "nfcgcn"):
        run = train(graph, learning_rate=1e-12, fan_out="1", batch_size=7)
    assert len({epoch["val_loss"] for epoch in run.history}) == 1
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(
        "validation draws neighbours as training does, the same in every epoch: with all neighbours,"
    )


def test_calibration_uses_the_same_scores(graph):
    run = train(graph, calibrate="temperature", epochs=5)
    assert run.temperature != 1.0


class Killed(BaseException):
    """Nobody catches it."""


@pytest.mark.parametrize("after", [0, 1, 4, 7])
def test_a_killed_run_goes_on_within_the_epoch(graph, tmp_path, monkeypatch, after):
    """54 training nodes in batches of 16: four steps per epoch."""
    monkeypatch.setattr(unfinished, "SECONDS", 0.0)
    monkeypatch.setattr(unfinished, "SHARE", 1e9)
    whole = train(graph)
    keep, kept = unfinished.Bookmark.keep, []

    def die(self, place, start):
        keep(self, place, start)
        kept.append(place.within)
        if len(kept) > after:
            raise Killed

    monkeypatch.setattr(unfinished.Bookmark, "keep", die)
    with pytest.raises(Killed):
        train(graph, keep=Unfinished(tmp_path / "unfinished", {}))
    monkeypatch.setattr(unfinished.Bookmark, "keep", keep)
    again = Unfinished(tmp_path / "unfinished", {})
    assert again.resume()
    run = train(graph, keep=again)
    assert (kept[-1] is None) == (after % 4 == 3)
    assert run.history == whole.history
    assert all(torch.equal(run.state[name], whole.state[name]) for name in run.state)


@pytest.mark.parametrize(
    ("given", "sizes"), [("10", [10, 10]), (10, [10, 10]), ("15, 10", [10, 15]), ([15, 10], [10, 15])]
)
def test_fan_outs_count_from_the_scored_node(given, sizes):
    assert TrainingConfig(fan_out=given).fan_out.sizes(2) == sizes


@pytest.mark.parametrize("given", ["0", "", "5,", "-1", "5,0", "1.5", 2.0, True, [], "ten", [None], 2**40])
def test_bad_fan_outs_are_refused(given):
    with pytest.raises(
        ConfigError, match=r"^`fan_out` must be none or a whole number of neighbours from 1 up, or one "
    ):
        TrainingConfig(fan_out=given)


def test_what_mini_batches_cannot_do_is_refused(graph):
    for settings, line in (
        ({"model": SAGE(40, 5, 2, 3)}, "a SAGE reads the whole graph in every step, so `fan_out` must be none"),
        ({"model": nfc(edge_dropout=0.1)}, "`edge_dropout` must be 0 with `fan_out`"),
        ({"model": nfc(slot_order="degree")}, "`slot_order` must be random for a part of the nodes at a time"),
        ({"fan_out": "1,2,3"}, "`fan_out` 1,2,3 is for 3 graph convolutions, and the model has 2"),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(line)}"):
            train(graph, **settings)
    with pytest.raises(ConfigError, match=r"^`batch_size` must be at least 1"):
        TrainingConfig(batch_size=0)


def test_an_error_in_the_preparing_thread_is_raised_where_the_batch_is_used():
    def fail():
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        list(ahead([fail]))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
def test_batches_are_prepared_in_forks_of_a_process_with_several_threads(threads):
    def live():
        both = threading.Barrier(min(2, available()))
        try:
            list(ahead([lambda: (both.wait(), torch.ones(400_000).sum())] * 2))
        except RuntimeError:  # in two of five forks, where both threads make torch's pool anew
            os._exit(1)
        os._exit(0)

    threads(4)
    torch.ones(400_000).sum()
    with without_fork_warnings():
        for _ in range(60):
            child = os.fork() or live()
            assert os.waitpid(child, 0)[1] == 0


def test_bits_do_not_depend_on_the_threads(graph, threads):
    threads(1)
    one = train(graph)
    threads(3)
    other = train(graph)
    assert one.history == other.history


def test_fan_out_is_text_in_files():
    assert replace(TrainingConfig(), fan_out="15,10").fan_out == FanOut("15,10") == "15,10"
