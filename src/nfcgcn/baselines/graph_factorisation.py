"""Graph factorisation (Ahmed, Shervashidze, Narayanamurthy, Josifovski and Smola, "Distributed Large-scale Natural
Graph Factorization", WWW 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.baselines.vectors import VectorClassifier, VectorConfig
from nfcgcn.graph import Floats, Ints
from nfcgcn.randomness import generator
from nfcgcn.settings import setting, takes


@dataclass(frozen=True)
class GraphFactorisationConfig(VectorConfig):
    """The settings of graph factorisation, named as its arguments."""

    passes: int = setting(100, "steps over all edges", low=1, high=100_000)
    penalty: float = setting(0.1, "L2 penalty on the vectors (the paper's lambda)", low=0)
    step_size: float = setting(0.1, "step, divided by the node's degree", above=0, below=1)


class GraphFactorisation(VectorClassifier):
    r"""Let the product of two neighbours' vectors be 1; then a linear classifier.

    .. math:: f(Z) = \frac{1}{2} \sum_{(i,j) \in E} (A_{ij} - z_i^\top z_j)^2 + \frac{\lambda}{2} \sum_i \lVert z_i
        \rVert^2

    (equation 1), made small by gradient steps on all edges at once, each node's divided by its degree. Pairs without an
    edge play no part, so that vectors of different components have nothing to do with each other. For the arguments see
    :class:`GraphFactorisationConfig`.
    """

    config: GraphFactorisationConfig

    @takes(GraphFactorisationConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: GraphFactorisationConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config, seed=seed)

    @classmethod
    def vectors(cls, starts: Ints, neighbours: Ints, config: Any, seed: int) -> Floats:
        """Return ``Z [N, hidden_channels]``."""
        size, degrees = len(starts) - 1, np.diff(starts)
        owners = np.repeat(np.arange(size), degrees)
        z = generator(seed, "neighbours").standard_normal((size, config.hidden_channels)) / config.hidden_channels**0.5
        z[degrees == 0] = 0
        rate = config.step_size / np.maximum(degrees, 1)[:, None]
        for _ in range(config.passes):
            left = 1 - np.einsum("ed,ed->e", z[owners], z[neighbours])
            pull = sp.csr_array((left, neighbours, starts), shape=(size, size)) @ z
            z += rate * (pull - config.penalty * z)
        return np.asarray(z, np.float32)
