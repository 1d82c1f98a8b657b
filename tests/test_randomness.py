from itertools import combinations
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from nfcgcn.randomness import Stage, generator, hash_seed, hashed, torch_randomness

STAGES = get_args(Stage)


def torch_draw(seed, stage):
    with torch_randomness(seed, stage):
        return torch.rand(8)


@pytest.mark.parametrize("stage", STAGES)
def test_same_seed_and_stage_same_numbers(stage):
    np.testing.assert_array_equal(generator(3, stage).random(8), generator(3, stage).random(8))
    assert torch.equal(torch_draw(3, stage), torch_draw(3, stage))


@pytest.mark.parametrize(("a", "b"), list(combinations(STAGES, 2)), ids=lambda stage: stage)
def test_stages_draw_different_numbers(a, b):
    assert not np.array_equal(generator(3, a).random(8), generator(3, b).random(8))
    assert not torch.equal(torch_draw(3, a), torch_draw(3, b))


def test_seeds_draw_different_numbers():
    draws = {generator(seed, "split").random() for seed in range(100)}
    torch_draws = {float(torch_draw(seed, "weights")[0]) for seed in range(100)}
    assert len(draws) == len(torch_draws) == 100


def test_a_stage_does_not_depend_on_what_others_drew():
    expected = generator(0, "neighbours").random(4)
    generator(0, "split").random(1000)
    np.testing.assert_array_equal(generator(0, "neighbours").random(4), expected)


def test_stages_are_uncorrelated():
    a, b = generator(0, "split").random(20_000), generator(0, "weights").random(20_000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03


def test_global_generators_are_left_as_they_were():
    numpy_before, torch_before = np.random.get_state(), torch.get_rng_state()
    generator(0, "data").random(10)
    torch_draw(0, "training")
    assert torch.equal(torch.get_rng_state(), torch_before)
    for before, after in zip(numpy_before, np.random.get_state(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_torch_state_comes_back_after_an_exception():
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError), torch_randomness(0, "training"):
        torch.rand(5) @ torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)


def test_hash_seeds_tell_seeds_stages_and_repetitions_apart():
    found = [
        hash_seed(3, "neighbours"),
        hash_seed(4, "neighbours"),
        hash_seed(3, "draws"),
        hash_seed(3, "neighbours", 1),
    ]
    assert len(set(found)) == 4
    assert all(0 <= seed < 2**62 for seed in found)
    assert hash_seed(3, "neighbours", 1) == found[3]


def splitmix_and_murmur(seed, row, place):
    """The same in whole numbers of any length."""
    z = ((row + 1) * 0x9E3779B97F4A7C15 + seed) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    h = ((z ^ z >> 31) + place * 0x9E3779B9) % 2**32
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return h ^ h >> 16


def test_a_hash_is_what_its_formula_says():
    seed = hash_seed(0, "training")
    rows, places = torch.arange(50)[:, None], torch.tensor([0, 1, 7, 2**20])
    expected = [[splitmix_and_murmur(seed, row, place) for place in places.tolist()] for row in range(50)]
    assert hashed(seed, rows, places).tolist() == expected


def test_hashes_are_even_over_rows_places_and_seeds():
    numbers = {
        "rows": hashed(1, torch.arange(40_000), torch.tensor(0)),
        "places": hashed(1, torch.tensor(0), torch.arange(40_000)),
        "seeds": torch.stack([hashed(seed, torch.tensor(5), torch.tensor(5)) for seed in range(4_000)]),
    }
    for along, found in numbers.items():
        for shift in (0, 28):  # the lowest and the highest four bits
            assert chisquare(np.bincount(found >> shift & 15, minlength=16)).pvalue > 0.001, along
