"""ChebNet, fingerprints, the gated GNN and the fixed-point GNN against PyG and plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nfcgcn.baselines.chebnet import ChebConv, ChebNet, scaled_laplacian
from nfcgcn.baselines.fingerprint import Fingerprint
from nfcgcn.baselines.gated import GatedGNN
from nfcgcn.baselines.gnn import GNN, fixed_point


def dense_adjacency(graph):
    return torch.from_numpy(graph.adjacency.toarray()).double()


@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_chebyshev_filter_is_that_of_pyg(dense_graph, order):
    from torch_geometric.nn import ChebConv as Theirs

    ours, theirs = ChebConv(40, 5, order), Theirs(40, 5, order + 1, bias=False)
    with torch.no_grad():
        for layer, weight in zip(theirs.lins, ours.weight, strict=True):
            layer.weight.copy_(weight.mT)
    laplacian = scaled_laplacian(dense_graph.edge_index, 300, torch.float32, torch.device("cpu"))
    expected = theirs(dense_graph.x, dense_graph.edge_index, lambda_max=torch.tensor(2.0))
    torch.testing.assert_close(ours(dense_graph.x, laplacian), expected, rtol=1e-4, atol=1e-4)


def test_a_lone_node_is_filtered_by_its_own_features():
    """T_0 = 1, T_1 = L - I, which is 0 for it, and T_2 = 2 T_1^2 - 1."""
    laplacian = scaled_laplacian(torch.zeros(2, 0, dtype=torch.int64), 1, torch.float32, torch.device("cpu"))
    layer, x = ChebConv(3, 2, 2), torch.randn(1, 3)
    torch.testing.assert_close(layer(x, laplacian), x @ layer.weight[0] - x @ layer.weight[2])


def test_fingerprints_by_hand(four_nodes):
    net = Fingerprint(5, 4, 1, 2, max_degree=2).eval()
    torch.nn.init.normal_(net.layers[0].bias)
    sums = (dense_adjacency(four_nodes) + torch.eye(4)).float() @ four_nodes.x
    degrees = [2, 2, 2, 1]  # the third has three neighbours, and the weights of two
    layer = net.layers[0]
    expected = torch.stack([sums[i] @ layer.weight[d] + layer.bias[d] for i, d in enumerate(degrees)])
    torch.testing.assert_close(net(four_nodes.x, four_nodes.edge_index), expected)


def test_a_step_of_the_gates_by_the_formula(dense_graph):
    net = GatedGNN(40, 6, 3, steps=1).eval()
    a = dense_adjacency(dense_graph).float()
    scale = a.sum(1).rsqrt()
    h = net.first(dense_graph.x)
    heard = (scale[:, None] * a * scale) @ (h @ net.message.weight.mT) + net.message.bias
    reset, update = torch.sigmoid(net.gates(torch.cat([heard, h], 1))).chunk(2, 1)
    new = torch.tanh(net.candidate(torch.cat([heard, reset * h], 1)))
    expected = (1 - update) * h + update * new
    torch.testing.assert_close(net.embed(dense_graph.x, dense_graph.edge_index), expected, rtol=1e-4, atol=1e-5)


def test_a_state_is_a_fixed_point_from_any_start(sparse_graph):
    net = GNN(40, 6, 3).double().eval()
    with torch.no_grad():
        net.state.weight.mul_(30)  # far from a contraction, were it not divided by its norm
    x = sparse_graph.x.to_dense().double()
    with torch.no_grad():
        h = net.embed(x, sparse_graph.edge_index)
    a = dense_adjacency(sparse_graph)
    scale = a.sum(1).rsqrt()
    w = net.state.weight.abs()
    norm = (w.sum(0).max() * w.sum(1).max()).sqrt()
    assert norm > torch.linalg.matrix_norm(net.state.weight, 2) > 1
    again = torch.tanh(0.8 * (scale[:, None] * a * scale) @ h @ net.state.weight.mT / norm + net.first(x))
    torch.testing.assert_close(again, h, rtol=0, atol=1e-5)


def test_the_gradient_is_that_of_the_fixed_point():
    """By the implicit function: the same as through two hundred steps, and as by differences."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    w = (0.5 * w / torch.linalg.matrix_norm(w, 2)).requires_grad_()
    b = torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    pull = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    h = b.new_zeros(3, 4)
    for _ in range(200):
        h = torch.tanh(h @ w + b)
    expected = torch.autograd.grad((h * pull).sum(), (w, b))
    found = torch.autograd.grad((fixed_point(lambda h: torch.tanh(h @ w + b), b, 100) * pull).sum(), (w, b))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_the_number_of_steps_follows_from_the_contraction():
    assert GNN(4, 3, 2, contraction=0.5).steps == 20
    assert GNN(4, 3, 2, contraction=0.999999).steps == 1000


def test_chebnet_reaches_as_far_as_its_order(dense_graph):
    from nfcgcn.inference.reach import count_hops, reach

    net = ChebNet(40, 4, 2, 3, order=2).eval()
    assert reach(net) == 4
    x = dense_graph.x.clone().requires_grad_()
    net(x, dense_graph.edge_index)[0].sum().backward()
    touched = x.grad.abs().sum(1).numpy() > 0
    hops = count_hops(dense_graph, np.array([0]), 4)
    assert set(np.flatnonzero(touched)) <= set(np.flatnonzero(hops >= 0))
