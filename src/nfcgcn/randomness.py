"""One integer seed per run, and an independent generator for each of its stages.

A stage's generator depends only on the seed and the stage's name, so that training longer never changes the split or
the neighbours. A draw for a node is a hash of (seed, node), so that other nodes coming or going never change it.
The global generators of NumPy and torch are never changed for the caller.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Stage = Literal[
    "data",
    "split",
    "neighbours",
    "weights",
    "decoder",
    "training",
    "picture",
    "draws",
    "val-negatives",
    "test-negatives",
    "tuning",
    "batches",
]


def _sequence(seed: int, stage: Stage, *more: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(stage.encode()), *more])


def hash_seed(seed: int, stage: Stage, *more: int) -> int:
    """Return the 62-bit seed that one stage of a run passes to :func:`hashed`; `more` distinguishes repetitions."""
    return int(_sequence(seed, stage, *more).generate_state(1, np.uint64)[0] >> 2)


def hashed(seed: int, row: Tensor, place: Tensor) -> Tensor:
    """Return a 32-bit number for each (row, place), the same on every device and in any order.

    splitmix64 of seed and row gives one key per row; murmur3's finaliser of key and place gives one number per place
    (both are in the public domain). Products wrap at 64 bits; 32-bit products are their lower halves.
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
    """Seed torch for one stage inside the block, then restore the caller's random state.

    Our layers and those of PyTorch Geometric draw weights and dropout masks from torch's global generator. Forking it
    is the only way to make both repeatable without changing what the caller draws next.
    """
    device = torch.device(device)
    forked = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=forked):
        torch.manual_seed(int(_sequence(seed, stage).generate_state(1, np.uint64)[0] >> 1))
        yield
