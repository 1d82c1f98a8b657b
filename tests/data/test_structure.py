"""Features from the edges alone, against dense NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from nfcgcn.data import structure
from nfcgcn.data.structure import STEPS, structural_features, structural_names
from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Graph


def random_adjacency(n, edges, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    dense = np.zeros((n, n))
    a, b = rng.integers(0, n, (2, edges))
    dense[a, b] = rng.uniform(0.5, 3, edges) if weighted else 1
    dense = np.maximum(dense, dense.T)
    np.fill_diagonal(dense, 0)
    return dense


def symmetric(dense):
    sums = dense.sum(1)
    scale = np.where(sums > 0, np.where(sums > 0, sums, 1) ** -0.5, 0)
    return scale[:, None] * dense * scale


def two_parts():
    """A part of 30 nodes, one of 3 and a node alone."""
    dense = np.zeros((34, 34))
    dense[:30, :30] = random_adjacency(30, 80, weighted=True)
    dense[0, range(1, 30)] = dense[range(1, 30), 0] = 1  # so that the part is connected
    dense[30, 31] = dense[31, 30] = dense[31, 32] = dense[32, 31] = 1
    return dense


@pytest.mark.parametrize("dense_up_to", [400, 5], ids=["all vectors", "first vectors"])
def test_spectral_features_are_eigenvectors(monkeypatch, dense_up_to):
    monkeypatch.setattr(structure, "DENSE_UP_TO", dense_up_to)
    dense = random_adjacency(60, 200)
    dense[0, 1:] = dense[1:, 0] = 1
    found = structural_features(sp.csr_array(dense)).astype(np.float64)
    values, vectors = np.linalg.eigh(symmetric(dense))
    assert found.shape == (60, 16)
    np.testing.assert_allclose((found**2).mean(axis=0), 1, rtol=1e-5)
    for number, column in enumerate(found.T):
        expected = vectors[:, -2 - number] * 60**0.5
        np.testing.assert_allclose(symmetric(dense) @ column, values[-2 - number] * column, atol=1e-5)
        np.testing.assert_allclose(np.abs(column), np.abs(expected), atol=1e-4)
        assert column[np.abs(column).argmax()] > 0


def test_each_part_has_its_own_vectors():
    dense = two_parts()
    found = structural_features(sp.csr_array(dense), "spectral")
    assert found.shape == (34, 16)
    alone = structural_features(sp.csr_array(dense[:30, :30]), "spectral")
    np.testing.assert_allclose(found[:30], alone, atol=1e-5)
    # A path of three nodes: eigenvalues 1, 0 and -1.
    np.testing.assert_allclose(found[30:33, 0], [1.5**0.5, 0, -(1.5**0.5)], atol=1e-6)
    assert not found[30:33, 2:].any()
    assert not found[33].any()


def test_walks_are_powers_of_the_transition_matrix():
    dense = two_parts()
    found = structural_features(sp.csr_array(dense), "walk")
    sums = dense.sum(1, keepdims=True)
    step = dense / np.where(sums > 0, sums, 1)
    for column, steps in zip(found.T, STEPS, strict=True):
        np.testing.assert_allclose(column, np.linalg.matrix_power(step, steps).diagonal(), atol=1e-6)


def test_degrees_of_the_node_and_its_neighbours():
    dense = two_parts()
    found = structural_features(sp.csr_array(dense), "degree")
    logs = np.log1p((dense > 0).sum(1))
    for node in range(33):
        around = logs[dense[node] > 0]
        expected = [logs[node], around.min(), around.max(), around.mean(), around.std()]
        np.testing.assert_allclose(found[node], expected, atol=1e-6)
    assert not found[33].any()


@pytest.mark.parametrize("kind", structure.STRUCTURES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_graphs(kind, n):
    dense = np.ones((n, n)) - np.eye(n)
    if kind == "spectral" and n == 1:
        with pytest.raises(GraphError, match="spectral features need edges, and there are none; give the nodes a"):
            structural_features(sp.csr_array(dense), kind)
        return
    found = structural_features(sp.csr_array(dense), kind)
    assert found.shape[0] == n
    assert len(structural_names(kind, found.shape[1], [str(i) for i in range(n)])) == found.shape[1]
    assert np.isfinite(found.toarray() if sp.issparse(found) else found).all()


def test_the_bits_do_not_depend_on_the_threads_of_a_blas():
    from threadpoolctl import threadpool_limits

    matrix = sp.csr_array(random_adjacency(500, 3000))
    with threadpool_limits(1):
        one = structural_features(matrix)
    assert (structural_features(matrix) == one).all()


@pytest.mark.parametrize("kind", ["degree", "spectral", "walk"])
def test_directions_and_loops_do_not_count(kind):
    matrix = random_adjacency(30, 80)
    one_way = sp.csr_array(np.triu(matrix) + np.diag(np.ones(30)))
    assert (structural_features(one_way, kind) == structural_features(sp.csr_array(matrix), kind)).all()
    graph = Graph.from_scipy(one_way, structural_features(one_way, kind))
    assert graph.num_edges == np.count_nonzero(np.triu(matrix))


def test_what_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="unknown kind of features 'spectrum'; did you mean 'spectral'"):
        structural_features(sp.csr_array((2, 2)), "spectrum")
    with pytest.raises(GraphError, match=r"must be a square SciPy matrix, got \[2, 3\]"):
        structural_features(sp.csr_array((2, 3)))
    with pytest.raises(GraphError, match="must be a square SciPy matrix, got ndarray"):
        structural_features(np.eye(2))
    with pytest.raises(GraphError, match="must hold finite weights from 0 up; `adjacency != 0` has only the edges"):
        structural_features(sp.csr_array([[0, -1], [-1, 0]]))
    monkeypatch.setattr(structure, "MOST_WORK", 10)
    with pytest.raises(GraphError, match="would take too long on 3 nodes and 3 edges; choose degree or spectral"):
        structural_features(sp.csr_array(np.ones((3, 3)) - np.eye(3)), "walk")


def test_vectors_that_do_not_converge(monkeypatch):
    from scipy.sparse import linalg

    def give_up(*_, **__):
        raise linalg.ArpackNoConvergence("no convergence", np.zeros(0), np.zeros((0, 0)))

    monkeypatch.setattr(linalg, "eigsh", give_up)
    monkeypatch.setattr(structure, "DENSE_UP_TO", 5)
    with pytest.raises(
        GraphError, match="the spectral features of 40 nodes did not converge; choose features='walk' or 'degree'"
    ):
        structural_features(sp.csr_array(np.ones((40, 40)) - np.eye(40)))
