r"""Skip-gram with negative sampling (Mikolov et al., 2013): one round of steps on several sequences of nodes.

A pair of nodes :math:`i, j` that stand near each other in a sequence adds

.. math:: w_{ij} \left( \log \sigma(u_i^\top v_j) + k \, \mathbb{E}_n \log \sigma(-u_i^\top v_n) \right)

to what is maximised. The sequences of a round start from the same vectors, each works on copies of its rows, and what
they changed is added up in their order: the result does not depend on who computes which. Within a sequence blocks of
positions come one after the other; the positions of a block start from the same vectors and have the same negative
nodes, which are some of those of the sequence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nfcgcn.graph import Floats, Ints
from nfcgcn.kernels.reference.walks import Nodes

BLOCK = 8
"""Positions that change the vectors together."""
SHARED, EACH = 32, 16
"""Negative nodes of a sequence, and how many of them a block takes."""


class Pairs(NamedTuple):
    """Which positions of a sequence are a pair, and how much it counts."""

    weights: Floats
    """``[L, L]``: 0 where two positions are no pair."""
    reach: int
    """Positions further apart than this are no pair."""
    negatives: float
    """Weight of all negative nodes together, per weight of a pair."""


def skip_gram_round(
    vectors: Floats, contexts: Floats, sequences: Nodes, lengths: Ints, drawn: Nodes, *, pairs: Pairs, step: float
) -> None:
    """Change ``vectors`` and ``contexts [N, D]``, which may be the same array, by one round of steps.

    ``sequences [R, L]``, of which the first `lengths` nodes count, have negative nodes ``drawn [R, SHARED]``.
    """
    count, longest = sequences.shape
    nodes = np.concatenate([sequences, drawn], axis=1)
    rows = np.stack([_first_places(each) for each in nodes])
    each, u, v = np.arange(count)[:, None], vectors[sequences], contexts[nodes]
    before = u.copy(), v.copy()
    for number, first in enumerate(range(0, longest, BLOCK)):
        last = min(first + BLOCK, longest)
        low, high = max(0, first - pairs.reach), min(longest, last + pairs.reach)
        counts = (np.arange(first, last) < lengths[:, None])[:, :, None] & (
            np.arange(low, high) < lengths[:, None, None]
        )
        near = np.float32(step) * pairs.weights[first:last, low:high] * counts
        share = np.float32(pairs.negatives / EACH) * near.sum(2, keepdims=True)
        others = rows[:, longest + (number * EACH + np.arange(EACH)) % SHARED]
        places = np.concatenate([rows[:, low:high], others], axis=1)
        centres = u[each, rows[:, first:last]]
        score = _sigmoid(centres @ v[each, places].swapaxes(1, 2))
        pull = np.concatenate([near * (1 - score[:, :, : high - low]), -share * score[:, :, high - low :]], axis=2)
        np.add.at(u, (each, rows[:, first:last]), pull @ v[each, places])
        np.add.at(v, (each, places), pull.swapaxes(1, 2) @ centres)
    own = rows == np.arange(rows.shape[1])
    for r in range(count):  # the changes of a node's copies, of which one has changed
        np.add.at(vectors, sequences[r], (u[r] - before[0][r]) * own[r, :longest, None])
        np.add.at(contexts, nodes[r], (v[r] - before[1][r]) * own[r, :, None])


def _first_places(nodes: Nodes) -> Ints:
    """Return where each node stands first."""
    _, first, inverse = np.unique(nodes, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], np.int64)


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x), np.float32)
