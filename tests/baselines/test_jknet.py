import pytest
import torch
from torch_geometric.nn import JumpingKnowledge

from nfcgcn.baselines import JKNet


def layers_by_hand(model, graph):
    a = torch.eye(4)
    a[graph.edge_index[0], graph.edge_index[1]] = 1
    a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
    h, outputs = graph.x, []
    for layer in model.layers:
        h = torch.relu(a @ h @ layer.weight)
        outputs.append(h)
    return outputs


@pytest.mark.parametrize(
    ("mode", "join"),
    [
        ("concat", lambda outputs: torch.cat(outputs, dim=1)),
        ("max", lambda outputs: torch.maximum(torch.maximum(outputs[0], outputs[1]), outputs[2])),
    ],
)
def test_by_its_equation(mode, join, four_nodes):
    torch.manual_seed(0)
    model = JKNet(5, 4, 3, 2, mode=mode).eval()
    z = join(layers_by_hand(model, four_nodes))
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index), z)
    expected = z @ model.output.weight.mT + model.output.bias
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), expected)


def test_the_lstm_weighs_the_layers(four_nodes):
    torch.manual_seed(0)
    model = JKNet(5, 4, 3, 2, mode="lstm").eval()
    assert isinstance(model.join, JumpingKnowledge)
    outputs = torch.stack(layers_by_hand(model, four_nodes), dim=1)
    weights = torch.softmax(model.join.att(model.join.lstm(outputs)[0]).squeeze(2), dim=1)
    z = (outputs * weights[:, :, None]).sum(1)
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index), z)
