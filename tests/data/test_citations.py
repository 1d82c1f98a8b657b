import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import BernoulliNB

from nfcgcn.data import load
from nfcgcn.data.citations import _highest_degree
from nfcgcn.errors import ConfigError


@pytest.fixture(scope="module")
def graph():
    return load("citations")


def inside_share(graph):
    pairs = graph.adjacency.tocoo()
    return (graph.labels[pairs.row] == graph.labels[pairs.col]).mean()


def test_default_sizes(graph):
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (10000, 20000, 1000, 7)
    assert graph.name == "citations"
    sizes = np.bincount(graph.labels)
    assert sizes.max() - sizes.min() <= 1


def test_features_are_sparse_ones(graph):
    assert isinstance(graph.features, sp.csr_array)
    assert graph.features.dtype == np.float32
    assert (graph.features.data == 1).all()


def test_degrees_have_a_heavy_tail_and_few_nodes_are_alone(graph):
    degrees = graph.adjacency.sum(axis=0)
    assert degrees.max() > 15 * degrees.mean()
    assert np.median(degrees) < degrees.mean()
    assert (degrees == 0).mean() < 0.01


@pytest.mark.parametrize("words", [1, 5, 20, 100, 500])
def test_words_a_node(words):
    graph = load("citations", nodes=2000, words=words)
    counts = np.diff(graph.features.indptr)
    assert counts.min() >= 1
    # One word cannot be missing, so a mean of one is out of reach.
    assert counts.mean() == pytest.approx(words, rel=0.05 if words > 1 else 0.5)


def test_word_frequencies_follow_zipf(graph):
    frequency = np.sort(graph.features.sum(axis=0))[::-1]
    ranks = np.arange(20, 500)
    slope = np.polyfit(np.log(ranks), np.log(frequency[ranks]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.15)


def test_words_tell_the_class_but_not_for_certain(graph):
    train, test = slice(0, 2000), slice(2000, None)
    score = BernoulliNB().fit(graph.features[train], graph.labels[train])
    assert 0.5 < score.score(graph.features[test], graph.labels[test]) < 0.98


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
def test_homophily(homophily):
    graph = load("citations", nodes=3000, homophily=homophily)
    assert inside_share(graph) == pytest.approx(homophily, abs=1e-3)


@pytest.mark.parametrize("degree", [0.0, 1.0, 4.0, 30.0])
def test_degree(degree):
    graph = load("citations", nodes=3000, degree=degree)
    assert graph.adjacency.sum() / 3000 == pytest.approx(degree, rel=0.01)


def same(a, b):
    return (
        (a.adjacency != b.adjacency).nnz == 0
        and (a.features != b.features).nnz == 0
        and np.array_equal(a.labels, b.labels)
    )


def test_seed_decides_everything():
    first = load("citations", nodes=500, seed=3)
    assert same(first, load("citations", nodes=500, seed=3))
    other = load("citations", nodes=500, seed=4)
    assert (first.adjacency != other.adjacency).nnz
    assert (first.features != other.features).nnz
    assert not np.array_equal(first.labels, other.labels)


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()
    load("citations", nodes=100)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_blocks_do_not_show(monkeypatch):
    monkeypatch.setattr("nfcgcn.data.citations.BLOCK", 50)
    graph = load("citations", nodes=300)
    assert graph.features.shape == (300, 1000)
    assert np.diff(graph.features.indptr).mean() == pytest.approx(20, rel=0.1)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 120), st.data())
def test_any_size_that_is_admitted(nodes, data):
    classes = data.draw(st.integers(2, nodes))
    features = data.draw(st.integers(classes, 200))
    homophily = data.draw(st.floats(0, 1))
    degree = data.draw(st.floats(0, _highest_degree(nodes, classes, homophily)))
    words = data.draw(st.integers(1, max(1, features // 2)))
    options = {"classes": classes, "features": features, "homophily": homophily, "degree": degree, "words": words}
    graph = load("citations", nodes=nodes, seed=data.draw(st.integers(0, 9)), **options)
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (nodes, features, classes)
    assert graph.num_edges == round(nodes * degree / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"homophily": 1.3}, "`homophily` must be between 0 and 1, got 1.3"),
        ({"homophily": float("nan")}, "`homophily` must be between 0 and 1, got nan"),
        ({"homophily": "0.5"}, "`homophily` must be a number, got '0.5'"),
        ({"degree": -1}, "`degree` must be between 0 and 446.116, got -1"),
        ({"nodes": 100, "degree": 20}, "`degree` must be between 0 and 4.15625, got 20"),
        ({"nodes": 1}, "`nodes` must be at least 2, got 1"),
        ({"nodes": 10.5}, "`nodes` must be a whole number, got 10.5"),
        ({"seed": -1}, "`seed` must be at least 0, got -1"),
        ({"classes": 1}, "`classes` must be between 2 and 10000, got 1"),
        ({"features": 3}, "`features` must be at least 7, got 3"),
        ({"words": 0}, "`words` must be between 1 and 500, got 0"),
        ({"words": 501}, "`words` must be between 1 and 500, got 501"),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_options_out_of_range(options, message):
    with pytest.raises(ConfigError) as caught:
        load("citations", **options)
    assert str(caught.value) == message
