"""Choose settings for a graph on its validation nodes, before the runs that are reported.

All candidates, the suggested settings first, train on the split of the first seed. The two best then train on further
draws of training and validation nodes from the same nodes, and the better mean wins. Runs stop soon after their best
epoch. All of it together takes as long as three plain runs at most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from nfcgcn.config.candidates import Candidate, Outcome, Trial, candidates, compared_by, work_per_epoch
from nfcgcn.config.registry import SELECTED, Config
from nfcgcn.data.splits import RANDOM, redraw
from nfcgcn.errors import ConfigError, counted
from nfcgcn.graph import Graph, Split
from nfcgcn.randomness import generator
from nfcgcn.settings import one_line
from nfcgcn.training import DivergedError, Epoch, fit

COST = 3.0
"""All candidates together, the suggested settings included, take at most so many times as long as these alone."""
DRAWS, FINALISTS = 3, 2
"""On so many draws of training and validation nodes candidates are compared, after the first draw only the best."""
PATIENCE = 20
"""A run ends after so many epochs without a better one; none is begun for which fewer would be left."""
TOO_FEW = 10
"""With fewer validation nodes nothing is tried: one node would make a difference of over ten points."""
FEW_NODES, FEW_LABELS = 50, 10
"""With fewer validation nodes, or fewer training labels per class, a choice is hardly more than chance."""


@dataclass(frozen=True)
class Selection:
    """The settings that did best on validation nodes, and everything that was tried."""

    config: Config
    candidates: tuple[Candidate, ...]
    seed: int
    num_val: int
    reason: str
    caution: str
    """What so many validation nodes and labels can tell, and what not."""
    cost: float
    """How many times the work of one run with the suggested settings it took."""
    seconds: float

    @property
    def chosen(self) -> Candidate:
        """The candidate whose settings were chosen."""
        return next(c for c in self.candidates if c.outcome == "chosen")

    def describe(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "by": compared_by(self.config),
            "seed": self.seed,
            "validation_nodes": self.num_val,
            "reason": self.reason,
            "caution": self.caution,
            "cost": self.cost,
            "seconds": self.seconds,
            "candidates": [c.describe() for c in self.candidates],
        }


def select(
    graph: Graph,
    config: Config,
    *,
    seed: int = 0,
    split: Split | None = None,
    held: Collection[str] = (),
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, Epoch], None] | None = None,
) -> Selection:
    """Choose settings for `graph` by their accuracy on validation nodes, starting from those of `config`.

    Of each run the highest accuracy counts (or the best value of another score, if ``monitor`` names one), less a tenth
    of its lowest loss; the best two candidates are compared on up to three draws of training and validation nodes.
    Nodes are split, and models made, as a run with this `seed` does; the labels of test nodes are never read. Settings
    in ``held`` keep their values.
    Takes at most the work of three runs with `config`. ``on_epoch`` is called with the number of the candidate and its
    epoch.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("digits")
    >>> config = nfcgcn.make_config("gcn", graph=graph, settings={"epochs": 2})
    >>> nfcgcn.select(graph, config).config.preset
    'selected'
    """
    split = config.split.make(graph, seed) if split is None else split
    split.check(graph)
    start = time.perf_counter()
    tried = [Candidate(config, {}, "suggested for this graph"), *candidates(graph, config, held)]
    cost = 0.0
    if len(split.val) >= TOO_FEW and len(tried) > 1:
        race = _Race(graph, replace(split, test=np.zeros(0, np.int64)), config, seed, device, on_epoch)
        tried, cost = race.hold(tried)
    best = _best(tried, len(split.val))
    tried[best] = replace(tried[best], outcome="chosen")
    return Selection(
        config=replace(tried[best].config, preset=SELECTED),
        candidates=tuple(tried),
        seed=seed,
        num_val=len(split.val),
        reason=_reason(tried, best, len(split.val)),
        caution=_caution(graph, split, tried[0]),
        cost=cost,
        seconds=time.perf_counter() - start,
    )


class _OutOfBudgetError(Exception):
    """No work is left for further epochs."""


@dataclass(frozen=True)
class _Race:
    """What all candidates share."""

    graph: Graph
    split: Split
    config: Config
    seed: int
    device: torch.device | str
    on_epoch: Callable[[int, Epoch], None] | None

    def hold(self, tried: list[Candidate]) -> tuple[list[Candidate], float]:
        """Train all candidates on the first draw, the best of them on further ones, while the budget lasts.

        Return them, and how many times the work of a plain run that was.
        """
        tried[0] = self._run(0, tried[0], 0, math.inf)
        plain = self._plain_work(tried[0].trials[0])
        left = COST * plain - tried[0].trials[0].work
        numbers = list(range(1, len(tried)))
        for draw in range(DRAWS):
            after = list(tried)
            for number in numbers:
                after[number] = self._run(number, tried[number], draw, left)
                left -= sum(t.work for t in after[number].trials[draw:])
            if draw and not all(len(after[n].trials) > draw and after[n].trials[draw].whole for n in numbers):
                break  # candidates are compared on the same draws
            tried = after
            if not draw:
                numbers = self._finalists(tried)
        return tried, COST - left / plain

    def _finalists(self, tried: Sequence[Candidate]) -> list[int]:
        """Return the best after the first draw; with very few nodes, the suggested settings are always among them."""
        ranked = sorted(range(len(tried)), key=lambda number: -tried[number].score)
        if len(self.split.val) < FEW_NODES:
            return sorted({0, ranked[0] or ranked[1]})
        return sorted(ranked[:FINALISTS])

    def _plain_work(self, trial: Trial) -> float:
        """Return the work of a whole run with the suggested settings, which waits longer for a better epoch."""
        training = self.config.training
        patience = math.inf if training.patience is None else training.patience
        epochs = max(len(trial.history), min(training.epochs, trial.best["epoch"] + patience))
        return epochs * work_per_epoch(self.config)

    def _run(self, number: int, candidate: Candidate, draw: int, most: float) -> Candidate:
        """Train a candidate on one of the draws; unchanged if the budget does not allow a run."""
        config, history = candidate.config, list[Epoch]()
        each = work_per_epoch(config)
        if most < PATIENCE * each:
            return candidate

        def watch(epoch: Epoch) -> None:
            history.append(epoch)
            if self.on_epoch:
                self.on_epoch(number, epoch)
            if (len(history) + 1) * each > most:
                raise _OutOfBudgetError

        patience = min(PATIENCE, config.training.patience or PATIENCE)
        note, whole, split, seed = "", True, self._draw(draw), self.seed + draw
        try:
            model, training = config.build(self.graph, seed), replace(config.training, patience=patience)
            run = fit(model, self.graph, split, training, seed=seed, device=self.device, on_epoch=watch)
            if run.interrupted:
                raise KeyboardInterrupt
        except _OutOfBudgetError:
            whole = False
        except (DivergedError, ConfigError, MemoryError, torch.OutOfMemoryError) as error:
            if not number and not draw:  # the settings that the user asked for
                raise
            note = one_line(error) or type(error).__name__
        outcome: Outcome = "failed" if note else "not better"
        return replace(candidate, trials=(*candidate.trials, Trial(config, history, note, whole)), outcome=outcome)

    def _draw(self, number: int) -> Split:
        """Return the split, or another draw of training and validation nodes from it, where the rule draws them."""
        if not number or self.config.split.split not in RANDOM:
            return self.split
        return redraw(self.graph, self.split, generator(self.seed + number, "split"))


def standard_error(share: float, count: int) -> float:
    """Return the standard error of a share of `count` nodes; one right and one wrong node more keep it above 0."""
    share = (share * count + 1) / (count + 2)
    return math.sqrt(share * (1 - share) / count)


def _best(tried: Sequence[Candidate], num_val: int) -> int:
    """Return the number of the best of those that ran on most draws; with very few nodes, a small gain is none."""
    most = max(len(c.trials) for c in tried)
    best = max((n for n, c in enumerate(tried) if len(c.trials) == most), key=lambda n: tried[n].score)
    first = tried[0]
    if num_val < FEW_NODES and first.accuracy is not None:
        return best if tried[best].score - first.score > standard_error(first.accuracy, num_val) else 0
    return best


def _reason(tried: Sequence[Candidate], best: int, num_val: int) -> str:
    if not tried[0].trials:
        chance = f"with {counted(num_val, 'validation node')} a choice would be chance"
        why = "all others were given" if num_val >= TOO_FEW else chance
        return f"the suggested settings, without a choice: {why}"
    chosen, start = (_result(c) for c in (tried[best], tried[0]))
    if best == 0:
        others = (
            "the other candidate did no better" if len(tried) == 2 else f"none of {len(tried) - 1} others did better"
        )
        return f"the suggested settings: {chosen} on validation nodes, and {others}"
    changes = ", ".join(f"{name} {value}" for name, value in tried[best].changes.items())
    return f"{changes}: {chosen} on validation nodes, with the suggested settings {start}"


def _result(candidate: Candidate) -> str:
    """Return what a candidate reached, as the score by which candidates are compared."""
    if candidate.accuracy is None:
        return "none"
    by = compared_by(candidate.config)
    value = f"{100 * candidate.accuracy:.1f} %" if by == "accuracy" else f"{by} {candidate.figure:.3f}"
    return f"{value} ({len(candidate.trials)} draw{'s' * (len(candidate.trials) > 1)})"


def _caution(graph: Graph, split: Split, first: Candidate) -> str:
    if first.accuracy is None:
        return ""
    count = len(split.val)
    points = 100 * standard_error(first.accuracy, count)
    text = f"with {count:,} validation nodes, differences below {points:.1f} points are often chance"
    if count < FEW_NODES:
        return f"{text}; the suggested settings are replaced only for a larger gain"
    labels = np.bincount(graph.labels[split.train])
    fewest = int(labels[labels > 0].min())
    if fewest < FEW_LABELS:
        return f"{text}; with {fewest} training labels in the rarest class, other labels could lead to another choice"
    return text
