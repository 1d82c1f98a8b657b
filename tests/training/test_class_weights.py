"""Class weights: as scikit-learn and PyTorch define them, in every route of training."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight

from nfcgcn import GCN, fit, make_config, make_split
from nfcgcn.errors import ConfigError
from nfcgcn.settings import read_settings, write_settings
from nfcgcn.training import TrainingConfig
from nfcgcn.training.class_weights import ClassWeights, class_weights

GIVEN = [
    {"b": 2, "a": 1.5},
    "b=2, a=1.5",
    '{"b": 2, "a": "1.5"}',
    {"a": np.float32(1.5), "b": np.int64(2)},
]


@pytest.mark.parametrize("given", GIVEN, ids=["mapping", "text", "json", "numpy"])
def test_a_table_is_read_from_what_people_have(given):
    expected = '{"a": 1.5, "b": 2.0}'
    assert TrainingConfig(class_weight=given).class_weight == expected
    found = make_config("gcn", settings={"class_weight": given}).values["class_weight"]
    assert found == expected
    assert found.table == {"a": 1.5, "b": 2.0}
    assert pickle.loads(pickle.dumps(found)).table == copy.deepcopy(found).table == found.table


BAD = ["x", "a=0", "a=-1", "a=nan", "a=inf", "{}", "[1]", '{"a": true}', 5, "", {"a": None}]


@pytest.mark.parametrize("given", BAD)
def test_what_is_no_table_is_refused(given):
    rule = "a weight above 0 per class, as in spam=5,ham=1"
    with pytest.raises(ConfigError, match=f"^`class_weight` must be balanced or none or {rule}, got '"):
        make_config("gcn", settings={"class_weight": given})
    with pytest.raises(ConfigError, match=f"^`class_weight` must be balanced, none or {rule}, got '"):
        TrainingConfig(class_weight=given)


def test_names_with_marks_and_files_of_settings(tmp_path):
    weights = ClassWeights("a=b=2")
    assert weights.table == {"a=b": 2.0}
    odd = make_config("gcn", settings={"class_weight": {'x,"y"': 3}}).values["class_weight"]
    (tmp_path / "preset.toml").write_text(write_settings("gcn", {"class_weight": odd}))
    assert make_config("gcn", preset=str(tmp_path / "preset.toml")).values["class_weight"].table == {'x,"y"': 3.0}
    (tmp_path / "table.toml").write_text("[gcn]\nclass_weight = {a = 2, b = 0.5}\n")
    read = read_settings(tmp_path / "table.toml")["gcn"]
    assert make_config("gcn", settings=read).values["class_weight"].table == {"a": 2.0, "b": 0.5}


def test_balanced_is_what_scikit_learn_calls_so(sparse_graph):
    train = np.concatenate([np.flatnonzero(sparse_graph.labels == c)[: 5 * c + 1] for c in range(3)])
    labels = sparse_graph.labels[train]
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    torch.testing.assert_close(
        class_weights("balanced", sparse_graph, train), torch.from_numpy(expected).float(), rtol=1e-6, atol=0
    )
    some = train[labels > 0]  # a class without training nodes has no weight to compute
    found = class_weights("balanced", sparse_graph, some).numpy()
    expected = compute_class_weight("balanced", classes=np.arange(1, 3), y=labels[labels > 0])
    np.testing.assert_allclose(found[1:], expected, rtol=1e-6)
    assert found[0] == 1


def test_tables_go_by_the_names_of_the_classes(sparse_graph):
    named = replace(sparse_graph, class_names=("x", "y", "z"))
    assert class_weights(ClassWeights("z=3, x=2"), named, np.arange(3)).tolist() == [2, 1, 3]
    text = "`class_weight`: unknown class 'yy'; did you mean 'y'?"
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        class_weights(ClassWeights("yy=3"), named, np.arange(3))


@pytest.mark.parametrize("batch_size", [None, 70])
def test_losses_are_those_of_torch(sparse_graph, batch_size):
    """With steps too small to count, the figures of an epoch are those of the model at its start."""
    split = make_split(sparse_graph, "ratio")
    torch.manual_seed(0)
    model = GCN(40, 8, 2, 3, dropout=0.0)
    with torch.no_grad():
        scores = model(sparse_graph.x, sparse_graph.edge_index)
    still = {"epochs": 1, "learning_rate": 1e-12, "weight_decay": 0.0}
    config = TrainingConfig(**still, batch_size=batch_size, class_weight="0=5,2=0.5")
    epoch = fit(model, sparse_graph, split, config).best
    weight = torch.tensor([5, 1, 0.5])
    for part, nodes in (("train", split.train), ("val", split.val)):
        expected = F.cross_entropy(scores[nodes], sparse_graph.y[nodes], weight)
        assert epoch[f"{part}_loss"] == pytest.approx(expected.item(), rel=1e-5)
        assert abs(expected - F.cross_entropy(scores[nodes], sparse_graph.y[nodes])) > 1e-3


def test_a_weighted_step_is_one_on_repeated_nodes(sparse_graph):
    """A class of weight 2 pulls as if each of its nodes were there twice."""
    split = make_split(sparse_graph, "ratio")
    torch.manual_seed(0)
    model = GCN(40, 8, 2, 3, dropout=0.0)
    other = copy.deepcopy(model)
    fit(model, sparse_graph, split, TrainingConfig(epochs=1, weight_decay=0.0, class_weight={1: 2}))
    y = sparse_graph.y[split.train]
    twice = torch.cat([torch.from_numpy(split.train), torch.from_numpy(split.train)[y == 1]])
    optimizer = torch.optim.Adam(other.parameters(), lr=0.01)
    F.cross_entropy(other(sparse_graph.x, sparse_graph.edge_index)[twice], sparse_graph.y[twice]).backward()
    optimizer.step()
    for found, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


def test_rare_classes_are_recognised_more_often(make_graph):
    graph = make_graph(200, 40, sparse=True)
    rare = np.flatnonzero(graph.labels == 2)[:6]
    nodes = np.concatenate([np.flatnonzero(graph.labels < 2), rare])
    graph = replace(graph, labels=np.where(np.isin(np.arange(200), nodes), graph.labels, -1))
    split = make_split(graph, "ratio", seed=1)
    found = {}
    for weight in (None, {2: 50}):
        torch.manual_seed(0)
        model = GCN(40, 8, 2, 3)
        fit(model, graph, split, TrainingConfig(epochs=20, monitor="loss", class_weight=weight))
        with torch.no_grad():
            found[str(weight)] = int((model.eval()(graph.x, graph.edge_index).argmax(1) == 2).sum())
    assert found["{2: 50}"] > found["None"]
