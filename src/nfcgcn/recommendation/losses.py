"""What training makes smaller: the softmax over items, or BPR; and the draw of negative items."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from nfcgcn.kernels.products import product
from nfcgcn.recommendation.settings import RecommendConfig

CELLS = 2**22
"""Scores held at a time, 16 MiB."""
ROUNDS = 4
"""How often a drawn negative that the user likes is replaced by another; one that is still liked does not count."""


class Task:
    """Interactions to learn from, and whatever is needed to compare them with others."""

    def __init__(
        self, users: Tensor, items: Tensor, *, num_users: int, num_items: int, config: RecommendConfig
    ) -> None:
        self.users, self.items = users, items
        self.num_users, self.num_items, self.config = num_users, num_items, config
        self.keys = (users * num_items + items).sort().values
        counts = torch.bincount(items.cpu(), minlength=num_items).double()
        self.shares = counts / counts.sum()
        self.cumulated = self.shares.cumsum(0)

    def is_liked(self, users: Tensor, items: Tensor) -> Tensor:
        """Say of pairs whether they are among the interactions."""
        keys = users * self.num_items + items
        place = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return self.keys[place] == keys

    def draw(self, users: Tensor) -> Tensor:
        """Draw negatives for each of the users, ``[users, num_negatives]``."""
        size = (len(users), self.config.num_negatives)
        drawn = self._draw(size).to(users.device)
        for _ in range(ROUNDS):
            liked = self.is_liked(users[:, None], drawn)
            drawn = torch.where(liked, self._draw(size).to(users.device), drawn)
        return drawn

    def _draw(self, size: tuple[int, int]) -> Tensor:
        if self.config.negatives == "uniform":
            return torch.randint(self.num_items, size)
        numbers = torch.rand(size, dtype=torch.float64)
        return torch.searchsorted(self.cumulated, numbers).clamp(max=self.num_items - 1)

    def losses(
        self, of_users: Tensor, of_items: Tensor, targets: Tensor, visible: tuple[Tensor, Tensor] | None
    ) -> Iterator[Tensor]:
        """Yield parts of the mean loss over the `targets`, numbers of interactions; each part takes bounded memory.

        ``visible`` are the interactions that the graph shows to the model: where others are the targets, a user's
        visible items take no part in the softmax, as they take none in the list that the user is shown.
        """
        if self.config.negatives == "all":
            yield from self._against_all(of_users, of_items, targets, visible)
            return
        step = max(1, CELLS // (of_items.shape[1] * (1 + self.config.num_negatives)))
        for part in torch.split(targets, step):
            users, items = self.users[part], self.items[part]
            yield self._against_drawn(of_users[users], of_items, users, items) * (len(part) / len(targets))

    def _against_all(
        self, of_users: Tensor, of_items: Tensor, targets: Tensor, visible: tuple[Tensor, Tensor] | None
    ) -> Iterator[Tensor]:
        step = max(1, CELLS // self.num_items)
        users, items = self.users[targets], self.items[targets]
        columns = of_items.mT.contiguous()
        for start in range(0, self.num_users, step):
            inside = (users >= start) & (users < start + step)
            scores = product(of_users[start : start + step], columns)
            if visible is not None:
                shown = (visible[0] >= start) & (visible[0] < start + step)
                places = (visible[0][shown] - start, visible[1][shown])
                mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
                scores = scores.masked_fill(mask.index_put(places, mask.new_ones(())), -1e9)
            logs = F.log_softmax(scores, dim=1)
            yield -logs[users[inside] - start, items[inside]].sum() / len(targets)

    def _against_drawn(self, vectors: Tensor, of_items: Tensor, users: Tensor, items: Tensor) -> Tensor:
        drawn = self.draw(users)
        liked = self.is_liked(users[:, None], drawn)
        right = (vectors * of_items[items]).sum(1, keepdim=True)
        wrong = (vectors[:, None] * of_items[drawn]).sum(2)
        if self.config.loss == "bpr":
            return (F.softplus(wrong - right) * ~liked).mean()
        # Each drawn item stands for many: so the sum over those drawn has the sum over all items as its mean.
        chance = (
            self.shares.float().to(drawn.device)[drawn] if self.config.negatives == "popularity" else 1 / self.num_items
        )
        chance = (
            torch.as_tensor(chance, device=drawn.device).log() + torch.tensor(float(self.config.num_negatives)).log()
        )
        wrong = (wrong - chance).masked_fill(liked, -1e9)
        return (torch.cat([right, wrong], dim=1).logsumexp(1) - right[:, 0]).mean()
