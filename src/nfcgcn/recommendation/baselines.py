"""Recommenders without a graph: what is popular, items like those liked before, and factorisations of a library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from nfcgcn.errors import DatasetError
from nfcgcn.graph import Floats, Ints
from nfcgcn.recommendation.ranking import CELLS, top_of_matrix

Lister = Callable[[Ints, int, Ints | None], Ints]
"""Returns the best items ``[users, top]`` of some users, among some items."""


def popularity(train: sp.csr_array, seed: int) -> Lister:  # noqa: ARG001
    """Suggest to everybody what most users like."""
    counts = np.asarray(train.sum(axis=0), np.float32)
    return _in_blocks(train, lambda users: np.tile(counts, (len(users), 1)))


def item_cosine(train: sp.csr_array, seed: int) -> Lister:  # noqa: ARG001
    """Suggest what was liked by those who like what the user likes: sums of cosines between columns of the matrix.

    (Sarwar, Karypis, Konstan and Riedl, "Item-based Collaborative Filtering Recommendation Algorithms", WWW 2001.)
    """
    counts = np.maximum(np.asarray(train.sum(axis=0)), 1)
    unit = sp.csr_array(train @ sp.diags_array(counts**-0.5))
    alike = sp.csr_array(unit.T @ unit)
    alike.setdiag(0)
    return _in_blocks(train, lambda users: (train[users] @ alike).toarray().astype(np.float32))


def als(train: sp.csr_array, seed: int) -> Lister:
    """Factorise the matrix by alternating least squares.

    (Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008; library `implicit`.)
    """
    # The penalty is set against sums over a user's interactions, so it grows with their number.
    penalty = SETTINGS["als"]["regularization"] * train.nnz / train.shape[0]
    settings = {**SETTINGS["als"], "regularization": penalty}
    return _factorised(_implicit().als.AlternatingLeastSquares, settings, train, seed)


def bpr(train: sp.csr_array, seed: int) -> Lister:
    """Factorise the matrix so that liked items are ranked above others: BPR-MF, of the library `implicit`."""
    return _factorised(_implicit().bpr.BayesianPersonalizedRanking, SETTINGS["bpr"], train, seed)


SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Chosen on validation interactions of MovieLens-100K.
        "als": {"factors": 32, "regularization": 0.4, "alpha": 4.0, "iterations": 15},
        "bpr": {"factors": 64, "learning_rate": 0.01, "regularization": 0.03, "iterations": 100},
    }
)


@dataclass(frozen=True)
class Baseline:
    """A recommender that is not trained by us."""

    fit: Callable[[sp.csr_array, int], Lister]
    summary: str
    settings: Mapping[str, Any]


BASELINES = MappingProxyType(
    {
        "popularity": Baseline(popularity, "what most users like", {}),
        "item-cosine": Baseline(item_cosine, "items like those liked before", {}),
        "als": Baseline(als, "alternating least squares (implicit)", SETTINGS["als"]),
        "bpr": Baseline(bpr, "BPR matrix factorisation (implicit)", SETTINGS["bpr"]),
    }
)


def _implicit() -> Any:
    try:
        import implicit.als
        import implicit.bpr
    except ImportError as error:
        raise DatasetError(
            "als and bpr need the library implicit: `pip install nfcgcn[recommend]`, or leave them out of --models"
        ) from error
    return implicit


def _factorised(make: Callable[..., Any], settings: Mapping[str, Any], train: sp.csr_array, seed: int) -> Lister:
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1, "blas"):
        model = make(random_state=seed, num_threads=1, use_gpu=False, **settings)  # with one thread, repeatable
        model.fit(sp.csr_matrix(train), show_progress=False)
    users, items = np.asarray(model.user_factors), np.asarray(model.item_factors)
    return _in_blocks(train, lambda rows: np.asarray(users[rows] @ items.T, np.float32))


def _in_blocks(train: sp.csr_array, score: Callable[[Ints], Floats]) -> Lister:
    """Score some users at a time, so that memory is bounded."""

    def lists(users: Ints, top: int, among: Ints | None) -> Ints:
        step = max(1, CELLS // train.shape[1])
        parts = []
        for start in range(0, len(users), step):
            some = users[start : start + step]
            parts.append(top_of_matrix(score(some), top=top, seen=train[some], among=among)[0])
        return np.concatenate(parts)

    return lists
