"""What a search was worth: the settings found, and those before, on test nodes that the search has not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from nfcgcn.config.registry import Config
from nfcgcn.data.splits import RANDOM
from nfcgcn.evaluation import paired, repeat
from nfcgcn.graph import Graph
from nfcgcn.search.tuning import Tuned, seed_splits
from nfcgcn.training import Epoch

Array = npt.NDArray[Any]


class Difference(NamedTuple):
    """A mean difference of accuracies and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Worth:
    """Test accuracies of the settings found and of the starting settings, by seed."""

    found: Mapping[int, float]
    before: Mapping[int, float]
    node_error: float
    """The standard error of the mean difference that comes from the choice of test nodes."""

    @property
    def difference(self) -> Difference | None:
        """The mean gain; its interval allows for other seeds and for other test nodes. None for a single seed."""
        over_seeds = paired(self.found, self.before)
        if over_seeds is None:
            return None
        reach = math.hypot(over_seeds.high - over_seeds.mean, 1.96 * self.node_error)
        return Difference(over_seeds.mean, over_seeds.mean - reach, over_seeds.mean + reach)


def score_on_test(
    graph: Graph,
    tuned: Tuned,
    *,
    count: int,
    device: torch.device | str = "cpu",
    jobs: int = 1,
    on_epoch: Callable[[int, Epoch], None] | None = None,
) -> Worth:
    """Score the settings found, and those the search started with, once on the test nodes of the search's split.

    Both train with the same `count` seeds, which the search has not used; these draw nodes as in :func:`tune` if the
    rule of the split does, and share a published split.
    The labels of the test nodes were not read by the search; a split of another seed would mix these nodes with its
    validation nodes.
    """
    seeds = range(max(tuned.seeds) + 1, max(tuned.seeds) + 1 + count)
    first = tuned.config.split.make(graph, tuned.seeds[0])
    splits = dict.fromkeys(seeds, first)  # a published split is scored as published
    if tuned.config.split.split in RANDOM:
        splits = seed_splits(graph, tuned.config, first, [tuned.seeds[0], *seeds])

    def score(config: Config) -> tuple[dict[int, float], Array]:
        """Return the accuracy of each seed, and the share of seeds with which each test node is right."""
        chosen = [splits[seed] for seed in seeds]
        repeats = repeat(graph, config, seeds, splits=chosen, device=device, jobs=jobs, on_epoch=on_epoch)
        if len(repeats) < count or any(r.run.interrupted for r in repeats):
            raise KeyboardInterrupt
        hits = np.mean([r.predictions[first.test] == graph.labels[first.test] for r in repeats], axis=0)
        return {r.seed: r.test_accuracy for r in repeats}, hits

    accuracies, hits = score(tuned.config)
    if tuned.config == tuned.default:
        return Worth(accuracies, accuracies, 0.0)
    if tuned.start and tuned.start.state == "failed":
        return Worth(accuracies, {}, 0.0)
    before, hits_before = score(tuned.default)
    return Worth(accuracies, before, float(np.std(hits - hits_before) / len(hits) ** 0.5))
