"""Systems that learn vectors from edges alone: what the vectors say, lone nodes, small graphs, the command."""

from __future__ import annotations

import numpy as np
import pytest

import nfcgcn
from nfcgcn.baselines.deepwalk import DeepWalk
from nfcgcn.baselines.node2vec import Node2Vec
from nfcgcn.config.registry import MODELS, make_config
from nfcgcn.graph import Graph
from nfcgcn.inference.prediction import embed

WITHOUT_FEATURES = [name for name, entry in MODELS.items() if not entry.model.reads_features]
FEW = {"hidden_channels": 8, "num_walks": 40, "walk_length": 10, "window": 3, "passes": 100, "step_size": 0.1}


def settings_for(model, **others):
    known = make_config(model).values
    return {name: value for name, value in {**FEW, **others}.items() if name in known}


def two_groups(lone=2):
    """Two groups of 12 nodes, every two of a group neighbours, one edge between the groups; and nodes without edges."""
    pairs = [(i, j) for g in (0, 12) for i in range(g, g + 12) for j in range(g, i)]
    labels = np.repeat([0, 1, 0], [12, 12, lone])
    return Graph.from_edges(np.array([*pairs, (0, 12)]).T, np.zeros((24 + lone, 0)), labels=labels, name="groups")


def vectors(model, graph, seed=0, **settings):
    return embed(make_config(model, settings=settings_for(model, **settings)).build_for(0, 1, seed=seed), graph)


@pytest.mark.parametrize("model", WITHOUT_FEATURES)
def test_groups_are_apart_and_a_few_labels_tell_them(model):
    graph = two_groups()
    # Within a group one eigenvector is as good as another; only the first one tells the groups apart.
    settings = settings_for(model, hidden_channels=1 if model == "eigenmaps" else 8)
    config = make_config(model, graph=graph, settings={**settings, "epochs": 100, "learning_rate": 0.1})
    split = nfcgcn.Split(np.array([1, 2, 13, 14]), np.array([3, 4, 15, 16]), np.zeros(0, np.int64))
    net = config.build(graph, 0)
    nfcgcn.fit(net, graph, split, config.training)
    found = nfcgcn.predict(net, graph)[:24]
    assert (found == graph.labels[:24]).mean() >= 0.9


@pytest.mark.parametrize("model", WITHOUT_FEATURES)
@pytest.mark.parametrize(
    "edges",
    [np.zeros((2, 0), int), [[0], [1]], [[0, 2], [1, 3]], [[0, 0, 0, 0], [1, 2, 3, 4]]],
    ids=["no edge", "one edge", "two pairs", "a star"],
)
def test_any_graph_has_vectors(model, edges):
    graph = Graph.from_edges(edges, np.zeros((6, 0)))
    found = vectors(model, graph)
    assert found.shape == (6, 8)
    assert np.isfinite(found).all()
    lone = np.diff(graph.adjacency.indptr) == 0
    assert not found[lone].any()


@pytest.mark.parametrize("model", WITHOUT_FEATURES)
def test_no_nodes_at_all(model):
    assert vectors(model, Graph.from_edges(np.zeros((2, 0), int), np.zeros((0, 0)))).shape == (0, 8)


def test_node2vec_without_a_bias_is_deepwalk():
    graph = two_groups()
    np.testing.assert_array_equal(vectors("node2vec", graph), vectors("deepwalk", graph))
    assert not np.array_equal(vectors("node2vec", graph, q=0.25), vectors("deepwalk", graph))


def test_the_limits_of_a_step():
    assert DeepWalk.limits(None) == (2**32, 2**32, 2**32)
    config = make_config("node2vec", settings={"p": 4, "q": 0.5}).model
    assert Node2Vec.limits(config) == (2**29, 2**31, 2**32)


def test_the_command_writes_vectors_of_a_graph_without_features(run, tmp_path):
    nfcgcn.write_npz(two_groups(), tmp_path / "groups.npz")
    few = [part for name, value in settings_for("deepwalk").items() for part in ("--set", f"{name}={value}")]
    code, out, err = run("embed", "groups.npz", "--model", "deepwalk", *few, "--seed", 3, "--out", "e.npz")
    assert (code, out) == (0, "embedding: e.npz, 26 nodes x 8 numbers\n"), err
    with np.load(tmp_path / "e.npz") as found:
        np.testing.assert_array_equal(found["embedding"], vectors("deepwalk", two_groups(), seed=3))


REFUSED = {
    "embed digits --model gcn": "gcn must be trained first (`nfcgcn train --model gcn`); edges alone suffice for ",
    "embed a digits --model deepwalk": "with --model there is no RUN; got 'a' beside the GRAPH 'digits'",
    "embed digits --model deepwalk --set windw=3": "unknown setting 'windw'; did you mean 'window'?",
    "embed digits --model deepwalk --layer scores": "--layer scores needs a RUN; a --model has one vector per node",
    "embed a --seed 1": "--seed needs --model; a RUN has its own seed",
    "embed": "name the RUN whose representation to write, or a --model that learns one from edges alone",
}


@pytest.mark.parametrize("command", REFUSED)
def test_refused_commands(command, run):
    code, _, err = run(*command.split(), "--out", "e.npz")
    assert code == 2
    assert err.startswith(f"error: {REFUSED[command]}")
