"""Exported programmes: the model's scores on graphs of other sizes, also where this package is not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from nfcgcn import GCN, NFCGCN, export
from nfcgcn.baselines import GAT, MLP, FastGCN, JKNet
from nfcgcn.errors import ConfigError, WriteError
from nfcgcn.inference import export as exporting
from nfcgcn.method.sampling import draw_seed, neighbour_table, order_by_similarity

SIZES = [(12, 40), (500, 3000), (2, 1), (1, 0), (97, 83)]


def nfc_gcn(num_layers, **options):
    torch.manual_seed(0)
    small = {"bandwidth": 4, "filters": 3, "kernel_size": 8, "stride": 5, "kernel_width": 2}
    model = NFCGCN(20, 6, num_layers, 3, **{**small, **options}).eval()
    with torch.no_grad():
        if model.classifier is not None:
            model.classifier.bias.normal_()
    return model


def inputs(num_nodes, num_edges, bandwidth=4):
    """Loops and repeated edges among them."""
    random = torch.Generator().manual_seed(num_nodes)
    x = torch.randn(num_nodes, 20, generator=random)
    edges, table = (
        torch.randint(num_nodes, size, generator=random) for size in ((2, num_edges), (num_nodes, bandwidth))
    )
    return x, edges, table


@pytest.mark.parametrize(
    ("num_layers", "conv", "activation"),
    [(0, "1d", "none"), (0, "2d", "tanh"), (1, "2d", "none"), (2, "1d", "tanh"), (2, "2d", "relu"), (3, "1d", "none")],
)
def test_the_programme_scores_as_the_model_does(num_layers, conv, activation):
    model = nfc_gcn(num_layers, conv=conv, activation=activation)
    programme = export(model, neighbours="given").module()
    for size in SIZES:
        x, edges, table = inputs(*size)
        torch.testing.assert_close(programme(x, edges, table), model(x, edges, table), rtol=1e-5, atol=1e-5)


# Of every node of a star; hubs with more neighbours than slots, and none; loops and repeated edges in `inputs`.
STAR = torch.stack([torch.zeros(30, dtype=torch.int64), torch.arange(1, 31)])
GRAPHS = {
    **{f"{n} nodes, {e} edges": inputs(n, e)[:2] for n, e in [*SIZES, (40, 900)]},
    "star": (torch.randn(33, 20, generator=torch.Generator().manual_seed(1)), torch.cat([STAR, STAR.flip(0)], 1)),
}


@pytest.fixture(scope="module", params=[{"bandwidth": 4}, {"bandwidth": 1}, {"slot_order": "similarity"}], ids=str)
def drawing(request):
    """A model and its programme, which draws its own neighbours; another seed than the default, and another draw."""
    model = nfc_gcn(2, seed=5, **({"feature_scale": "row-norm"} | request.param))
    model.nfc.draw = 3
    return model, export(model).module()


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_programme_draws_the_model_s_neighbours(drawing, graph):
    model, programme = drawing
    torch.testing.assert_close(programme(*graph), model(*graph), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("bandwidth", [2, 7, 40])
def test_the_traced_draw_is_the_draw(graph, bandwidth):
    x, edges = graph
    expected = neighbour_table(edges, len(x), bandwidth=bandwidth, seed=11, draw=2)
    lists = exporting._lists(edges, torch.arange(len(x)))
    found = exporting._draw(*lists, size=bandwidth - 1, seed=draw_seed(11, 2))
    assert torch.equal(found, expected)
    assert torch.equal(exporting._by_similarity(x, found), order_by_similarity(x, expected))


def test_a_classifier_goes_with_the_programme():
    model = nfc_gcn(2, classifier="linear")
    programme = export(model, neighbours="given").module()
    x, edges, table = inputs(500, 3000)
    torch.testing.assert_close(programme(x, edges, table), model(x, edges, table), rtol=1e-5, atol=1e-5)


OTHERS = {
    "gcn": lambda: GCN(20, 6, 3, 3, feature_scale="row-norm"),
    "gcn, one layer": lambda: GCN(20, 6, 1, 3, feature_scale="row-sum"),
    "fastgcn": lambda: FastGCN(20, 6, 3),
    "mlp": lambda: MLP(20, 6, 2, 3),
    "jknet": lambda: JKNet(20, 6, 3, 3, mode="max"),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_models(make):
    torch.manual_seed(0)
    model = make().eval()
    programme = export(model).module()
    for size in SIZES:
        x, edges, _ = inputs(*size)
        torch.testing.assert_close(programme(x.abs(), edges), model(x.abs(), edges), rtol=1e-5, atol=1e-5)


def test_a_file_runs_without_this_package(tmp_path):
    model = nfc_gcn(2, activation="tanh")
    export(model, tmp_path / "model.pt2", notes={"classes": ["a", "<b>", "c"]})
    x, edges, _ = inputs(31, 70)
    torch.save((x, edges, model(x, edges).detach()), tmp_path / "case.pt")
    code = f"""
import sys, torch
notes = {{"nfcgcn.json": ""}}
programme = torch.export.load({str(tmp_path / "model.pt2")!r}, extra_files=notes).module()
*case, scores = torch.load({str(tmp_path / "case.pt")!r})
torch.testing.assert_close(programme(*case), scores, rtol=1e-5, atol=1e-5)
assert not [name for name in sys.modules if name.startswith("nfcgcn")]
print(notes["nfcgcn.json"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "takes": {"x": ["nodes", 20], "edge_index": [2, "edges"]},
        "classes": ["a", "<b>", "c"],
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["case.pt", "model.pt2"]


ONNX = {
    "nfc-gcn": lambda: nfc_gcn(2),
    "nfc-gcn 2d, tanh, row-norm": lambda: nfc_gcn(2, conv="2d", activation="tanh", feature_scale="row-norm"),
    "gcn": OTHERS["gcn, one layer"],
    "mlp": OTHERS["mlp"],
    "jknet": OTHERS["jknet"],
}


@pytest.mark.parametrize("case", ONNX)
def test_an_onnx_file_scores_as_the_model_does(case, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    torch.manual_seed(0)
    model = ONNX[case]().eval()
    export(model, tmp_path / "model.onnx", notes={"classes": ["a", "<b>", "c"]})
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    for size in SIZES:
        given = dict(zip(("x", "edge_index", "neighbours"), inputs(*size), strict=True))
        given["x"] = given["x"].abs()
        taken = {value.name: given[value.name] for value in session.get_inputs()}
        (scores,) = session.run(None, {name: tensor.numpy() for name, tensor in taken.items()})
        torch.testing.assert_close(torch.from_numpy(scores), model(**given_to(model, given)), rtol=1e-4, atol=1e-5)
    notes = json.loads(session.get_modelmeta().custom_metadata_map["nfcgcn.json"])
    assert notes["classes"] == ["a", "<b>", "c"]
    assert notes["takes"] == {value.name: value.shape for value in session.get_inputs()}
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def given_to(model, given):
    return given if isinstance(model, NFCGCN) else {name: given[name] for name in ("x", "edge_index")}


def test_the_drawn_table_gives_the_model_s_scores(sparse_graph):
    model = NFCGCN(40, 8, 2, 3, kernel_size=8, stride=4, slot_order="similarity").eval()
    table = model.nfc.table(sparse_graph.x, sparse_graph.edge_index)
    scores = export(model, neighbours="given").module()(sparse_graph.x.to_dense(), sparse_graph.edge_index, table)
    torch.testing.assert_close(scores, model(sparse_graph.x, sparse_graph.edge_index), rtol=1e-5, atol=1e-5)


def test_the_model_stays_as_it_is():
    model = nfc_gcn(1).double().train()
    export(model)
    assert model.training
    assert model.nfc.weight.dtype == torch.float64


def test_refusals(tmp_path):
    with pytest.raises(ConfigError, match=r"^GAT cannot be exported; NFCGCN, GCN, FastGCN, MLP, JKNet can$"):
        export(GAT(20, 4, 2, 3))
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"^cannot write .*model\.pt2: .*; choose another place$"):
        export(nfc_gcn(0), tmp_path / "file" / "model.pt2")
