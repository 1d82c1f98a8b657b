import math

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv

from nfcgcn.baselines import GAT
from nfcgcn.baselines.gat import AttentionConv
from nfcgcn.kernels.reference.attention import Edges
from nfcgcn.kernels.sparse import normalised_adjacency


def edges_of(graph, dtype=torch.float64):
    return Edges.of(normalised_adjacency(graph.edge_index, graph.num_nodes, dtype))


def test_one_head_by_hand(four_nodes):
    """One feature per node, W = 1: scores are LeakyReLU(3 h_i + h_j)."""
    layer = AttentionConv(1, 1, heads=1, join="concat", dropout=0.6).double().eval()
    with torch.no_grad():
        for parameter, value in ((layer.weight, 1.0), (layer.source, 1.0), (layer.target, 3.0), (layer.bias, 0.5)):
            parameter.fill_(value)
    h = torch.tensor([[1.0], [-1.0], [0.0], [2.0]]).double()
    # Node 3 is joined to 2: scores of 2 and of itself are 6 + 0 and 6 + 2, so weights 1 : e^2.
    # Node 1 is joined to 0 and 2: -3 + 1, -3 - 1 (itself), -3 + 0, a fifth of each: -0.4, -0.8, -0.6.
    weights = [math.exp(-0.4), math.exp(-0.8), math.exp(-0.6)]
    out = layer(h, edges_of(four_nodes))
    assert out[3].item() == pytest.approx(0.5 + 2 * math.exp(2) / (1 + math.exp(2)), abs=1e-12)
    assert out[1].item() == pytest.approx(0.5 + (weights[0] - weights[1]) / sum(weights), abs=1e-12)


@pytest.mark.parametrize("join", ["concat", "mean"])
def test_values_and_gradients_are_those_of_pyg(join, dense_graph):
    torch.manual_seed(0)
    ours = AttentionConv(40, 5, heads=3, join=join, dropout=0.6).double().eval()
    theirs = GATConv(40, 5, heads=3, concat=join == "concat", dropout=0.6).double().eval()
    with torch.no_grad():
        ours.bias.uniform_(-1, 1)
        theirs.lin.weight.copy_(ours.weight.mT)
        theirs.att_src.copy_(ours.source[None])
        theirs.att_dst.copy_(ours.target[None])
        theirs.bias.copy_(ours.bias)
    x = dense_graph.x.double()
    pairs = [(ours.weight, theirs.lin.weight), (ours.source, theirs.att_src), (ours.target, theirs.att_dst),
             (ours.bias, theirs.bias)]  # fmt: skip
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    out_of = [ours(inputs[0], edges_of(dense_graph)), theirs(inputs[1], dense_graph.edge_index)]
    torch.testing.assert_close(*out_of)
    for out in out_of:
        (out * torch.arange(out.numel()).view_as(out).sin()).sum().backward()
    for mine, other in [*pairs, inputs]:
        grad = other.grad.mT if other is theirs.lin.weight else other.grad.view_as(mine)
        torch.testing.assert_close(mine.grad, grad)


def test_large_scores_stay_finite(four_nodes):
    layer = AttentionConv(5, 2, heads=2, join="mean", dropout=0.0)
    with torch.no_grad():
        layer.source.mul_(1e4)
        layer.target.mul_(1e4)
    out = layer(four_nodes.x, edges_of(four_nodes, torch.float32))
    out.sum().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_attention_is_dropped_but_not_weighed_anew(four_nodes):
    """A dropped neighbour is lost: the other weights become those of before over 1 - rate."""
    torch.manual_seed(0)
    layer = AttentionConv(4, 4, heads=1, join="concat", dropout=0.5)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(4))
    x = torch.eye(4)  # so that the output is the matrix of weights
    dropped, whole = (layer.train(training)(x, edges_of(four_nodes, torch.float32)) for training in (True, False))
    torch.testing.assert_close(whole.sum(1), torch.ones(4))
    kept = dropped != 0
    assert 0 < kept.sum() < (whole != 0).sum()
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


def test_by_its_layers(four_nodes):
    model = GAT(5, 3, 2, 2, heads=4, output_heads=2).eval()
    edges = edges_of(four_nodes, torch.float32)
    assert [layer.join for layer in model.layers] == ["concat", "mean"]
    h = F.elu(model.layers[0](four_nodes.x, edges))
    assert h.shape == (4, 12)
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index), h)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), model.layers[1](h, edges))


@pytest.mark.parametrize("rates", [(0.5, 0.0), (0.0, 0.5)], ids=["inputs", "attention"])
def test_both_dropouts_act(rates, sparse_graph):
    model = GAT(40, 4, 2, 3, dropout=rates[0], attention_dropout=rates[1])
    trained = model(sparse_graph.x, sparse_graph.edge_index)
    assert not torch.allclose(trained, model.eval()(sparse_graph.x, sparse_graph.edge_index))
