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


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_dropout_on_the_input_of_every_layer(layer, sparse_graph):
    model = JKNet(40, 4, 3, 2, dropout=0.5)
    outputs = []
    model.layers[layer].register_forward_pre_hook(lambda _, args: outputs.append(args[0]))
    model(sparse_graph.x, sparse_graph.edge_index)
    model.eval()(sparse_graph.x, sparse_graph.edge_index)
    if layer == 0:
        outputs = [h.matrix.values() for h in outputs]
        assert (outputs[0] == 0).any()
        assert not (outputs[1] == 0).any()
    else:
        assert (outputs[0] == 0).double().mean() > (outputs[1] == 0).double().mean() + 0.1
