"""A generated log with planted tastes: users of a group like the items of that group, and few others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nfcgcn.recommendation.interactions import Interactions, read_interactions


def planted_tables(*, users: int = 60, items: int = 40, groups: int = 3, each: int = 8, seed: int = 0):
    """Return data frames of interactions, users and items; number modulo `groups` is the group."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        own = np.flatnonzero(np.arange(items) % groups == user % groups)
        liked = {*rng.choice(own, min(each, len(own)), replace=False), *rng.choice(items, 1)}
        rows += [(f"u{user}", f"i{item}", int(rng.integers(4, 6)), float(rng.integers(1000))) for item in sorted(liked)]
    log = pd.DataFrame(rows, columns=["user", "item", "stars", "time"])
    people = pd.DataFrame(
        {"user": [f"u{n}" for n in range(users)], "town": [f"town {n % groups}" for n in range(users)]}
    )
    things = pd.DataFrame(
        {"item": [f"i{n}" for n in range(items)], "kind": [f"kind {n % groups}" for n in range(items)]}
    )
    return {"interactions": log, "users": people, "items": things}


def planted_log(**options) -> Interactions:
    """Return the log of these tables."""
    return read_interactions(**planted_tables(**options), user="user", item="item", time="time")
