"""No held-out edge is reachable: edges are taken away, and what must not depend on them keeps its bits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from nfcgcn.config.registry import MODELS
from nfcgcn.graph import WeightedEdges, edge_parts
from nfcgcn.links.config import LINK_MODELS, make_link_setup
from nfcgcn.links.evaluation import judge
from nfcgcn.links.splits import EdgeSplit, pair_keys, pairs_of, split_edges, with_edges
from nfcgcn.links.training import _Steps, fit
from nfcgcn.settings import settings_of
from nfcgcn.training.adam import Adam

SMALL = {"epochs": 3, "channels": 6, "hidden_channels": 8}
NFC = {"bandwidth": 3, "kernel_size": 4, "stride": 2, "filters": 3}


def settings_for(model):

    known = settings_of(MODELS[LINK_MODELS[model].encoder].config)
    return {**SMALL, **{name: value for name, value in NFC.items() if name in known}}


@pytest.fixture(scope="module")
def graph(make_graph):
    return make_graph(60, 12, sparse=True)


def all_bits(run):
    return [run.history, {name: tensor.numpy().tobytes() for name, tensor in run.model.state_dict().items()}]


@pytest.mark.parametrize("model", ["nfc-gcn", "sage-mean", "lgcn", "gae", "vgae", "deepwalk"])
def test_nothing_before_the_test_depends_on_a_test_edge(graph, model):
    """The graph without its test edges trains to the same bits, and so does a graph with other test edges."""
    setup = make_link_setup(model, settings=settings_for(model))
    split = split_edges(graph, seed=1)
    expected = all_bits(fit(graph, setup, split=split, seed=1))
    kept = np.concatenate([split.train, split.val], axis=1)
    without = with_edges(graph, kept)
    assert without.num_edges == kept.shape[1] < graph.num_edges
    assert all_bits(fit(without, setup, split=split, seed=1)) == expected
    other = replace(split, test=split.test[:, :3])
    assert all_bits(fit(graph, setup, split=other, seed=1)) == expected
    more = replace(split, train=split.train[:, 1:])
    assert all_bits(fit(graph, setup, split=more, seed=1)) != expected  # which would be seen


def test_the_vectors_that_are_judged_depend_on_training_edges_alone(graph):
    setup = make_link_setup("nfc-gcn", settings=settings_for("nfc-gcn"))
    run = fit(graph, setup, seed=2)
    judged = judge(run, graph)
    bare = with_edges(graph, run.split.train)
    with torch.no_grad():
        vectors = run.model(bare.x, bare.edge_index)
        scores = run.model.decoder.score(vectors, torch.from_numpy(run.split.test)).double().numpy()
    assert (judged.edge_scores == scores).all()
    with torch.no_grad():
        leaky = run.model.decoder.score(run.model(graph.x, graph.edge_index), torch.from_numpy(run.split.test))
    assert (judged.edge_scores != leaky.double().numpy()).any()


def recorded_steps(graph, model, monkeypatch, **settings):
    """Train, and return what the encoder read and what was scored in each training step."""
    setup = make_link_setup(model, settings={**settings_for(model), **settings})
    split = split_edges(graph, seed=3)
    built = setup.build(graph, 3)
    steps = _Steps(graph, setup, split, built, 3, torch.device("cpu"))
    read, scored = [], []
    built.encoder.register_forward_pre_hook(lambda _, inputs: read.append(edge_parts(inputs[1])[0].clone()))
    score = built.decoder.score
    monkeypatch.setattr(built.decoder, "score", lambda h, pairs: (scored.append(pairs.clone()), score(h, pairs))[1])

    optimizer = Adam(built, setup.links)
    for _ in range(4):
        steps.train(optimizer)
    return split, read, scored


@pytest.mark.parametrize("model", ["nfc-gcn", "gcn", "deepwalk"])
def test_an_edge_that_is_scored_is_not_read(graph, model, monkeypatch):
    split, read, scored = recorded_steps(graph, model, monkeypatch, hide=0.4)
    train = pair_keys(split.train, graph.num_nodes)
    for edges, pairs in zip(read, scored, strict=True):
        edges, pairs = (pair_keys(part.numpy(), graph.num_nodes) for part in (edges, pairs))
        count = round(0.4 * len(train))
        assert np.isin(edges, train).all()
        assert np.isin(pairs[:count], train).all()
        assert not np.isin(pairs[count:], train).any()
        assert not np.isin(pairs, edges).any()
        assert sorted([*np.unique(edges), *pairs[:count]]) == sorted(train)  # in both directions, and all others
    drawn_again = any((one != other).any() for one, other in pairwise(scored))
    assert drawn_again


def test_hidden_edges_change_no_bit_of_what_is_read(graph):
    """The vectors of a step are those of a graph that never had the hidden edges."""
    setup = make_link_setup("nfc-gcn", settings=settings_for("nfc-gcn"))
    split = split_edges(graph, seed=3)
    model = setup.build(graph, 3).eval()
    steps = _Steps(graph, setup, split, model, 3, torch.device("cpu"))
    hidden = steps._draw_hidden()
    bare = with_edges(graph, np.delete(split.train, hidden, axis=1))
    with torch.no_grad():
        assert torch.equal(model(steps.x, steps._without(hidden)), model(bare.x, bare.edge_index))
        assert not torch.equal(model(steps.x, steps.edges), model(bare.x, bare.edge_index))


def test_weights_of_edges_are_hidden_with_them(graph):
    pairs = pairs_of(graph)
    weights = np.arange(1, pairs.shape[1] + 1, dtype=np.float32)
    weighted = type(graph).from_edges(pairs, graph.features, weights=weights)
    setup = make_link_setup("nfc-gcn", settings=settings_for("nfc-gcn"))
    split = split_edges(weighted, seed=0)
    steps = _Steps(weighted, setup, split, setup.build(weighted, 0), 0, torch.device("cpu"))
    hidden = steps._draw_hidden()
    left, bare = steps._without(hidden), with_edges(weighted, np.delete(split.train, hidden, axis=1)).edges
    assert isinstance(left, WeightedEdges)
    assert torch.equal(left.edge_index, bare.edge_index)
    assert torch.equal(left.weight, bare.weight)


def test_without_hiding_all_training_edges_are_read_and_scored(graph, monkeypatch):
    split, read, scored = recorded_steps(graph, "gae", monkeypatch)
    assert read[0].shape[1] == 2 * split.train.shape[1]
    assert (scored[0][:, : split.train.shape[1]].numpy() == split.train).all()


def test_a_batch_limits_how_many_are_hidden(graph, monkeypatch):
    _, read, scored = recorded_steps(graph, "gcn", monkeypatch, batch_size=7, num_negatives=2)
    assert scored[0].shape[1] == 21
    assert isinstance(read[0], torch.Tensor)


def test_validation_negatives_may_be_test_edges(graph):
    """They are drawn without knowledge of the test edges: excluding these would tell of them."""
    nodes = 12
    upper = np.stack(np.triu_indices(nodes, 1)).astype(np.int64)
    split = EdgeSplit(upper[:, :20], upper[:, 20:24], upper[:, 24:-1])
    small = type(graph).from_edges(upper[:, :-1], np.eye(nodes, dtype=np.float32))
    setup = make_link_setup("gcn", settings=SMALL)
    steps = _Steps(small, setup, split, setup.build(small, 0), 0, torch.device("cpu"))
    drawn = pair_keys(steps.val_others.numpy(), nodes)
    assert np.isin(drawn, pair_keys(split.test, nodes)).any()
    assert not np.isin(drawn, pair_keys(upper[:, :24], nodes)).any()


def test_the_same_bits_for_any_number_of_threads(graph, threads):
    setup = make_link_setup("nfc-gcn", settings={**settings_for("nfc-gcn"), "decoder": "mlp"})
    bits = []
    for count in (1, 4):
        threads(count)
        bits.append(all_bits(fit(graph, setup, seed=5)))
    assert bits[0] == bits[1]
