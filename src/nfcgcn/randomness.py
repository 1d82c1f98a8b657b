"""One integer seed a run, and an independent generator for each of its stages.

A stage's generator depends on the seed and the stage's name alone, so that training longer never changes the split or
the neighbours. Nothing here touches the global generators of NumPy or torch for good.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch

Stage = Literal["data", "split", "neighbours", "weights", "training", "picture", "draws", "tuning"]


def _sequence(seed: int, stage: Stage) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(stage.encode())])


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
