"""What a fitted recommender is worth on test interactions, as plain values for JSON and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nfcgcn.evaluation import environment
from nfcgcn.graph import Ints
from nfcgcn.randomness import generator
from nfcgcn.recommendation.baselines import BASELINES
from nfcgcn.recommendation.metrics import hits_of, precision_recall, score_lists
from nfcgcn.recommendation.recommender import Recommender
from nfcgcn.recommendation.splits import LogSplit

LONGEST = 50
"""Length of the lists in the picture of precision and recall."""
EXAMPLES, SHOWN = 6, 5
"""Users whose lists the report shows, and how many of their past items."""
COMPARED = ("popularity", "item-cosine")
"""What stands beside every result: it takes no training."""


def judge(
    recommender: Recommender, parts: LogSplit, *, split: str, top: int, device: torch.device, command: str
) -> dict[str, Any]:
    """Score a recommender that was fitted to the training part on the test part, once."""
    users, test = np.arange(len(parts.test.users)), parts.test.matrix
    longest = min(max(LONGEST, top), len(parts.test.items))
    lists, _ = recommender.top(users, top=longest, among=parts.cold)
    num_items = None if parts.cold is None else len(parts.cold)
    compared = {}
    for name in COMPARED:
        ranked = BASELINES[name].fit(parts.train.matrix, recommender.seed)(users, longest, parts.cold)
        compared[name] = score_lists(ranked[:, :top], test, num_items=num_items) | {
            "curve": precision_recall(ranked, test)
        }
    log, config = recommender.log, recommender.settings
    return {
        "task": "recommend",
        "model": config.name,
        "config": config.values,
        "seed": recommender.seed,
        "split": split,
        "top": top,
        "sizes": {
            "users": len(log.users),
            "items": len(log.items),
            "train": int(parts.train.pairs.shape[1]),
            "test": int(parts.test.pairs.shape[1]),
            "user_features": len(log.users.feature_names),
            "item_features": len(log.items.feature_names),
        },
        "test_scores": score_lists(lists[:, :top], test, num_items=num_items),
        "curve": precision_recall(lists, test),
        "baselines": compared,
        "best_epoch": recommender.best_epoch,
        "epochs_run": len(recommender.history),
        "seconds": recommender.seconds,
        "cpu_seconds": recommender.cpu_seconds,
        "interrupted": recommender.interrupted,
        "parameters": sum(p.numel() for p in recommender.encoder.parameters()),
        "examples": _examples(parts, lists[:, :top], recommender.seed),
        **environment(device),
        "command": command,
    }


def _examples(parts: LogSplit, lists: Ints, seed: int) -> list[Mapping[str, Any]]:
    """Describe the lists of some users: half of those drawn have many hits for their list, half have few."""
    test, train = parts.test.matrix, parts.train.matrix
    counts = np.diff(test.indptr)
    hits = hits_of(lists, test)
    judged = np.flatnonzero((counts >= 1) & (np.diff(train.indptr) >= 1))
    drawn = generator(seed, "picture").permutation(judged)[: 20 * EXAMPLES]
    by_hits = drawn[np.argsort(-hits[drawn].sum(1), kind="stable")]
    some = [*by_hits[: EXAMPLES // 2], *by_hits[len(by_hits) - EXAMPLES // 2 :]]
    names = parts.train.items.names
    examples: list[Mapping[str, Any]] = []
    for user in dict.fromkeys(int(u) for u in some):
        past, wanted = train[[user]].indices, test[[user]].indices
        suggested = [{"item": names[i], "hit": bool(h)} for i, h in zip(lists[user], hits[user], strict=True) if i >= 0]
        missed = [names[i] for i in wanted if i not in set(lists[user].tolist())]
        examples.append(
            {
                "user": parts.train.users.names[user],
                "past": [names[i] for i in past[:SHOWN]],
                "num_past": len(past),
                "list": suggested,
                "missed": missed[:SHOWN],
                "num_missed": len(missed),
            }
        )
    return examples


def with_everything(recommender: Recommender, parts: LogSplit) -> Recommender:
    """Return the recommender as it is used later: it also reads the interactions that it was tested on."""
    log = recommender.log
    pairs = np.concatenate([parts.train.pairs, parts.test.pairs], axis=1)
    order = np.lexsort((pairs[1], pairs[0]))
    times = None
    if parts.train.times is not None and parts.test.times is not None:
        times = np.concatenate([parts.train.times, parts.test.times])[order]
    return recommender.with_log(replace(log, pairs=pairs[:, order], times=times))
