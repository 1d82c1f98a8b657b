import copy
import pickle
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import nfcgcn
from nfcgcn import estimator as estimator_module
from nfcgcn.config.registry import MODELS
from nfcgcn.errors import ConfigError, GraphError, NFCWarning
from nfcgcn.estimator import OWN, NFCClassifier, NFCEmbedder
from nfcgcn.graph import Graph, Split
from nfcgcn.method.model import NFCGCNConfig
from nfcgcn.settings import settings_of
from nfcgcn.training import TrainingConfig


def message(text):
    return f"^{re.escape(text)}$"


# Every check applies and passes: without `graph` and edges a row is a node that stands alone, as scikit-learn's do.
EXPECTED_FAILED_CHECKS: dict[str, str] = {}
CHECKED = [
    NFCClassifier(epochs=20, learning_rate=0.05, filters=16, select=False),
    NFCEmbedder(epochs=2, filters=4, select=False),
]


@parametrize_with_checks(CHECKED, expected_failed_checks=lambda _: EXPECTED_FAILED_CHECKS)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


def quick(graph=None, **options):
    """An estimator that learns the small random graphs in a moment, with the settings at hand."""
    settings = {"filters": 8, "kernel_size": 8, "stride": 4, "epochs": 8, "learning_rate": 0.02, "random_state": 0}
    settings |= {"select": False}
    return NFCClassifier(graph, **{**settings, **options})


@pytest.fixture(scope="module")
def nodes():
    return np.arange(300)


def test_every_setting_is_a_parameter_and_none_is_chosen_here():
    parameters = NFCClassifier().get_params()
    settings = set(settings_of(NFCGCNConfig)) | set(settings_of(TrainingConfig))
    own = {"graph", "model", "preset", "settings", "select", "validation_fraction", "random_state", "device"}
    assert own == {"graph", *OWN}
    # `model` says which convolution; the kernels are no matter of a search.
    assert set(parameters) - own == settings - {"conv", "backend"}
    assert all(value is None for name, value in parameters.items() if name not in own)
    assert NFCEmbedder().get_params() == parameters


def test_unknown_parameters_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'bandwith'"):
        NFCClassifier(bandwith=3)


def test_settings_reach_model_and_training(sparse_graph, nodes):
    wanted = {
        "hidden_channels": 9, "num_layers": 3, "bandwidth": 4, "filters": 5, "kernel_size": 6, "stride": 3,
        "kernel_width": 2, "activation": "tanh", "map_dropout": 0.25, "dropout": 0.75, "slot_order": "similarity",
        "representation_dropout": 0.125, "classifier": "linear",
        "resample": "epoch", "epochs": 2, "learning_rate": 0.03, "weight_decay": 0.02, "monitor": "loss",
        "patience": 7, "batch_size": 50,
    }  # fmt: skip
    fitted = NFCClassifier(sparse_graph, model="nfc-gcn-2d", random_state=0, **wanted).fit(nodes, sparse_graph.labels)
    assert {name: fitted.config_.values[name] for name in wanted} == wanted
    assert fitted.config_.values["conv"] == "2d"
    assert fitted.model_.nfc.weight.shape == (5, 2, 6)
    assert len(fitted.history_) == 2


@pytest.mark.parametrize("model", MODELS)
def test_every_model_can_be_chosen(model, make_graph):
    graph = make_graph(60, 40, sparse=True)
    settings = {"heads": 2} if model == "gat" else None
    fitted = NFCClassifier(graph, model=model, settings=settings, epochs=3, random_state=0)
    fitted.fit(np.arange(40), graph.labels[:40])
    assert type(fitted.model_) is MODELS[model].model
    assert fitted.predict_proba(np.arange(60)).shape == (60, 3)
    with torch.no_grad():
        wanted = fitted.model_.embed(graph.x, graph.edge_index).to_dense().numpy()
    found = fitted.transform([50, 3])
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, wanted[[50, 3]])
    assert fitted.get_feature_names_out().shape == (wanted.shape[1],)
    if model == "gat":
        assert fitted.config_.values["heads"] == 2


def test_fit_is_the_training_of_the_package(sparse_graph):
    """The whole number that is the random state is the seed; one node of each class stays, so none is held out here."""
    nodes = np.array([0, 1, 2])
    fitted = quick(sparse_graph, random_state=5).fit(nodes, sparse_graph.labels[nodes])
    config = fitted.config_
    model = config.build(sparse_graph, 5)
    run = nfcgcn.fit(
        model, sparse_graph, Split(nodes, nodes[:0], nodes[:0]), config.training, seed=5, choose_by="train"
    )
    assert fitted.history_ == run.history
    assert fitted.best_epoch_ == run.best["epoch"]
    with torch.no_grad():
        wanted = model(sparse_graph.x, sparse_graph.edge_index)
    np.testing.assert_array_equal(fitted.predict(np.arange(300)), wanted.argmax(1).numpy())
    torch.testing.assert_close(torch.from_numpy(fitted.predict_proba([7, 4])), wanted[[7, 4]].double().softmax(1))


def test_a_share_of_each_class_chooses_the_epoch(sparse_graph, nodes, monkeypatch):
    seen = []

    def record(model, graph, split, *rest, **options):
        seen.append((graph, split, options["choose_by"]))
        return nfcgcn.fit(model, graph, split, *rest, **options)

    monkeypatch.setattr(estimator_module, "fit", record)
    quick(sparse_graph, epochs=1, validation_fraction=0.2).fit(nodes[:100], sparse_graph.labels[:100])
    (graph, split, chosen_by), *_ = seen
    assert chosen_by == "val"
    assert len(split.val) == 20
    assert len(split.test) == 0
    assert sorted([*split.train, *split.val]) == list(range(100))
    shares = np.bincount(graph.labels[split.val]) / np.bincount(graph.labels[:100])
    np.testing.assert_allclose(shares, 0.2, atol=0.04)
    assert (graph.labels[100:] == -1).all()  # what fit was not told is not there
    quick(sparse_graph, epochs=1, validation_fraction=0).fit(nodes[:100], sparse_graph.labels[:100])
    assert (len(seen[1][1].train), seen[1][2]) == (100, "train")


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_folds_share_the_graph(form, sparse_graph, dense_graph, nodes):
    graph = sparse_graph if form == "sparse" else dense_graph
    scores = cross_val_score(quick(graph, epochs=40), nodes, graph.labels, cv=3)
    assert scores.mean() > 0.75, scores
    alone = cross_val_score(quick(epochs=40), graph.features, graph.labels, cv=3)
    assert scores.mean() > alone.mean() + 0.05  # the same without edges


def test_the_graphs_own_labels_are_never_looked_at(sparse_graph, nodes):
    y = np.array(["red", "green", "blue"])[sparse_graph.labels]
    rng = np.random.default_rng(0)
    others = [
        replace(sparse_graph, labels=rng.permutation(sparse_graph.labels)),
        replace(sparse_graph, labels=np.full(300, 6)),
        replace(sparse_graph, labels=np.full(300, -1), class_names=("a",)),
        replace(sparse_graph, given=Split(nodes[:5], nodes[5:9], nodes[9:])),
    ]
    options = {"epochs": 5, "select": True}
    wanted = cross_val_predict(quick(sparse_graph, **options), nodes, y, cv=2, method="predict_proba")
    for graph in others:
        found = cross_val_predict(quick(graph, **options), nodes, y, cv=2, method="predict_proba")
        np.testing.assert_array_equal(found, wanted)


def test_labels_of_other_nodes_are_never_seen(sparse_graph, nodes):
    """Scikit-learn hands a fold the labels of its own nodes; rows with a missing label count as not handed over."""
    y = sparse_graph.labels.astype(float)
    hidden = np.where(nodes % 3, y, np.nan)
    one = quick(sparse_graph, select=True).fit(nodes, hidden).predict_proba(nodes)
    kept = nodes[nodes % 3 > 0]
    two = quick(sparse_graph, select=True).fit(kept, y[kept]).predict_proba(nodes)
    np.testing.assert_array_equal(one, two)


def test_minus_one_in_the_labels_of_the_graph_itself_is_no_class(sparse_graph, nodes):
    graph = replace(sparse_graph, labels=np.where(nodes % 3, sparse_graph.labels, -1))
    kept = nodes[nodes % 3 > 0]
    wanted = quick(graph).fit(kept, graph.labels[kept])
    for classifier in (quick(graph), quick(graph.to_pyg(dense=False))):
        classifier.fit(nodes, graph.labels)
        assert classifier.classes_.tolist() == wanted.classes_.tolist()
        np.testing.assert_array_equal(classifier.predict_proba(nodes), wanted.predict_proba(nodes))
        assert classifier.score(nodes, graph.labels) == wanted.score(kept, graph.labels[kept])
    others = np.where(sparse_graph.labels, 1, -1)  # classes of one's own
    assert quick(graph).fit(nodes, others).classes_.tolist() == [-1, 1]


def test_a_search_over_settings(sparse_graph, nodes):
    search = GridSearchCV(quick(sparse_graph), {"bandwidth": [1, 6], "epochs": [1, 40]}, cv=2)
    search.fit(nodes[:200], sparse_graph.labels[:200])
    assert search.best_params_["epochs"] == 40
    assert search.best_estimator_.config_.values["bandwidth"] == search.best_params_["bandwidth"]
    assert search.score(nodes[200:], sparse_graph.labels[200:]) > 0.8


def test_in_pipelines(sparse_graph, nodes):
    scaled = make_pipeline(StandardScaler(with_mean=False), quick())
    assert cross_val_score(scaled, sparse_graph.features, sparse_graph.labels, cv=2).mean() > 0.6
    embedder = NFCEmbedder(sparse_graph, **{k: v for k, v in quick().get_params().items() if k != "graph"})
    embedded = make_pipeline(embedder, LogisticRegression())
    assert cross_val_score(embedded, nodes, sparse_graph.labels, cv=2).mean() > 0.8
    with_edges = make_pipeline(StandardScaler(with_mean=False), quick())
    with_edges.fit(sparse_graph.features, sparse_graph.labels, nfcclassifier__edge_index=sparse_graph.edge_index)
    one = with_edges.predict_proba(sparse_graph.features, edge_index=sparse_graph.edge_index)
    two = with_edges.predict_proba(sparse_graph.features)
    assert not np.allclose(one, two)


def test_clones_share_the_graph_and_nothing_learnt(sparse_graph, nodes):
    fitted = quick(sparse_graph, bandwidth=3).fit(nodes, sparse_graph.labels)
    copied = clone(fitted)
    assert copied.graph is sparse_graph
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "model_")


MISSING = {
    "nan": lambda y, hide: np.where(hide, np.nan, y),
    "none": lambda y, hide: np.array([None if h else int(v) for v, h in zip(y, hide, strict=True)], object),
    "text and none": lambda y, hide: [None if h else f"class {v}" for v, h in zip(y, hide, strict=True)],
    "text and nan": lambda y, hide: pd.Series([np.nan if h else f"{v}" for v, h in zip(y, hide, strict=True)]),
    "pandas Int64": lambda y, hide: pd.Series(y, dtype="Int64").mask(pd.Series(hide)),
    "-1 as a class": lambda y, hide: np.where(hide, np.nan, y - 1.0),
}


@pytest.mark.parametrize("how", MISSING)
def test_rows_without_a_label_belong_to_the_graph(how, sparse_graph, nodes):
    """Features and edges with some labels missing are the same task as the graph and the labelled nodes."""
    hide = nodes % 4 == 0
    y = MISSING[how](sparse_graph.labels, hide)
    fitted = quick().fit(sparse_graph.features, y, edge_index=sparse_graph.edge_index)
    same = quick(sparse_graph).fit(nodes[~hide], np.asarray(y)[~hide].tolist())
    np.testing.assert_array_equal(fitted.classes_, same.classes_)
    assert len(fitted.classes_) == 3
    np.testing.assert_array_equal(
        fitted.predict_proba(sparse_graph.features, sparse_graph.edge_index), same.predict_proba(nodes)
    )
    # A score is of the nodes that have a label.
    assert fitted.score(sparse_graph.features, y, edge_index=sparse_graph.edge_index) == same.score(
        nodes[~hide], np.asarray(y)[~hide].tolist()
    )


def test_minus_one_is_a_class_like_any_other(sparse_graph, nodes):
    fitted = quick(sparse_graph).fit(nodes, sparse_graph.labels - 1)
    assert fitted.classes_.tolist() == [-1, 0, 1]
    assert set(fitted.predict(nodes)) == {-1, 0, 1}


def test_edges_of_any_form_and_direction(sparse_graph):
    x, y, edges = sparse_graph.features, sparse_graph.labels, sparse_graph.edge_index
    fitted = quick().fit(x, y, edges)
    once = edges[:, edges[0] < edges[1]]
    wanted = fitted.predict_proba(x, edges)
    for form in (edges.numpy(), edges.tolist(), once, once.flip(0)):
        np.testing.assert_array_equal(fitted.predict_proba(x, form), wanted)
    np.testing.assert_array_equal(fitted.predict_proba(x), fitted.predict_proba(x, np.zeros((2, 0))))


def test_another_graph_with_the_same_features(make_graph):
    """What is said of an island depends on the island alone, so a graph that came later can be judged by itself."""
    graph, other = (make_graph(count, 40, sparse=True, seed=seed) for count, seed in ((200, 0), (100, 1)))
    # With one slot no neighbour is drawn: which one is depends on the number of the node, which is another here.
    fitted = quick(bandwidth=1).fit(graph.features, graph.labels, graph.edge_index)
    both = sp.vstack([graph.features, other.features])
    edges = np.concatenate([graph.edge_index.numpy(), other.edge_index.numpy() + 200], axis=1)
    alone = fitted.predict_proba(other.features, other.edge_index)
    np.testing.assert_allclose(fitted.predict_proba(both, edges)[200:], alone, atol=1e-6)
    assert not np.allclose(fitted.predict_proba(other.features), alone)
    assert fitted.score(graph.features, graph.labels, edge_index=graph.edge_index) > 0.8


def test_nodes_by_name(sparse_graph, nodes):
    graph = replace(sparse_graph, node_names=tuple(f"paper {i}" for i in range(300)))
    names = np.array(graph.node_names)
    wanted = quick(graph).fit(nodes[:100], graph.labels[:100]).predict(nodes[100:])
    for form in (list, np.array, pd.Series, lambda n: pd.DataFrame({"id": n}), lambda n: np.array(n, object)[:, None]):
        fitted = quick(graph).fit(form(names[:100]), graph.labels[:100])
        assert fitted.n_features_in_ == 1
        np.testing.assert_array_equal(fitted.predict(form(names[100:])), wanted)


def test_a_pyg_data_as_the_graph(sparse_graph, nodes):
    data = sparse_graph.to_pyg(dense=False)
    wanted = quick(sparse_graph).fit(nodes, sparse_graph.labels).predict_proba(nodes)
    data.y = torch.rand(300, 2)  # no classes, but nobody looks at them
    fitted = quick(data).fit(nodes[:, None], sparse_graph.labels)
    np.testing.assert_array_equal(fitted.predict_proba(nodes[:, None]), wanted)
    assert data.y.shape == (300, 2)


def test_a_node_may_be_given_twice(sparse_graph):
    """As a bootstrap does."""
    x = np.array([5, 0, 1, 2, 5, 0])
    fitted = quick(sparse_graph).fit(x, sparse_graph.labels[x])
    once = quick(sparse_graph).fit([0, 1, 2, 5], sparse_graph.labels[[0, 1, 2, 5]])
    np.testing.assert_array_equal(fitted.predict_proba([9]), once.predict_proba([9]))


@pytest.mark.parametrize("labels", [["a"], ["a", "b"], ["a", "a", "b"], ["a"] * 30])
def test_few_labels_and_few_classes(labels, sparse_graph):
    fitted = quick(sparse_graph, epochs=2).fit(np.arange(len(labels)), labels)
    assert fitted.classes_.tolist() == sorted(set(labels))
    assert set(fitted.predict(np.arange(300))) <= set(labels)


def test_random_states(sparse_graph, nodes):
    y = sparse_graph.labels
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()

    def proba(state):
        return quick(sparse_graph, epochs=2, select=True, random_state=state).fit(nodes, y).predict_proba(nodes)

    np.testing.assert_array_equal(proba(3), proba(3))
    np.testing.assert_array_equal(proba(np.int64(3)), proba(3))
    assert not np.allclose(proba(3), proba(4))
    np.testing.assert_array_equal(proba(np.random.RandomState(1)), proba(np.random.RandomState(1)))
    state = np.random.RandomState(1)
    assert not np.allclose(proba(state), proba(state))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()
    assert not np.allclose(proba(None), proba(None))


def test_a_fitted_estimator_survives_pickling_in_another_process(sparse_graph, nodes, tmp_path):
    x = sparse_graph.features
    both = [(quick(sparse_graph, select=True), nodes), (quick(), x)]
    both = [(estimator.fit(x, sparse_graph.labels), x) for estimator, x in both]
    wanted = [fitted.predict_proba(x) for fitted, x in both]
    for (fitted, x), proba in zip(both, wanted, strict=True):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(x), proba)
        np.testing.assert_array_equal(copy.deepcopy(fitted).predict_proba(x), proba)
    (tmp_path / "fitted.pickle").write_bytes(pickle.dumps(both))
    code = (
        "import pickle, sys, numpy\n"
        "both = pickle.load(open(sys.argv[1] + '/fitted.pickle', 'rb'))\n"
        "numpy.save(sys.argv[1] + '/found.npy', [fitted.predict_proba(x) for fitted, x in both])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), wanted)


def test_what_is_pickled_holds_the_graph_once(sparse_graph, nodes):
    fitted = quick(sparse_graph, select=True).fit(nodes, sparse_graph.labels)
    fitted.predict(nodes)
    extra = len(pickle.dumps(fitted)) - len(pickle.dumps(sparse_graph))
    weights = sum(p.numel() * 4 for p in fitted.model_.parameters())
    assert extra < weights + 30_000


def test_ctrl_c_ends_a_search_and_not_only_one_fit(sparse_graph, nodes, monkeypatch):
    epochs = []

    def interrupt(epoch):
        epochs.append(epoch["epoch"])
        if epoch["epoch"] == 3:
            raise KeyboardInterrupt

    def fit(*arguments, **options):
        return nfcgcn.fit(*arguments, on_epoch=interrupt, **options)

    monkeypatch.setattr(estimator_module, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(quick(sparse_graph), nodes, sparse_graph.labels, cv=2)
    assert epochs == [1, 2, 3]


def test_output_as_a_data_frame(sparse_graph, nodes):
    embedder = NFCEmbedder(sparse_graph, epochs=1, hidden_channels=2, kernel_size=8, random_state=0)
    table = embedder.set_output(transform="pandas").fit_transform(pd.Series(nodes), sparse_graph.labels)
    assert table.columns.tolist() == ["nfcembedder0", "nfcembedder1"]
    assert table.dtypes.tolist() == [np.float32] * 2
    np.testing.assert_array_equal(table.to_numpy(), clone(embedder).fit(nodes, sparse_graph.labels).transform(nodes))


def test_fit_transform_takes_the_edges_to_both(sparse_graph):
    options = {"epochs": 1, "kernel_size": 8, "random_state": 0}
    x, y, edges = sparse_graph.features, sparse_graph.labels, sparse_graph.edge_index
    found = NFCEmbedder(**options).fit_transform(x, y, edges)
    np.testing.assert_array_equal(found, NFCEmbedder(**options).fit(x, y, edges).transform(x, edges))
    assert not np.allclose(found, NFCEmbedder(**options).fit(x, y, edges).transform(x))


def test_features_of_a_data_frame_keep_their_names(dense_graph):
    table = pd.DataFrame(dense_graph.features).add_prefix("word ")
    fitted = quick(epochs=1).fit(table, dense_graph.labels)
    assert fitted.feature_names_in_.tolist() == [f"word {i}" for i in range(40)]
    assert fitted.n_features_in_ == 40
    with pytest.raises(ValueError, match="The feature names should match those that were passed during fit"):
        fitted.predict(table.add_suffix("!"))


NAMED = {"node_names": ("a", "b", "c", "d")}
BAD_INPUT = {
    "fraction of one": (
        {"validation_fraction": 1.0}, {}, [0, 1], [0, 1],
        "`validation_fraction` must be at least 0 and below 1, got 1.0",
    ),
    "device": ({"device": "tpu"}, {}, [0, 1], [0, 1], "unknown device 'tpu'; did you mean 'cpu'?"),
    "model": ({"model": "nfcgcn"}, {}, [0, 1], [0, 1],
              "unknown model 'nfcgcn'; did you mean 'nfc-gcn' or 'nfc-gcn-2d' or 'gcn'?"),
    "setting of another model": ({"model": "gcn", "filters": 3}, {}, [0, 1], [0, 1], None),
    "outside": ({}, {}, [0, 4], [0, 1], "X names node 4, but the graph has 4 nodes (0 to 3)"),
    "negative": ({}, {}, [0, -1], [0, 1], "X names node -1, but the graph has 4 nodes (0 to 3)"),
    "fraction": ({}, {}, [0, 0.5], [0, 1], "with `graph`, X must hold node numbers or node names, got float64"),
    "features": (
        {}, {}, np.zeros((4, 5)), [0, 1, 0, 1],
        "with `graph`, X must be a single column with at least one node of it, got shape [4, 5]",
    ),
    "nothing": (
        {}, {}, [], [], "with `graph`, X must be a single column with at least one node of it, got shape [0]"
    ),
    "no names": (
        {}, {}, ["a", "b"], [0, 1], "X names node 'a', but the nodes of the graph have no names; use their numbers"
    ),
    "unknown names": (
        {}, NAMED, ["a", "x", "y"], [0, 1, 1],
        "X names 2 nodes that the graph does not have, first 'x'; its own names start with 'a', 'b', 'c'",
    ),
    "two labels": (
        {}, {}, [1, 2, 1], ["a", "b", "b"], "node 1 is given twice, with the labels 'a' and 'b'; keep one"
    ),
    "no label": ({}, {}, [0, 1], [None, None], "every label in `y` is missing; there is nothing to learn from"),
    "text and numbers": (
        {}, {}, [0, 1], np.array(["a", 1], object), "`y` mixes text and numbers; make all labels one or the other"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input(case, four_nodes):
    options, changes, x, y, text = BAD_INPUT[case]
    estimator = NFCClassifier(replace(four_nodes, **changes), epochs=1, **options)
    wanted = message(text) if text else r"^unknown setting 'filters'; choose from batch_parts, batch_size, calibrate, "
    with pytest.raises((ConfigError, GraphError), match=wanted):
        estimator.fit(x, y)


def test_bad_input_of_other_kinds(four_nodes):
    text = (
        "`graph` must be an nfcgcn.Graph or a PyTorch Geometric Data, got ndarray; nfcgcn.load makes a graph of "
        "frames, NetworkX and igraph, or give features as X instead"
    )
    with pytest.raises(ConfigError, match=message(text)):
        NFCClassifier(four_nodes.features).fit([0], [0])
    text = (
        r"^X must hold numbers, could not convert .*'a'.*; NFCClassifier\(nfcgcn.from_frames\(.* reads text, dates and"
    )
    with pytest.raises(GraphError, match=text):
        NFCClassifier().fit(pd.DataFrame({"id": ["a", "b"]}), [0, 1])
    text = "X names node 4, but the graph has 4 nodes (0 to 3); '4' is a name: give names as text, such as str(4)"
    with pytest.raises(GraphError, match=message(text)):
        NFCClassifier(replace(four_nodes, node_names=("1", "2", "3", "4"))).fit([1, 2, 3, 4], [0, 1, 0, 1])
    text = "`edge_index` cannot be used with `graph`, which has its own edges; leave one of them out"
    with pytest.raises(GraphError, match=message(text)):
        NFCClassifier(four_nodes).fit([0], [0], edge_index=four_nodes.edge_index)
    text = "edge 0 names node 9, but the graph has 4 nodes (ids 0 to 3); correct the edge or add the node's features"
    with pytest.raises(GraphError, match=message(text)):
        NFCClassifier().fit(four_nodes.features, [0, 1, 0, 1], edge_index=[[9], [0]])
    with pytest.raises(ValueError, match=r"^Found input variables with inconsistent numbers of samples: \[2, 3\]$"):
        NFCClassifier(four_nodes).fit([0, 1], [0, 1, 1])


def test_an_estimator_of_a_graph_without_edges():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = rng.normal(size=(60, 3)) + 3 * y[:, None] - 1.5
    graph = Graph.from_edges([], x)
    options = {"epochs": 20, "learning_rate": 0.05, "random_state": 0}
    found = NFCClassifier(graph, **options).fit(np.arange(60), y).predict_proba(np.arange(60))
    np.testing.assert_array_equal(NFCClassifier(**options).fit(x, y).predict_proba(x), found)
    assert ((found[:, 1] > 0.5) == y).mean() > 0.9


def people_and_calls(ids):
    """Two frames whose people are called `ids`; the class shows in the number and in the calls."""
    kind = np.arange(60) % 2
    people = pd.DataFrame({"id": ids, "pace": kind + np.linspace(0, 0.9, 60), "plan": np.array(["basic", "pro"])[kind]})
    callee = (np.arange(60) + 2) % 60
    return people, pd.DataFrame({"source": people.id, "target": people.id[callee].to_numpy()})


def test_a_column_of_ids_names_nodes_also_if_they_are_numbers():
    shuffled = np.random.default_rng(0).permutation(60)
    people, calls = people_and_calls(shuffled)
    graph = nfcgcn.from_frames(people, calls, label="plan")
    settings = {"filters": 4, "kernel_size": 1, "stride": 1}
    wanted = quick(graph, **settings).fit(people.id.astype(str), people.plan).predict_proba(shuffled.astype(str))
    for form in (people.id, people[["id"]], people):
        fitted = quick(graph, **settings).fit(form, people.plan)
        np.testing.assert_array_equal(fitted.predict_proba(form), wanted)
    text = (
        f"X holds whole numbers, which count the nodes from 0: 0 is the node '{shuffled[0]}', not the one called '0'; "
        "to use names, give them as text"
    )
    with pytest.warns(NFCWarning, match=message(text)):
        fitted = quick(graph, **settings).fit(range(60), people.plan)
    np.testing.assert_array_equal(fitted.predict_proba(range(60)), wanted)


def test_labels_among_the_features_are_refused():
    people, calls = people_and_calls([f"p{i}" for i in range(60)])
    told = nfcgcn.from_frames(people, calls)
    assert any(name.startswith("plan=") for name in told.feature_names)
    text = "`y` is the column 'plan', which is among the features of the graph too; read the graph with label='plan'"
    with pytest.raises(GraphError, match=re.escape(text)):
        quick(told).fit(people.id, people.plan)
    quick(nfcgcn.from_frames(people, calls, ignore="plan"), filters=2, kernel_size=1).fit(people.id, people.plan)


def test_texts_that_name_several_classes_are_refused(dense_graph):
    with pytest.raises(GraphError, match="`y` names several classes in 1 row, such as 'a;b'; nfcgcn learns one class"):
        quick(dense_graph).fit(range(4), ["a;b", "a", "b", "a"])


def test_frames_that_need_options_are_referred_to_from_frames():
    nodes = pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0], "plan": ["u", "v"]})
    with pytest.raises(GraphError, match=r"source=; options are for nfcgcn.from_frames") as caught:
        NFCClassifier().fit(nodes, nodes["plan"], pd.DataFrame({"caller": ["a"], "target": ["b"]}))
    assert str(caught.value).endswith("whose graph NFCClassifier(graph) takes")


def test_fit_on_two_frames():
    people, calls = people_and_calls([f"p{i}" for i in range(60)])
    people["town"] = np.where(people.plan == "pro", "Ulm", "Bern")
    settings = {"filters": 4, "kernel_size": 1, "stride": 1}
    graph = nfcgcn.from_frames(people, calls, label="plan")
    assert graph.feature_names == ("pace", "town=Bern", "town=Ulm")
    wanted = quick(graph, **settings).fit(people.id, people.plan).predict_proba(people.id)
    fitted = quick(**settings).fit(people, people.plan, calls)
    np.testing.assert_array_equal(fitted.predict_proba(people, calls), wanted)
    np.testing.assert_array_equal(fitted.predict_proba(people.drop(columns="plan"), calls), wanted)  # `plan` is y
    assert fitted.score(people, people.plan, edge_index=calls) == 1
    for plan in (people.plan.to_numpy(), people.plan.tolist()):  # without a name, the column is found by what it holds
        np.testing.assert_array_equal(quick(**settings).fit(people, plan, calls).predict_proba(people, calls), wanted)
    fewer = people.iloc[:3].assign(town="Rome")
    with pytest.warns(NFCWarning, match=r"left out: town \(3 of 3 cells\)$"):
        assert fitted.predict_proba(fewer, calls.iloc[:1]).shape == (3, 2)
    text = "edges in a frame join nodes by id, so X must be a frame too, got list"
    with pytest.raises(GraphError, match=message(text)):
        NFCClassifier().fit([[1], [2]], [0, 1], calls)


PEOPLE = pd.DataFrame(
    {
        "id": [f"p{i}" for i in range(12)],
        "income": [1000.0 * i for i in range(12)],
        "town": ["a", "b", "c"] * 4,
        "about": ["red fox", "red owl", "owl fox"] * 4,
    }
)
RING = pd.DataFrame({"source": PEOPLE["id"], "target": np.roll(PEOPLE["id"], 1)})
RICHER = PEOPLE.assign(income=PEOPLE["income"] * 100)
READ_OTHERWISE = {
    "scale": (RICHER, {}, "column 'income' has another mean or scale"),
    "categories": (PEOPLE.replace("b", "z"), {}, "column 'town' has other texts or words"),
    "words": (PEOPLE.replace("red fox", "blue fox"), {}, "column 'about' has other texts or words"),
    "kind": (PEOPLE.assign(income=["low", "high"] * 6), {}, "column 'income' was read as category, there as number"),
    "fewer": (PEOPLE.drop(columns="about"), {"text": ()}, "only one of the two has the column 'about'"),
    "order": (PEOPLE[["id", "town", "income", "about"]], {}, "it has the column 'town' where there was 'income'"),
    "structure": (PEOPLE, {"features": "degree"}, "it has degree features made from the edges, there none"),
}


@pytest.mark.filterwarnings("ignore:columns of:nfcgcn.errors.NFCWarning")
@pytest.mark.parametrize("case", READ_OTHERWISE)
def test_a_new_graph_must_be_read_as_the_one_of_fit(case):
    """It would be judged by features that mean something else, and nothing would show it."""
    graph = nfcgcn.from_frames(PEOPLE, RING, text="about")
    fitted = quick(graph, kernel_size=2, stride=1, epochs=1).fit(PEOPLE["id"], PEOPLE["town"].to_numpy())
    table, options, difference = READ_OTHERWISE[case]
    other = nfcgcn.from_frames(table, RING, name="later", **{"text": "about", **options})
    with pytest.raises(GraphError) as caught:
        fitted.predict(PEOPLE["id"], graph=other)
    assert str(caught.value) == (
        f"'later' was not read in the same way as the training graph: {difference}; read it with "
        "`encoding=graph.encoding`, `graph` being the one of `fit`"
    )
    same = nfcgcn.from_frames(PEOPLE, RING, encoding=graph.encoding)
    np.testing.assert_array_equal(fitted.predict_proba(PEOPLE["id"], graph=same), fitted.predict_proba(PEOPLE["id"]))
    bare = nfcgcn.Graph.from_edges(np.zeros((2, 0), int), np.ones((3, 2)))
    with pytest.raises(GraphError, match=r"features of `fit`, got 2; read it with `encoding=graph.encoding`"):
        fitted.predict([0], graph=bare)


@pytest.mark.filterwarnings("ignore:columns of:nfcgcn.errors.NFCWarning")
@pytest.mark.parametrize("kind", ["spectral", "one-hot", "walk"])
def test_features_of_one_graph_cannot_be_those_of_another(kind):
    graph = nfcgcn.from_frames(PEOPLE, RING, text="about", features=kind)
    fitted = quick(graph, kernel_size=2, stride=1, epochs=1).fit(PEOPLE["id"], PEOPLE["town"].to_numpy())
    path = nfcgcn.from_frames(PEOPLE, RING[1:], text="about", features=kind)
    if kind == "walk":
        assert len(fitted.predict(PEOPLE["id"], graph=path)) == 12
        return
    with pytest.raises(GraphError, match=f"^the {kind} features of training belong to its nodes and edges"):
        fitted.predict(PEOPLE["id"], graph=path)
