"""Factorisations against what dense linear algebra says."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from nfcgcn.baselines.eigenmaps import LaplacianEigenmaps
from nfcgcn.baselines.eigenvectors import leading_eigenvectors
from nfcgcn.baselines.graph_factorisation import GraphFactorisation, GraphFactorisationConfig
from nfcgcn.baselines.netmf import NetMFConfig, log_matrix
from nfcgcn.baselines.vectors import VectorConfig
from random_graphs import random_graph


@pytest.fixture(scope="module")
def adjacency():
    """Two drawn graphs side by side, a lone pair and a lone node."""
    parts = [random_graph(n, sparse=False, seed=n).adjacency for n in (150, 90)]
    return sp.csr_array(sp.block_diag([*parts, [[0, 1], [1, 0]], [[0]]], format="csr"))


def lists(adjacency):
    return adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)


def test_eigenmaps_solve_their_equation(adjacency):
    found = LaplacianEigenmaps.vectors(*lists(adjacency), VectorConfig(hidden_channels=6), 0).astype(np.float64)
    a = adjacency.toarray().astype(np.float64)
    degrees = a.sum(1)
    scale = np.where(degrees > 0, np.maximum(degrees, 1) ** -0.5, 0)
    values = np.sort(np.linalg.eigvalsh(np.eye(len(a)) - scale[:, None] * a * scale))
    wanted = values[values > 1e-9][:6]
    laplacian = np.diag(degrees) - a
    np.testing.assert_allclose(laplacian @ found, degrees[:, None] * found * wanted, atol=1e-4)
    np.testing.assert_allclose((found**2).mean(0), 1, rtol=1e-4)
    assert not found[-3:].any()


def test_the_matrix_of_netmf(adjacency):
    a = adjacency.toarray().astype(np.float64)
    degrees = np.maximum(a.sum(1), 1)
    p = a / degrees[:, None]
    total = sum(np.linalg.matrix_power(p, r) for r in (1, 2, 3))
    m = a.sum() / (2.0 * 3) * total / degrees
    found = log_matrix(*lists(adjacency), NetMFConfig(window=3, negatives=2.0))
    np.testing.assert_allclose(found.toarray(), np.log(np.maximum(m, 1)), atol=1e-12)
    assert (found != found.T).nnz == 0


def test_factorisation_lowers_its_loss(adjacency):
    a = adjacency.toarray()

    def loss(passes):
        config = GraphFactorisationConfig(hidden_channels=8, passes=passes, penalty=0.2)
        z = GraphFactorisation.vectors(*lists(adjacency), config, 1).astype(np.float64)
        return (a * (1 - z @ z.T) ** 2).sum() / 2 + 0.1 * (z**2).sum()

    losses = [loss(passes) for passes in (1, 5, 50, 300)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("which", ["LA", "LM"])
@pytest.mark.parametrize("size", [1, 5, 300])
def test_leading_eigenvectors(which, size):
    rng = np.random.default_rng(size)
    dense = rng.normal(size=(size, size))
    dense = (dense + dense.T) / 2
    values, vectors = leading_eigenvectors(sp.csr_array(dense), 4, which=which)
    known = np.linalg.eigvalsh(dense)
    wanted = sorted(known, key=lambda v: -v if which == "LA" else -abs(v))[:4]
    np.testing.assert_allclose(values, wanted, atol=1e-9)
    np.testing.assert_allclose(dense @ vectors, vectors * values, atol=1e-8)
    assert (np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0) > 0).all()
