"""The best items of each user: scores in blocks, items already seen left out, equal scores in a fixed fair order."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from nfcgcn.graph import Floats, Ints, check_finite
from nfcgcn.kernels.products import product
from nfcgcn.memory import check_memory
from nfcgcn.randomness import hash_seed, hashed

CELLS = 2**22
"""Scores held at a time, 16 MiB."""


def fair_order(num_items: int) -> Ints:
    """Return the items in the order in which those of equal scores are listed: that of a hash of their numbers.

    Files often list what is popular first; by their order, a model without an opinion would look good.
    """
    numbers = torch.arange(num_items)
    return np.asarray(np.argsort(hashed(hash_seed(0, "draws"), numbers, torch.tensor(0)).numpy(), kind="stable"))


def top_items(
    users: Tensor, items: Tensor, *, top: int, seen: sp.csr_array, among: Ints | None = None
) -> tuple[Ints, Floats]:
    """Return the `top` items of each user by the product of vectors, best first, and their scores, ``[users, top]``.

    Items that a user has `seen` (``[users, items]``) are left out, as are all items not `among` the named ones. Where
    fewer are left, the list ends with -1. Equal scores are ordered by :func:`fair_order`.
    """

    def score(start: int, stop: int) -> Tensor:
        return product(users[start:stop], columns)

    order = fair_order(len(items))
    columns = items[torch.from_numpy(order).to(items.device)].mT.contiguous()
    return _top(score, len(users), order, top=top, seen=seen, among=among, device=items.device)


def top_of_matrix(scores: Floats, *, top: int, seen: sp.csr_array, among: Ints | None = None) -> tuple[Ints, Floats]:
    """Do the same for scores that are there already, ``[users, items]``."""
    order = fair_order(scores.shape[1])
    table = torch.from_numpy(np.ascontiguousarray(scores[:, order]))
    return _top(
        lambda a, b: table[a:b].clone(), len(scores), order, top=top, seen=seen, among=among, device=table.device
    )


def _top(
    score: object,
    num_users: int,
    order: Ints,
    *,
    top: int,
    seen: sp.csr_array,
    among: Ints | None,
    device: torch.device,
) -> tuple[Ints, Floats]:
    check_memory(12.0 * num_users * top, f"`top` {top}", "lower it")
    count = min(top, len(order))
    hidden = seen[:, order].tocsr()
    left_out = None
    if among is not None:
        outside = np.ones(len(order), bool)
        outside[among] = False
        left_out = torch.from_numpy(outside[order]).to(device)
    best, values = np.full((num_users, top), -1, np.int64), np.full((num_users, top), -np.inf, np.float32)
    step = max(1, CELLS // len(order))
    for start in range(0, num_users, step):
        stop = min(start + step, num_users)
        scores: Tensor = score(start, stop)  # type: ignore[operator]
        check_finite(scores, "the scores of some items")
        rows = hidden[start:stop].tocoo()
        scores[torch.from_numpy(rows.row.astype(np.int64)), torch.from_numpy(rows.col.astype(np.int64))] = -torch.inf
        if left_out is not None:
            scores[:, left_out] = -torch.inf
        places, kept = first_of_rows(scores, count)
        named = order[places.cpu().numpy()]
        best[start:stop, :count] = np.where(np.isneginf(kept.cpu().numpy()), -1, named)
        values[start:stop, :count] = kept.cpu().numpy()
    return best, values


def first_of_rows(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the places and values of the `count` largest entries per row; of equal ones the leftmost come first."""
    last = scores.topk(count, dim=1).values[:, -1:]
    above, equal = scores > last, scores == last
    needed = count - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1) <= needed))
    places = chosen.nonzero()[:, 1].reshape(len(scores), count)
    values, by_value = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    return places.gather(1, by_value), values
