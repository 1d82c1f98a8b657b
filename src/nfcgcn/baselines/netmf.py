"""NetMF (Qiu, Dong, Ma, Li, Wang and Tang, "Network Embedding as Matrix Factorization: Unifying DeepWalk, LINE, PTE,
and node2vec", WSDM 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from nfcgcn.baselines.eigenvectors import leading_eigenvectors
from nfcgcn.baselines.vectors import VectorClassifier, VectorConfig
from nfcgcn.graph import Floats, Ints
from nfcgcn.settings import setting, takes

ROOM = 2**24
"""Numbers of the dense rows that are computed at a time."""


@dataclass(frozen=True)
class NetMFConfig(VectorConfig):
    """The settings of NetMF, named as its arguments."""

    window: int = setting(10, "steps of a walk between two nodes, at most (the paper's T)", low=1, high=1000)
    negatives: float = setting(1.0, "weight of the negative nodes, per pair (the paper's b)", above=0)


class NetMF(VectorClassifier):
    r"""Factorise the matrix that DeepWalk factorises implicitly; then a linear classifier.

    .. math:: \log \max(M, 1) \approx U \Sigma U^\top, \qquad
        M = \frac{\mathrm{vol}(G)}{b T} \left( \sum_{r=1}^T (D^{-1} A)^r \right) D^{-1}

    (algorithm 3); the nodes' vectors are the rows of :math:`U |\Sigma|^{1/2}`. Rows are computed in blocks, and what is
    above 0 is kept sparse. Nodes without neighbours have the vector 0. For the arguments see :class:`NetMFConfig`.

    Cost: T passes over all edges for each node, and the entries above 0, often some hundreds per node, in memory.
    """

    config: NetMFConfig
    random: ClassVar[bool] = False

    @takes(NetMFConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: NetMFConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config, seed=seed)

    @classmethod
    def vectors(cls, starts: Ints, neighbours: Ints, config: Any, seed: int) -> Floats:  # noqa: ARG003
        """Return the leading eigenvectors, scaled by the roots of their values, ``[N, hidden_channels]``."""
        values, vectors = leading_eigenvectors(
            log_matrix(starts, neighbours, config), config.hidden_channels, which="LM"
        )
        out = np.zeros((len(starts) - 1, config.hidden_channels), np.float32)
        out[:, : len(values)] = vectors * np.sqrt(np.abs(values))
        return out


def log_matrix(starts: Ints, neighbours: Ints, config: Any) -> sp.csr_array:
    """Return ``log max(M, 1)``, symmetric to the last bit."""
    size = len(starts) - 1
    degrees = np.diff(starts)
    inverse = 1 / np.maximum(degrees, 1)
    step = sp.csr_array((np.repeat(inverse, degrees), neighbours, starts), shape=(size, size))
    parts = []
    rows = max(1, ROOM // max(1, size))
    for first in range(0, size, rows):
        power = step[first : first + rows].toarray()
        total = power.copy()
        for _ in range(config.window - 1):
            power = (step.T @ power.T).T
            total += power
        total *= len(neighbours) / (config.negatives * config.window) * inverse
        parts.append(sp.csr_array(np.log(np.maximum(total, 1))))
    whole = sp.vstack(parts, format="csr") if parts else sp.csr_array((0, 0))
    return sp.csr_array((whole + whole.T) / 2)
