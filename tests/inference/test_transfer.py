"""A run's weights as the start on another graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nfcgcn.config.registry import make_config
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.evaluation import describe, repeat
from nfcgcn.files import new_folder
from nfcgcn.graph import Graph
from nfcgcn.inference.checkpoint import load_run, save_run
from nfcgcn.inference.transfer import settings_of_run, starting_weights
from nfcgcn.training import fit

SMALL = {"split": "ratio", "epochs": 4, "hidden_channels": 5, "learning_rate": 0.05}


def saved(folder, graph, model="gcn", **settings):
    config = make_config(model, settings={**SMALL, **settings})
    (run,) = repeat(graph, config, [2])
    result = describe(graph, config, [run], device=torch.device("cpu"))
    with new_folder(folder) as draft:
        save_run(draft, graph, result, {2: run.run}, 2)
    return load_run(folder)


@pytest.fixture
def run_of(tmp_path, sparse_graph):
    return lambda model="gcn", **settings: saved(tmp_path / "run", sparse_graph, model, **settings)


def relabelled(graph, labels, **others):
    return Graph.from_edges(graph.edge_index.numpy(), graph.features, labels=labels, name="other", **others)


@pytest.mark.parametrize("model", ["gcn", "nfc-gcn", "planetoid-i"])
def test_the_same_classes_start_with_all_weights(run_of, sparse_graph, model):
    source = run_of(model, **{"nfc-gcn": {"kernel_size": 8}, "planetoid-i": {"pretraining": 2}}.get(model, {}))
    config = make_config(model, settings={**settings_of_run(source), **SMALL})
    start = starting_weights(source, sparse_graph, config)
    net = config.build(sparse_graph, 7)
    net.load_state_dict({**net.state_dict(), **start})
    assert start.keys() == net.state_dict().keys()
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in source.model.state_dict().items())


def test_repeat_starts_there_and_nowhere_else(run_of, sparse_graph):
    source = run_of()
    config = make_config("gcn", settings={**SMALL, "epochs": 1})
    start = starting_weights(source, sparse_graph, config)
    (found,) = repeat(sparse_graph, config, [5], start=start)
    expected = config.build(sparse_graph, 5)
    expected.load_state_dict(source.model.state_dict())
    fit(expected, sparse_graph, config.split.make(sparse_graph, 5), config.training, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(found.model.parameters(), expected.parameters(), strict=True))
    (fresh,) = repeat(sparse_graph, config, [5])
    assert not torch.equal(next(fresh.model.parameters()), next(found.model.parameters()))


@pytest.mark.parametrize("names", [("p", "q", "r"), ("a", "b", "c", "d")], ids=["other names", "other number"])
def test_other_classes_start_with_the_layers_before(tmp_path, sparse_graph, names):
    known = relabelled(sparse_graph, np.arange(sparse_graph.num_nodes) % 3, class_names=["a", "b", "c"])
    source = saved(tmp_path / "run", known)
    labels = np.arange(sparse_graph.num_nodes) % len(names)
    start = starting_weights(
        source, relabelled(sparse_graph, labels, class_names=list(names)), make_config("gcn", settings=SMALL)
    )
    assert list(start) == ["layers.0.weight"]


def test_what_does_not_fit_is_refused(run_of, sparse_graph):
    source = run_of()
    with pytest.raises(ConfigError, match=r"^--init names a run of gcn, but --model is mlp; they must be the same$"):
        starting_weights(source, sparse_graph, make_config("mlp", settings=SMALL))
    with pytest.raises(ConfigError, match=r"do not fit: here is `hidden_channels` 9, there 5; give both the same$"):
        starting_weights(source, sparse_graph, make_config("gcn", settings={**SMALL, "hidden_channels": 9}))
    narrow = Graph.from_edges(sparse_graph.edge_index.numpy(), sparse_graph.features[:, :9], labels=sparse_graph.labels)
    with pytest.raises(GraphError, match="does not have the same features as the training graph"):
        starting_weights(source, narrow, make_config("gcn", settings=SMALL))


def test_vectors_of_one_graph_are_no_start_on_another(tmp_path, sparse_graph):
    for number, model in enumerate(("eigenmaps", "planetoid-t")):
        source = saved(tmp_path / str(number), sparse_graph, model)
        with pytest.raises(ConfigError, match=f"^{model} learns one vector per node of its graph"):
            starting_weights(source, sparse_graph, make_config(model, settings=SMALL))


def test_the_command(run, tmp_path):
    made = ["digits", "--set", "epochs=3", "--model", "gcn", "--set", "hidden_channels=7", "--no-select"]
    assert run("train", *made, "--out", tmp_path / "a")[0] == 0
    once = ["--model", "gcn", "--set", "epochs=1"]
    code, _, said = run("train", "digits", *once, "--init", tmp_path / "a", "--out", tmp_path / "b")
    assert code == 0, said
    assert load_run(tmp_path / "b").settings["hidden_channels"] == 7
    code, _, said = run("train", "digits", "--init", tmp_path / "a", "--out", tmp_path / "c")
    assert code == 2
    assert "--init names a run of gcn, but --model is nfc-gcn" in said
    assert not (tmp_path / "c").exists()
