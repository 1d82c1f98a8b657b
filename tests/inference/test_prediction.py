from dataclasses import replace

import numpy as np
import pytest
import torch

import nfcgcn
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.errors import ConfigError, NFCError
from nfcgcn.graph import Graph
from nfcgcn.inference import prediction as inference
from nfcgcn.inference.prediction import embed, predict, predict_proba
from nfcgcn.method.node_feature_conv import NodeFeatureConv
from nfcgcn.method.sampling import sample_neighbours

SMALL = {"kernel_size": 10, "stride": 5, "filters": 4}
READ_ALL = [name for name in MODELS if not name.startswith("nfc-gcn") and name not in ("gcn-5", "gat-5")]


def build(graph, name="nfc-gcn", seed=0, **settings):
    settings = {**SMALL, **settings} if name.startswith("nfc-gcn") else settings
    return make_config(name, settings=settings).build(graph, seed).eval()


def scores(model, graph, *also):
    with torch.no_grad():
        return model(graph.x, graph.edge_index, *also)


def test_a_single_draw_is_what_predict_goes_by(sparse_graph):
    model = build(sparse_graph).train()
    found = predict_proba(model, sparse_graph)
    assert not model.training
    np.testing.assert_allclose(found.probabilities, scores(model, sparse_graph).double().softmax(1), rtol=1e-12)
    assert found.classes.tolist() == predict(model, sparse_graph).tolist()
    assert found.draws == 1
    assert not found.spread.any()
    assert found.uncertainty.shape == (300,)


@pytest.mark.parametrize("slot_order", ["random", "similarity"])
def test_mean_and_deviation_over_the_draws(slot_order, sparse_graph):
    """The same by hand: one table per draw, all of them by the model's seed."""
    model = build(sparse_graph, seed=3, bandwidth=3, slot_order=slot_order)
    tables = [
        sample_neighbours(sparse_graph, bandwidth=3, seed=3, draw=draw, slot_order=slot_order) for draw in range(5)
    ]
    each = np.stack([scores(model, sparse_graph, torch.from_numpy(t)).double().softmax(1).numpy() for t in tables])
    found = predict_proba(model, sparse_graph, draws=5)
    assert found.draws == 5
    np.testing.assert_allclose(found.probabilities, each.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.spread, each.std(0, ddof=1), rtol=1e-9, atol=1e-15)
    assert found.classes.tolist() == each.mean(0).argmax(1).tolist()
    rows = np.arange(300)
    np.testing.assert_array_equal(found.uncertainty, found.spread[rows, found.classes])
    assert np.median(found.uncertainty) > 0


def test_draws_follow_the_models_seed_and_leave_no_trace(sparse_graph):
    model, other = build(sparse_graph, seed=3), build(sparse_graph, seed=4)
    other.load_state_dict(model.state_dict())
    before, state = predict(model, sparse_graph), torch.get_rng_state()
    one, same, others = (predict_proba(m, sparse_graph, draws=3) for m in (model, model, other))
    np.testing.assert_array_equal(one.probabilities, same.probabilities)
    np.testing.assert_array_equal(one.spread, same.spread)
    assert not np.array_equal(one.probabilities, others.probabilities)
    assert torch.equal(torch.get_rng_state(), state)
    assert (model.nfc.seed, model.nfc.draw) == (3, 0)
    assert predict(model, sparse_graph).tolist() == before.tolist()


def test_a_model_keeps_its_draw_when_another_fails(sparse_graph, monkeypatch):
    model = build(sparse_graph)
    table = NodeFeatureConv.table

    def fail_later(layer, *arguments):
        if layer.draw == 2:
            raise RuntimeError("the third draw")
        return table(layer, *arguments)

    monkeypatch.setattr(NodeFeatureConv, "table", fail_later)
    with pytest.raises(RuntimeError, match="the third draw"):
        predict_proba(model, sparse_graph, draws=3)
    assert model.nfc.draw == 0


@pytest.mark.parametrize("name", ["gcn-5", "gat-5", "nfc-gcn-2d"])
def test_models_that_draw_vary(name, dense_graph):
    found = predict_proba(build(dense_graph, name), dense_graph, draws=3)
    assert found.draws == 3
    assert (found.spread > 0).mean() > 0.5
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-12)


@pytest.mark.parametrize("name", READ_ALL)
def test_models_that_read_all_neighbours_are_asked_once(name, dense_graph):
    found, single = (predict_proba(build(dense_graph, name), dense_graph, draws=draws) for draws in (7, 1))
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


@pytest.mark.parametrize("num_layers", [0, 1, 2, 3])
def test_the_layers_of_nfc_gcn(num_layers, sparse_graph):
    model = build(sparse_graph, num_layers=num_layers, feature_scale="row-norm")
    first, last, given = (embed(model, sparse_graph, layer) for layer in ("first", "last", "scores"))
    edge_index = sparse_graph.edge_index
    with torch.no_grad():
        h = model.nfc(model.scale(sparse_graph.x), edge_index)
        torch.testing.assert_close(torch.from_numpy(first), h)
        for layer in model.layers[:-1]:
            h = layer(h, edge_index).relu()
        torch.testing.assert_close(torch.from_numpy(last), h)
        expected = model.layers[-1](h, edge_index) if num_layers else model.classifier(h)
        torch.testing.assert_close(torch.from_numpy(given), expected)
    assert (first.dtype, last.dtype) == (np.float32, np.float32)
    assert given.argmax(1).tolist() == predict(model, sparse_graph).tolist()


def test_a_single_layer_reads_the_features(sparse_graph):
    model = build(sparse_graph, "gcn", num_layers=1)
    np.testing.assert_array_equal(embed(model, sparse_graph), sparse_graph.features.toarray())


def test_layers_that_are_not_there(sparse_graph):
    text = r"^GCN has no node-feature convolution and so no layer 'first'; choose 'last'$"
    with pytest.raises(ConfigError, match=text):
        embed(build(sparse_graph, "gcn"), sparse_graph, "first")
    with pytest.raises(ConfigError, match=r"^unknown layer 'lats'; did you mean 'last'\?$"):
        embed(build(sparse_graph), sparse_graph, "lats")


@pytest.mark.parametrize(("layer", "num_layers"), [("first", 2), ("last", 0)])
def test_a_representation_that_is_too_large_is_refused_before_it_is_made(layer, num_layers, sparse_graph, monkeypatch):
    model = build(sparse_graph, num_layers=num_layers, filters=70_000)
    monkeypatch.setattr(type(model.nfc), "forward", None)
    monkeypatch.setattr(inference, "MOST_BYTES", 1 << 29)
    text = (
        r"^the representation would hold 300 nodes x 490000 numbers: 0\.5 GiB, more than the 0 GiB allowed; "
        r"choose another layer, or a model with fewer filters or a larger stride$"
    )
    with pytest.raises(NFCError, match=text):
        embed(model, sparse_graph, layer)


# Nodes that came later


@pytest.mark.parametrize("name", ["nfc-gcn", "gcn", "mlp"])
def test_results_that_overflow_are_refused(name, sparse_graph):
    """Weights of 3e38 are finite, and so were read; each node got class 0 with a probability of nan."""
    model = build(sparse_graph, name)
    for weight in model.parameters():
        torch.nn.init.constant_(weight, 3e38)
    for ask in (
        predict,
        predict_proba,
        inference.embed,
        lambda *given: inference.predict_draw(*given, 1),
        lambda *given: nfcgcn.explain(*given, 0),
        nfcgcn.explain_classes,
    ):
        with pytest.raises(NFCError, match=r"^the .* are not finite: the weights or the features are too large to "):
            ask(model, sparse_graph)


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


def test_labels_of_the_graph_do_not_matter(sparse_graph):
    model = build(sparse_graph)
    blind = replace(sparse_graph, labels=np.full(300, -1, np.int64))
    np.testing.assert_array_equal(
        predict_proba(model, blind).probabilities, predict_proba(model, sparse_graph).probabilities
    )
