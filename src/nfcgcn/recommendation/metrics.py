"""How good lists of suggestions are: recall, precision, NDCG, and how many of the items are ever suggested."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from nfcgcn.errors import GraphError
from nfcgcn.graph import Ints


class Scores(TypedDict):
    """The scores of lists, means over the users with a test interaction."""

    ndcg: float
    recall: float
    precision: float
    coverage: float
    """Items that are in somebody's list, as a share of those that could be."""
    users: int


def hits_of(lists: Ints, test: sp.csr_array) -> npt.NDArray[np.bool_]:
    """Say of each place of each list, ``[users, top]``, whether the item there is a test interaction of the user."""
    users = np.repeat(np.arange(len(lists)), lists.shape[1])
    items = lists.ravel()
    known = sp.csr_array(test != 0)
    hit = np.zeros(len(items), bool)
    there = items >= 0
    hit[there] = np.asarray(known[users[there], items[there]]).ravel()
    return hit.reshape(lists.shape)


def score_lists(lists: Ints, test: sp.csr_array, *, num_items: int | None = None) -> Scores:
    r"""Score lists ``[users, top]`` (-1 for no item) against the test interactions ``[users, items]``.

    .. math:: \mathrm{NDCG@}k = \frac{\sum_{r \le k} \mathrm{hit}_r / \log_2(r + 1)}
        {\sum_{r \le \min(k, m)} 1 / \log_2(r + 1)}, \qquad \mathrm{Recall@}k = \frac{\mathrm{hits}}{m}

    for a user with `m` test interactions. ``num_items`` is how many items could be suggested.
    """
    counts = np.diff(sp.csr_array(test).indptr)
    judged = counts > 0
    if not judged.any():
        raise GraphError("no user has a test interaction, so nothing can be scored; hold some out")
    top = lists.shape[1]
    hits = hits_of(lists, test)[judged]
    discounts = 1 / np.log2(np.arange(2, top + 2))
    ideal = discounts.cumsum()[np.minimum(counts[judged], top) - 1]
    suggested = np.unique(lists[judged])
    return {
        "ndcg": float(((hits * discounts).sum(1) / ideal).mean()),
        "recall": float((hits.sum(1) / counts[judged]).mean()),
        "precision": float(hits.mean()),
        "coverage": float((suggested >= 0).sum() / (num_items or test.shape[1])),
        "users": int(judged.sum()),
    }


def precision_recall(lists: Ints, test: sp.csr_array) -> list[tuple[int, float, float]]:
    """Return (length of the list, precision, recall) for every length up to that of the lists."""
    counts = np.diff(sp.csr_array(test).indptr)
    judged = counts > 0
    num_hits = hits_of(lists, test)[judged].cumsum(1)
    lengths = np.arange(1, lists.shape[1] + 1)
    precision, recall = (num_hits / lengths).mean(0), (num_hits / counts[judged, None]).mean(0)
    return [(int(k), float(p), float(r)) for k, p, r in zip(lengths, precision, recall, strict=True)]
