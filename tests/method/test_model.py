import re
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nfcgcn import NFCGCN
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.method.graph_conv import GraphConv, Linear
from nfcgcn.method.model import neighbourhood
from nfcgcn.method.node_feature_conv import NodeFeatureConv
from nfcgcn.method.operations import drop_edges


def message(text):
    return f"^{re.escape(text)}$"


def nfc_gcn(in_channels=40, hidden_channels=8, num_layers=2, out_channels=3, **options):
    small = {"bandwidth": 3, "filters": 4, "kernel_size": 8, "stride": 4}
    return NFCGCN(in_channels, hidden_channels, num_layers, out_channels, **{**small, **options})


def scores(model, graph):
    return model(graph.x, graph.edge_index)


def test_four_nodes_by_hand(four_nodes):
    """Bandwidth 2, two filters of 2 features by 2, one graph convolution; column 4 is in no window."""
    model = NFCGCN(5, 1, 1, 2, bandwidth=2, filters=2, kernel_size=2, stride=2).double().eval()
    with torch.no_grad():
        model.nfc.weight.copy_(torch.tensor([[[1, 0], [0, 1]], [[0, 1], [1, -1]]]))
        model.layers[0].weight.copy_(torch.tensor([[1, 0], [0, 1], [1, 0], [0, -1]]))
    table = torch.tensor([[0, 2], [1, 0], [2, 3], [3, 2]])
    # Maps, columns 0 to 3: (1 0 2 0 / 1 1 0 0), (0 1 0 1 / 1 0 2 0), (1 1 0 0 / 0 0 3 1), (0 0 3 1 / 1 1 0 0).
    # Filter 0 adds a window's upper left to its lower right, filter 1 upper right + lower left - lower right.
    h0 = torch.tensor([[2, 2, 0, 0], [0, 0, 2, 3], [1, 1, 1, 2], [1, 3, 0, 1]]).double()
    x = four_nodes.x.double()
    torch.testing.assert_close(model.nfc(x, neighbours=table), h0, rtol=0, atol=0)
    # h0 W = (2 2), (2 -3), (2 -1), (1 2). Degrees with loops: 3, 3, 4, 2, so that A_hat's rows are
    # (1/3 1/3 1/sqrt 12 0) twice, (1/sqrt 12 1/sqrt 12 1/4 1/sqrt 8), (0 0 1/sqrt 8 1/2).
    expected = torch.tensor(
        [
            [1.9106836025229592, -0.6220084679281461],  # 4/3 + 2/sqrt 12,  -1/3 - 1/sqrt 12
            [1.9106836025229592, -0.6220084679281461],
            [2.0082539289725254, 0.1684316465917346],  # 4/sqrt 12 + 1/2 + 1/sqrt 8,  -1/sqrt 12 - 1/4 + 2/sqrt 8
            [1.2071067811865475, 0.6464466094067263],  # 2/sqrt 8 + 1/2,  -1/sqrt 8 + 1
        ],
        dtype=torch.float64,
    )
    torch.testing.assert_close(model(x, four_nodes.edge_index, table), expected, rtol=1e-14, atol=1e-14)


def test_two_layers_put_relu_between_them(four_nodes):
    model = NFCGCN(5, 3, 2, 2, bandwidth=2, filters=2, kernel_size=2, stride=2, activation="tanh").eval()
    table = torch.tensor([[0, 2], [1, 0], [2, 3], [3, 2]])
    a = torch.eye(4)
    a[four_nodes.edge_index[0], four_nodes.edge_index[1]] = 1
    a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
    h = torch.tanh(F.conv1d(four_nodes.x[table], model.nfc.weight, stride=2)).flatten(1)
    h = torch.relu(a @ h @ model.layers[0].weight)
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index, table), h)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index, table), a @ h @ model.layers[1].weight)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_classifier_reads_what_the_last_graph_convolution_rectified(four_nodes, num_layers):
    options = {"bandwidth": 2, "filters": 2, "kernel_size": 2, "stride": 2, "classifier": "linear"}
    torch.manual_seed(0)
    model = NFCGCN(5, 3, num_layers, 2, **options).eval()
    with torch.no_grad():
        model.classifier.bias.copy_(torch.tensor([0.5, -2.0]))
    table = torch.tensor([[0, 2], [1, 0], [2, 3], [3, 2]])
    a = torch.eye(4)
    a[four_nodes.edge_index[0], four_nodes.edge_index[1]] = 1
    a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
    h = F.conv1d(four_nodes.x[table], model.nfc.weight, stride=2).flatten(1)
    for layer in model.layers:
        h = torch.relu(a @ h @ layer.weight)
    assert h.count_nonzero() not in (0, h.numel())
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index, table), h)
    expected = F.linear(h, model.classifier.weight, model.classifier.bias)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index, table), expected)


def test_own_features_add_what_a_perceptron_without_biases_says(four_nodes):
    torch.manual_seed(0)
    model = NFCGCN(5, 3, 1, 2, bandwidth=2, filters=2, kernel_size=2, stride=2, own_features="mlp").eval()
    first, second = (layer.weight for layer in model.own)
    of_own = torch.relu(four_nodes.x @ first.mT) @ second.mT
    assert (first.shape, second.shape) == ((3, 5), (2, 3))
    assert of_own.count_nonzero()
    found = scores(model, four_nodes)
    model.own = torch.nn.ModuleList()
    torch.testing.assert_close(found, scores(model, four_nodes) + of_own)


def test_own_features_are_dropped_in_both_layers_and_decayed_in_the_first(sparse_graph):
    model = nfc_gcn(own_features="mlp", num_layers=0)
    assert [id(p) for p in model.decayed_parameters()] == [id(model.classifier.weight), id(model.own[0].weight)]
    for drops in ({"map_dropout": 0.9, "dropout": 0.0}, {"map_dropout": 0.0, "dropout": 0.9}):
        model = nfc_gcn(own_features="mlp", num_layers=0, **drops)
        with torch.no_grad():
            model.classifier.weight.zero_()
        assert not torch.allclose(scores(model, sparse_graph), scores(model.eval(), sparse_graph))


@pytest.mark.parametrize("num_layers", [1, 3])
def test_a_training_step_propagates_along_the_edges_it_keeps_in_every_layer(num_layers, dense_graph):
    """By the degrees among these; the neighbours in the map are drawn from all edges, and evaluation has them all."""
    model = nfc_gcn(num_layers=num_layers, map_dropout=0.0, dropout=0.0, edge_dropout=0.4, self_weight=2.0)
    x, edge_index = dense_graph.x, dense_graph.edge_index
    table = model.nfc.table(x, edge_index)
    torch.manual_seed(0)
    found = model(x, edge_index)
    torch.manual_seed(0)
    fewer = drop_edges(edge_index, 0.4, True)
    expected = model.eval()(x, fewer, table)
    torch.testing.assert_close(found, expected)
    whole = model(x, edge_index)
    assert not torch.allclose(whole, expected)
    plain = nfc_gcn(num_layers=num_layers, self_weight=2.0).eval()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(plain(x, edge_index), whole)
    lighter = nfc_gcn(num_layers=num_layers).eval()
    lighter.load_state_dict(model.state_dict())
    assert not torch.allclose(lighter(x, edge_index), whole)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])
def test_dropout_on_the_convolution_s_output(which, backend, request):
    """Without graph convolutions and with a unit matrix as classifier, the scores are H(0) itself."""
    graph = request.getfixturevalue(which)
    options = {"activation": "tanh", "map_dropout": 0.0, "representation_dropout": 0.75, "backend": backend}
    model = nfc_gcn(num_layers=0, out_channels=36, **options)
    with torch.no_grad():
        model.classifier.weight.copy_(torch.eye(36))
    torch.manual_seed(0)
    dropped = [scores(model, graph), model.embed(graph.x, graph.edge_index)]
    whole = model.eval().nfc(graph.x, graph.edge_index)
    torch.testing.assert_close(scores(model, graph), whole)
    for found in dropped:
        kept = found != 0
        torch.testing.assert_close(found[kept], 4 * whole[kept])
        assert 0.22 < kept.sum() / (whole != 0).sum() < 0.28
    assert not torch.equal(*dropped)


def test_no_graph_convolution_means_a_linear_layer(four_nodes):
    model = NFCGCN(5, 1, 0, 2, bandwidth=2, filters=2, kernel_size=2, stride=2).eval()
    assert isinstance(model.classifier, Linear)
    h = model.nfc(four_nodes.x, four_nodes.edge_index)
    assert torch.equal(model.embed(four_nodes.x, four_nodes.edge_index), h)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), F.linear(h, model.classifier.weight))


@pytest.mark.parametrize(
    ("conv", "num_layers"), [("1d", 0), ("1d", 1), ("1d", 3), ("2d", 0), ("2d", 2)], ids=lambda v: str(v)
)
def test_shapes(conv, num_layers, sparse_graph):
    model = nfc_gcn(num_layers=num_layers, conv=conv, kernel_width=2)
    h0 = 4 * 9 * (1 if conv == "1d" else 2)
    widths = [h0, *[8] * (num_layers - 1), 3]
    weights = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, GraphConv)]
    assert weights == (list(pairwise(widths)) if num_layers else [])
    assert model(sparse_graph.x, sparse_graph.edge_index).shape == (300, 3)
    assert model.embed(sparse_graph.x, sparse_graph.edge_index).shape == (300, 8 if num_layers > 1 else h0)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"num_layers": 0}, ["nfc.weight", "classifier.weight", "classifier.bias"]),
        ({"num_layers": 1}, ["nfc.weight", "layers.0.weight"]),
        ({"num_layers": 3}, ["nfc.weight", "layers.0.weight", "layers.1.weight", "layers.2.weight"]),
        (
            {"num_layers": 1, "classifier": "linear"},
            ["nfc.weight", "layers.0.weight", "classifier.weight", "classifier.bias"],
        ),
        ({"num_layers": 1, "own_features": "mlp"}, ["nfc.weight", "layers.0.weight", "own.0.weight", "own.1.weight"]),
    ],
    ids=["K=0", "K=1", "K=3", "classifier", "own features"],
)
def test_parameters_by_the_names_they_are_saved_under(options, names):
    assert list(nfc_gcn(**options).state_dict()) == names


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_reading_and_finishing_are_the_two_halves_of_the_model(num_layers, sparse_graph):
    model = nfc_gcn(num_layers=num_layers, activation="tanh").eval()
    x, edge_index = sparse_graph.x, sparse_graph.edge_index
    read = model.read(x, edge_index)
    torch.testing.assert_close(read, model.nfc(x, edge_index) @ model.first_matrix)
    assert torch.equal(model.finish(read, edge_index), model(x, edge_index))


def test_a_neighbourhood_is_what_powers_of_the_adjacency_reach():
    rng = np.random.default_rng(0)
    edge_index, nodes = torch.from_numpy(rng.integers(200, size=(2, 500))), torch.tensor([150, 3, 3])
    source, target = edge_index.numpy()
    dense = np.eye(200)
    dense[target, source] = 1  # edges have a direction here
    sizes = []
    for num_hops in range(4):
        expected = np.flatnonzero(np.linalg.matrix_power(dense, num_hops)[nodes].any(0))
        assert neighbourhood(nodes, edge_index, 200, num_hops).tolist() == expected.tolist()
        sizes.append(len(expected))
    assert 2 == sizes[0] < sizes[1] < sizes[2] < sizes[3] < 150


@pytest.mark.parametrize("activation", ["none", "tanh"])
@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_nodes_out_of_sight_are_not_convolved(num_layers, activation, sparse_graph, monkeypatch):
    model, nodes, found = nfc_gcn(num_layers=num_layers, activation=activation), torch.tensor([3, 7]), []
    project = NodeFeatureConv.project
    monkeypatch.setattr(NodeFeatureConv, "project", lambda *a, **o: found.append(project(*a, **o)) or found[-1])
    model.score_nodes(sparse_graph.x, sparse_graph.edge_index, nodes)
    convolved = found[0].any(1).nonzero().squeeze(1).tolist()
    assert convolved == neighbourhood(nodes, sparse_graph.edge_index, 300, num_layers).tolist()
    assert len(convolved) < 200


def test_what_nodes_see_is_found_anew_for_other_nodes_and_other_edges(sparse_graph, make_graph):
    model, nodes = nfc_gcn(num_layers=1).eval(), torch.tensor([3, 7])
    other = make_graph(sparse=True, seed=1).edge_index
    for first in (3, 200):
        nodes[0] = first
        for edge_index in (sparse_graph.edge_index, other, sparse_graph.edge_index):
            expected = model(sparse_graph.x, edge_index)[nodes]
            assert torch.equal(model.score_nodes(sparse_graph.x, edge_index, nodes), expected)


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        pytest.param(lambda: nfc_gcn(num_layers=1, map_dropout=0.0, dropout=0.9), False, id="none on H(0), K=1"),
        pytest.param(lambda: nfc_gcn(num_layers=0, map_dropout=0.0, dropout=0.9), False, id="none on H(0), K=0"),
        pytest.param(lambda: nfc_gcn(num_layers=2, map_dropout=0.0, dropout=0.9), True, id="on H(1)"),
        pytest.param(lambda: nfc_gcn(num_layers=1, map_dropout=0.5, dropout=0.0), True, id="on the map"),
        pytest.param(lambda: nfc_gcn(num_layers=2, map_dropout=0.0, dropout=0.0), False, id="none at all"),
    ],
)
def test_where_dropout_acts(make, changes, sparse_graph):
    model = make()
    trained, evaluated = (scores(model.train(training), sparse_graph) for training in (True, False))
    assert torch.allclose(trained, evaluated, rtol=1e-4, atol=1e-5) is not changes


def test_dropout_before_the_second_layer_comes_after_the_relu(dense_graph):
    model, read = nfc_gcn(map_dropout=0.0, dropout=0.5), []
    model.layers[1].register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    torch.manual_seed(0)
    for training in (True, False):
        scores(model.train(training), dense_graph)
    dropped, whole = read
    assert torch.equal(whole, model.embed(dense_graph.x, dense_graph.edge_index))
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])
    share = kept.sum() / (whole != 0).sum()
    assert 0.45 < share < 0.55


def test_seed_decides_the_neighbours_and_nothing_else(dense_graph):
    torch.manual_seed(0)
    one = nfc_gcn(seed=1).eval()
    torch.manual_seed(0)
    two = nfc_gcn(seed=2).eval()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(scores(one, dense_graph), scores(two, dense_graph))


def test_settings_by_name_and_all_at_once():
    settings = {"conv": "2d", "kernel_width": 2, "activation": "relu", "map_dropout": 0.3, "slot_order": "similarity"}
    model = nfc_gcn(**settings, resample="epoch", seed=9)
    assert {name: getattr(model.nfc.config, name) for name in settings} == settings
    assert (model.nfc.config.resample, model.nfc.seed) == ("epoch", 9)
    assert (model.nfc.config.bandwidth, model.nfc.config.stride) == (3, 4)
    assert model.nfc.weight.shape == (4, 2, 8)
    other = NFCGCN(40, 3, config=model.config, seed=9)
    assert other.config == model.config
    other.load_state_dict(model.state_dict())


def test_repr():
    text = repr(nfc_gcn())
    assert "(nfc): NodeFeatureConv(40, 36, filters=4, bandwidth=3" in text
    assert "(1): GraphConv(8, 3)" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_layers": -1}, "`num_layers` must be at least 0, got -1"),
        ({"hidden_channels": 0}, "`hidden_channels` must be at least 1, got 0"),
        ({"out_channels": 0}, "`out_channels` must be at least 1, got 0"),
        ({"map_dropout": 1}, "`map_dropout` must be at least 0 and below 1, got 1"),
        ({"representation_dropout": 1}, "`representation_dropout` must be at least 0 and below 1, got 1"),
        ({"dropout": 1.5}, "`dropout` must be at least 0 and below 1, got 1.5"),
        ({"edge_dropout": 1}, "`edge_dropout` must be at least 0 and below 1, got 1"),
        ({"self_weight": 0}, "`self_weight` must be above 0, got 0"),
        ({"bandwidth": 0}, "`bandwidth` must be at least 1, got 0"),
        ({"kernel_size": 41}, "`kernel_size` must be at most the number of features, 40, got 41; lower it"),
        ({"classifier": "liner"}, "unknown classifier 'liner'; did you mean 'linear'?"),
        (
            {"classifier": "linear", "num_layers": 0},
            "`classifier` must be none with `num_layers` 0, where a linear layer classifies already",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_settings(options, text):
    with pytest.raises(ConfigError, match=message(text)):
        nfc_gcn(**options)


def test_edges_outside_the_features():
    text = "`edge_index` names a node outside 0 to 3; does it belong to these features?"
    with pytest.raises(GraphError, match=message(text)):
        nfc_gcn()(torch.ones(4, 40), torch.tensor([[0], [4]]))


def test_a_table_of_the_wrong_shape(dense_graph):
    text = "`neighbours` must have shape [300, 3] (nodes, bandwidth), got [300, 4]"
    with pytest.raises(GraphError, match=message(text)):
        nfc_gcn()(dense_graph.x, dense_graph.edge_index, torch.zeros(300, 4, dtype=torch.long))
