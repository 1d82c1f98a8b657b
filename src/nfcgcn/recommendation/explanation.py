"""Which past items and which features led to a suggestion: contributions that add up to its score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from nfcgcn.graph import Ints
from nfcgcn.inference.feature_path import prepare_path
from nfcgcn.inference.integration import Method, integrate
from nfcgcn.kernels.threads import one_pool
from nfcgcn.method.classifier import NodeClassifier
from nfcgcn.recommendation.bipartite import Bipartite
from nfcgcn.recommendation.interactions import Interactions


class Reason(NamedTuple):
    """What something added to a score."""

    name: str
    contribution: float


@dataclass(frozen=True, eq=False)
class SuggestionExplanation:
    r"""What each feature of each node, identities included, added to the score of an item for a user.

    .. math:: s(X) - s(0) = \sum_{j, d} \phi_{jd}, \qquad s(X) = z_u(X) \cdot z_i(X)

    by integrated gradients, as explanations of nodes (:class:`nfcgcn.inference.explanation.Explanation`). Along the
    path from no features to all, the score of a linear encoder is a polynomial of degree 2, which the integration rule
    integrates exactly.
    """

    user: str
    item: str
    score: float
    baseline: float
    """The score if nothing were known about anybody: 0, unless the last layer has a bias."""
    contributions: sp.csr_array
    """``[N, D]``: nodes of the graph, columns of its features."""
    past: Ints
    """The items of the user's interactions."""
    method: Method
    error: float
    """``score - baseline`` minus the sum of the contributions."""
    log: Interactions
    bipartite: Bipartite

    @property
    def past_items(self) -> list[Reason]:
        """What each of the user's past items added, by its identity and its features, largest first."""
        items, names = self.bipartite.items, self.log.items.names
        totals = np.asarray(self.contributions.sum(axis=1)).ravel()
        return _sorted([Reason(names[item], float(totals[items[item]])) for item in self.past])

    @property
    def features(self) -> list[Reason]:
        """What each feature added, summed over all users and items that have it, largest first."""
        start = len(self.bipartite.layout.identified)
        totals = np.asarray(self.contributions.sum(axis=0)).ravel()
        names = self.bipartite.graph.feature_names or ()
        return _sorted([Reason(names[d], float(totals[d])) for d in range(start, len(totals)) if totals[d]])

    @property
    def parts(self) -> list[Reason]:
        """What the user, the suggested item, the past items, other items and other users added; together the score."""
        both, log = self.bipartite, self.log
        totals = np.asarray(self.contributions.sum(axis=1)).ravel()
        user, item = log.users.numbers[self.user], log.items.numbers[self.item]
        nodes = {
            f"user {self.user}": both.users[[user]],
            f"item {self.item}": both.items[[item]],
            "past items": both.items[np.setdiff1d(self.past, [item])],
            "other items": both.items[np.setdiff1d(np.arange(len(log.items)), [*self.past, item])],
            "other users": both.users[np.setdiff1d(np.arange(len(log.users)), [user])],
        }
        return [Reason(name, float(totals[some].sum())) for name, some in nodes.items()]


def _sorted(reasons: list[Reason]) -> list[Reason]:
    return sorted(reasons, key=lambda reason: (-abs(reason.contribution), reason.name))


@one_pool()
@torch.enable_grad()
def explain_suggestion(
    encoder: NodeClassifier,
    both: Bipartite,
    log: Interactions,
    vectors: tuple[Tensor, Tensor],
    *,
    user: str,
    item: str,
) -> SuggestionExplanation:
    """Return what led to the score of an item for a user; the item need not be in the user's list.

    ``both`` is the graph of the `log`, and ``vectors`` are those of users and items that the encoder makes of it.
    """
    numbers = log.users.find(user, "user"), log.items.find(item, "item")
    ends = np.array([both.users[numbers[0]], both.items[numbers[1]]])
    path = prepare_path(encoder, both.graph)(ends)
    integral = integrate(path, lambda vectors: (vectors[0] * vectors[1]).sum())
    contributions = path.contributions(integral.points)
    of_users, of_items = vectors
    score = float((of_users[numbers[0]].double() * of_items[numbers[1]].double()).sum())
    return SuggestionExplanation(
        user=user,
        item=item,
        score=score,
        baseline=integral.baseline,
        contributions=contributions,
        past=log.matrix[[numbers[0]]].indices.astype(np.int64),
        method=integral.method,
        error=score - integral.baseline - float(contributions.sum()),
        log=log,
        bipartite=both,
    )
