"""DeepWalk (Perozzi, Al-Rfou and Skiena, "DeepWalk: Online Learning of Social Representations", KDD 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nfcgcn.baselines.vectors import VectorClassifier, VectorConfig
from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels.skip_gram import EVERY, Source, learn_vectors, window_pairs
from nfcgcn.randomness import hash_seed
from nfcgcn.settings import setting, takes


@dataclass(frozen=True)
class DeepWalkConfig(VectorConfig):
    """The settings of DeepWalk, named as its arguments."""

    num_walks: int = setting(10, "walks from each node", low=1, high=10_000)
    walk_length: int = setting(40, "nodes of a walk", low=1, high=1000)
    window: int = setting(10, "how far apart two nodes of a walk may be to be a pair", low=1, high=1000)
    negatives: int = setting(5, "weight of the negative nodes, per pair", low=1, high=100)
    step_size: float = setting(0.025, "step of the skip-gram at the start; it falls to 0", above=0, below=0.3)


class DeepWalk(VectorClassifier):
    r"""Learn vectors by which a node predicts the nodes near it on random walks; then a linear classifier.

    .. math:: \max_{u, v} \sum_{\text{walks}} \sum_{0 < |s - t| \le w} \log \Pr(j_t \mid i_s)

    (algorithm 1), where a walk goes from a node to any of its neighbours with the same probability. For the arguments
    see :class:`DeepWalkConfig`; `seed` is that of the walks.
    """

    # Paper: the probability is a hierarchical softmax. Here it is negative sampling (Mikolov et al., 2013), as in
    # node2vec: log s(u_i v_j) + k E log s(-u_i v_n), n drawn by degree to the power of 3/4.
    config: DeepWalkConfig

    @takes(DeepWalkConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: DeepWalkConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config, seed=seed)

    @classmethod
    def limits(cls, config: Any) -> tuple[int, int, int]:  # noqa: ARG003
        """Return the limits of a step back, to a common neighbour and to any other node."""
        return EVERY, EVERY, EVERY

    @classmethod
    def vectors(cls, starts: Ints, neighbours: Ints, config: Any, seed: int) -> Floats:
        """Return what a node predicts its context with, ``[N, hidden_channels]``."""
        c = config
        source = Source(starts, neighbours, c.walk_length, c.num_walks, cls.limits(c))
        pairs = window_pairs(c.walk_length, c.window, segment=c.walk_length, negatives=c.negatives)
        seed = hash_seed(seed, "neighbours")
        return learn_vectors(source, pairs, width=c.hidden_channels, step=c.step_size, seed=seed, say=cls.__name__)
