"""Which interactions train and which test: at random per user, by time, or all those of held-out items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.graph import Ints
from nfcgcn.randomness import generator
from nfcgcn.recommendation.interactions import Interactions

Rule = Literal["random", "latest", "time", "cold-items"]
RULES = {
    "random": "a share of each user's interactions, drawn at random",
    "latest": "the last interactions of each user",
    "time": "all interactions after a moment, the same for everybody",
    "cold-items": "all interactions of some items, which training never sees",
}


@dataclass(frozen=True, eq=False)
class LogSplit:
    """Two parts of a log, with the same users and items."""

    train: Interactions
    test: Interactions
    cold: Ints | None = None
    """The items that training never sees, in a split of this kind; only these are ranked."""


def split_log(log: Interactions, rule: Rule = "random", *, share: float | None = None, seed: int = 0) -> LogSplit:
    """Hold out a share of the interactions: 0.25 by default, or 0.1 of the items for "cold-items".

    Per user the number is rounded, and one interaction at least is left for training.

    >>> log = Interactions.from_pairs([(u, i) for u in "abcd" for i in "stuvwxyz"])
    >>> split_log(log, "random", share=0.25).test
    Interactions(users=4, items=8, pairs=8)
    """
    if rule not in RULES:
        raise ConfigError(f"unknown split '{rule}'; choose from {', '.join(RULES)}")
    share = (0.1 if rule == "cold-items" else 0.25) if share is None else share
    if not 0 < share < 1:
        raise ConfigError(
            f"the share to hold out must be above 0 and below 1, got {share:g}; 1 would leave none to train"
        )
    if rule == "cold-items":
        return _hold_out_items(log, share, seed)
    if rule != "random" and log.times is None:
        raise GraphError(f"the split '{rule}' needs to know when interactions were; name their column with --time")
    numbers = generator(seed, "split").random(log.pairs.shape[1])
    if rule == "time":
        assert log.times is not None  # noqa: S101
        return _checked(log, _last(log.times, share))
    # Of interactions at the same moment, those to hold out are drawn.
    keys = (numbers,) if rule == "random" else (numbers, log.times)
    order = np.lexsort((*keys, log.pairs[0]))
    counts = np.bincount(log.pairs[0], minlength=len(log.users))
    users = log.pairs[0][order]
    place = np.arange(len(users)) - (counts.cumsum() - counts)[users]
    held = np.minimum(np.floor(share * counts + 0.5), np.maximum(counts - 1, 0))
    test = np.zeros(len(users), bool)
    test[order] = place >= (counts - held)[users]
    return _checked(log, test)


def _last(times: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.bool_]:
    """Choose what came after a moment; all of one moment stay together."""
    moment = np.sort(times)[max(0, int(np.ceil((1 - share) * len(times))) - 1)]
    return np.asarray(times > moment)


def _hold_out_items(log: Interactions, share: float, seed: int) -> LogSplit:
    used = np.unique(log.pairs[1])
    count = max(1, round(share * len(used)))
    cold = np.sort(generator(seed, "split").choice(used, count, replace=False))
    split = _checked(log, np.isin(log.pairs[1], cold))
    return LogSplit(split.train, split.test, cold)


def _checked(log: Interactions, test: npt.NDArray[np.bool_]) -> LogSplit:
    for part, name in ((~test, "train"), (test, "test")):
        if not part.any():
            other = "test" if name == "train" else "training"
            raise GraphError(f"all interactions are in the {other} part; hold out another share, or split otherwise")
    return LogSplit(log.subset(~test), log.subset(test))


def first_of_items(log: Interactions, items: Ints, count: int, *, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Choose the first `count` interactions of each of the items: the earliest, or any without times."""
    numbers = generator(seed, "draws").random(log.pairs.shape[1])
    keys = (numbers,) if log.times is None else (numbers, log.times)
    order = np.lexsort((*keys, log.pairs[1]))
    counts = np.bincount(log.pairs[1], minlength=len(log.items))
    named = log.pairs[1][order]
    place = np.arange(len(named)) - (counts.cumsum() - counts)[named]
    chosen = np.zeros(len(named), bool)
    chosen[order] = (place < count) & np.isin(named, items)
    return chosen
