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
