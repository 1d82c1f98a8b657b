import numpy as np
import pytest
from sklearn.datasets import load_digits

from nfcgcn.data import load
from nfcgcn.data.digits import nearest_rows
from nfcgcn.errors import ConfigError


@pytest.fixture(scope="module")
def graph():
    return load("digits")


def test_values(graph):
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (1797, 64, 10)
    assert not graph.is_sparse
    assert graph.features.dtype == np.float32
    assert (graph.features.min(), graph.features.max()) == (0, 1)
    np.testing.assert_array_equal(graph.features * 16, load_digits().data)
    np.testing.assert_array_equal(graph.labels, load_digits().target)
    assert graph.class_names == tuple("0123456789")


def test_feature_names_are_places_in_the_image(graph):
    assert len(graph.feature_names) == 64
    image = load_digits().images[0]
    place = graph.feature_names.index("row 3, column 4")
    assert graph.features[0, place] * 16 == image[2, 3]
    assert place == 19


def test_symmetric_without_loops_and_repeatable(graph):
    assert (graph.adjacency != graph.adjacency.T).nnz == 0
    assert not graph.adjacency.diagonal().any()
    assert graph.adjacency.sum(axis=0).min() >= 8
    assert (graph.adjacency != load("digits").adjacency).nnz == 0


def brute_force(points, count):
    """The neighbours of each row by distances taken pair by pair; the first of equals wins."""
    names = []
    for i, point in enumerate(points):
        distances = [(int(((point - other) ** 2).sum()), j) for j, other in enumerate(points) if j != i]
        names.append({j for _, j in sorted(distances)[:count]})
    return names


def test_neighbours_of_a_few_nodes_by_brute_force(graph):
    points = load_digits().data
    nearest = nearest_rows(points, 8)
    for node in (0, 7, 900, 1796):
        distances = ((points - points[node]) ** 2).sum(axis=1)
        distances[node] = np.inf
        expected = set(np.argsort(distances, kind="stable")[:8].tolist())
        assert set(nearest[node].tolist()) == expected
        named_by = {i for i in range(1797) if node in nearest[i]}
        assert set(graph.adjacency.indices[slice(*graph.adjacency.indptr[node : node + 2])]) == expected | named_by


def test_ties_go_to_the_first():
    points = np.array([[0.0], [1], [1], [1], [5]])
    assert [set(row.tolist()) for row in nearest_rows(points, 2)] == brute_force(points, 2)
    assert [set(row.tolist()) for row in nearest_rows(points, 4)] == brute_force(points, 4)


def test_one_neighbour_has_fewer_edges(graph):
    assert load("digits", neighbours=1).num_edges < graph.num_edges


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "`neighbours` must be between 1 and 1796, got 0"),
        (1797, "`neighbours` must be between 1 and 1796, got 1797"),
        (2.5, "`neighbours` must be a whole number, got 2.5"),
        (True, "`neighbours` must be a whole number, got True"),
    ],
    ids=["none", "all", "fraction", "truth"],
)
def test_neighbours_out_of_range(value, message):
    with pytest.raises(ConfigError) as caught:
        load("digits", neighbours=value)
    assert str(caught.value) == message
