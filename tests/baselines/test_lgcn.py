import re

import pytest
import torch
import torch.nn.functional as F

from nfcgcn.baselines import LGCN
from nfcgcn.baselines import lgcn as lgcn_module
from nfcgcn.baselines.lgcn import LearnableGraphConv, find_part, k_largest
from nfcgcn.errors import ConfigError


def lgcn(num_layers=2, **options):
    torch.manual_seed(0)
    return LGCN(40, 8, num_layers, 3, **{"filters": 4, "k": 3, **options})


def group_neighbours(edge_index, num_nodes):
    return find_part(edge_index, num_nodes, None, "plain").neighbourhoods


def plain_k_largest(h, edge_index, k):
    """Node by node, feature by feature."""
    out = torch.zeros(len(h), k, h.shape[1], dtype=h.dtype)
    for node in range(len(h)):
        values = h[edge_index[0, edge_index[1] == node]].sort(0, descending=True).values[:k]
        out[node, : len(values)] = values
    return out


def test_k_largest_of_four_nodes_by_hand(four_nodes):
    """Node 0 has neighbours 1 2; node 1: 0 2; node 2: 0 1 3; node 3: 2."""
    h = torch.tensor([[1.0, -5.0], [4.0, -2.0], [2.0, -3.0], [3.0, -2.0]], requires_grad=True)
    neighbourhoods = group_neighbours(four_nodes.edge_index, 4)
    expected = [
        [[4.0, -2.0], [2.0, -3.0], [0.0, 0.0]],
        [[2.0, -3.0], [1.0, -5.0], [0.0, 0.0]],
        [[4.0, -2.0], [3.0, -2.0], [1.0, -5.0]],  # the features rank the neighbours 1 3 0 and 1 3 0, a tie among these
        [[2.0, -3.0], [0.0, 0.0], [0.0, 0.0]],
    ]
    largest = k_largest(h, neighbourhoods, 3)
    assert largest.tolist() == expected
    assert k_largest(h, neighbourhoods, 1).tolist() == [row[:1] for row in expected]
    # The gradient of cell (node, place, feature) goes to where its value stands in h, and of a tie to the lower node.
    weight = torch.arange(24.0).view(4, 3, 2)
    (largest * weight).sum().backward()
    #  h[0]: places (1, 1) and (2, 2), h[1]: (0, 0) and (2, 0), h[2]: (0, 1), (1, 0), (3, 0), h[3]: (2, 1)
    assert h.grad.tolist() == [[8 + 16, 9 + 17], [0 + 12, 1 + 13], [2 + 6 + 18, 3 + 7 + 19], [14, 15]]


def test_of_equal_values_those_of_the_lower_nodes_are_chosen():
    star = torch.stack([torch.zeros(40, dtype=torch.long), torch.arange(1, 41)])
    h = torch.ones(41, 1, requires_grad=True)
    k_largest(h, group_neighbours(torch.cat([star, star.flip(0)], 1), 41), 3)[0].sum().backward()
    assert h.grad.nonzero()[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("k", [1, 3, 8, 40])
def test_k_largest_node_by_node(k, dense_graph):
    hub = torch.stack([torch.zeros(60, dtype=torch.long), torch.arange(100, 160)])  # degrees up to some 60
    edge_index = torch.cat([dense_graph.edge_index, hub, hub.flip(0)], 1).unique(dim=1)
    edge_index = edge_index[:, ((edge_index != 7) & (edge_index != 8)).all(0)]  # nobody knows nodes 7 and 8
    h = torch.randn(300, 5, generator=torch.Generator().manual_seed(0)).round(decimals=1)  # with ties
    assert torch.equal(k_largest(h, group_neighbours(edge_index, 300), k), plain_k_largest(h, edge_index, k))


def test_groups_hold_each_node_once_in_a_row_not_twice_too_long(dense_graph):
    hub = torch.stack([torch.zeros(60, dtype=torch.long), torch.arange(100, 160)])
    edge_index = torch.cat([dense_graph.edge_index, hub, hub.flip(0)], 1).unique(dim=1)
    groups = group_neighbours(edge_index, 300)
    assert sorted(torch.cat([group.nodes for group in groups]).tolist()) == list(range(300))
    assert len(groups) > 2
    for group in groups:
        assert (2 * (group.table < 300).sum(1) > group.table.shape[1]).all()


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_a_layer_is_two_convolutions(k, dense_graph):
    torch.manual_seed(0)
    layer = LearnableGraphConv(6, 4, k=k).double()
    with torch.no_grad():
        layer.scale.uniform_()
        layer.shift.uniform_()
    h = torch.randn(300, 6).double()
    grid = torch.cat([h[:, None], plain_k_largest(h, dense_graph.edge_index, k)], 1).mT  # channels before places
    expected = F.conv1d(F.conv1d(grid, layer.first), layer.second).squeeze(2)
    expected = F.batch_norm(expected, None, None, layer.scale, layer.shift, training=True)
    torch.testing.assert_close(layer(h, group_neighbours(dense_graph.edge_index, 300)), expected)
    assert layer.first.shape[0] == 5


def test_the_model_by_its_equation(four_nodes):
    torch.manual_seed(0)
    model = LGCN(5, 3, 2, 2, filters=2, k=2).eval()
    a = torch.eye(4)
    a[four_nodes.edge_index[0], four_nodes.edge_index[1]] = 1
    a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
    neighbourhoods = group_neighbours(four_nodes.edge_index, 4)
    h = a @ four_nodes.x @ model.embedding.weight
    for layer, width in zip(model.layers, (3, 5), strict=True):
        assert layer.first.shape[1] == width
        h = torch.cat([h, layer(h, neighbourhoods)], 1)
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index), h)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), a @ h @ model.output.weight)


def authors_formula(model, x, adjacency, k, epsilon):
    """The authors' program without dropout: every cell of the adjacency counts, those of strangers as 0."""
    h = adjacency @ (x @ model.embedding.weight + model.embedding.bias)
    for layer in model.layers:
        largest = (adjacency[:, :, None] * h[None]).clamp(min=0).topk(k, dim=1).values
        grid = torch.cat([h[:, None], largest], 1).mT
        out = F.conv1d(F.conv1d(grid, layer.first, layer.bias), layer.second).squeeze(2)
        h = torch.cat([h, F.batch_norm(out, None, None, layer.scale, layer.shift, training=True, eps=epsilon)], 1)
    return adjacency @ (h @ model.output.weight + model.output.bias)


def test_the_authors_program(dense_graph):
    x, edge_index = dense_graph.x.double(), dense_graph.edge_index
    options = {"neighbour_values": "weighted", "bias": "learned", "trained_on": "neighbourhood", "epsilon": 0.01}
    model = lgcn(dropout=0.0, **options).double()
    with torch.no_grad():
        for layer in model.layers:
            layer.bias.uniform_()
    a = torch.eye(300).double()
    a[edge_index[0], edge_index[1]] = 1
    a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
    nodes = torch.tensor([250, 3, 17])
    members = a[nodes].sum(0).nonzero()[:, 0]
    assert 3 < len(members) < 150
    within = authors_formula(model, x[members], a[members][:, members], 3, 0.01)
    expected = within[torch.searchsorted(members, nodes)]
    torch.testing.assert_close(model.score_nodes(x, edge_index, nodes), expected)
    everything = authors_formula(model, x, a, 3, 0.01)
    torch.testing.assert_close(model.eval().score_nodes(x, edge_index, nodes), everything[nodes])
    torch.testing.assert_close(model(x, edge_index), everything)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_shapes_and_gradients(num_layers, sparse_graph):
    model = lgcn(num_layers)
    out = model(sparse_graph.x, sparse_graph.edge_index)
    assert out.shape == (300, 3)
    assert model.embed(sparse_graph.x, sparse_graph.edge_index).shape == (300, 8 + 4 * num_layers)
    F.cross_entropy(out, sparse_graph.y).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    assert len(model.decayed_parameters()) == len(list(model.parameters()))


def test_dropout_acts_on_every_input(dense_graph, monkeypatch):
    x, edge_index = dense_graph.x, dense_graph.edge_index
    model = lgcn(dropout=0.5)
    assert not torch.equal(model.embed(x, edge_index)[:, :8], model.eval().embed(x, edge_index)[:, :8])
    seen = []
    monkeypatch.setattr(lgcn_module, "drop", lambda h, *how: seen.append((h.shape[1], *how)) or h)
    model(x, edge_index)
    # The features; grids of 4 places and 8, then 12 features; 2 places and half of 8 + 4, then 12 + 4, features; at
    # last 8 + 4 + 4.
    assert seen == [(width, 0.5, False) for width in (40, 32, 12, 48, 16, 16)]
    model.train()(x, edge_index)
    assert all(training for _, _, training in seen[6:])


@pytest.mark.parametrize("bias", ["none", "learned"])
def test_reset_parameters_draws_all_of_them(bias):
    model = lgcn(bias=bias)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(7)
    model.reset_parameters()
    for name, parameter in model.named_parameters():
        assert not (parameter == 7).any(), name
        drawn = not (name.startswith("layers") and name.endswith(("scale", "shift", "bias")))
        assert torch.equal(parameter, before[name]) is not drawn, name


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: lgcn(k=0), "`k` must be at least 1, got 0"),
        (lambda: lgcn(filters=0), "`filters` must be at least 1, got 0"),
        (lambda: lgcn(num_layers=0), "`num_layers` must be at least 1, got 0"),
        (lambda: lgcn(dropout=1.0), "`dropout` must be at least 0 and below 1, got 1.0"),
        (lambda: LGCN(4, 0, 1, 2), "`hidden_channels` must be at least 1, got 0"),
        (lambda: LGCN(4, 3, 1, 0), "`out_channels` must be at least 1, got 0"),
    ],
    ids=["k", "filters", "layers", "dropout", "hidden", "out"],
)
def test_bad_settings(make, text):
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        make()
