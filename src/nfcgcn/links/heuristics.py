"""Scores of pairs that follow from the edges alone, without any training: the oldest baselines of link prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.graph import Ints
from nfcgcn.links.scores import Doubles

BLOCK = 2**14
"""Pairs that are scored at a time."""


def _ones(degrees: Doubles) -> Doubles:
    return np.ones_like(degrees)


def _inverse_logarithms(degrees: Doubles) -> Doubles:
    return 1 / np.log(np.maximum(degrees, 2))  # what two nodes share has two neighbours at least


def _inverses(degrees: Doubles) -> Doubles:
    return 1 / np.maximum(degrees, 1)


HEURISTICS: dict[str, Callable[[Doubles], Doubles]] = {
    "common-neighbours": _ones,
    "adamic-adar": _inverse_logarithms,
    "resource-allocation": _inverses,
}
"""By name, the weight of a neighbour that two nodes share, from its degree: 1; 1 / log of it (Adamic and Adar, "Friends
and neighbors on the Web", 2003); 1 / it (Zhou, Lü and Zhang, "Predicting missing links via local information", 2009).
"""


def score_by_neighbours(name: str, read: Ints, num_nodes: int, pairs: Ints) -> Doubles:
    r"""Return :math:`s_{uv} = \sum_{w \in N_u \cap N_v} f(|N_w|)` of each pair, from the edges `read` alone.

    Memory: that of the neighbours of some 16,000 pairs.

    >>> triangle_with_tail = np.array([[0, 0, 1, 2], [1, 2, 2, 3]])
    >>> score_by_neighbours("resource-allocation", triangle_with_tail, 4, np.array([[0, 0], [1, 3]])).round(3).tolist()
    [0.333, 0.333]
    """
    ends = np.concatenate([read, read[::-1]], axis=1)
    matrix: Any = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    weights = HEURISTICS[name](np.diff(matrix.indptr).astype(np.float64))
    weighted = sp.csr_array(matrix @ sp.diags_array(weights))
    scores = np.zeros(pairs.shape[1])
    for start in range(0, pairs.shape[1], BLOCK):
        first, second = pairs[:, start : start + BLOCK]
        scores[start : start + BLOCK] = weighted[first].multiply(matrix[second]).sum(axis=1)
    return scores
