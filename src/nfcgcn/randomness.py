"""One integer seed per run, and an independent generator for each of its stages.

A stage's generator depends on the seed and the stage's name alone, so that training longer never changes the split or
the neighbours. What is drawn for a node is a hash of (seed, node), so that other nodes coming or going never change it.
Nothing here touches the global generators of NumPy or torch for good.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Stage = Literal["data", "split", "neighbours", "weights", "training", "picture", "draws", "tuning"]


def _sequence(seed: int, stage: Stage, *more: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(stage.encode()), *more])


def hash_seed(seed: int, stage: Stage, *more: int) -> int:
    """Return the seed, of 62 bits, that one stage of a run gives :func:`hashed`; `more` tells repetitions apart."""
    return int(_sequence(seed, stage, *more).generate_state(1, np.uint64)[0] >> 2)


def hashed(seed: int, row: Tensor, place: Tensor) -> Tensor:
    """Return a 32-bit number for each (row, place), the same on every device and in any order.

    splitmix64 of seed and row gives a key per row, murmur3's finaliser of key and place a number per place (both in the
    public domain). Products wrap at 64 bits; 32-bit ones are cut from them.
    """
    z = (row + 1) * -0x61C8864680B583EB + seed  # 0x9E3779B97F4A7C15, as int64 writes it
    z = (z ^ (z >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
    h = ((z ^ (z >> 31 & 0x1FFFFFFFF)) + place * 0x9E3779B9) & 0xFFFFFFFF
    h = (h ^ (h >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ (h >> 16)


def generator(seed: int, stage: Stage) -> np.random.Generator:
    """Return the NumPy generator of one stage of the run with this seed."""
    return np.random.default_rng(_sequence(seed, stage))


@contextmanager
def torch_randomness(seed: int, stage: Stage, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch for one stage inside the block, and give the caller's random state back after it.

    Layers, ours and PyTorch Geometric's alike, draw weights and dropout masks from torch's global generator; forking it
    is the one way to make both repeatable without changing what the caller draws next.
    """
    device = torch.device(device)
    forked = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=forked):
        torch.manual_seed(int(_sequence(seed, stage).generate_state(1, np.uint64)[0] >> 1))
        yield
