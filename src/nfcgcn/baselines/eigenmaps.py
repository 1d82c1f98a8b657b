"""Laplacian eigenmaps (Belkin and Niyogi, "Laplacian Eigenmaps for Dimensionality Reduction and Data Representation",
Neural Computation 2003)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from nfcgcn.baselines.eigenvectors import leading_eigenvectors
from nfcgcn.baselines.vectors import VectorClassifier, VectorConfig
from nfcgcn.graph import Floats, Ints
from nfcgcn.settings import takes


class LaplacianEigenmaps(VectorClassifier):
    r"""Place neighbours near each other; then a linear classifier.

    .. math:: L y = \lambda D y, \qquad L = D - A

    (section 2): the vectors of a graph's nodes are the solutions with the smallest :math:`\lambda > 0`, side by side,
    each of mean square 1. There is one solution with :math:`\lambda = 0` per connected component, the same number for
    all of its nodes, and it is left out. Components are solved one by one; numbers that a small graph does not have
    are 0. For the arguments see :class:`VectorConfig`.
    """

    random: ClassVar[bool] = False

    @takes(VectorConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: VectorConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config, seed=seed)

    @classmethod
    def vectors(cls, starts: Ints, neighbours: Ints, config: Any, seed: int) -> Floats:  # noqa: ARG003
        """Return the solutions with the smallest eigenvalues of all components, ``[N, hidden_channels]``."""
        from scipy.sparse.csgraph import connected_components

        size, width = len(starts) - 1, config.hidden_channels
        adjacency = sp.csr_array((np.ones(len(neighbours)), neighbours, starts), shape=(size, size))
        _, labels = connected_components(adjacency, directed=False)
        order = np.argsort(labels, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(labels))[:-1]) if size else []
        solutions: list[tuple[float, Ints, Any]] = []
        for nodes in members:
            if len(nodes) < 2:
                continue
            scale = np.diff(starts)[nodes] ** -0.5
            inside = sp.csr_array(sp.diags_array(scale) @ adjacency[nodes][:, nodes] @ sp.diags_array(scale))
            values, vectors = leading_eigenvectors(inside, width + 1, which="LA")
            solutions += [(1 - values[i], nodes, vectors[:, i] * scale) for i in range(1, len(values))]
        out = np.zeros((size, width))
        for column, (_, nodes, vector) in enumerate(sorted(solutions, key=lambda each: each[0])[:width]):
            out[nodes, column] = vector * np.sqrt(size / (vector**2).sum())
        return out.astype(np.float32)
