"""``torch.compile``: the same values and gradients, our kernels being called as they are."""

from __future__ import annotations

import shutil

import pytest
import torch

from nfcgcn import GCN, NFCGCN
from nfcgcn.baselines import GAT

# What the compiler itself does.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* should not be instantiated. Methods on autograd:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]

MODELS = {
    "nfc-gcn": lambda: NFCGCN(40, 8, 2, 3, filters=4, kernel_size=8, stride=4),
    "nfc-gcn 2d tanh": lambda: NFCGCN(40, 8, 1, 3, filters=4, kernel_size=8, stride=4, conv="2d", activation="tanh"),
    "gcn": lambda: GCN(40, 8, 2, 3),
    "gat": lambda: GAT(40, 4, 2, 3, heads=3, output_heads=2),
}


def step(call, model, graph):
    torch.manual_seed(3)
    model.zero_grad()
    scores = call(graph.x, graph.edge_index)
    scores.square().sum().backward()
    return scores.detach().clone(), [p.grad.clone() for p in model.parameters()]


def compare(model, graph, backend):
    torch._dynamo.reset()
    torch.testing.assert_close(
        step(torch.compile(model, backend=backend), model, graph), step(model, model, graph), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "training"),
    [
        ("nfc-gcn", True),
        ("gat", True),
        pytest.param("nfc-gcn 2d tanh", False, marks=pytest.mark.thorough),
        pytest.param("gcn", False, marks=pytest.mark.thorough),
    ],
)
def test_compiled(name, training, dense_graph):
    torch.manual_seed(0)
    compare(MODELS[name]().train(training), dense_graph, "aot_eager")


def test_sparse_features_which_the_compiler_leaves_alone(sparse_graph):
    torch.manual_seed(0)
    compare(MODELS["nfc-gcn"]().train(), sparse_graph, "aot_eager")


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.thorough
def test_compiled_by_inductor(dense_graph):
    torch.manual_seed(0)
    compare(MODELS["nfc-gcn"]().eval(), dense_graph, "inductor")


def test_one_graph_without_a_break_is_refused(dense_graph):
    torch._dynamo.reset()
    compiled = torch.compile(MODELS["nfc-gcn"]().eval(), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="disable"):
        compiled(dense_graph.x, dense_graph.edge_index)
