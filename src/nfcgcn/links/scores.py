"""How well scores tell edges from pairs without an edge."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nfcgcn.training.scores import area_under_roc

Doubles = npt.NDArray[np.float64]
HITS = (20, 50, 100)
SCORES = {
    "auc": "area under the ROC curve: how often an edge is scored above a pair without one; 0.5 is chance",
    "ap": "average precision: the mean precision at each edge, from the highest score down",
    **{f"hits@{k}": f"share of the edges scored above the {k} highest-scored pairs without an edge" for k in HITS},
    "mrr": "mean of 1 / rank of each edge among all pairs without an edge",
}
"""All figures by name, in the order to show them, each with its meaning."""


def auc(edges: Doubles, others: Doubles) -> float:
    """Return the area under the ROC curve from the scores of edges and of pairs without one; ties count half."""
    return area_under_roc(edges, others)


def average_precision(edges: Doubles, others: Doubles) -> float:
    """Return the mean, over the edges, of the precision among all pairs with at least their score."""
    all_sorted, edges_sorted = np.sort(np.concatenate([edges, others])), np.sort(edges)
    at_least = len(all_sorted) - np.searchsorted(all_sorted, edges_sorted, "left")
    hits = len(edges_sorted) - np.searchsorted(edges_sorted, edges_sorted, "left")
    return float(np.mean(hits / at_least))


def hits_at(k: int, edges: Doubles, others: Doubles) -> float | None:
    """Return the share of edges scored above the k-th highest of the others; None if there are fewer than k others."""
    if len(others) < k:
        return None
    return float(np.mean(edges > np.partition(others, -k)[-k]))


def mean_reciprocal_rank(edges: Doubles, others: Doubles) -> float:
    """Return the mean of 1 / rank of each edge among all others; a tie counts as half a place."""
    ordered = np.sort(others)
    above = len(ordered) - np.searchsorted(ordered, edges, "right")
    ties = len(ordered) - above - np.searchsorted(ordered, edges, "left")
    return float(np.mean(1 / (1 + above + ties / 2)))


def measure(edges: Doubles, others: Doubles) -> dict[str, float | None]:
    """Return every figure by name from the scores of edges and of pairs without one.

    >>> figures = measure(np.array([3.0, 1.0]), np.array([2.0, 0.0]))
    >>> figures["auc"], figures["mrr"], figures["hits@20"]
    (0.75, 0.75, None)
    """
    return {
        "auc": auc(edges, others),
        "ap": average_precision(edges, others),
        **{f"hits@{k}": hits_at(k, edges, others) for k in HITS},
        "mrr": mean_reciprocal_rank(edges, others),
    }
