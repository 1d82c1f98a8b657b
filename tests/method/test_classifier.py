"""What every model can do: scores for every node, sparse features kept sparse, copies, saving, scaling of features."""

import copy
import io
import pickle
import re

import pytest
import torch
import torch.nn.functional as F

from nfcgcn import GCN, NFCGCN
from nfcgcn.baselines import GAT, GAT5, GCN5, LGCN, MLP, SAGE, FastGCN, JKNet
from nfcgcn.errors import ConfigError
from nfcgcn.method.features import scale_features


def nfc_gcn(num_layers=2, **options):
    small = {"bandwidth": 3, "filters": 4, "kernel_size": 8, "stride": 4}
    return NFCGCN(40, 8, num_layers, 3, **{**small, **options})


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


def scores(model, graph):
    return model(graph.x, graph.edge_index)


@every_model
def test_scores_of_every_node(make, sparse_graph):
    model, nodes = make(), torch.tensor([7, 3, 299])
    for training in (True, False):
        assert scores(model.train(training), sparse_graph).shape == (300, 3)
        assert len(model.embed(sparse_graph.x, sparse_graph.edge_index)) == 300
        assert model.score_nodes(sparse_graph.x, sparse_graph.edge_index, nodes).shape == (3, 3)


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
        if isinstance(model, GCN5 | GAT5):
            model = make(bandwidth=300).double().eval()  # room for all neighbours: nothing is left to chance
        before, after = model(x, edge_index), model(x[old], new[edge_index])
    torch.testing.assert_close(after[new], before)


@every_model
def test_features_are_scaled_before_anything_else(make, sparse_graph):
    x, edge_index = scale_features(sparse_graph.x, "row-sum"), sparse_graph.edge_index
    model, plain = make(feature_scale="row-sum").eval(), make().eval()
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(scores(model, sparse_graph), plain(x, edge_index))
    torch.testing.assert_close(
        model.embed(sparse_graph.x, edge_index).to_dense(), plain.embed(x, edge_index).to_dense()
    )
    assert not torch.allclose(scores(plain, sparse_graph), plain(x, edge_index))


@pytest.mark.parametrize("name", ["mlp K=3", "gcn K=3", "gat K=3", "sage-mean K=3", "jknet concat"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_dropout_acts_on_the_input_of_every_layer(name, place, sparse_graph):
    model, inputs = MODELS[name](dropout=0.5), []
    model.layers[place].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    for training in (True, False):
        scores(model.train(training), sparse_graph)
    kept, whole = (cells(h).ne(0).double().mean() for h in inputs)
    assert 0.35 < kept / whole < 0.65
    rectified = place and name != "gat K=3"
    assert not rectified or inputs[1].min() == 0


def cells(rows):
    """The numbers of rows in whatever form a layer reads them."""
    rows = rows if isinstance(rows, torch.Tensor) else rows.matrix
    return rows.values() if rows.layout == torch.sparse_csr else rows


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (MODELS["nfc-gcn K=0"], "classifier.weight"),
        (MODELS["nfc-gcn K=1"], "layers.0.weight"),
        (MODELS["nfc-gcn"], "layers.0.weight"),
        (MODELS["nfc-gcn K=3"], "layers.0.weight"),
        (MODELS["nfc-gcn literal"], "layers.0.weight"),
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
def test_copies(make, sparse_graph):
    model = make().eval()
    expected = scores(model, sparse_graph)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(scores(other, sparse_graph), expected)
        other.reset_parameters()
        assert not torch.equal(scores(other, sparse_graph), expected)
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


@pytest.mark.parametrize(("name", "sparse"), [("nfc-gcn", True), ("gcn", False)], ids=["nfc-gcn sparse", "gcn dense"])
def test_use_in_a_plain_pyg_programme(name, sparse, sparse_graph):
    from torch_geometric.data import Data

    x = sparse_graph.x if sparse else sparse_graph.x.to_dense()
    data = Data(x=x, edge_index=sparse_graph.edge_index, y=sparse_graph.y)
    data.train_mask = torch.arange(300) < 200
    torch.manual_seed(0)
    model = MODELS[name]()
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


@pytest.mark.parametrize(
    ("make", "text"),
    [
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
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        make()
