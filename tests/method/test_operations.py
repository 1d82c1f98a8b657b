"""The operations by their formulas and as they run; what the kernels owe the formulas is tested with the kernels."""

from contextlib import nullcontext

import pytest
import torch

from nfcgcn.kernels.sparse import normalised_adjacency
from nfcgcn.method.acceleration import plain_formulas
from nfcgcn.method.operations import add_bias, drop_edges, dropout, multiply, propagate

WAYS = {"formula": plain_formulas, "as it runs": nullcontext}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
graphs = pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])


def messy_edges(num_nodes, num_edges, seed):
    """Directed, with loops, double loops and duplicates."""
    rng = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, num_edges), generator=rng)
    loops = torch.randint(num_nodes, (num_nodes // 3,), generator=rng)
    return torch.cat([edges, edges[:, : num_edges // 4], loops.expand(2, -1), loops[:2].expand(2, -1)], dim=1)


@ways
@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (5, 3), (60, 1000)], ids=str)
def test_propagation_is_that_of_pyg(way, num_nodes, num_edges):
    from torch_geometric.nn import GCNConv

    edge_index = messy_edges(num_nodes, num_edges, seed=num_nodes)
    theirs = GCNConv(7, 7, bias=False).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(torch.eye(7))
    h = torch.randn(num_nodes, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inputs = [h.clone().requires_grad_() for _ in range(2)]
    with way():
        out_of = [propagate(inputs[0], edge_index), theirs(inputs[1], edge_index)]
        torch.testing.assert_close(*out_of)
        for out in out_of:
            (out * torch.arange(out.numel()).view_as(out).sin()).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)


@ways
def test_edges_point_from_source_to_target(way):
    with way():
        a = propagate(torch.eye(2), torch.tensor([[0], [1]]))
    torch.testing.assert_close(a, torch.tensor([[1, 0], [0.5**0.5, 0.5]]))


@ways
def test_propagation_by_hand(way, four_nodes):
    half, third, s, t = 1 / 2, 1 / 3, 12**-0.5, 8**-0.5
    expected = torch.tensor(
        [[third, third, s, 0], [third, third, s, 0], [s, s, 1 / 4, t], [0, 0, t, half]], dtype=torch.float64
    )
    with way():
        torch.testing.assert_close(propagate(torch.eye(4).double(), four_nodes.edge_index), expected)


@ways
def test_a_loop_may_weigh_more_than_an_edge(way):
    """Degrees are 2 + 2, 2 + 1 and 2 + 1: node 0 is between the others."""
    edge_index, s = torch.tensor([[0, 1, 0, 2, 1], [1, 0, 2, 0, 1]]), 12**-0.5
    expected = torch.tensor([[1 / 2, s, s], [s, 2 / 3, 0], [s, 0, 2 / 3]], dtype=torch.float64)
    with way():
        torch.testing.assert_close(propagate(torch.eye(3).double(), edge_index, 2.0), expected)


@pytest.mark.parametrize("self_weight", [1.0, 0.3])
def test_the_adjacency_is_the_matrix_that_propagates(self_weight):
    edge_index = messy_edges(30, 80, seed=1)
    a = normalised_adjacency(edge_index, 30, torch.float64, self_weight)
    expected = propagate.formula(torch.eye(30).double(), edge_index, self_weight)
    torch.testing.assert_close(a.matrix.to_dense(), expected)
    torch.testing.assert_close(a.transpose.to_dense(), expected.mT)
    assert normalised_adjacency(edge_index, 30, torch.float64, self_weight) is a
    assert normalised_adjacency(edge_index, 30).matrix.dtype == torch.float32


@ways
@graphs
def test_dropout_of_features(way, which, request):
    """Seen through a product with the unit matrix, in whatever form the dropped features are held."""
    x = request.getfixturevalue(which).x
    torch.manual_seed(0)
    with way():
        assert dropout(x, 0.75, False) is x
        assert dropout(x, 0.0, True) is x
        first, second = (multiply(dropout(x, 0.75, True), torch.eye(40)) for _ in range(2))
    whole = x.to_dense()
    kept = first != 0
    torch.testing.assert_close(first[kept], 4 * whole[kept])
    assert 0.22 < kept.sum() / (whole != 0).sum() < 0.28
    assert not torch.equal(first, second)


@ways
def test_dropout_lets_the_gradient_through_where_it_kept(way):
    h = torch.full((50, 8), 3.0, requires_grad=True)
    with way():
        dropped = dropout(h, 0.5, True)
        dropped.sum().backward()
    torch.testing.assert_close(h.grad, dropped.detach() / 3)
    assert 0 < h.grad.count_nonzero() < h.numel()


@ways
@graphs
def test_products(way, which, request):
    x = request.getfixturevalue(which).x
    matrix = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with way():
        out = multiply(x, matrix)
        out.square().sum().backward()
    torch.testing.assert_close(out, x.to_dense() @ matrix)
    torch.testing.assert_close(matrix.grad, 2 * x.to_dense().mT @ out.detach())


@ways
def test_biases(way):
    h, bias = torch.randn(30, 3), torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    with way():
        out = add_bias(h, bias)
        (out * h).sum().backward()
    torch.testing.assert_close(out, h + bias)
    torch.testing.assert_close(bias.grad, h.sum(0))


def test_dropped_edges_go_in_both_directions_and_anew_each_time():
    edge_index = messy_edges(200, 4000, seed=0)
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    assert drop_edges(edge_index, 0.3, False) is edge_index
    assert drop_edges(edge_index, 0.0, True) is edge_index
    torch.manual_seed(0)
    first, second = (drop_edges(edge_index, 0.3, True) for _ in range(2))
    assert 0.67 < first.shape[1] / edge_index.shape[1] < 0.73
    pairs = [set(zip(*edges.tolist(), strict=True)) for edges in (first, second, edge_index)]
    assert pairs[0] != pairs[1]
    assert pairs[0] | pairs[1] < pairs[2]
    for kept in pairs[:2]:
        assert kept == {(target, source) for source, target in kept}
    torch.manual_seed(0)
    assert torch.equal(drop_edges(edge_index, 0.3, True), first)
