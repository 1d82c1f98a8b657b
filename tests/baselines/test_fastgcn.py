import re

import pytest
import torch
import torch.nn.functional as F

from nfcgcn.baselines import GCN, FastGCN
from nfcgcn.baselines.fastgcn import _prepare, sample_columns
from nfcgcn.data.splits import make_split
from nfcgcn.errors import ConfigError
from nfcgcn.kernels.sparse import normalised_adjacency
from nfcgcn.training import TrainingConfig, fit

GRAPHS = ["sparse_graph", "dense_graph"]


def fastgcn(**options):
    torch.manual_seed(0)
    return FastGCN(40, 8, 3, **options)


def test_it_is_gcn_where_nothing_is_sampled(sparse_graph):
    model = fastgcn()
    gcn = GCN(40, 8, 2, 3, dropout=0.0)
    gcn.load_state_dict(model.state_dict())
    x, edge_index = sparse_graph.x, sparse_graph.edge_index
    assert torch.equal(model(x, edge_index), gcn(x, edge_index))
    assert torch.equal(model.embed(x, edge_index), gcn.embed(x, edge_index))
    assert model.decayed_parameters() == [model.layers[0].weight]


def test_weights_by_hand(four_nodes):
    """The batch is node 3 alone, whose row is (0 0 1/sqrt 8 1/2): nodes 0 and 1 can never be drawn."""
    a = normalised_adjacency(four_nodes.edge_index, 4, torch.float64).matrix
    # Columns 2 and 3 are (1/sqrt 12 1/sqrt 12 1/4 1/sqrt 8) and (0 0 1/sqrt 8 1/2), their squares add up to 17/48
    # (1/6 + 1/16 + 1/8) and 18/48 (1/8 + 1/4). So q is 17/35 and 18/35, and m draws
    # of 5 weigh m 35 / (5 * 17) or m 35 / (5 * 18).
    importance = a.to_dense().square().sum(0)
    torch.testing.assert_close(importance[2:], torch.tensor([17 / 48, 18 / 48], dtype=torch.float64))
    row = a.to_dense()[3:].to_sparse_csr()
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        sampled, ids = sample_columns(row, importance, 5)
        values = dict(zip(ids.tolist(), sampled.to_dense()[0].tolist(), strict=True))
        times = {2: values.get(2, 0) * 8**0.5 * 5 * 17 / 35, 3: values.get(3, 0) * 2 * 5 * 18 / 35}
        assert times[2] == pytest.approx(round(times[2]))
        assert times[2] + times[3] == pytest.approx(5)
        seen.add(round(times[2]))
    assert len(seen) > 2


@pytest.mark.parametrize("which", GRAPHS)
def test_importance_and_first_layer_are_those_of_the_graph(which, request):
    graph = request.getfixturevalue(which)
    a = normalised_adjacency(graph.edge_index, 300).matrix.to_dense()
    prepared = _prepare(graph.x, graph.edge_index, None)
    torch.testing.assert_close(prepared.importance, a.square().sum(0))
    torch.testing.assert_close(prepared.aggregated.to_dense(), a @ graph.x.to_dense())
    assert prepared.aggregated.layout == graph.x.layout
    assert _prepare(graph.x, graph.edge_index, None) is prepared


@pytest.mark.parametrize("samples", [3, 40])
def test_the_sampled_product_is_unbiased(samples, dense_graph):
    """The mean of many draws lies within 5 standard errors of the full product, in each of 30 cells."""
    a = normalised_adjacency(dense_graph.edge_index, 300, torch.float64).matrix.to_dense()
    rows, importance = a[:10].to_sparse_csr(), a.square().sum(0)
    h = torch.randn(300, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    draws = []
    for _ in range(800):
        sampled, ids = sample_columns(rows, importance, samples)
        draws.append(sampled @ h[ids])
    estimates = torch.stack(draws)
    error = estimates.std(0) / len(draws) ** 0.5
    assert (error > 0).all()
    assert ((estimates.mean(0) - rows @ h).abs() < 5 * error).all()


def test_scores_of_a_batch_approach_the_exact_ones(sparse_graph):
    """Many samples: each node scores what the whole model gives it, and in the batch's order."""
    model = fastgcn(samples=2_000_000)
    nodes = torch.tensor([17, 3, 250, 3])
    sampled = model.score_nodes(sparse_graph.x, sparse_graph.edge_index, nodes)
    exact = model(sparse_graph.x, sparse_graph.edge_index)[nodes]
    torch.testing.assert_close(sampled, exact, rtol=0.02, atol=0.005)


def test_sparse_and_dense_features_agree(sparse_graph, dense_graph):
    model = fastgcn(samples=50)
    results = []
    for graph in (sparse_graph, dense_graph):
        torch.manual_seed(1)
        model.zero_grad()
        out = model.score_nodes(graph.x, graph.edge_index, torch.arange(64))
        F.cross_entropy(out, graph.y[:64]).backward()
        results.append([out.detach(), *[p.grad.clone() for p in model.parameters()]])
    torch.testing.assert_close(*results)
    assert all(g.abs().sum() > 0 for g in results[0][1:])


def test_sparse_features_are_never_made_dense(sparse_graph, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "to_dense", lambda *_: pytest.fail("made dense"))
    model = fastgcn()
    model.score_nodes(sparse_graph.x, sparse_graph.edge_index, torch.arange(64)).sum().backward()
    model(sparse_graph.x, sparse_graph.edge_index)


def test_row_sums_are_divided_by_before_the_first_layer(sparse_graph):
    scaled = sparse_graph.x.to_dense()
    scaled = scaled / scaled.sum(1, keepdim=True)
    results = []
    for model, x in ((fastgcn(samples=50, feature_scale="row-sum"), sparse_graph.x), (fastgcn(samples=50), scaled)):
        torch.manual_seed(1)
        results.append(model.score_nodes(x, sparse_graph.edge_index, torch.arange(9)))
    torch.testing.assert_close(*results)


def test_another_graph_with_the_same_features(dense_graph, make_graph):
    model, fresh = fastgcn(samples=100), fastgcn(samples=100)
    edges = make_graph(sparse=False, seed=1).edge_index
    model.score_nodes(dense_graph.x, dense_graph.edge_index, torch.arange(9))
    torch.manual_seed(1)
    after = model.score_nodes(dense_graph.x, edges, torch.arange(9))
    torch.manual_seed(1)
    assert torch.equal(after, fresh.score_nodes(dense_graph.x, edges, torch.arange(9)))


def test_a_node_without_neighbours_is_scored_by_itself():
    x, no_edges = torch.rand(4, 40), torch.zeros(2, 0, dtype=torch.long)
    model = fastgcn(samples=7)
    nodes = torch.tensor([2])
    torch.testing.assert_close(model.score_nodes(x, no_edges, nodes), model(x, no_edges)[nodes])


@pytest.mark.parametrize("which", GRAPHS)
def test_training_in_batches(which, request):
    graph = request.getfixturevalue(which)
    config = TrainingConfig(epochs=30, learning_rate=0.02, batch_size=32)
    run = fit(fastgcn(samples=100), graph, make_split(graph, "ratio"), config)
    assert run.history[-1]["train_loss"] < 0.75 * run.history[0]["train_loss"]
    assert run.best["val_accuracy"] > 0.7


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FastGCN(4, 3, 2, samples=0), "`samples` must be at least 1, got 0"),
        (lambda: FastGCN(4, 0, 2), "`hidden_channels` must be at least 1, got 0"),
        (lambda: FastGCN(4, 3, 0), "`out_channels` must be at least 1, got 0"),
    ],
    ids=["samples", "hidden", "out"],
)
def test_bad_settings(make, text):
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        make()
