"""Recommenders find planted tastes, also for users and items that training never saw; the same seed, the same bits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from planted_tastes import planted_log

from nfcgcn.errors import ConfigError, GraphError
from nfcgcn.recommendation import losses
from nfcgcn.recommendation.baselines import BASELINES
from nfcgcn.recommendation.bipartite import Layout, make_graph
from nfcgcn.recommendation.evaluation import evaluate_recommenders, summarise_rows
from nfcgcn.recommendation.interactions import Interactions, read_interactions
from nfcgcn.recommendation.losses import Task
from nfcgcn.recommendation.metrics import score_lists
from nfcgcn.recommendation.recommender import fit_recommender
from nfcgcn.recommendation.settings import RecommendConfig, make_settings
from nfcgcn.recommendation.splits import split_log

QUICK = {"channels": 8, "epochs": 30, "refit": "no"}


@pytest.fixture(scope="module")
def log():
    return planted_log()


@pytest.fixture(scope="module")
def fitted(log):
    return fit_recommender(log, settings=QUICK)


def group(name):
    return int(name[1:]) % 3


def of_own_group(recommender, user, **options):
    found = recommender.recommend(user, **options)
    return np.mean([group(item) == group(user) for item, _ in found])


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("nfc-gcn", {}),
        ("nfc-gcn-2d", {"kernel_width": 2, "hidden_share": 0.0}),
        ("gcn", {"loss": "softmax", "negatives": "popularity", "num_negatives": 4}),
        ("lightgcn", {}),
        ("mf", {"negatives": "popularity", "epochs": 60}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_encoders_find_planted_tastes(log, model, settings):
    parts = split_log(log.without_features(), "random")
    fitted = fit_recommender(parts.train, model, settings={**QUICK, **settings})
    lists, _ = fitted.top(np.arange(60), top=5)
    ours = score_lists(lists, parts.test.matrix)
    popular = BASELINES["popularity"].fit(parts.train.matrix, 0)(np.arange(60), 5, None)
    assert ours["ndcg"] > 1.5 * score_lists(popular, parts.test.matrix)["ndcg"]


def test_lists_leave_out_the_past_and_are_ordered(fitted, log):
    found = fitted.recommend("u4", top=6)
    past = {log.items.names[i] for i in log.matrix[[log.users.numbers["u4"]]].indices}
    assert not past & {item for item, _ in found}
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert {item for item, _ in fitted.recommend("u4", top=2, among=["i1", "i2", "i4", "i7", "i10"])} <= {
        "i1", "i2", "i4", "i7", "i10",
    }  # fmt: skip
    assert len(fitted.recommend("u4", top=500)) == 40 - len(past)


def test_results_that_overflow_are_refused(log):
    fitted = fit_recommender(log, settings={**QUICK, "epochs": 1})
    user = log.users.names[0]
    with torch.no_grad():
        for weight in fitted.encoder.parameters():
            weight.fill_(1e15)
    with pytest.raises(GraphError, match=r"^the (scores|vectors) of some \w+ are not finite: the weights or the "):
        fitted.recommend(user)
    with torch.no_grad():
        for weight in fitted.encoder.parameters():
            weight.fill_(3e38)
    with pytest.raises(GraphError, match=r"^the vectors of some users are not finite: the weights or the features "):
        fitted.with_log(log).recommend(user)


def test_new_users_and_items_are_judged_by_features_and_first_interactions(fitted, log):
    items = pd.DataFrame({"item": ["i100", "i101", "i102"], "kind": ["kind 1", "kind 2", "kind 0"]})
    users = pd.DataFrame({"user": ["u200", "u201"], "town": ["town 2", "town 0"]})
    liked = pd.DataFrame({"user": ["u301"] * 3, "item": ["i1", "i4", "i7"]})
    known = read_interactions(liked, user="user", item="item", users=users, items=items, known=log)
    pairs = np.unique(np.concatenate([log.pairs, known.pairs], axis=1), axis=1)
    more = fitted.with_log(Interactions(known.users, known.items, pairs))
    assert of_own_group(more, "u200", top=8) > 0.8  # by the town alone
    assert of_own_group(more, "u301", top=8) > 0.8  # by three interactions alone
    for user in ("u1", "u2", "u3"):  # items without an interaction
        (best, *_) = more.recommend(user, top=1, among=["i100", "i101", "i102"])
        assert group(best.item) == group(user)
    # What was known before keeps its vectors, but for nodes that the new interactions reach.
    old, new = fitted.vectors[0], more.vectors[0][:60]
    far = [n for n, name in enumerate(log.users.names) if not {"i1", "i4", "i7"} & _likes(log, name)]
    assert len(far) > 5
    torch.testing.assert_close(old[far], new[far], rtol=0, atol=1e-6)


def _likes(log, user):
    return {log.items.names[i] for i in log.matrix[[log.users.numbers[user]]].indices}


def test_features_help_where_items_are_new(log):
    settings = {**QUICK, "cold_share": 0.1}
    rows = evaluate_recommenders(
        log, ["nfc-gcn", "nfc-gcn+features"], split="cold-items", share=0.3, top=3, settings=settings
    )
    without, given = ([row["ndcg"] for row in rows if row["model"] == name] for name in ("nfc-gcn", "nfc-gcn+features"))
    assert given[0] > without[0] + 0.2  # no interaction of the new items is shown
    assert without[1] > without[0] + 0.1  # the first five are


def test_a_node_that_training_never_saw_has_no_identity(log):
    parts = split_log(log, "cold-items")
    layout = Layout.of(parts.train, identity=True)
    both = make_graph(parts.train, layout)
    x = both.graph.features
    seen = both.items[np.setdiff1d(np.arange(40), parts.cold)]
    assert x[both.items[parts.cold], :100].nnz == 0
    assert (x[seen, :100].sum(axis=1) == 1).all()
    assert both.graph.num_edges == parts.train.pairs.shape[1]


def test_the_same_seed_gives_the_same_bits_with_any_number_of_threads(log, threads):
    settings = {**QUICK, "epochs": 4, "cold_share": 0.1, "check_every": 2}
    states = []
    for number in (1, 2):
        threads(number)
        states.append(fit_recommender(log, settings=settings, seed=3))
    for name, tensor in states[0].encoder.state_dict().items():
        assert torch.equal(tensor, states[1].encoder.state_dict()[name]), name
    assert torch.equal(states[0].vectors[0], states[1].vectors[0])
    other = fit_recommender(log, settings=settings, seed=4)
    assert not torch.equal(other.vectors[0], states[0].vectors[0])


@pytest.mark.gpu
def test_a_gpu_finds_them_too(log):
    fitted = fit_recommender(log, settings=QUICK, device="cuda")
    assert np.mean([of_own_group(fitted, f"u{n}", top=5) for n in range(12)]) > 0.8


def test_refit_uses_all_interactions_for_the_chosen_number_of_epochs(log):
    seen = []
    settings = {**QUICK, "refit": "yes", "epochs": 10, "patience": 3, "check_every": 1}
    fitted = fit_recommender(log, settings=settings, on_epoch=lambda epoch: seen.append(epoch["epoch"]))
    assert len(seen) == len(fitted.history) + fitted.best_epoch
    best = max(fitted.history, key=lambda epoch: epoch["val_ndcg"])
    assert best["epoch"] == fitted.best_epoch


def make_task(**settings):
    users, items = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 3])
    return Task(users, items, num_users=3, num_items=5, config=RecommendConfig(**settings))


def test_the_softmax_is_that_of_torch_in_any_number_of_parts(monkeypatch):
    task = make_task()
    of_users, of_items = torch.randn(3, 2), torch.randn(5, 2)
    scores = of_users @ of_items.T
    expected = F.cross_entropy(scores[task.users], task.items)
    for cells in (2**22, 5):
        monkeypatch.setattr(losses, "CELLS", cells)
        parts = list(task.losses(of_users, of_items, torch.arange(4), None))
        assert len(parts) == (1 if cells > 5 else 3)
        torch.testing.assert_close(sum(parts), expected)
    hidden = torch.tensor([1])  # the other three are visible to the model, and out of the running
    visible = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 3])
    part = sum(task.losses(of_users, of_items, hidden, visible))
    torch.testing.assert_close(part, -F.log_softmax(scores[0, 1:], 0)[0])


def test_bpr_compares_with_items_that_the_user_does_not_like():
    task = make_task(loss="bpr", negatives="uniform", num_negatives=50)
    drawn = task.draw(task.users)
    assert not task.is_liked(task.users[:, None], drawn).float().mean() > 0.05
    assert set(drawn[2].tolist()) == {0, 2, 3, 4}
    of_users, of_items = torch.zeros(3, 2), torch.randn(5, 2)
    (part,) = task.losses(of_users, of_items, torch.arange(4), None)
    assert float(part) == pytest.approx(np.log(2), rel=0.05)


def test_popular_items_are_drawn_more_often():
    task = make_task(loss="bpr", negatives="popularity", num_negatives=4000)
    shares = torch.bincount(task._draw((1, 4000)).flatten(), minlength=5) / 4000
    torch.testing.assert_close(shares, torch.tensor([0.25, 0.5, 0, 0.25, 0]), atol=0.04, rtol=0)


@pytest.mark.parametrize("negatives", ["uniform", "popularity"])
def test_drawn_negatives_stand_for_all_others(negatives):
    """The sampled softmax estimates that over all items but the liked ones."""
    users, items = torch.arange(6), torch.arange(6)  # each item is liked once, so that popularity is uniform
    config = RecommendConfig(negatives=negatives, num_negatives=40_000)
    task = Task(users, items, num_users=6, num_items=6, config=config)
    of_users, of_items = torch.randn(6, 3), torch.randn(6, 3)
    expected = F.cross_entropy(of_users @ of_items.T, items)
    # Drawing from six items of which one is liked: five sixths of the draws stand for the five others.
    assert sum(task.losses(of_users, of_items, torch.arange(6), None)).item() == pytest.approx(expected.item(), rel=0.1)


def test_what_is_refused():
    bare = Interactions.from_pairs([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "beer")])
    with pytest.raises(ConfigError, match="there are no features to learn from; set `identity` to yes"):
        fit_recommender(bare, settings={"identity": "no"})
    with pytest.raises(ConfigError, match="unknown encoder 'lightgnc'; did you mean 'lightgcn'"):
        fit_recommender(bare, "lightgnc")
    with pytest.raises(ConfigError, match="`negatives` must be uniform or popularity with `loss` bpr, got all"):
        make_settings("nfc-gcn", {"loss": "bpr", "negatives": "all"})
    with pytest.raises(ConfigError, match="unknown recommender 'itemcosine'; did you mean 'item-cosine'"):
        evaluate_recommenders(bare, ["itemcosine"])
    fitted = fit_recommender(bare, settings={"channels": 2, "epochs": 2})
    with pytest.raises(GraphError, match="unknown user 'eve'"):
        fitted.recommend("eve")
    known = read_interactions(None, user="u", item="i", users=pd.DataFrame({"u": ["zoe"], "a": [1.0]}), known=bare)
    with pytest.raises(GraphError, match="the users must have the 0 features of training, got 1"):
        fitted.with_log(known)
    lonely = Interactions(
        bare.users.__class__((*bare.users.names, "zoe"), bare.users.features[[0, 1, 1]]), bare.items, bare.pairs
    )
    with pytest.raises(GraphError, match="user 'zoe' has neither interactions nor features"):
        fitted.with_log(lonely).recommend("zoe")
    with pytest.raises(GraphError, match="the first users of the log must be those of training"):
        fitted.with_log(planted_log())


def test_baselines_of_the_library(log):
    pytest.importorskip("implicit")
    rows = evaluate_recommenders(log, ["popularity", "item-cosine", "als", "bpr"], seeds=[0, 1], top=5)
    assert [line["model"] for line in summarise_rows(rows)] == ["popularity", "item-cosine", "als", "bpr"]
    first, second, *_ = summarise_rows(rows)
    by_seed = {name: [row["ndcg"] for row in rows if row["model"] == name] for name in ("popularity", "item-cosine")}
    apart = np.subtract(by_seed["item-cosine"], by_seed["popularity"]).mean()
    assert first["ndcg_against_first"] is None
    assert second["ndcg_against_first"]["mean"] == pytest.approx(apart)
    means = {line["model"]: line["ndcg"]["mean"] for line in summarise_rows(rows)}
    assert min(means["item-cosine"], means["als"]) > 1.5 * means["popularity"]
    again = evaluate_recommenders(log, ["als", "bpr"], top=5)
    assert [row["ndcg"] for row in again] == [row["ndcg"] for row in rows if row["model"] in ("als", "bpr")][:2]


def test_item_cosine_by_hand():
    log = Interactions.from_pairs([("a", "x"), ("a", "y"), ("b", "x"), ("b", "z"), ("c", "x"), ("c", "y"), ("d", "y")])
    lists = BASELINES["item-cosine"].fit(log.matrix, 0)(np.array([3]), 3, None)
    # d likes y; x shares two of its three users with y (2 / sqrt(9)), z shares none.
    assert [log.items.names[i] for i in lists[0][:1]] == ["x"]
    assert lists.shape == (1, 3)
    assert lists[0][2] == -1
