import re

import pytest
import torch
import torch.nn.functional as F

from nfcgcn import NFCGCN
from nfcgcn.baselines import GAT5, GCN5
from nfcgcn.errors import ConfigError
from nfcgcn.method.graph_conv import GraphConv

both = pytest.mark.parametrize("make", [GCN5, GAT5])


def test_gcn5_of_four_nodes_by_hand(four_nodes):
    """Bandwidth 3: node 2 has all but one of its neighbours, node 3 one neighbour and a copy of itself."""
    model = GCN5(5, 2, bandwidth=3).double().eval()
    table = torch.tensor([[0, 2, 1], [1, 0, 2], [2, 3, 0], [3, 2, 3]])
    model.table = lambda *_: table
    with torch.no_grad():
        model.output.weight.copy_(torch.tensor([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]))
        model.output.bias.copy_(torch.tensor([0, 1]))
    # Degrees with loops 3 3 4 2; column 0 of x is 1 0 1 0, column 2 is 2 0 0 3.
    third, twelfth, eighth = 1 / 3, 12**-0.5, 8**-0.5
    expected = torch.tensor(
        [
            [third + twelfth, 2 * third + 1],
            [third + twelfth, 2 * third + 1],
            [1 / 4 + twelfth, 3 * eighth + 2 * twelfth + 1],
            [eighth, 2 * 3 / 2 + 1],
        ],
        dtype=torch.float64,
    )
    torch.testing.assert_close(model(four_nodes.x.double(), four_nodes.edge_index), expected)


def test_gcn5_is_a_graph_convolution_where_all_neighbours_fit(four_nodes):
    """Three neighbours at most; the copies of a node that are left over are taken off again."""
    model = GCN5(5, 2, bandwidth=4).eval()
    conv = GraphConv(5, 2)
    conv.weight = torch.nn.Parameter(model.output.weight.mT)
    x = four_nodes.x
    copies = torch.tensor([1, 1, 0, 2]) / torch.tensor([3, 3, 4, 2])
    expected = conv(x, four_nodes.edge_index) + copies[:, None] * (x @ conv.weight)
    torch.testing.assert_close(model(x, four_nodes.edge_index), expected)


def test_gat5_is_pyg_on_the_table(dense_graph):
    from torch_geometric.nn import GATConv

    torch.manual_seed(0)
    model = GAT5(40, 3).double().eval()
    x, edge_index = dense_graph.x.double(), dense_graph.edge_index
    table = model.table(x, edge_index)
    conv = GATConv(40, 3, add_self_loops=False).double()
    with torch.no_grad():
        model.output.bias.uniform_()
        conv.lin.weight.copy_(model.output.weight)
        conv.att_dst.copy_(model.attention[:, 0].view(1, 1, 3))
        conv.att_src.copy_(model.attention[:, 1].view(1, 1, 3))
        conv.bias.copy_(model.output.bias)
    pairs = torch.stack([table.flatten(), table[:, :1].expand_as(table).flatten()])
    ours, theirs = model(x, edge_index), conv(x, pairs)
    torch.testing.assert_close(ours, theirs)
    for out in (ours, theirs):
        F.cross_entropy(out, dense_graph.y).backward()
    torch.testing.assert_close(model.output.weight.grad, conv.lin.weight.grad)
    torch.testing.assert_close(model.output.bias.grad, conv.bias.grad)
    torch.testing.assert_close(
        model.attention.grad, torch.stack([conv.att_dst.grad.flatten(), conv.att_src.grad.flatten()], 1)
    )


@both
def test_neighbours_are_those_of_nfc_gcn(make, dense_graph):
    x, edge_index = dense_graph.x, dense_graph.edge_index
    model = make(40, 3, seed=5)
    theirs = NFCGCN(40, 8, 1, 3, kernel_size=8, seed=5).nfc
    assert torch.equal(model.table(x, edge_index), theirs.table(x, edge_index))
    assert model.table(x, edge_index) is model.table(x, edge_index)
    assert not torch.equal(model.table(x, edge_index), make(40, 3, seed=6).table(x, edge_index))
    assert make(40, 3, bandwidth=3).table(x, edge_index).shape == (300, 3)


@both
@pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])
def test_one_layer_reads_the_embedding(make, which, request):
    graph = request.getfixturevalue(which)
    torch.manual_seed(0)
    model = make(40, 3).eval()
    h = model.embed(graph.x, graph.edge_index)
    assert (h.layout, h.shape) == (graph.x.layout, (300, 40))
    torch.testing.assert_close(model.output(h.to_dense()), model(graph.x, graph.edge_index))


@both
def test_a_representation_is_made_without_making_features_dense(make, sparse_graph, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "to_dense", lambda *_: pytest.fail("made dense"))
    model = make(40, 3)
    model.embed(sparse_graph.x, sparse_graph.edge_index)


@both
def test_l2_is_for_the_layer_s_weights(make):
    model = make(40, 3)
    assert model.decayed_parameters() == [model.output.weight]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bandwidth": 0}, "`bandwidth` must be at least 1, got 0"),
        ({"out_channels": 0}, "`out_channels` must be at least 1, got 0"),
        ({"dropout": -1}, "`dropout` must be at least 0 and below 1, got -1"),
    ],
    ids=["bandwidth", "out", "dropout"],
)
def test_bad_settings(options, text):
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        GCN5(40, **{"out_channels": 3, **options})
