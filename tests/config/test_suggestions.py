from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import nfcgcn
from nfcgcn.config.registry import MODELS, make_config, suggest
from nfcgcn.data import DATASETS
from nfcgcn.errors import ConfigError
from nfcgcn.evaluation import repeat
from nfcgcn.graph import Graph, Split


def star(leaves, num_features=4, **parts):
    """A node joined to all others."""
    edges = [[0] * leaves, list(range(1, leaves + 1))]
    return Graph.from_edges(edges, np.ones((leaves + 1, num_features)), **parts)


def ring(num_nodes, reach):
    """Every node joined to the `reach` next ones: all degrees are twice that."""
    nodes = np.arange(num_nodes)
    pairs = [np.stack([nodes, (nodes + step) % num_nodes]) for step in range(1, reach + 1)]
    return Graph.from_edges(np.concatenate(pairs, axis=1), np.ones((num_nodes, 3)))


def values(graph, model="nfc-gcn"):
    return {name: suggestion.value for name, suggestion in suggest(graph, model).items()}


@pytest.mark.parametrize(
    ("graph", "bandwidth"),
    [
        pytest.param(Graph.from_edges([], np.ones((5, 3))), 1, id="no edges"),
        pytest.param(star(9), 2, id="star"),
        pytest.param(ring(20, 1), 3, id="degree 2"),
        pytest.param(ring(20, 2), 5, id="degree 4"),
        pytest.param(ring(20, 3), 6, id="degree 6"),
        pytest.param(ring(40, 10), 6, id="degree 20"),
    ],
)
def test_slots_follow_the_degrees(graph, bandwidth):
    found = values(graph)
    assert found["bandwidth"] == bandwidth
    assert ("kernel_width" in found) == (bandwidth < 3)


@pytest.mark.parametrize(
    ("num_features", "kernel_size", "stride"),
    [(0, 1, 1), (1, 1, 1), (2, 2, 2), (5, 5, 5), (30, 30, 30), (63, 63, 63), (64, 32, 16), (65, 33, 16),
     (79, 47, 16), (80, 32, 16), (1433, 41, 16)],
)  # fmt: skip
def test_windows_follow_the_number_of_features(num_features, kernel_size, stride):
    found = values(Graph.from_edges([], np.ones((3, num_features))))
    assert (found["kernel_size"], found["stride"]) == (kernel_size, stride)


@given(st.integers(1, 5000))
def test_windows_reach_every_column(num_features):
    found = values(Graph.from_edges([], sp.csr_array((2, num_features))))
    assert found["kernel_size"] <= num_features
    assert (num_features - found["kernel_size"]) % found["stride"] == 0


@pytest.mark.parametrize(
    ("x", "scale"),
    [
        ([[0, 3], [1, 0]], "row-norm"),
        ([[0, 0], [0, 0]], "row-norm"),
        ([[-1, 3], [1, 0]], None),
        ([[-1, 3000], [1, 0]], "row-norm"),
        ([[-11, 3], [1, 0]], "row-norm"),
    ],
    ids=["words", "zeros", "numbers", "large", "far below 0"],
)
def test_the_scale_follows_the_values(x, scale):
    for form in (np.asarray, sp.csr_array):
        assert values(Graph.from_edges([], form(np.array(x, np.float32)))).get("feature_scale") == scale


@pytest.mark.parametrize("model", MODELS)
def test_the_scale_is_suggested_for_every_model_with_features(model):
    wanted = "row-norm" if MODELS[model].model.reads_features else None
    assert values(star(4), model).get("feature_scale") == wanted


def test_a_given_split_is_used():
    split = Split(np.array([0, 1]), np.array([2]), np.array([3]))
    assert values(star(4))["split"] == "ratio"
    for model in MODELS:
        assert make_config(model, graph=replace(star(4), given=split)).split.split == "given"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("num_features", "degree"), [(1, 0), (2, 7), (5, 1), (30, 0), (200, 7)])
def test_every_model_can_be_built_and_trained_for_any_graph(model, num_features, degree):
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    edges = np.stack([np.repeat(np.arange(40), degree), rng.integers(40, size=40 * degree)])
    x = (rng.random((40, num_features)) + labels[:, None]).astype(np.float32)
    graph = Graph.from_edges(edges, x, labels=labels)
    less = {"pretraining": 2, "contexts": 30} if model == "planetoid-i" else {}
    config = make_config(model, graph=graph, settings={"epochs": 1, "split": "ratio", **less})
    assert config.preset == "suggested"
    assert repeat(graph, config, [0])[0].predictions.shape == (40,)


@pytest.mark.parametrize("model", MODELS)
def test_suggestions_are_settings_and_say_why(model, sparse_graph):
    config = make_config(model, graph=sparse_graph)
    found = suggest(sparse_graph, model)
    assert found.keys() <= config.values.keys()
    assert all(config.values[name] == suggestion.value for name, suggestion in found.items())
    assert all(suggestion.reason for suggestion in found.values())
    rest = {name: value for name, value in make_config(model).values.items() if name not in found}
    assert {name: config.values[name] for name in rest} == rest


def test_settings_win_over_suggestions(sparse_graph):
    config = make_config(graph=sparse_graph, settings={"bandwidth": "4", "feature_scale": "given"})
    assert (config.values["bandwidth"], config.values["feature_scale"]) == (4, "given")


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("model", MODELS)
def test_built_in_datasets_keep_their_settings(model, dataset, sparse_graph):
    assert make_config(model, dataset=dataset, graph=sparse_graph) == make_config(model, dataset=dataset)


def test_a_name_of_ones_own_is_no_preset(sparse_graph):
    assert make_config(dataset="mine", graph=sparse_graph) == make_config(graph=sparse_graph)
    assert make_config(dataset="mine").preset == "default"


def test_unknown_models_are_refused(sparse_graph):
    with pytest.raises(ConfigError, match=r"^unknown model 'gnc'; did you mean 'gnn' or 'gcn'\?$"):
        suggest(sparse_graph, "gnc")


def test_few_features_are_learnt_from_by_default():
    """Two numbers per node that hint at its class, and edges within classes: the defaults use both."""
    rng = np.random.default_rng(0)
    nodes = np.arange(300)
    labels = nodes % 2
    x = rng.normal(size=(300, 2)) + np.stack([1 - 2 * labels, 2 * labels - 1], axis=1)
    graph = Graph.from_edges(np.stack([nodes, (nodes + 2) % 300]), x, labels=labels)
    result = nfcgcn.repeat(graph, make_config(graph=graph), [0])[0]
    assert result.test_accuracy > 0.95


def test_a_suggestion_is_a_value_and_a_reason(sparse_graph):
    found = nfcgcn.suggest(sparse_graph)["bandwidth"]
    assert [f.name for f in fields(found)] == ["value", "reason"]
