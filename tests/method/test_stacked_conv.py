"""A stack of node-feature convolutions, against PyTorch's own convolutions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from nfcgcn import NFCGCN
from nfcgcn.method.node_feature_conv import NodeFeatureConvConfig, convolve, feature_map
from nfcgcn.method.stacked_conv import StackedConv


@pytest.mark.parametrize("conv", ["1d", "2d"])
@pytest.mark.parametrize("sizes", [(4, 3), (40, 40)], ids=["fits", "too wide"])
def test_a_product_is_the_convolution(conv, sizes):
    config = NodeFeatureConvConfig(
        bandwidth=4, filters=3, kernel_size=sizes[0], stride=sizes[1], conv=conv, kernel_width=2, activation="tanh"
    )
    layer = StackedConv(7, 11, config)
    h, table = torch.randn(20, 11), torch.randint(20, (20, 4))
    expected = torch.tanh(convolve(feature_map(h, table), layer.weight, stride=layer.stride)).flatten(1)
    assert layer.kernel_size == min(sizes[0], 11)
    torch.testing.assert_close(layer(h, table), expected)
    assert expected.shape[1] == layer.out_channels


@pytest.mark.parametrize("num_layers", [0, 2])
def test_three_convolutions_one_after_the_other(num_layers, sparse_graph):
    settings = {"filters": 3, "bandwidth": 4, "kernel_size": 8, "stride": 4, "activation": "tanh", "conv_layers": 3}
    net = NFCGCN(40, 5, num_layers, 3, **settings).eval()
    x, edge_index = sparse_graph.x, sparse_graph.edge_index
    table = net.nfc.table(x, edge_index)

    def convolved(read, layer, stride):
        return torch.tanh(F.conv1d(read[table], layer.weight, stride=stride)).flatten(1)

    h = convolved(x.to_dense(), net.nfc, 4)
    for layer in net.stack:
        h = convolved(F.relu(h @ layer.matrix), layer, 4)
    torch.testing.assert_close(net.embed(x, edge_index), h) if not num_layers else None
    if num_layers:
        scores = h @ net.layers[0].weight
        scores = net.convolve(scores, edge_index, num_layers)
    else:
        scores = h @ net.classifier.weight.mT + net.classifier.bias
    torch.testing.assert_close(net(x, edge_index), scores)


def test_one_convolution_has_the_weights_it_had():
    names = [name for name, _ in NFCGCN(40, 5, 2, 3, kernel_size=8).named_parameters()]
    assert names == ["nfc.weight", "layers.0.weight", "layers.1.weight"]


def test_one_draw_serves_the_whole_stack(sparse_graph):
    net = NFCGCN(40, 5, 0, 3, kernel_size=8, stride=4, conv_layers=2, resample="epoch").train()
    seen = []
    net.stack[0].register_forward_hook(lambda _, arguments, __: seen.append(arguments[1]))
    table = net.nfc.table
    net.nfc.table = lambda *arguments: seen.append(table(*arguments)) or seen[-1]
    net(sparse_graph.x, sparse_graph.edge_index)
    assert all(torch.equal(each, seen[0]) for each in seen)
    assert len(seen) >= 2
