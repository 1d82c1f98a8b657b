import statistics
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import nfcgcn
from nfcgcn.config.registry import SYSTEMS, make_config
from nfcgcn.errors import ConfigError, NFCError
from nfcgcn.graph import Graph
from nfcgcn.inference import prediction as inference
from nfcgcn.inference.prediction import embed, predict, predict_proba
from nfcgcn.method.model import divide_by_row_norms
from nfcgcn.method.sampling import sample_neighbours
from nfcgcn.randomness import generator

SMALL = {"kernel_size": 10, "stride": 5, "filters": 4}
READ_ALL = [name for name in SYSTEMS if not name.startswith("nfc-gcn") and name not in ("gcn-5", "gat-5")]


def build(graph, system="nfc-gcn", seed=0, **settings):
    settings = {**SMALL, **settings} if system.startswith("nfc-gcn") else settings
    return make_config(system, settings=settings).build(graph, seed).eval()


def scores(model, graph, *also):
    with torch.no_grad():
        return model(graph.x, graph.edge_index, *also)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_single_draw_is_what_predict_goes_by(system, sparse_graph):
    model = build(sparse_graph, system).train()
    found = predict_proba(model, sparse_graph)
    assert not model.training
    np.testing.assert_allclose(found.probabilities, scores(model, sparse_graph).double().softmax(1), rtol=1e-12)
    assert found.classes.tolist() == predict(model, sparse_graph).tolist()
    assert found.draws == 1
    assert not found.spread.any()
    assert found.uncertainty.shape == (300,)


@pytest.mark.parametrize("slot_order", ["random", "similarity"])
def test_mean_and_deviation_over_the_draws(slot_order, sparse_graph):
    """The same by hand: a table a draw, the first by the model's seed, the others by the seed asked for."""
    model = build(sparse_graph, seed=3, bandwidth=3, slot_order=slot_order)
    seeds = [3, *generator(8, "draws").integers(2**62, size=4).tolist()]
    tables = [
        sample_neighbours(sparse_graph, bandwidth=3, rng=generator(s, "neighbours"), slot_order=slot_order)
        for s in seeds
    ]
    each = np.stack([scores(model, sparse_graph, torch.from_numpy(t)).double().softmax(1).numpy() for t in tables])
    found = predict_proba(model, sparse_graph, draws=5, seed=8)
    assert found.draws == 5
    np.testing.assert_allclose(found.probabilities, each.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.spread, each.std(0, ddof=1), rtol=1e-9, atol=1e-15)
    assert found.classes.tolist() == each.mean(0).argmax(1).tolist()
    rows = np.arange(300)
    np.testing.assert_array_equal(found.uncertainty, found.spread[rows, found.classes])
    assert np.median(found.uncertainty) > 0


def test_draws_follow_their_seed_and_leave_no_trace(sparse_graph):
    model = build(sparse_graph, seed=3)
    before, state = predict(model, sparse_graph), torch.get_rng_state()
    one, same, other = (predict_proba(model, sparse_graph, draws=3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.probabilities, same.probabilities)
    np.testing.assert_array_equal(one.spread, same.spread)
    assert not np.array_equal(one.probabilities, other.probabilities)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.nfc.seed == 3
    assert predict(model, sparse_graph).tolist() == before.tolist()


def test_a_model_keeps_its_seed_when_a_draw_fails(sparse_graph):
    model = build(sparse_graph, seed=3)
    with pytest.raises(RuntimeError), inference._drawn_by([model.nfc], 5):
        raise RuntimeError
    assert model.nfc.seed == 3


@pytest.mark.parametrize("system", ["gcn-5", "gat-5", "nfc-gcn-2d"])
def test_models_that_draw_vary(system, dense_graph):
    found = predict_proba(build(dense_graph, system), dense_graph, draws=3)
    assert found.draws == 3
    assert (found.spread > 0).mean() > 0.5
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-12)


@pytest.mark.parametrize("system", READ_ALL)
def test_models_that_read_all_neighbours_are_asked_once(system, dense_graph):
    found, single = (predict_proba(build(dense_graph, system), dense_graph, draws=draws) for draws in (7, 1))
    assert found.draws == 1
    assert not found.spread.any()
    np.testing.assert_array_equal(found.probabilities, single.probabilities)


def test_nodes_without_neighbours_do_not_vary():
    graph = Graph.from_edges([], np.random.default_rng(0).random((9, 12)))
    found = predict_proba(make_config(settings={**SMALL, "kernel_size": 4}).build_for(12, 3, seed=0), graph, draws=6)
    assert found.draws == 6
    assert not found.spread.any()


def test_no_draws_are_refused(dense_graph):
    with pytest.raises(ConfigError, match=r"^`draws` must be at least 1, got 0$"):
        predict_proba(build(dense_graph), dense_graph, draws=0)


# Representations


@pytest.mark.parametrize("scale", ["given", "row-norm"])
@pytest.mark.parametrize("num_layers", [0, 1, 2, 3])
def test_the_layers_of_nfc_gcn(num_layers, scale, sparse_graph):
    model = build(sparse_graph, num_layers=num_layers, feature_scale=scale)
    first, last, given = (embed(model, sparse_graph, layer) for layer in ("first", "last", "scores"))
    x = divide_by_row_norms(sparse_graph.x) if scale == "row-norm" else sparse_graph.x
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(first), model.nfc(x, sparse_graph.edge_index))
        h = torch.from_numpy(first)
        for layer in model.hidden:
            h = layer(h, sparse_graph.edge_index).relu()
        torch.testing.assert_close(torch.from_numpy(last), h)
        arguments = (h, sparse_graph.edge_index) if num_layers else (h,)
        torch.testing.assert_close(torch.from_numpy(given), model.output(*arguments))
    assert (first.dtype, last.dtype) == (np.float32, np.float32)
    assert given.argmax(1).tolist() == predict(model, sparse_graph).tolist()


def test_a_single_layer_reads_the_features(sparse_graph):
    model = build(sparse_graph, "gcn", num_layers=1)
    np.testing.assert_array_equal(embed(model, sparse_graph), sparse_graph.features.toarray())


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_model_has_a_last_layer(system, sparse_graph):
    found = embed(build(sparse_graph, system), sparse_graph)
    assert found.shape[0] == 300
    assert found.any()


def test_layers_that_are_not_there(sparse_graph):
    text = r"^a GCN has no node-feature convolution, hence no layer 'first'; choose 'last'$"
    with pytest.raises(ConfigError, match=text):
        embed(build(sparse_graph, "gcn"), sparse_graph, "first")
    with pytest.raises(ConfigError, match=r"^unknown layer 'lats'; did you mean 'last'\?$"):
        embed(build(sparse_graph), sparse_graph, "lats")


@pytest.mark.parametrize(("layer", "num_layers"), [("first", 2), ("last", 0)])
def test_a_representation_that_is_too_large_is_refused_before_it_is_made(layer, num_layers, sparse_graph, monkeypatch):
    model = build(sparse_graph, num_layers=num_layers, filters=70_000)
    monkeypatch.setattr(type(model), "convolve", None)
    monkeypatch.setattr(inference, "MOST_BYTES", 1 << 29)
    text = (
        r"^the representation would hold 300 nodes x 490000 numbers, 0\.5 GiB, more than 0; "
        r"take another layer, or a model with fewer filters or a larger stride$"
    )
    with pytest.raises(NFCError, match=text):
        embed(model, sparse_graph, layer)


# Nodes that came later


def test_an_extended_graph_is_predicted_like_one_built_at_once(sparse_graph):
    model = build(sparse_graph)
    new = sparse_graph.features[[4, 9]]
    grown = sparse_graph.extend(new, [[300, 301, 301], [7, 300, 250]])
    pairs = np.stack(sparse_graph.adjacency.nonzero())
    whole = Graph.from_edges(
        np.concatenate([pairs, [[300, 301, 301], [7, 300, 250]]], axis=1),
        np.concatenate([sparse_graph.features.toarray(), new.toarray()]),
    )
    assert torch.equal(grown.edge_index, whole.edge_index)
    found, expected = (predict_proba(model, graph, draws=2) for graph in (grown, whole))
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-5)


def test_a_trained_model_knows_nodes_it_never_saw(sparse_graph):
    """Train on a part of the graph, then add the other nodes with their edges: most are told apart."""
    old = np.arange(200)
    part = Graph.from_edges(
        np.stack(sparse_graph.adjacency[:200][:, :200].nonzero()),
        sparse_graph.features[old],
        labels=sparse_graph.labels[old],
    )
    config = make_config(settings={**SMALL, "split": "ratio", "epochs": 60})
    model = nfcgcn.repeat(part, config, [0])[0].model
    pairs = np.stack(sparse_graph.adjacency.nonzero())
    grown = part.extend(sparse_graph.features[200:], pairs[:, (pairs >= 200).any(axis=0)])
    assert torch.equal(grown.edge_index, sparse_graph.edge_index)
    found = predict(model, grown)[200:]
    assert (found == sparse_graph.labels[200:]).mean() > 0.7


@pytest.mark.data
def test_one_new_node_on_cora_takes_milliseconds(planetoid_dir):
    graph = nfcgcn.load("cora", data_dir=planetoid_dir)
    model = make_config(dataset="cora").build(graph, 0)
    times = []
    for node in range(22):
        start = time.perf_counter()
        predict(model, graph.extend(graph.features[[node]], [[2708, 2708], [node, node + 1]]))
        times.append(time.perf_counter() - start)
    assert statistics.median(times[2:]) < 0.2  # 9 ms on a quiet core; the bound allows for a busy one


def test_labels_of_the_graph_do_not_matter(sparse_graph):
    model = build(sparse_graph)
    blind = replace(sparse_graph, labels=np.full(300, -1, np.int64))
    np.testing.assert_array_equal(
        predict_proba(model, blind).probabilities, predict_proba(model, sparse_graph).probabilities
    )
