import pytest
import torch

from nfcgcn import GCN


def test_gcn_by_its_equation(four_nodes):
    model = GCN(5, 3, 2, 2).eval()
    a = torch.eye(4)
    a[four_nodes.edge_index[0], four_nodes.edge_index[1]] = 1
    a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
    h = torch.relu(a @ four_nodes.x @ model.layers[0].weight)
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index), h)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), a @ h @ model.layers[1].weight)


@pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])
def test_features_are_dropped_before_the_first_layer(which, request):
    graph = request.getfixturevalue(which)
    model = GCN(40, 8, 1, 40, dropout=0.75)
    with torch.no_grad():
        model.layers[0].weight.copy_(torch.eye(40))
    no_edges = torch.zeros(2, 0, dtype=torch.long)
    torch.manual_seed(0)
    dropped, whole = model(graph.x, no_edges), model.eval()(graph.x, no_edges)  # A_hat = I, W = I: X itself
    torch.testing.assert_close(whole, graph.x.to_dense())
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 4 * whole[kept])
    assert 0.22 < kept.sum() / (whole != 0).sum() < 0.28


def test_additions_by_their_equations(four_nodes):
    x, edge_index = four_nodes.x, four_nodes.edge_index
    model = GCN(5, 3, 2, 2, own_features="mlp", self_weight=3.0, edge_dropout=0.5).eval()
    a = 3 * torch.eye(4)
    a[edge_index[0], edge_index[1]] = 1
    a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
    h = torch.relu(a @ x @ model.layers[0].weight)
    alone = torch.relu(x @ model.own[0].weight.mT) @ model.own[1].weight.mT
    torch.testing.assert_close(model(x, edge_index), a @ h @ model.layers[1].weight + alone)
    assert [id(p) for p in model.decayed_parameters()] == [id(model.layers[0].weight), id(model.own[0].weight)]


def test_edges_are_left_out_in_training_only(sparse_graph):
    x, edge_index = sparse_graph.x, sparse_graph.edge_index
    model = GCN(40, 8, 2, 3, dropout=0.0, edge_dropout=0.5)
    first, second = model(x, edge_index), model(x, edge_index)
    assert not torch.equal(first, second)
    plain = GCN(40, 8, 2, 3, dropout=0.0)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(x, edge_index), plain(x, edge_index))
