import torch
import torch.nn.functional as F

from nfcgcn.baselines import MLP


def test_by_its_equation(four_nodes):
    model = MLP(5, 3, 2, 2).eval()
    first, last = model.layers
    with torch.no_grad():
        first.bias.uniform_(-1, 1)
        last.bias.uniform_(-1, 1)
    h = torch.relu(F.linear(four_nodes.x, first.weight, first.bias))
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index), h)
    expected = F.linear(h, last.weight, last.bias)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), expected)


def test_edges_do_not_count(four_nodes):
    model = MLP(5, 3, 2, 2).eval()
    none = torch.zeros(2, 0, dtype=torch.long)
    assert torch.equal(model(four_nodes.x, none), model(four_nodes.x, four_nodes.edge_index))
