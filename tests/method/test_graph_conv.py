import copy
import re

import pytest
import torch
from torch import nn

from nfcgcn.errors import GraphError
from nfcgcn.kernels.sparse import normalised_adjacency
from nfcgcn.method.graph_conv import GraphConv, Linear

both = pytest.mark.parametrize("make", [GraphConv, Linear])


def test_values_and_gradients_are_those_of_pyg(dense_graph):
    from torch_geometric.nn import GCNConv

    ours, theirs = GraphConv(40, 4).double(), GCNConv(40, 4, bias=False).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.weight.mT)
    inputs = [dense_graph.x.double().requires_grad_() for _ in range(2)]
    out_of = [layer(x, dense_graph.edge_index) for layer, x in zip((ours, theirs), inputs, strict=True)]
    torch.testing.assert_close(*out_of)
    for out in out_of:
        (out * torch.arange(out.numel()).view_as(out).sin()).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    torch.testing.assert_close(ours.weight.grad, theirs.lin.weight.grad.mT)


def test_graph_conv_takes_sparse_features(sparse_graph, dense_graph):
    conv = GraphConv(40, 5)
    grads = []
    for graph in (sparse_graph, dense_graph):
        conv.zero_grad()
        out = conv(graph.x, graph.edge_index)
        out.square().sum().backward()
        grads.append((out.detach(), conv.weight.grad.clone()))
    torch.testing.assert_close(*grads)


def test_graph_conv_follows_its_edges(four_nodes):
    conv = GraphConv(5, 2)
    edge_index = four_nodes.edge_index.clone()
    first = conv(four_nodes.x, edge_index)
    assert torch.equal(conv(four_nodes.x, edge_index), first)
    edge_index[:, edge_index[0] == 3] = 3
    second = conv(four_nodes.x, edge_index)
    assert not torch.equal(second, first)
    assert torch.equal(copy.deepcopy(conv)(four_nodes.x, edge_index.clone()), second)
    third = conv(four_nodes.x, edge_index[:, :2])
    assert not torch.equal(third, second)
    assert torch.equal(conv(four_nodes.x, edge_index[:, :2].clone()), third)


def test_graph_conv_follows_its_type():
    edge_index, conv = torch.tensor([[0, 1], [1, 0]]), GraphConv(3, 2)
    assert conv(torch.ones(4, 3), edge_index).dtype == torch.float32
    assert conv.double()(torch.ones(4, 3).double(), edge_index).dtype == torch.float64
    assert conv(torch.ones(6, 3).double(), edge_index).shape == (6, 2)


def test_graph_conv_takes_a_ready_adjacency(four_nodes):
    conv = GraphConv(5, 2)
    ready = normalised_adjacency(four_nodes.edge_index, 4)
    assert torch.equal(conv(four_nodes.x, ready), conv(four_nodes.x, four_nodes.edge_index))


@pytest.mark.parametrize("edge", [[4, 0], [0, 4], [-1, 0], [0, -1]], ids=str)
def test_graph_conv_refuses_edges_outside_the_features(edge):
    text = "`edge_index` names a node outside 0 to 3; does it belong to these features?"
    with pytest.raises(GraphError, match=f"^{re.escape(text)}$"):
        GraphConv(3, 2)(torch.ones(4, 3), torch.tensor([[0, edge[0]], [1, edge[1]]]))


def test_linear_is_linear(sparse_graph):
    ours = Linear(40, 3)
    with torch.no_grad():
        ours.bias.copy_(torch.tensor([1.0, -2.0, 0.5]))
    theirs = nn.Linear(40, 3)
    theirs.load_state_dict(ours.state_dict())
    x = sparse_graph.x.to_dense()
    torch.testing.assert_close(ours(x), theirs(x))
    for layer, rows in ((ours, sparse_graph.x), (theirs, x)):
        layer(rows).square().sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)


@both
def test_weights_are_glorot_uniform(make):
    torch.manual_seed(0)
    weight = make(300, 100).weight.detach()
    bound = (6 / 400) ** 0.5
    assert 0.99 * bound < weight.abs().max() <= bound
    torch.testing.assert_close(weight.std().item(), bound / 3**0.5, rtol=0.03, atol=0)


@both
def test_reset_parameters_draws_anew_from_torch(make):
    torch.manual_seed(1)
    layer = make(5, 4)
    first = layer.weight.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(layer.weight, first)
    torch.manual_seed(1)
    layer.reset_parameters()
    assert torch.equal(layer.weight, first)


def test_biases_start_at_zero():
    layer = Linear(6, 3)
    assert layer.bias.eq(0).all()
    nn.init.ones_(layer.bias)
    layer.reset_parameters()
    assert layer.bias.eq(0).all()


def test_repr():
    assert repr(GraphConv(7, 3)) == "GraphConv(7, 3)"
