import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch_geometric.nn import SAGEConv

from nfcgcn.baselines import SAGE
from nfcgcn.baselines.sage import MeanConv, draw_lists
from nfcgcn.method.sampling import adjacency_lists


def test_four_nodes_by_hand(four_nodes):
    """One layer; W_own copies features 0 and 1, W_neighbours adds feature 2 to class 0 and feature 3 to class 1."""
    model = SAGE(5, 1, 1, 2).eval()
    with torch.no_grad():
        layer = model.layers[0]
        layer.own.copy_(torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]))
        layer.neighbours.copy_(torch.tensor([[0, 0], [0, 0], [1, 0], [0, 1], [0, 0]]))
        layer.bias.copy_(torch.tensor([10, 20]))
    # Features 2 and 3: (2 0), (0 1), (0 0), (3 1). Means: of 1 and 2, of 0 and 2, of 0, 1 and 3, of 2.
    expected = torch.tensor([[11 + 0, 20 + 0.5], [10 + 1, 21 + 0], [11 + 5 / 3, 21 + 2 / 3], [10 + 0, 20 + 0]])
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), expected)


def test_values_and_gradients_are_those_of_pyg(dense_graph):
    torch.manual_seed(0)
    model, theirs = SAGE(40, 1, 1, 6, dropout=0.0).double().eval(), SAGEConv(40, 6).double()
    ours = model.layers[0]
    with torch.no_grad():
        ours.bias.uniform_(-1, 1)
        theirs.lin_l.weight.copy_(ours.neighbours.mT)
        theirs.lin_l.bias.copy_(ours.bias)
        theirs.lin_r.weight.copy_(ours.own.mT)
    x, edge_index = dense_graph.x.double(), dense_graph.edge_index
    out_of = [model(x, edge_index), theirs(x, edge_index)]
    torch.testing.assert_close(*out_of)
    for out in out_of:
        (out * torch.arange(out.numel()).view_as(out).sin()).sum().backward()
    torch.testing.assert_close(ours.own.grad, theirs.lin_r.weight.grad.mT)
    torch.testing.assert_close(ours.neighbours.grad, theirs.lin_l.weight.grad.mT)
    torch.testing.assert_close(ours.bias.grad, theirs.lin_l.bias.grad)


def test_two_layers_put_relu_between_them(four_nodes):
    torch.manual_seed(0)
    model = SAGE(5, 4, 2, 2).eval()
    mean = torch.zeros(4, 4)
    mean[four_nodes.edge_index[1], four_nodes.edge_index[0]] = 1
    mean /= mean.sum(1, keepdim=True)
    first, last = model.layers
    h = torch.relu(four_nodes.x @ first.own + mean @ four_nodes.x @ first.neighbours)
    assert (h == 0).any()
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index), h)
    scores = h @ last.own + mean @ h @ last.neighbours
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), scores)


def test_a_node_alone_has_its_own_part_only(four_nodes):
    model = SAGE(5, 1, 1, 2).eval()
    alone = model(four_nodes.x, torch.zeros(2, 0, dtype=torch.long))
    torch.testing.assert_close(alone, four_nodes.x @ model.layers[0].own)


def test_the_mean_of_many_draws_is_the_full_mean(sparse_graph):
    torch.manual_seed(0)
    model, x, edge_index = SAGE(40, 1, 1, 3, num_neighbours=2, dropout=0.0), sparse_graph.x, sparse_graph.edge_index
    nodes = torch.arange(50)
    with torch.no_grad():
        draws = torch.stack([model.score_nodes(x, edge_index, nodes) for _ in range(600)])
        full = model.eval()(x, edge_index)[nodes]
    assert not torch.allclose(draws[0], full)
    error = (draws.mean(0) - full) / (draws.std(0) / 600**0.5 + 1e-6)
    assert error.abs().max() < 4.5


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_with_room_for_all_neighbours_nothing_is_left_to_chance(num_layers, sparse_graph):
    model = SAGE(40, 4, num_layers, 3, num_neighbours=300, num_further=300, dropout=0.0)
    x, edge_index = sparse_graph.x, sparse_graph.edge_index
    nodes, results = torch.tensor([5, 0, 299, 17]), []
    for scores in (model.score_nodes(x, edge_index, nodes), model.eval()(x, edge_index)[nodes]):
        model.zero_grad()
        scores.square().sum().backward()
        results.append([scores.detach(), *[p.grad.clone() for p in model.parameters()]])
    torch.testing.assert_close(*results)


def test_no_more_neighbours_than_asked_for(sparse_graph, monkeypatch):
    model = SAGE(40, 4, 3, 3, num_neighbours=2, num_further=1)
    hops = []
    forward = MeanConv.forward
    monkeypatch.setattr(MeanConv, "forward", lambda self, h, hop: hops.append(hop) or forward(self, h, hop))
    model.score_nodes(sparse_graph.x, sparse_graph.edge_index, torch.arange(10))
    most = [int(hop.mean.matrix.crow_indices().diff().max()) for hop in hops]
    assert most == [1, 1, 2]
    assert hops[2].mean.matrix.shape[0] == 10
    assert hops[2].mean.matrix.shape[1] == hops[1].mean.matrix.shape[0] < 31
    for hop in hops:
        sums = hop.mean.matrix @ torch.ones(hop.mean.matrix.shape[1], 1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


graphs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
)


@given(graphs, st.integers(1, 7), st.lists(st.integers(0, 11), max_size=9), st.integers(0, 99))
def test_lists_hold_distinct_neighbours_and_no_more_than_asked_for(case, size, chosen, seed):
    n, pairs = case
    starts, neighbours = adjacency_lists(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).mT, n)
    nodes = torch.tensor(chosen, dtype=torch.int64) % n
    drawn_starts, drawn = draw_lists(starts, neighbours, nodes, size=size, seed=seed)
    assert (len(drawn_starts), drawn_starts[0], drawn_starts[-1]) == (len(nodes) + 1, 0, len(drawn))
    for row, node in enumerate(nodes):
        around = neighbours[starts[node] : starts[node + 1]].tolist()
        mine = drawn[drawn_starts[row] : drawn_starts[row + 1]].tolist()
        assert len(set(mine)) == len(mine) == min(size, len(around))
        assert set(mine) <= set(around)


def test_lists_are_drawn_uniformly_and_anew_for_each_mention_of_a_node():
    starts, neighbours = torch.tensor([0, 0, 5]), torch.tensor([9, 8, 7, 6, 5])
    drawn = draw_lists(starts, neighbours, torch.ones(40_000, dtype=torch.int64), size=2, seed=0)[1]
    pairs = drawn.numpy().reshape(-1, 2) - 5
    counts = np.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25).reshape(5, 5)
    assert not counts.diagonal().any()
    assert chisquare(counts[~np.eye(5, dtype=bool)]).pvalue > 0.001


@pytest.mark.gpu
def test_the_same_neighbours_are_drawn_on_a_gpu(sparse_graph):
    lists = adjacency_lists(sparse_graph.edge_index, sparse_graph.num_nodes)
    nodes = torch.arange(0, sparse_graph.num_nodes, 2)
    expected = draw_lists(*lists, nodes, size=2, seed=5)
    found = draw_lists(*(part.cuda() for part in lists), nodes.cuda(), size=2, seed=5)
    assert all(f.is_cuda and f.tolist() == e.tolist() for f, e in zip(found, expected, strict=True))
