"""Training finds planted links, stops early, and refuses what it cannot use; suggestions are what brute force finds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

import nfcgcn
from nfcgcn.errors import ConfigError, GraphError, NFCError
from nfcgcn.graph import Graph
from nfcgcn.links import prediction
from nfcgcn.links.config import LINK_MODELS, MODELS, make_link_setup, preset_tables
from nfcgcn.links.evaluation import judge, judge_heuristics, repeat
from nfcgcn.links.prediction import encode, predict_pairs, probabilities, score_pairs, suggest_links
from nfcgcn.links.splits import pairs_of, with_edges
from nfcgcn.links.training import fit, fit_links

QUICK = {"epochs": 40, "channels": 8, "hidden_channels": 16, "patience": "none"}


@pytest.fixture(scope="module")
def planted():
    """Sixty nodes in groups of ten, in which most are linked; features say the group, loudly."""
    rng = np.random.default_rng(0)
    group = np.arange(60) // 10
    upper = np.stack(np.triu_indices(60, 1))
    linked = (group[upper[0]] == group[upper[1]]) & (rng.random(upper.shape[1]) < 0.8)
    features = (np.eye(6)[group] + rng.normal(0, 0.2, (60, 6))).astype(np.float32)
    return Graph.from_edges(upper[:, linked], features, name="groups")


@pytest.fixture(scope="module")
def run(planted):
    return fit_links(planted, "gcn", settings={**QUICK, "dropout": 0.0, "decoder": "mlp"}, seed=1)


def test_planted_links_are_found(planted, run):
    judged = judge(run, planted)
    assert judged.scores["auc"] > 0.9
    assert run.best["val_auc"] == max(epoch["val_auc"] for epoch in run.history)
    assert len(run.history) == 40
    assert judge_heuristics(planted, [judged])["common-neighbours"]["auc"]["mean"] > 0.9


@pytest.mark.parametrize("decoder", ["dot", "cosine", "bilinear", "mlp"])
def test_every_decoder_learns(planted, decoder):
    settings = {**QUICK, "dropout": 0.0, "decoder": decoder}
    losses = [epoch["train_loss"] for epoch in fit_links(planted, "gcn", settings=settings).history]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:3])


def test_a_name_that_an_encoder_has_too_is_the_setting_of_links(tmp_path):
    setup = make_link_setup("deepwalk", settings={"negatives": "two-hops"})
    assert (setup.links.negatives, setup.model.negatives) == ("two-hops", 5)
    assert make_link_setup("deepwalk", settings=setup.values) == setup


def test_every_model_is_an_encoder(planted, everything):
    for name in LINK_MODELS if everything else ("nfc-gcn-2d", "mlp", "sage-mean", "jknet", "chebnet", "eigenmaps"):
        config = {"epochs": 1, "channels": 4}
        made = make_link_setup(name, graph=planted, settings=config).build(planted, 0)
        with torch.no_grad():
            assert made.eval()(planted.x, planted.edge_index).shape == (60, 4), name


def test_vgae_is_kept_near_the_normal_and_judged_by_its_means(planted):
    setup = make_link_setup("vgae", settings={"epochs": 3, "channels": 4})
    run = fit(planted, setup, seed=0)
    with torch.no_grad():
        h = run.model.encoder(planted.x, planted.edge_index)
        assert torch.equal(encode(run.model, planted), h[:, :4])
        run.model.train()(planted.x, planted.edge_index)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Normal(h[:, :4], h[:, 4:].exp()), torch.distributions.Normal(0, 1)
    )
    torch.testing.assert_close(run.model.divergence, expected.sum(1).mean())
    run.model.eval()


def test_patience_ends_training_and_the_best_state_is_kept(planted):
    setup = make_link_setup("gcn", settings={**QUICK, "patience": 3, "learning_rate": 0.5})
    run = fit(planted, setup, seed=0)
    assert len(run.history) == run.best["epoch"] + 3 < 40
    shorter = fit(planted, replace(setup, links=replace(setup.links, epochs=run.best["epoch"])), seed=0)
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, shorter.model.state_dict()[name]), name


def test_ctrl_c_keeps_the_best_so_far(planted):
    def interrupt(epoch):
        if epoch["epoch"] == 3:
            raise KeyboardInterrupt

    run = fit(planted, make_link_setup("gcn", settings=QUICK), on_epoch=interrupt)
    assert run.interrupted
    assert len(run.history) == 3

    def at_once(seed, epoch):
        if seed == 1:
            interrupt(epoch)

    judged = repeat(planted, make_link_setup("gcn", settings={**QUICK, "epochs": 4}), [0, 1, 2], on_epoch=at_once)
    assert [j.run.seed for j in judged] == [0, 1]


def test_seeds_differ_and_repeat(planted):
    setup = make_link_setup("gcn", settings={**QUICK, "epochs": 2})
    first, second = repeat(planted, setup, [3, 4])
    (again,) = repeat(planted, setup, [3])
    assert (first.edge_scores == again.edge_scores).all()
    assert (first.others == again.others).all()
    assert (first.run.split.test != second.run.split.test).any()


def test_a_loss_that_is_not_finite(planted):
    wild = replace(planted, features=planted.features * np.float32(1e30))
    with pytest.raises(NFCError, match="training diverged in epoch 1 with seed 0: the loss is not finite; lower"):
        fit_links(wild, "gae", settings={"epochs": 2, "feature_scale": "given"})


def test_graphs_and_settings_that_are_refused(planted):
    bare = with_edges(planted, np.zeros((2, 0), np.int64))
    with pytest.raises(GraphError, match="the split 'random' has no train edge"):
        fit_links(bare, "gcn")
    with pytest.raises(ConfigError, match="unknown model 'gcnn'; did you mean"):
        fit_links(planted, "gcnn")
    with pytest.raises(ConfigError, match=r"`hide` is 0\.0 in model 'gae'; choose another --model instead"):
        fit_links(planted, "gae", settings={"hide": 0.5})
    with pytest.raises(ConfigError, match="unknown setting 'hid'"):
        fit_links(planted, "gcn", settings={"hid": 0.5})
    with pytest.raises(GraphError, match="has no features"):
        fit_links(replace(planted, features=np.zeros((60, 0), np.float32)), "gcn")


def test_presets_are_settings():
    for model in LINK_MODELS:
        for dataset in preset_tables(model):
            assert make_link_setup(model, dataset=dataset).preset in (dataset, "any")


def test_a_known_edge_is_not_read_while_it_is_scored(planted, run):
    known = pairs_of(planted)
    asked = known[:, [4, 9]]
    expected = predict_pairs(run.model, planted, asked, read=np.delete(known, [4, 9], axis=1))
    assert (predict_pairs(run.model, planted, asked[::-1]) == expected).all()
    assert (expected != predict_pairs(run.model, planted, asked, read=known)).any()
    scores = score_pairs(run.model, encode(run.model, planted, np.delete(known, [4, 9], axis=1)), asked)
    np.testing.assert_allclose(expected, 1 / (1 + np.exp(-scores)), rtol=1e-12)
    assert probabilities(np.array([-1e4, 0.0, 1e4])).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("room", [7, 100, 2**22])
def test_suggestions_are_what_brute_force_finds(planted, run, monkeypatch, room):
    monkeypatch.setattr(prediction, "SCORES_AT_ONCE", room)
    vectors = encode(run.model, planted)
    upper = np.stack(np.triu_indices(60, 1)).astype(np.int64)
    scores = np.full((60, 60), -np.inf)
    scores[upper[0], upper[1]] = scores[upper[1], upper[0]] = score_pairs(run.model, vectors, upper)
    scores[planted.adjacency.nonzero()] = -np.inf
    nodes = np.array([5, 0, 59, 30])
    blocks = list(suggest_links(run.model, vectors, planted, nodes, top=3))
    assert np.concatenate([b.nodes for b in blocks]).tolist() == np.repeat(nodes, 3).tolist()
    assert np.concatenate([b.ranks for b in blocks]).tolist() == [1, 2, 3] * 4
    others = np.concatenate([b.others for b in blocks]).reshape(4, 3)
    expected = np.argsort(-scores[nodes], axis=1, kind="stable")[:, :3]
    assert others.tolist() == expected.tolist()
    found = np.concatenate([b.probabilities for b in blocks]).reshape(4, 3)
    assert (found == probabilities(np.take_along_axis(scores[nodes], expected, axis=1))).all()


def test_a_node_that_knows_almost_everybody_gets_few_suggestions(run):
    star = Graph.from_edges([[0] * 4, [1, 2, 3, 4]], np.eye(6, dtype=np.float32))
    (block,) = suggest_links(run.model, encode(run.model, star), star, np.array([0, 1]), top=9)
    assert block.nodes.tolist() == [0, 1, 1, 1, 1]
    assert sorted(block.others[1:].tolist()) == [2, 3, 4, 5]


def test_equal_scores_are_sorted_by_number():
    scores = np.array([[1.0, 1.0, 2.0, 1.0, 1.0]], np.float32)
    _, numbers = prediction.highest(scores, np.arange(5)[None], 3)
    assert numbers.tolist() == [[2, 0, 1]]


def test_the_estimator_keeps_scikit_learns_contract(planted):
    predictor = nfcgcn.LinkPredictor("gcn", settings={**QUICK, "dropout": 0.0}, random_state=1, device="cpu")
    assert clone(predictor).get_params() == predictor.get_params()
    fitted = clone(predictor).fit(planted)
    pairs = np.concatenate([pairs_of(planted)[:, :20].T, [[0, 59], [1, 58], [2, 57]]])
    chances = fitted.predict_proba(pairs)
    np.testing.assert_allclose(chances.sum(1), 1)
    assert (fitted.predict(pairs) == (chances[:, 1] > 0.5)).all()
    assert fitted.score(pairs, np.repeat([1, 0], [20, 3])) > 0.8
    others, sure = fitted.suggest(0, top=4)
    assert len(others) == 4
    assert (np.diff(sure) <= 0).all()
    assert (clone(predictor).fit(planted).predict_proba(pairs) == chances).all()


def test_names_stand_for_nodes(planted):
    named = replace(planted, node_names=tuple(f"n{i}" for i in range(60)))
    fitted = nfcgcn.LinkPredictor("gcn", settings={**QUICK, "epochs": 1}, random_state=1).fit(named)
    assert (fitted.predict_proba([["n3", "n50"]]) == fitted.predict_proba([[3, 50]])).all()
    assert (fitted.suggest("n7")[0] == fitted.suggest(7)[0]).all()
    for bad, message in [
        ([["n3", "x"]], "'x' is not a node of 'groups'"),
        ([[0, 60]], "pair 0 names node 60, but 'groups' has 60 nodes"),
        ([[4, 4]], "pair 0 joins node 4 to itself"),
        ([0, 1], "X must have one row per pair and two columns"),
    ]:
        with pytest.raises(GraphError, match=message):
            fitted.predict_proba(bad)
    with pytest.raises(GraphError, match="node 60 is outside 0 to 59"):
        fitted.suggest(60)


def test_vectors_from_edges_alone_are_read_from_the_same_edges(planted):
    settings = {"epochs": 2, "channels": 4, "hidden_channels": 8, "hide": 0.3}
    fitted = nfcgcn.LinkPredictor("netmf", settings=settings, random_state=0).fit(planted)
    run = fitted.run_
    assert run.read.shape[1] == run.split.train.shape[1] - round(0.3 * run.split.train.shape[1])
    assert np.isfinite(fitted.predict_proba([[0, 1]])).all()
    assert not math.isnan(judge(run, planted).scores["auc"])
    assert MODELS["netmf"].model.reads_features is False


@pytest.mark.parametrize("decoder", ["dot", "cosine", "bilinear", "mlp"])
def test_results_that_overflow_are_refused(planted, decoder):
    """The vectors of all are finite; their products are not."""
    model = make_link_setup("gcn", graph=planted, settings={**QUICK, "decoder": decoder}).build(planted, 0)
    vectors = encode(model, planted)
    with torch.no_grad():
        for weight in (*model.decoder.parameters(), vectors):
            weight.fill_(3e38)
    message = r"^the scores of some pairs are not finite: the weights or the features are too large to compute with; "
    with pytest.raises(GraphError, match=message):
        list(suggest_links(model, vectors, planted, np.arange(2), top=3))
    with torch.no_grad():
        for weight in model.encoder.parameters():
            weight.fill_(3e38)
    with pytest.raises(GraphError, match=r"^the (vectors of some nodes of 'groups'|scores of some pairs) are not"):
        predict_pairs(model, planted, [[0], [1]])
