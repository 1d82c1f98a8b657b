import copy
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.kernels import why
from nfcgcn.method import sampling
from nfcgcn.method.node_feature_conv import NodeFeatureConv


def message(text):
    return f"^{re.escape(text)}$"


def small(in_channels=40, filters=3, **options):
    return NodeFeatureConv(in_channels, filters, **{"bandwidth": 3, "kernel_size": 8, "stride": 4, **options})


@pytest.fixture
def draws(monkeypatch):
    """Counts the tables that are drawn."""
    seen = []
    real = sampling.draw_rows

    def counting(*args, **kwargs):
        seen.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(sampling, "draw_rows", counting)
    return seen


@pytest.mark.parametrize("activation", ["none", "tanh", "relu"])
@pytest.mark.parametrize("conv", ["1d", "2d"])
def test_forward_is_activation_of_convolution(conv, activation, dense_graph):
    layer = small(conv=conv, kernel_width=2, activation=activation).eval()
    table = torch.randint(300, (300, 3), generator=torch.Generator().manual_seed(0))
    maps = dense_graph.x[table]
    if conv == "1d":
        expected = F.conv1d(maps, layer.weight, stride=4)
    else:
        expected = F.conv2d(maps[:, None], layer.weight[:, None], stride=(1, 4)).transpose(1, 2)
    expected = {"none": lambda h: h, "tanh": torch.tanh, "relu": torch.relu}[activation](expected).flatten(1)
    torch.testing.assert_close(layer(dense_graph.x, neighbours=table), expected)


@pytest.mark.parametrize(
    ("options", "out_channels"),
    [
        pytest.param({}, 3 * 9, id="1d"),
        pytest.param({"kernel_size": 40}, 3, id="1d, one place"),
        pytest.param({"kernel_size": 7, "stride": 5}, 3 * 7, id="1d, trailing columns"),
        pytest.param({"conv": "2d", "kernel_width": 1}, 3 * 3 * 9, id="2d, one slot"),
        pytest.param({"conv": "2d", "kernel_width": 2}, 2 * 3 * 9, id="2d, two slots"),
        pytest.param({"conv": "2d", "kernel_width": 3}, 3 * 9, id="2d, all slots"),
        pytest.param({"bandwidth": 1}, 3 * 9, id="the node alone"),
    ],
)
def test_out_channels(options, out_channels, sparse_graph):
    layer = small(**options)
    assert layer.out_channels == out_channels
    assert layer(sparse_graph.x, sparse_graph.edge_index).shape == (300, out_channels)


def test_sparse_and_dense_features_agree(sparse_graph, dense_graph):
    layer = small().eval()
    sparse, dense = (layer(g.x, g.edge_index) for g in (sparse_graph, dense_graph))
    torch.testing.assert_close(sparse, dense)


def test_dropout_acts_in_training_only(dense_graph):
    layer = small(map_dropout=0.5)
    first, second = (layer(dense_graph.x, dense_graph.edge_index) for _ in range(2))
    assert not torch.equal(first, second)
    layer.eval()
    first, second = (layer(dense_graph.x, dense_graph.edge_index) for _ in range(2))
    assert torch.equal(first, second)


def test_a_table_is_drawn_once_per_graph_and_seed(draws, dense_graph):
    edge_index = dense_graph.edge_index.clone()
    for layer in (small().eval(), small().eval(), small(conv="2d", kernel_width=2)):
        for _ in range(2):
            layer(dense_graph.x, edge_index)
    assert len(draws) == 1
    small(seed=1)(dense_graph.x, edge_index)
    assert len(draws) == 2


def test_another_edge_index_means_another_table(draws, dense_graph):
    layer = small().eval()
    first, second = (layer(dense_graph.x, dense_graph.edge_index.clone()) for _ in range(2))
    assert torch.equal(first, second)
    assert len(draws) == 2
    other = torch.tensor([[0], [1]])
    assert not torch.equal(layer(dense_graph.x, other), first)
    assert torch.equal(layer(dense_graph.x, dense_graph.edge_index), first)


def test_an_edge_index_that_is_written_to_means_another_table(draws, dense_graph):
    layer = small().eval()
    edge_index = dense_graph.edge_index.clone()
    first = layer(dense_graph.x, edge_index)
    edge_index.copy_(edge_index.flip(1).roll(7, dims=1))  # the same edges in another order: same neighbours
    assert torch.equal(layer(dense_graph.x, edge_index), first)
    edge_index[0] = edge_index[0].roll(5)
    assert not torch.equal(layer(dense_graph.x, edge_index), first)
    assert len(draws) == 3


def test_an_edge_index_from_inference_mode(dense_graph):
    layer = small().eval()
    with torch.inference_mode():
        edge_index = dense_graph.edge_index.clone()
        first, second = (layer(dense_graph.x, edge_index) for _ in range(2))
    assert torch.equal(first, second)


def test_resample_once_keeps_the_table_in_training(draws, dense_graph):
    layer, edge_index = small(map_dropout=0.0), dense_graph.edge_index.clone()
    first, second = (layer(dense_graph.x, edge_index) for _ in range(2))
    assert torch.equal(first, second)
    assert len(draws) == 1


def test_resample_epoch_draws_anew_in_training_only(dense_graph):
    once, layer = small(map_dropout=0.0), small(map_dropout=0.0, resample="epoch")
    layer.load_state_dict(once.state_dict())
    fixed = once.eval()(dense_graph.x, dense_graph.edge_index)
    torch.manual_seed(0)
    first, second = (layer(dense_graph.x, dense_graph.edge_index) for _ in range(2))
    assert not torch.equal(first, second)
    layer.eval()
    assert torch.equal(layer(dense_graph.x, dense_graph.edge_index), fixed)
    layer.train()
    torch.manual_seed(0)
    assert torch.equal(layer(dense_graph.x, dense_graph.edge_index), first)


def test_a_layer_draws_neighbours_without_touching_torch(dense_graph):
    layer = small().eval()
    before = torch.get_rng_state()
    layer(dense_graph.x, dense_graph.edge_index.clone())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_second_layer_on_the_first_trains(dense_graph):
    torch.manual_seed(0)
    first = small(map_dropout=0.0, activation="tanh")
    second = NodeFeatureConv(first.out_channels, 3, bandwidth=2, kernel_size=9, stride=9, map_dropout=0.0, seed=1)
    assert second.out_channels == 9
    head = nn.Linear(9, 3)
    parameters = [*first.parameters(), *second.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        h = second(first(dense_graph.x, dense_graph.edge_index), dense_graph.edge_index)
        loss = F.cross_entropy(head(h), dense_graph.y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert all(p.grad.abs().sum() > 0 for p in parameters)
    assert losses[-1] < 0.8 * losses[0]


def test_gradients_reach_the_features():
    layer = small(6, 2, kernel_size=3, stride=3, map_dropout=0.0).double()
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])
    assert torch.autograd.gradcheck(lambda a: layer(a, edge_index), (x,))


@pytest.mark.parametrize(
    "copy_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_copies_compute_the_same_on_their_own(copy_of, sparse_graph):
    model = small(slot_order="similarity", seed=4).eval()
    expected = model(sparse_graph.x, sparse_graph.edge_index)
    other = copy_of(model)
    assert torch.equal(other(sparse_graph.x, sparse_graph.edge_index), expected)
    other.reset_parameters()
    assert torch.equal(model(sparse_graph.x, sparse_graph.edge_index), expected)
    assert not torch.equal(other(sparse_graph.x, sparse_graph.edge_index), expected)


def test_weights_alone_are_saved(sparse_graph):
    layer = small()
    layer(sparse_graph.x, sparse_graph.edge_index)
    assert list(layer.state_dict()) == ["weight"]
    assert layer.weight.shape == (3, 3, 8)
    assert small(conv="2d", kernel_width=2).weight.shape == (3, 2, 8)


def test_weights_are_glorot_uniform():
    torch.manual_seed(0)
    weight = NodeFeatureConv(100, 64, bandwidth=6, kernel_size=32).weight.detach()
    bound = (6 / (6 * 32 + 64 * 32)) ** 0.5
    assert 0.99 * bound < weight.abs().max() <= bound
    torch.testing.assert_close(weight.std().item(), bound / 3**0.5, rtol=0.03, atol=0)


def test_reset_parameters_draws_anew_from_torch():
    torch.manual_seed(1)
    layer = small()
    first = layer.weight.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(layer.weight, first)
    torch.manual_seed(1)
    layer.reset_parameters()
    assert torch.equal(layer.weight, first)


def test_repr():
    assert repr(small(conv="2d", activation="tanh")) == (
        "NodeFeatureConv(40, 27, filters=3, bandwidth=3, kernel_size=8, stride=4, conv='2d', activation='tanh')"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param(
            {"kernel_size": 41},
            "`kernel_size` must be at most the number of features, 40, got 41; lower it",
            id="kernel above features",
        ),
        pytest.param({"bandwidth": 0}, "`bandwidth` must be at least 1, got 0", id="bandwidth"),
        pytest.param({"filters": 0}, "`filters` must be at least 1, got 0", id="filters"),
        pytest.param({"kernel_size": -1}, "`kernel_size` must be at least 1, got -1", id="kernel_size"),
        pytest.param({"stride": 0}, "`stride` must be at least 1, got 0", id="stride"),
        pytest.param(
            {"map_dropout": 1.0}, "`map_dropout` must be at least 0 and below 1, got 1.0", id="map_dropout one"
        ),
        pytest.param(
            {"map_dropout": -0.1}, "`map_dropout` must be at least 0 and below 1, got -0.1", id="map_dropout negative"
        ),
        pytest.param(
            {"map_dropout": float("nan")}, "`map_dropout` must be at least 0 and below 1, got nan", id="map_dropout nan"
        ),
        pytest.param({"kernel_width": 0}, "`kernel_width` must be at least 1, got 0", id="kernel_width zero"),
        pytest.param(
            {"conv": "2d", "kernel_width": 4},
            "`kernel_width` must be between 1 and `bandwidth`, 3, got 4; lower it or raise `bandwidth`",
            id="kernel_width above",
        ),
    ],
)
def test_bad_settings(options, text):
    with pytest.raises(ConfigError, match=message(text)):
        small(**options)


def test_kernel_width_does_not_matter_in_1d():
    assert small(kernel_width=99).weight.shape == (3, 3, 8)


@pytest.mark.parametrize("edge", [[4, 0], [0, 4], [-1, 0], [0, -1]], ids=str)
def test_edges_outside_the_features(edge):
    text = "`edge_index` names a node outside 0 to 3; does it belong to these features?"
    with pytest.raises(GraphError, match=message(text)):
        small()(torch.ones(4, 40), torch.tensor([[0, edge[0]], [1, edge[1]]]))


def test_bad_calls():
    layer, x = small(), torch.ones(4, 40)
    with pytest.raises(
        GraphError, match=message("the layer needs `edge_index` to draw neighbours from, or a table as `neighbours`")
    ):
        layer(x)
    with pytest.raises(GraphError, match=message("`neighbours` must have shape [4, 3] (nodes, bandwidth), got [4, 2]")):
        layer(x, neighbours=torch.zeros(4, 2, dtype=torch.long))
    with pytest.raises(GraphError, match=message("`neighbours` must have shape [4, 3] (nodes, bandwidth), got [5, 3]")):
        layer(x, neighbours=torch.zeros(5, 3, dtype=torch.long))


def test_no_edges_means_copies_of_the_node():
    layer, x = small().eval(), torch.randn(4, 40)
    table = torch.arange(4)[:, None].expand(-1, 3)
    assert torch.equal(layer(x, torch.zeros(2, 0, dtype=torch.long)), layer(x, neighbours=table))


def test_the_table_follows_nodes_and_features():
    edges = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 2]])
    layer = NodeFeatureConv(2, 2, kernel_size=1, stride=1, bandwidth=3, slot_order="similarity").eval()
    assert layer(torch.ones(4, 2), edges).shape == (4, 4)
    assert layer(torch.ones(6, 2), edges).shape == (6, 4)
    x = torch.tensor([[1.0, 0], [1, 0.1], [0, 1]])
    assert layer.table(x, edges)[0].tolist() == [0, 1, 2]
    assert layer.table(x[[0, 2, 1]], edges)[0].tolist() == [0, 2, 1]
    x[1] = -x[1]
    assert layer.table(x, edges)[0].tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"activation": "tan"}, "unknown activation 'tan'; did you mean 'tanh'?"),
        ({"conv": "3d"}, "unknown conv '3d'; choose from 1d, 2d"),
        ({"backend": "cup"}, "unknown backend 'cup'; did you mean 'cpu'?"),
        ({"slot_order": "size"}, "unknown slot_order 'size'; choose from degree, pagerank, random, similarity"),
        ({"resample": "never"}, "unknown resample 'never'; choose from epoch, once"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_unknown_choices(options, text):
    with pytest.raises(ConfigError, match=message(text)):
        NodeFeatureConv(40, **options)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_features_and_tables_that_do_not_fit_are_refused(backend):
    layer = NodeFeatureConv(6, 2, kernel_size=2, stride=1, bandwidth=2, backend=backend)
    table = torch.tensor([[0, 1], [1, 0]])
    for columns in (5, 7):
        text = f"`x` must have 6 features, as the layer was made for, got {columns}"
        with pytest.raises(GraphError, match=message(text)):
            layer(torch.ones(2, columns), neighbours=table)
    for node in (-1, 2):
        with pytest.raises(GraphError, match=r"^`neighbours` names a node outside 0 to 1$"):
            layer(torch.ones(2, 6), neighbours=torch.tensor([[0, 1], [1, node]]))


def test_why_names_the_kernels_that_run_and_the_obstacle():
    x = torch.zeros(3, 6)
    layer, forced = (
        NodeFeatureConv(6, 2, kernel_size=2, stride=1, bandwidth=2, backend=backend)
        for backend in ("auto", "reference")
    )
    assert why(layer, x) == "cpu"
    assert why(layer, x.clone().requires_grad_()) == "reference: the features need a gradient"
    assert why(forced, x) == "reference: `backend` says so"
