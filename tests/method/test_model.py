import copy
import io
import pickle
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nfcgcn import GCN, NFCGCN
from nfcgcn.baselines import GAT, GAT5, GCN5, LGCN, MLP, SAGE, FastGCN, JKNet
from nfcgcn.baselines.sampled import SampledClassifier
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.kernels.node_feature_conv.reference import hidden_mask
from nfcgcn.method.layers import GraphConv, Linear, NodeFeatureConv, normalised_adjacency
from nfcgcn.method.model import divide_by_row_norms, divide_by_row_sums, neighbourhood


def message(text):
    return f"^{re.escape(text)}$"


def nfc_gcn(in_channels=40, hidden_channels=8, num_layers=2, out_channels=3, **options):
    small = {"bandwidth": 3, "filters": 4, "kernel_size": 8, "stride": 4}
    return NFCGCN(in_channels, hidden_channels, num_layers, out_channels, **{**small, **options})


# The parameter table to the letter
LITERAL = {"activation": "relu", "map_dropout": 0.0, "representation_dropout": 0.5, "classifier": "linear"}
MODELS = {
    "nfc-gcn": nfc_gcn,
    "nfc-gcn 2d": lambda **o: nfc_gcn(conv="2d", kernel_width=2, **o),
    "nfc-gcn K=0": lambda **o: nfc_gcn(num_layers=0, **o),
    "nfc-gcn K=1": lambda **o: nfc_gcn(num_layers=1, **o),
    "nfc-gcn K=3": lambda **o: nfc_gcn(num_layers=3, **o),
    "nfc-gcn literal": lambda **o: nfc_gcn(**{**LITERAL, **o}),
    "gcn": lambda **o: GCN(40, 8, 2, 3, **o),
    "gcn K=1": lambda **o: GCN(40, 8, 1, 3, **o),
    "gcn K=3": lambda **o: GCN(40, 8, 3, 3, **o),
    "mlp": lambda **o: MLP(40, 8, 2, 3, **o),
    "mlp K=1": lambda **o: MLP(40, 8, 1, 3, **o),
    "mlp K=3": lambda **o: MLP(40, 8, 3, 3, **o),
    "gat": lambda **o: GAT(40, 4, 2, 3, heads=3, output_heads=2, **o),
    "gat K=1": lambda **o: GAT(40, 4, 1, 3, **o),
    "gat K=3": lambda **o: GAT(40, 4, 3, 3, heads=2, **o),
    "sage-mean": lambda **o: SAGE(40, 8, 2, 3, num_neighbours=3, num_further=2, **o),
    "sage-mean K=1": lambda **o: SAGE(40, 8, 1, 3, num_neighbours=3, **o),
    "sage-mean K=3": lambda **o: SAGE(40, 8, 3, 3, num_neighbours=3, num_further=2, **o),
    "jknet concat": lambda **o: JKNet(40, 8, 3, 3, mode="concat", **o),
    "jknet max": lambda **o: JKNet(40, 8, 3, 3, mode="max", **o),
    "jknet lstm": lambda **o: JKNet(40, 8, 3, 3, mode="lstm", **o),
    "jknet K=1": lambda **o: JKNet(40, 8, 1, 3, **o),
    "fastgcn": lambda **o: FastGCN(40, 8, 3, samples=50, **o),
    "lgcn": lambda **o: LGCN(40, 8, 2, 3, filters=4, k=3, dropout=0.3, **o),
    "gcn-5": lambda **o: GCN5(40, 3, **o),
    "gat-5": lambda **o: GAT5(40, 3, **o),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def test_four_nodes_by_hand(four_nodes):
    """Bandwidth 2, two filters of 2 features by 2, one graph convolution; column 4 is in no window."""
    model = NFCGCN(5, 1, 1, 2, bandwidth=2, filters=2, kernel_size=2, stride=2).double().eval()
    with torch.no_grad():
        model.nfc.weight.copy_(torch.tensor([[[1, 0], [0, 1]], [[0, 1], [1, -1]]]))
        model.output.weight.copy_(torch.tensor([[1, 0], [0, 1], [1, 0], [0, -1]]))
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
    h = torch.relu(a @ h @ model.hidden[0].weight)
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index, table), h)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index, table), a @ h @ model.output.weight)


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
    for layer in (*model.hidden, model.output):
        h = torch.relu(a @ h @ layer.weight)
    assert h.count_nonzero() not in (0, h.numel())
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index, table), h)
    expected = F.linear(h, model.classifier.weight, model.classifier.bias)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index, table), expected)


@pytest.mark.parametrize("num_layers", [0, 1, 2])
@pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])
def test_dropout_on_the_convolution_s_output(num_layers, which, request):
    graph = request.getfixturevalue(which)
    model = nfc_gcn(num_layers=num_layers, activation="tanh", map_dropout=0.0, representation_dropout=0.75, dropout=0.0)
    x, edge_index = graph.x, graph.edge_index
    torch.manual_seed(3)
    found = model(x, edge_index)
    found.square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    # The same by hand: the mask is that of the one number drawn in this pass, four times what is kept.
    h = model.convolve(x, edge_index)
    torch.manual_seed(3)
    seed, table = int(torch.randint(2**62, ())), model.nfc.table(x, edge_index)
    dropped = h * hidden_mask(torch.arange(len(h)), table, model.nfc.weight, h.shape[1], dropout=0.75, seed=seed)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 4 * h[kept])
    assert 0.22 < kept.sum() / (h != 0).sum() < 0.28
    a = model.adjacency(x, edge_index).matrix.to_dense()
    if num_layers == 0:
        expected = F.linear(dropped, model.output.weight, model.output.bias)
    elif num_layers == 1:
        expected = a @ dropped @ model.output.weight
    else:
        expected = a @ torch.relu(a @ dropped @ model.hidden[0].weight) @ model.output.weight
    torch.testing.assert_close(found, expected)
    expected.square().sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad, rtol=1e-4, atol=1e-4)
    if num_layers < 2:
        dropped = model.embed(x, edge_index)
        kept = dropped != 0
        torch.testing.assert_close(dropped[kept], 4 * h[kept])
        assert 0.22 < kept.sum() / (h != 0).sum() < 0.28
    without = nfc_gcn(num_layers=num_layers, activation="tanh", map_dropout=0.0, dropout=0.0)
    without.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(x, edge_index), without(x, edge_index))


def test_no_graph_convolution_means_a_linear_layer(four_nodes):
    model = NFCGCN(5, 1, 0, 2, bandwidth=2, filters=2, kernel_size=2, stride=2).eval()
    assert isinstance(model.output, Linear)
    h = model.nfc(four_nodes.x, four_nodes.edge_index)
    assert torch.equal(model.embed(four_nodes.x, four_nodes.edge_index), h)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), F.linear(h, model.output.weight))


def test_gcn_by_its_equation(four_nodes):
    model = GCN(5, 3, 2, 2).eval()
    a = torch.eye(4)
    a[four_nodes.edge_index[0], four_nodes.edge_index[1]] = 1
    a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
    h = torch.relu(a @ four_nodes.x @ model.layers[0].weight)
    torch.testing.assert_close(model.embed(four_nodes.x, four_nodes.edge_index), h)
    torch.testing.assert_close(model(four_nodes.x, four_nodes.edge_index), a @ h @ model.layers[1].weight)


@pytest.mark.parametrize("conv", ["1d", "2d"])
@pytest.mark.parametrize("num_layers", range(4))
def test_shapes(conv, num_layers, sparse_graph):
    model = nfc_gcn(num_layers=num_layers, conv=conv, kernel_width=2)
    h0 = 4 * 9 * (1 if conv == "1d" else 2)
    widths = [h0, *[8] * (num_layers - 1), 3]
    weights = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, GraphConv)]
    assert weights == (list(pairwise(widths)) if num_layers else [])
    assert model(sparse_graph.x, sparse_graph.edge_index).shape == (300, 3)
    assert model.embed(sparse_graph.x, sparse_graph.edge_index).shape == (300, 8 if num_layers > 1 else h0)


@every_model
@pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])
def test_scores_of_every_node(make, which, request):
    graph = request.getfixturevalue(which)
    model = make()
    for training in (True, False):
        assert model.train(training)(graph.x, graph.edge_index).shape == (300, 3)
        assert len(model.embed(graph.x, graph.edge_index)) == 300
    nodes = torch.tensor([7, 3, 299])
    assert model.train().score_nodes(graph.x, graph.edge_index, nodes).shape == (3, 3)


@every_model
def test_scores_of_some_nodes_without_chance(make, sparse_graph):
    """In evaluation, where nothing is dropped, the nodes asked for are scored as all are."""
    model, nodes = make().eval(), torch.tensor([7, 3, 299])
    expected = model(sparse_graph.x, sparse_graph.edge_index)[nodes]
    assert torch.equal(model.score_nodes(sparse_graph.x, sparse_graph.edge_index, nodes), expected)


def test_a_neighbourhood_is_what_powers_of_the_adjacency_reach():
    rng = np.random.default_rng(0)
    edge_index, nodes = torch.from_numpy(rng.integers(200, size=(2, 500))), torch.tensor([150, 3, 3])
    source, target = edge_index.numpy()
    dense = np.eye(200)
    dense[target, source] = 1  # edges have a direction here
    adjacency, sizes = normalised_adjacency(edge_index, 200), []
    for num_hops in range(4):
        expected = np.flatnonzero(np.linalg.matrix_power(dense, num_hops)[nodes].any(0))
        assert neighbourhood(nodes, adjacency, num_hops).tolist() == expected.tolist()
        sizes.append(len(expected))
    assert 2 == sizes[0] < sizes[1] < sizes[2] < sizes[3] < 150


@pytest.mark.parametrize("activation", ["none", "tanh"])
@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_nodes_out_of_sight_are_not_convolved(num_layers, activation, sparse_graph, monkeypatch):
    model, nodes, found = nfc_gcn(num_layers=num_layers, activation=activation), torch.tensor([3, 7]), []
    project = NodeFeatureConv.project
    monkeypatch.setattr(NodeFeatureConv, "project", lambda *a, **o: found.append(project(*a, **o)) or found[-1])
    model.score_nodes(sparse_graph.x, sparse_graph.edge_index, nodes)
    adjacency = normalised_adjacency(sparse_graph.edge_index, 300)
    convolved = found[0].any(1).nonzero().squeeze(1).tolist()
    assert convolved == neighbourhood(nodes, adjacency, num_layers).tolist()
    assert len(convolved) < 200


def test_what_nodes_see_is_found_anew_for_other_nodes_and_other_edges(sparse_graph, make_graph):
    model, nodes = nfc_gcn(num_layers=1).eval(), torch.tensor([3, 7])
    other = make_graph(sparse=True, seed=1).edge_index
    for first in (3, 200):
        nodes[0] = first
        for edge_index in (sparse_graph.edge_index, other, sparse_graph.edge_index):
            expected = model(sparse_graph.x, edge_index)[nodes]
            assert torch.equal(model.score_nodes(sparse_graph.x, edge_index, nodes), expected)


@every_model
def test_gradients_reach_every_parameter(make, sparse_graph):
    torch.manual_seed(0)
    model = make()
    F.cross_entropy(model(sparse_graph.x, sparse_graph.edge_index), sparse_graph.y).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
        assert parameter.grad.isfinite().all(), name


@every_model
def test_sparse_and_dense_features_agree(make, sparse_graph, dense_graph):
    model = make().eval()
    results = []
    for graph in (sparse_graph, dense_graph):
        model.zero_grad()
        out = model(graph.x, graph.edge_index)
        F.cross_entropy(out, graph.y).backward()
        results.append([out.detach(), *[p.grad.clone() for p in model.parameters()]])
    torch.testing.assert_close(*results)


@every_model
def test_sparse_features_are_never_made_dense(make, sparse_graph, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("made dense")

    monkeypatch.setattr(torch.Tensor, "to_dense", refuse)
    model = make()
    F.cross_entropy(model(sparse_graph.x, sparse_graph.edge_index), sparse_graph.y).backward()
    model.eval()
    model(sparse_graph.x, sparse_graph.edge_index)


@every_model
def test_renumbered_nodes_give_renumbered_scores(make, dense_graph):
    model = make().double().eval()
    x, edge_index = dense_graph.x.double(), dense_graph.edge_index
    new = torch.randperm(300, generator=torch.Generator().manual_seed(0))  # node i is now called new[i]
    old = new.argsort()
    if isinstance(model, NFCGCN):
        table = torch.randint(300, (300, 3), generator=torch.Generator().manual_seed(1))
        before, after = model(x, edge_index, table), model(x[old], new[edge_index], new[table][old])
    else:
        if isinstance(model, SampledClassifier):
            model.bandwidth = 300  # room for all neighbours: nothing is left to chance
        before, after = model(x, edge_index), model(x[old], new[edge_index])
    torch.testing.assert_close(after[new], before)


def scores(model, graph):
    return model(graph.x, graph.edge_index)


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        pytest.param(lambda: nfc_gcn(num_layers=1, map_dropout=0.0, dropout=0.9), False, id="none on H(0), K=1"),
        pytest.param(lambda: nfc_gcn(num_layers=0, map_dropout=0.0, dropout=0.9), False, id="none on H(0), K=0"),
        pytest.param(lambda: nfc_gcn(num_layers=2, map_dropout=0.0, dropout=0.9), True, id="on H(1)"),
        pytest.param(lambda: nfc_gcn(num_layers=1, map_dropout=0.5, dropout=0.0), True, id="on the map"),
        pytest.param(lambda: GCN(40, 8, 1, 3, dropout=0.5), True, id="gcn, on X"),
        pytest.param(lambda: GCN(40, 8, 2, 3, dropout=0.0), False, id="gcn, none"),
    ],
)
@pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])
def test_where_dropout_acts(make, changes, which, request):
    graph = request.getfixturevalue(which)
    model = make()
    trained = scores(model, graph)
    assert torch.equal(trained, scores(model.eval(), graph)) is not changes


@pytest.mark.parametrize("name", ["mlp K=3", "gcn K=3", "gat K=3", "sage-mean K=3", "jknet concat"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_dropout_acts_on_the_input_of_every_layer(name, place, sparse_graph):
    model, inputs = MODELS[name](dropout=0.5), []
    model.layers[place].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    for training in (True, False):
        model.train(training)(sparse_graph.x, sparse_graph.edge_index)
    kept, whole = ((h if isinstance(h, torch.Tensor) else h.matrix.values()).ne(0).double().mean() for h in inputs)
    assert 0.35 < kept / whole < 0.65
    rectified = place and name != "gat K=3"
    assert not rectified or inputs[1].min() == 0


def test_dropout_before_the_second_layer_comes_after_the_relu(dense_graph):
    model = nfc_gcn(map_dropout=0.0, dropout=0.5)
    torch.manual_seed(0)
    dropped = model.embed(dense_graph.x, dense_graph.edge_index)
    whole = model.eval().embed(dense_graph.x, dense_graph.edge_index)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])
    share = kept.sum() / (whole != 0).sum()
    assert 0.45 < share < 0.55


@pytest.mark.parametrize("which", ["sparse_graph", "dense_graph"])
def test_gcn_drops_features_before_its_first_layer(which, request):
    graph = request.getfixturevalue(which)
    model = GCN(40, 8, 1, 40, dropout=0.75)
    with torch.no_grad():
        model.layers[0].weight.copy_(torch.eye(40))
    no_edges = torch.zeros(2, 0, dtype=torch.long)
    torch.manual_seed(0)
    dropped, whole = model(graph.x, no_edges), model.eval()(graph.x, no_edges)  # A_hat = I, W = I: X itself
    assert torch.equal(whole, graph.x.to_dense())
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 4 * whole[kept])
    assert 0.22 < kept.sum() / (whole != 0).sum() < 0.28


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (MODELS["nfc-gcn K=0"], "output.weight"),
        (MODELS["nfc-gcn K=1"], "output.weight"),
        (MODELS["nfc-gcn"], "hidden.0.weight"),
        (MODELS["nfc-gcn K=3"], "hidden.0.weight"),
        (MODELS["nfc-gcn literal"], "hidden.0.weight"),
        (MODELS["gcn"], "layers.0.weight"),
        (MODELS["gcn K=1"], "layers.0.weight"),
        (MODELS["mlp"], "layers.0.weight"),
    ],
    ids=["nfc-gcn K=0", "nfc-gcn K=1", "nfc-gcn K=2", "nfc-gcn K=3", "nfc-gcn literal", "gcn", "gcn K=1", "mlp"],
)
def test_l2_is_for_the_first_graph_convolution(make, name):
    model = make()
    decayed = model.decayed_parameters()
    assert [n for n, p in model.named_parameters() if any(p is d for d in decayed)] == [name]


@pytest.mark.parametrize("name", ["gat", "sage-mean", "jknet concat", "jknet lstm"])
def test_l2_is_for_all_weights(name):
    model = MODELS[name]()
    decayed = model.decayed_parameters()
    for key, parameter in model.named_parameters():
        assert any(parameter is d for d in decayed) is ("bias" not in key), key


@every_model
@pytest.mark.parametrize(
    "copy_of",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["deepcopy", "pickle"],
)
def test_copies(make, copy_of, sparse_graph):
    model = make().eval()
    expected = scores(model, sparse_graph)
    other = copy_of(model)
    assert torch.equal(scores(other, sparse_graph), expected)
    other.reset_parameters()
    assert torch.equal(scores(model, sparse_graph), expected)


@every_model
def test_torch_save(make, sparse_graph):
    model = make().eval()
    expected = scores(model, sparse_graph)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = make().eval()
    other.load_state_dict(torch.load(file))
    assert torch.equal(scores(other, sparse_graph), expected)


@every_model
def test_reset_parameters_draws_all_of_them(make):
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7)
    model.reset_parameters()
    for name, parameter in model.named_parameters():
        assert not (parameter == 7).any(), name


def test_seed_decides_the_neighbours_and_nothing_else(dense_graph):
    torch.manual_seed(0)
    one = nfc_gcn(seed=1).eval()
    torch.manual_seed(0)
    two = nfc_gcn(seed=2).eval()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(scores(one, dense_graph), scores(two, dense_graph))


def test_options_reach_the_first_layer():
    model = nfc_gcn(
        conv="2d", kernel_width=2, activation="relu", map_dropout=0.3, slot_order="similarity", resample="epoch", seed=9
    )
    nfc = model.nfc
    assert (nfc.conv, nfc.activation, nfc.dropout, nfc.slot_order, nfc.resample, nfc.seed) == (
        "2d", "relu", 0.3, "similarity", "epoch", 9,
    )  # fmt: skip
    assert nfc.weight.shape == (4, 2, 8)
    assert (nfc.bandwidth, nfc.stride) == (3, 4)


def test_repr():
    text = repr(nfc_gcn())
    assert "(nfc): NodeFeatureConv(40, 36, filters=4, bandwidth=3" in text
    assert "(output): GraphConv(8, 3)" in text


@pytest.mark.parametrize("make", [MODELS["nfc-gcn"], MODELS["gcn"]], ids=["nfc-gcn", "gcn"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_use_in_a_plain_pyg_programme(make, sparse, sparse_graph):
    from torch_geometric.data import Data

    x = sparse_graph.x if sparse else sparse_graph.x.to_dense()
    data = Data(x=x, edge_index=sparse_graph.edge_index, y=sparse_graph.y)
    data.train_mask = torch.arange(300) < 200
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    for _ in range(40):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    model.eval()
    hit = model(data.x, data.edge_index).argmax(dim=1) == data.y
    assert hit[~data.train_mask].float().mean() > 0.7


def nfc_at_fault(**options):
    return lambda: nfc_gcn(**options)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(nfc_at_fault(num_layers=-1), "`num_layers` must be at least 0, got -1", id="nfc layers"),
        pytest.param(nfc_at_fault(hidden_channels=0), "`hidden_channels` must be at least 1, got 0", id="nfc hidden"),
        pytest.param(nfc_at_fault(out_channels=0), "`out_channels` must be at least 1, got 0", id="nfc out"),
        pytest.param(nfc_at_fault(map_dropout=1), "`map_dropout` must be at least 0 and below 1, got 1", id="nfc map"),
        pytest.param(nfc_at_fault(representation_dropout=1),
                     "`representation_dropout` must be at least 0 and below 1, got 1", id="nfc representation"),
        pytest.param(nfc_at_fault(classifier="liner"), "unknown classifier 'liner'; did you mean 'linear'?",
                     id="nfc classifier"),
        pytest.param(nfc_at_fault(num_layers=0, classifier="linear"),
                     "`classifier` must be none with `num_layers` 0, where a linear layer classifies already",
                     id="nfc two classifiers"),
        pytest.param(nfc_at_fault(dropout=1.5), "`dropout` must be at least 0 and below 1, got 1.5", id="nfc dropout"),
        pytest.param(nfc_at_fault(bandwidth=0), "`bandwidth` must be at least 1, got 0", id="nfc bandwidth"),
        pytest.param(nfc_at_fault(kernel_size=41),
                     "`kernel_size` must be at most the number of features, 40, got 41; lower it", id="nfc kernel"),
        pytest.param(lambda: GCN(4, 3, 0, 2), "`num_layers` must be at least 1, got 0", id="gcn layers"),
        pytest.param(lambda: GCN(4, 0, 2, 2), "`hidden_channels` must be at least 1, got 0", id="gcn hidden"),
        pytest.param(lambda: GCN(4, 3, 2, 0), "`out_channels` must be at least 1, got 0", id="gcn out"),
        pytest.param(lambda: GCN(4, 3, 2, 2, dropout=-1), "`dropout` must be at least 0 and below 1, got -1",
                     id="gcn dropout"),
        pytest.param(lambda: MLP(4, 3, 0, 2), "`num_layers` must be at least 1, got 0", id="mlp layers"),
        pytest.param(lambda: MLP(4, 0, 2, 2), "`hidden_channels` must be at least 1, got 0", id="mlp hidden"),
        pytest.param(lambda: MLP(4, 3, 2, 0), "`out_channels` must be at least 1, got 0", id="mlp out"),
        pytest.param(lambda: MLP(4, 3, 2, 2, dropout=1), "`dropout` must be at least 0 and below 1, got 1",
                     id="mlp dropout"),
        pytest.param(lambda: GAT(4, 3, 0, 2), "`num_layers` must be at least 1, got 0", id="gat layers"),
        pytest.param(lambda: GAT(4, 0, 2, 2), "`hidden_channels` must be at least 1, got 0", id="gat hidden"),
        pytest.param(lambda: GAT(4, 3, 2, 0), "`out_channels` must be at least 1, got 0", id="gat out"),
        pytest.param(lambda: GAT(4, 3, 2, 2, dropout=1), "`dropout` must be at least 0 and below 1, got 1",
                     id="gat dropout"),
        pytest.param(lambda: SAGE(4, 3, 0, 2), "`num_layers` must be at least 1, got 0", id="sage layers"),
        pytest.param(lambda: SAGE(4, 0, 2, 2), "`hidden_channels` must be at least 1, got 0", id="sage hidden"),
        pytest.param(lambda: SAGE(4, 3, 2, 0), "`out_channels` must be at least 1, got 0", id="sage out"),
        pytest.param(lambda: SAGE(4, 3, 2, 2, dropout=1), "`dropout` must be at least 0 and below 1, got 1",
                     id="sage dropout"),
        pytest.param(lambda: JKNet(4, 3, 0, 2), "`num_layers` must be at least 1, got 0", id="jknet layers"),
        pytest.param(lambda: JKNet(4, 0, 2, 2), "`hidden_channels` must be at least 1, got 0", id="jknet hidden"),
        pytest.param(lambda: JKNet(4, 3, 2, 0), "`out_channels` must be at least 1, got 0", id="jknet out"),
        pytest.param(lambda: JKNet(4, 3, 2, 2, dropout=1), "`dropout` must be at least 0 and below 1, got 1",
                     id="jknet dropout"),
        pytest.param(lambda: GAT(4, 3, 2, 2, heads=0), "`heads` must be at least 1, got 0", id="gat heads"),
        pytest.param(lambda: GAT(4, 3, 2, 2, output_heads=0), "`output_heads` must be at least 1, got 0",
                     id="gat output heads"),
        pytest.param(lambda: GAT(4, 3, 2, 2, attention_dropout=-1),
                     "`attention_dropout` must be at least 0 and below 1, got -1", id="gat attention"),
        pytest.param(lambda: SAGE(4, 3, 2, 2, num_neighbours=0), "`num_neighbours` must be at least 1, got 0",
                     id="sage neighbours"),
        pytest.param(lambda: SAGE(4, 3, 2, 2, num_further=0), "`num_further` must be at least 1, got 0",
                     id="sage further"),
        pytest.param(lambda: JKNet(4, 3, 2, 2, mode="lst"), "unknown mode 'lst'; did you mean 'lstm'?",
                     id="jknet mode"),
    ],
)  # fmt: skip
def test_bad_settings(make, text):
    with pytest.raises(ConfigError, match=message(text)):
        make()


def test_edges_outside_the_features():
    text = "`edge_index` names a node outside 0 to 3; does it belong to these features?"
    with pytest.raises(GraphError, match=message(text)):
        nfc_gcn()(torch.ones(4, 40), torch.tensor([[0], [4]]))


def test_a_table_of_the_wrong_shape(dense_graph):
    text = "`neighbours` must have shape [300, 3] (nodes, bandwidth), got [300, 4]"
    with pytest.raises(GraphError, match=message(text)):
        nfc_gcn()(dense_graph.x, dense_graph.edge_index, torch.zeros(300, 4, dtype=torch.long))


def test_features_divided_by_their_sums():
    x = torch.tensor([[1.0, 0, 3], [0, 0, 0], [0, 5, 0], [2, -2, 0]])
    expected = torch.tensor([[0.25, 0, 0.75], [0, 0, 0], [0, 1, 0], [2, -2, 0]])
    torch.testing.assert_close(divide_by_row_sums(x), expected, rtol=0, atol=0)
    scaled = divide_by_row_sums(x.to_sparse_csr())
    assert scaled.layout == torch.sparse_csr
    assert torch.equal(scaled.col_indices(), x.to_sparse_csr().col_indices())
    torch.testing.assert_close(scaled.to_dense(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("form", ["dense", "CSR"])
def test_a_model_divides_its_features_by_their_sums(form, layers, sparse_graph):
    x = sparse_graph.x if form == "CSR" else sparse_graph.x.to_dense()
    model = GCN(40, 8, layers, 3).eval()
    expected = model(divide_by_row_sums(x), sparse_graph.edge_index)
    as_given = model(x, sparse_graph.edge_index)
    model.feature_scale = "row-sum"
    torch.testing.assert_close(model(x, sparse_graph.edge_index), expected)
    assert not torch.allclose(as_given, expected)


def test_features_divided_by_their_norms():
    x = torch.tensor([[3.0, 0, 4], [0, 0, 0], [0, -5, 0]])
    expected = torch.tensor([[0.6, 0, 0.8], [0, 0, 0], [0, -1, 0]])
    torch.testing.assert_close(divide_by_row_norms(x), expected)
    scaled = divide_by_row_norms(x.to_sparse_csr())
    assert scaled.layout == torch.sparse_csr
    assert torch.equal(scaled.col_indices(), x.to_sparse_csr().col_indices())
    torch.testing.assert_close(scaled.to_dense(), expected)


@pytest.mark.parametrize(("scale", "divide"), [("row-norm", divide_by_row_norms), ("row-sum", divide_by_row_sums)])
@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("form", ["dense", "CSR"])
def test_nfc_gcn_scales_its_features(form, layers, scale, divide, sparse_graph):
    x = sparse_graph.x if form == "CSR" else sparse_graph.x.to_dense()
    model = nfc_gcn(num_layers=layers).eval()
    as_given, expected = model(x, sparse_graph.edge_index), model(divide(x), sparse_graph.edge_index)
    hidden = model.embed(divide(x), sparse_graph.edge_index)
    model.feature_scale = scale
    torch.testing.assert_close(model(x, sparse_graph.edge_index), expected)
    torch.testing.assert_close(model.embed(x, sparse_graph.edge_index), hidden)
    assert not torch.allclose(as_given, expected)
    model.feature_scale = "given"
    assert torch.equal(model(x, sparse_graph.edge_index), as_given)


@pytest.mark.parametrize("model", ["nfc-gcn", "gcn"])
@pytest.mark.filterwarnings("ignore::nfcgcn.errors.NFCWarning")
def test_features_that_need_a_gradient_are_scaled_anew_in_every_pass(model, dense_graph):
    net = (nfc_gcn() if model == "nfc-gcn" else GCN(40, 8, 2, 3)).eval()
    net.feature_scale = "row-norm"
    x = dense_graph.x.clone().requires_grad_()
    gradients = []
    for _ in range(2):
        x.grad = None
        net(x, dense_graph.edge_index).square().sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    # A row's scores do not change as it grows along itself.
    torch.testing.assert_close((x.grad * x).sum(1).detach(), torch.zeros(300), atol=1e-3, rtol=0)


def test_dropout_of_sparse_features_touches_nonzeros_only(sparse_graph):
    torch.manual_seed(0)
    model, x = GCN(40, 8, 2, 3), sparse_graph.x
    dropped = model.read(x, 0.25)
    assert torch.equal(dropped.matrix.col_indices(), x.col_indices())
    ratio = dropped.matrix.values() / x.values()
    torch.testing.assert_close(ratio[ratio != 0], torch.full_like(ratio[ratio != 0], 1 / 0.75))
    assert (ratio == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)
    assert not torch.equal(model.read(x, 0.25).matrix.values(), dropped.matrix.values())
    assert torch.equal(model.eval().read(x, 0.25).matrix.values(), x.values())
