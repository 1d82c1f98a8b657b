"""LINE (Tang, Qu, Wang, Zhang, Yan and Mei, "LINE: Large-scale Information Network Embedding", WWW 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nfcgcn.baselines.vectors import VectorClassifier, VectorConfig
from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels.skip_gram import Source, learn_vectors, window_pairs
from nfcgcn.randomness import hash_seed
from nfcgcn.settings import setting, takes

TOGETHER = 40
"""Nodes of the edges that share their negative nodes."""


@dataclass(frozen=True)
class LINEConfig(VectorConfig):
    """The settings of LINE, named as its arguments."""

    hidden_channels: int = setting(128, "numbers of each node's vector, half of them of each order", low=1)
    passes: int = setting(100, "how often each edge is seen in each direction", low=1, high=100_000)
    negatives: int = setting(5, "weight of the negative nodes, per pair", low=1, high=100)
    step_size: float = setting(0.025, "step at the start; it falls to 0", above=0, below=0.3)


class LINE(VectorClassifier):
    r"""Learn vectors that are alike for neighbours, and vectors that are alike for nodes with the same neighbours.

    .. math:: O_1 = -\sum_{(i,j) \in E} \log \sigma(u_i^\top u_j), \qquad
        O_2 = -\sum_{(i,j) \in E} \log \frac{\exp(v_j^\top u_i)}{\sum_k \exp(v_k^\top u_i)}

    (equations 3 and 6), both by negative sampling (equation 7). The two vectors of a node, each of length 1, stand side
    by side; a linear classifier follows. For the arguments see :class:`LINEConfig`.
    """

    config: LINEConfig

    @takes(LINEConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: LINEConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config, seed=seed)

    @classmethod
    def vectors(cls, starts: Ints, neighbours: Ints, config: Any, seed: int) -> Floats:
        """Return the first-order vectors beside the second-order ones, ``[N, hidden_channels]``."""
        c = config
        source = Source(starts, neighbours, TOGETHER, c.passes, None)
        pairs = window_pairs(TOGETHER, 1, segment=2, negatives=c.negatives)
        widths = c.hidden_channels // 2, c.hidden_channels - c.hidden_channels // 2
        parts = [
            learn_vectors(
                source,
                pairs,
                width=width,
                step=c.step_size,
                seed=hash_seed(seed, "neighbours", order),
                tied=order == 1,
                say=f"LINE, order {order}",
            )
            for order, width in enumerate(widths, start=1)
            if width
        ]
        lengths = [np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
        return np.concatenate([p / np.where(n > 0, n, 1) for p, n in zip(parts, lengths, strict=True)], axis=1)
