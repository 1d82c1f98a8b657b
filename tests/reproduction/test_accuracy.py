"""A small version of the paper's main result: one seed and few epochs come close enough to show that it works."""

import pytest

from nfcgcn import load, make_config, repeat


@pytest.mark.data
def test_cora_in_sixty_epochs(planetoid_dir):
    graph = load("cora", data_dir=planetoid_dir)
    config = make_config("nfc-gcn", dataset="cora", preset="paper", settings={"epochs": 60})
    (result,) = repeat(graph, config, [0])
    assert (len(result.split.train), len(result.split.val), len(result.split.test)) == (1208, 500, 1000)
    assert result.test_accuracy >= 0.85


def test_digits():
    graph = load("digits")
    (result,) = repeat(graph, make_config("nfc-gcn", dataset="digits", settings={"epochs": 100}), [0])
    assert result.test_accuracy >= 0.95
