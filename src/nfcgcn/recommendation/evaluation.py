"""The table of recommenders: the same splits for all, several seeds, differences in pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from nfcgcn.errors import ConfigError, unknown
from nfcgcn.evaluation import paired, summarise
from nfcgcn.graph import Ints
from nfcgcn.recommendation.baselines import BASELINES, Lister
from nfcgcn.recommendation.interactions import Interactions
from nfcgcn.recommendation.metrics import Scores, score_lists
from nfcgcn.recommendation.recommender import Recommender, fit_recommender
from nfcgcn.recommendation.settings import ENCODERS, make_settings
from nfcgcn.recommendation.splits import LogSplit, Rule, first_of_items, split_log

MEASURES = ("ndcg", "recall", "precision", "coverage")
FIRST_INTERACTIONS = 5
"""Of a held-out item, so many interactions are shown to the model in the second of both measurements."""
FEATURES = "+features"
"""Ends the name of a model that reads the columns of users and items, where there are some."""


def evaluate_recommenders(
    log: Interactions,
    models: Sequence[str] = ("popularity", "item-cosine", "nfc-gcn"),
    *,
    split: Rule = "random",
    share: float | None = None,
    seeds: Sequence[int] = (0,),
    top: int = 10,
    settings: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
    on_row: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Train and score recommenders on the same splits of a log, one split per seed; return a row per model and seed.

    A model is a baseline ("popularity", "item-cosine", "als", "bpr") or an encoder ("nfc-gcn", "lightgcn", "mf" or any
    of ``nfcgcn models`` that reads features). Encoders read interactions alone; with "+features" after the name they
    also read the columns of users and items. The test interactions are scored once, after training.

    The split "cold-items" has two rows per model: with no interaction of the held-out items shown, and with the first
    five of each; in both, only held-out items are ranked, and the same test interactions are scored.

    >>> log = Interactions.from_pairs([(u, i) for u in "abcdefgh" for i in ("uvwx" if u in "abcd" else "wxyz")])
    >>> rows = evaluate_recommenders(log, ["popularity", "item-cosine"], top=2)
    >>> [(row["model"], row["users"]) for row in rows]
    [('popularity', 8), ('item-cosine', 8)]
    """
    check_models(models)
    rows = []
    for seed in seeds:
        parts = split_log(log, split, share=share, seed=seed)
        for model in models:
            for row in _measure(model, parts, seed=seed, top=top, settings=settings or {}, device=device):
                rows.append({"model": model, "seed": seed, "split": split, **row})
                if on_row:
                    on_row(rows[-1])
    return rows


def check_models(models: Sequence[str]) -> None:
    """Refuse names that are no recommender, before anything is trained."""
    for model in models:
        name = model.removesuffix(FEATURES)
        if name not in ENCODERS and model not in BASELINES:
            raise ConfigError(unknown("recommender", model, [*BASELINES, *ENCODERS]))


def _measure(
    model: str, parts: LogSplit, *, seed: int, top: int, settings: Mapping[str, Any], device: torch.device | str
) -> list[dict[str, Any]]:
    start, cpu = time.perf_counter(), time.process_time()
    if model in BASELINES:
        make = BASELINES[model].fit
        values: dict[str, Any] = {"settings": dict(BASELINES[model].settings)}

        def lister(shown: Interactions) -> Lister:
            return make(shown.matrix, seed)

    else:
        train = parts.train if model.endswith(FEATURES) else parts.train.without_features()
        config = make_settings(model.removesuffix(FEATURES), settings)
        fitted = fit_recommender(train, settings=config, seed=seed, device=device)
        values = {"settings": config.values, "epochs": fitted.best_epoch}

        def lister(shown: Interactions) -> Lister:
            return _lister(fitted, shown)

    lists = lister(parts.train)
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    if parts.cold is None:
        scores = _score(lists, parts.test.matrix, top, None)
        return [{**values, **scores, **spent}]
    first = first_of_items(parts.test, parts.cold, FIRST_INTERACTIONS, seed=seed)
    shown, rest = parts.test.subset(first), parts.test.subset(~first)
    rows = [{**values, "shown": 0, **_score(lists, rest.matrix, top, parts.cold), **spent}]
    lists = lister(_together(parts.train, shown))
    rows.append({**values, "shown": FIRST_INTERACTIONS, **_score(lists, rest.matrix, top, parts.cold), **spent})
    return rows


def _lister(fitted: Recommender, shown: Interactions) -> Lister:
    """Return how the fitted recommender ranks items if it is shown these interactions."""
    reading = fitted.with_log(replace(shown, users=fitted.log.users, items=fitted.log.items))
    return lambda users, top, among: reading.top(users, top=top, among=among)[0]


def _together(log: Interactions, more: Interactions) -> Interactions:
    pairs = np.concatenate([log.pairs, more.pairs], axis=1)
    order = np.lexsort((pairs[1], pairs[0]))
    return replace(log, pairs=pairs[:, order], times=None)


def _score(lists: Lister, test: sp.csr_array, top: int, among: Ints | None) -> Scores:
    ranked = lists(np.arange(test.shape[0]), top, among)
    return score_lists(ranked, test, num_items=None if among is None else len(among))


def summarise_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one line per model (and number of shown interactions): means over seeds, and the difference to the first.

    The difference is that of the NDCG, taken seed by seed, as all models have the same splits; None for one seed.
    """
    groups: dict[tuple[str, Any], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row.get("shown")), []).append(row)
    lines: list[dict[str, Any]] = []
    for (model, shown), some in groups.items():
        line: dict[str, Any] = {"model": model, "seeds": [row["seed"] for row in some]}
        if shown is not None:
            line["shown"] = shown
        for name in MEASURES:
            line[name] = summarise([row[name] for row in some])
        first = {
            row["seed"]: row["ndcg"] for row in rows if (row["model"], row.get("shown")) == (rows[0]["model"], shown)
        }
        difference = paired({row["seed"]: row["ndcg"] for row in some}, first) if model != rows[0]["model"] else None
        line["ndcg_against_first"] = None if difference is None else asdict(difference)
        line["seconds"] = float(np.mean([row["seconds"] for row in some]))
        line["cpu_seconds"] = float(np.mean([row["cpu_seconds"] for row in some]))
        lines.append(line)
    return lines
