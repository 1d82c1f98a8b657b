"""Reasons of a suggestion: they add up to the score, and taking one away changes the score as said."""

from __future__ import annotations

import numpy as np
import pytest
from planted_tastes import planted_log

from nfcgcn.recommendation.recommender import fit_recommender

QUICK = {"channels": 8, "epochs": 20, "refit": "no"}


@pytest.mark.parametrize(
    ("model", "settings"), [("nfc-gcn", {}), ("nfc-gcn", {"num_layers": 2, "activation": "tanh"}), ("lightgcn", {})]
)
def test_contributions_add_up_to_the_score(model, settings):
    fitted = fit_recommender(planted_log(users=24, items=18), model, settings={**QUICK, **settings})
    (best, *_) = fitted.recommend("u1", top=1)
    reasons = fitted.explain("u1", best.item)
    assert reasons.score == pytest.approx(best.score, rel=1e-4)
    tolerance = 2e-3 if settings else 1e-5
    assert abs(reasons.error) < tolerance * max(1, abs(reasons.score))
    parts = sum(part.contribution for part in reasons.parts)
    assert parts == pytest.approx(reasons.score - reasons.baseline, abs=tolerance * max(1, abs(reasons.score)))


def test_past_items_and_features_are_named():
    log = planted_log(users=24, items=18)
    fitted = fit_recommender(log, settings=QUICK)
    (best, *_) = fitted.recommend("u1", top=1)
    reasons = fitted.explain("u1", best.item)
    past = {log.items.names[i] for i in log.matrix[[log.users.numbers["u1"]]].indices}
    assert {reason.name for reason in reasons.past_items} == past
    sizes = [abs(reason.contribution) for reason in reasons.past_items]
    assert sizes == sorted(sizes, reverse=True)
    best_feature = max(reasons.features, key=lambda reason: reason.contribution)
    assert best_feature.name in ("item: kind=kind 1", "user: town=town 1")


def test_a_bilinear_score_shares_each_product_between_both_sides():
    """Of matrix factorisation the exact answer is known: half of the score comes from either side."""
    fitted = fit_recommender(planted_log(users=12, items=9).without_features(), "mf", settings=QUICK)
    reasons = fitted.explain("u1", "i4")
    of_users, of_items = fitted.vectors
    users, items = fitted.log.users.numbers, fitted.log.items.numbers
    score = float(of_users[users["u1"]] @ of_items[items["i4"]])
    parts = {part.name: part.contribution for part in reasons.parts}
    assert parts["user u1"] == pytest.approx(score / 2, rel=1e-5)
    assert parts["item i4"] == pytest.approx(score / 2, rel=1e-5)
    assert np.abs(list(parts.values())[2:]).max() < 1e-9
