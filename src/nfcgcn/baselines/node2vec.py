"""node2vec (Grover and Leskovec, "node2vec: Scalable Feature Learning for Networks", KDD 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nfcgcn.baselines.deepwalk import DeepWalk, DeepWalkConfig
from nfcgcn.kernels.skip_gram import EVERY
from nfcgcn.settings import setting, takes


@dataclass(frozen=True)
class Node2VecConfig(DeepWalkConfig):
    """The settings of node2vec, named as its arguments."""

    p: float = setting(1.0, "the larger, the less a walk returns to the previous node", above=0)
    q: float = setting(1.0, "the larger, the more a walk stays near the previous node", above=0)


class Node2Vec(DeepWalk):
    r"""DeepWalk on walks that remember the node before; then a linear classifier.

    From :math:`t` by :math:`v`, the next node is the neighbour :math:`x` of :math:`v` with probability proportional to

    .. math:: \alpha_{pq}(t, x) = \begin{cases} 1/p & x = t \\ 1 & x \text{ is a neighbour of } t \\
        1/q & \text{otherwise} \end{cases}

    (section 3.2.2). With p = q = 1 it is DeepWalk. For the arguments see :class:`Node2VecConfig`.
    """

    config: Node2VecConfig

    @takes(Node2VecConfig, positional=("hidden_channels",))
    def __init__(self, in_channels: int, out_channels: int, *, config: Node2VecConfig, seed: int = 0) -> None:
        super().__init__(in_channels, out_channels, config=config, seed=seed)

    @classmethod
    def limits(cls, config: Any) -> tuple[int, int, int]:
        """Return the limits by which a proposed neighbour is taken with a probability in proportion to alpha."""
        rarest = min(config.p, 1.0, config.q)
        back, near, far = (round(EVERY * (rarest / each)) for each in (config.p, 1.0, config.q))
        return back, near, far
