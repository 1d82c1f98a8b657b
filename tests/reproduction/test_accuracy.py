"""The paper's figure, in small: few epochs and one seed come near enough to show that nothing broke."""

import pytest

from nfcgcn import load, make_config, repeat


@pytest.mark.data
def test_cora_in_sixty_epochs(planetoid_dir):
    graph = load("cora", data_dir=planetoid_dir)
    config = make_config("nfc-gcn", dataset="cora", preset="paper", settings={"epochs": 60})
    (found,) = repeat(graph, config, [0])
    assert (len(found.split.train), len(found.split.val), len(found.split.test)) == (1208, 500, 1000)
    assert found.test_accuracy >= 0.85


def test_digits():
    graph = load("digits")
    (found,) = repeat(graph, make_config("nfc-gcn", dataset="digits", settings={"epochs": 100}), [0])
    assert found.test_accuracy >= 0.95
