"""Scores against scikit-learn and by hand; decoders and heuristics against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from nfcgcn.links.decoders import make_decoder
from nfcgcn.links.heuristics import HEURISTICS, score_by_neighbours
from nfcgcn.links.scores import auc, average_precision, hits_at, mean_reciprocal_rank, measure


@pytest.mark.parametrize("levels", [3, 50, None], ids=["many ties", "some ties", "no ties"])
def test_auc_and_ap_are_those_of_scikit_learn(levels):
    rng = np.random.default_rng(0)
    edges, others = rng.normal(0.7, 1, 120), rng.normal(0, 1, 90)
    if levels:
        edges, others = (np.round(part * levels / 5) for part in (edges, others))
    labels, scores = np.repeat([1, 0], [120, 90]), np.concatenate([edges, others])
    assert auc(edges, others) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert average_precision(edges, others) == pytest.approx(average_precision_score(labels, scores), abs=1e-12)


def test_hits_and_mrr_by_hand():
    edges, others = np.array([5.0, 3.0, 1.0, 3.0]), np.array([4.0, 3.0, 2.0, 0.0])
    assert hits_at(1, edges, others) == 0.25  # 5 alone is above 4
    assert hits_at(2, edges, others) == 0.25  # 3 is not above 3
    assert hits_at(3, edges, others) == 0.75
    assert hits_at(5, edges, others) is None
    assert mean_reciprocal_rank(edges, others) == pytest.approx(np.mean([1, 1 / 2.5, 1 / 4, 1 / 2.5]))
    assert list(measure(edges, others)) == ["auc", "ap", "hits@20", "hits@50", "hits@100", "mrr"]


def test_heuristics_by_hand():
    """Nodes 0 and 1 share node 2, which has three neighbours, and node 3, which has two."""
    read = np.array([[0, 1, 0, 1, 2], [2, 2, 3, 3, 4]])
    pairs = np.array([[0, 0], [1, 4]])
    expected = {
        "common-neighbours": [2, 1],
        "adamic-adar": [1 / np.log(3) + 1 / np.log(2), 1 / np.log(3)],
        "resource-allocation": [1 / 3 + 1 / 2, 1 / 3],
    }
    assert list(expected) == list(HEURISTICS)
    for name, scores in expected.items():
        np.testing.assert_allclose(score_by_neighbours(name, read, 5, pairs), scores)


@pytest.mark.parametrize("name", ["dot", "cosine", "bilinear", "mlp"])
def test_decoders_score_pairs_and_grids_alike(name):
    torch.manual_seed(0)
    decoder = make_decoder(name, 5, hidden_channels=4, rate=0.5).eval()
    h = decoder.prepare(torch.randn(7, 5))
    first, second = torch.meshgrid(torch.arange(3), torch.arange(7), indexing="ij")
    pairs = torch.stack([first.flatten(), second.flatten()])
    with torch.no_grad():
        scores = decoder.score(h, pairs)
        torch.testing.assert_close(decoder.grid(h[:3], h).flatten(), scores)
        torch.testing.assert_close(decoder.score(h, pairs.flip(0)), scores)


def test_decoders_are_their_formulas():
    torch.manual_seed(0)
    h, pair = torch.randn(2, 5), torch.tensor([[0], [1]])
    u, v = h
    dot, cosine, bilinear, mlp = (
        make_decoder(name, 5, hidden_channels=4, rate=0.0) for name in ("dot", "cosine", "bilinear", "mlp")
    )
    torch.testing.assert_close(dot.score(dot.prepare(h), pair), (u @ v)[None])
    angle = torch.cosine_similarity(u, v, dim=0)
    torch.testing.assert_close(cosine.score(cosine.prepare(h), pair), angle * cosine.scale + cosine.shift)
    expected = u @ (bilinear.weight + bilinear.weight.T) @ v / 2
    torch.testing.assert_close(bilinear.score(h, pair), expected + bilinear.shift)
    hidden = torch.relu(mlp.hidden.weight @ (u * v) + mlp.hidden.bias)
    torch.testing.assert_close(mlp.score(h, pair), mlp.output.weight @ hidden + mlp.output.bias)
