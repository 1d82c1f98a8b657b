"""Choose settings for a graph on its validation nodes, before the runs that are reported.

All candidates, the suggested settings first, train on the split of the first seed. The two best then train on further
draws of training and validation nodes from the same nodes, and the better mean wins. Runs stop soon after their best
epoch. All of it together takes as long as three plain runs at most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch

from nfcgcn.config.registry import MODELS, SELECTED, Config
from nfcgcn.config.suggestions import window
from nfcgcn.data.splits import RANDOM, redraw
from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph, Split
from nfcgcn.method.model import NFCGCN
from nfcgcn.randomness import generator
from nfcgcn.settings import one_line
from nfcgcn.training import DivergedError, Epoch, fit

COST = 3.0
"""All candidates together, the suggested settings included, take at most so many times as long as these alone."""
DRAWS, FINALISTS = 3, 2
"""On so many draws of training and validation nodes candidates are compared, after the first draw only the best."""
PATIENCE = 20
"""A run ends after so many epochs without a better one; none is begun for which fewer would be left."""
FINE = 8
"""The size of small windows."""
TOO_FEW = 10
"""With fewer validation nodes nothing is tried: one node would make a difference of over ten points."""
FEW_NODES, FEW_LABELS = 50, 10
"""With fewer validation nodes, or fewer training labels per class, a choice is hardly more than chance."""
Outcome = Literal["chosen", "not better", "failed", "not tried"]


@dataclass(frozen=True)
class Trial:
    """One run of a candidate."""

    config: Config
    history: Sequence[Epoch]
    note: str = ""
    """Why it failed, if it did."""
    whole: bool = True
    """Whether it ended by itself, and not with the budget."""

    @property
    def work(self) -> float:
        """The work of all its epochs."""
        return len(self.history) * _work_per_epoch(self.config)

    @property
    def best(self) -> Epoch:
        """The best epoch, by the rule that training follows."""
        return max(self.history, key=self.config.training.stopping.merit)

    @property
    def score(self) -> float:
        """The best validation figure of any epoch, less a thousandth of the lowest loss, to tell equals apart.

        The figure is the score by which training chooses its best epoch; accuracy, where that is the loss.
        """
        # On four to six splits of five graphs, what this chose on one split did better on the others than what the
        # accuracy of the best epoch by loss chose, by 0.0 to 0.4 points.
        if self.note or not self.history:
            return -math.inf
        highest = max(_figure(self.config, e) for e in self.history)
        return highest - 1e-3 * min(e["val_loss"] for e in self.history)


@dataclass(frozen=True)
class Candidate:
    """Settings that differ from the suggested ones, why they may do better, and what became of them."""

    config: Config
    changes: Mapping[str, Any]
    reason: str
    trials: tuple[Trial, ...] = ()
    outcome: Outcome = "not tried"
    """The budget may end before all are tried."""

    @property
    def score(self) -> float:
        """The mean score of its runs."""
        return float(np.mean([t.score for t in self.trials])) if self.trials else -math.inf

    @property
    def accuracy(self) -> float | None:
        """The mean over its runs of the highest validation accuracy; None if one failed."""
        if self.score == -math.inf:
            return None
        return float(np.mean([max(e["val_accuracy"] for e in t.history) for t in self.trials]))

    @property
    def figure(self) -> float | None:
        """The mean over its runs of the best value of the figure by which candidates are compared."""
        if self.score == -math.inf:
            return None
        # Where the lowest value is best, training turns its sign.
        return abs(float(np.mean([max(_figure(self.config, e) for e in t.history) for t in self.trials])))

    def describe(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "changes": dict(self.changes),
            "reason": self.reason,
            "outcome": self.outcome,
            "note": next((t.note for t in self.trials if t.note), ""),
            "draws": len(self.trials),
            "epochs": sum(len(t.history) for t in self.trials),
            "val_accuracy": self.accuracy,
            "figure": self.figure,
            "score": None if self.accuracy is None else self.score,
            "scores": None if self.accuracy is None else [t.score for t in self.trials],
        }


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


def compared_by(config: Config) -> str:
    """Return the name of the validation figure by which candidates are compared."""
    monitor = config.training.monitor
    return "accuracy" if monitor == "loss" else monitor


def _figure(config: Config, epoch: Epoch) -> float:
    """Return the validation figure of an epoch by which candidates are compared; the larger, the better."""
    if compared_by(config) == "accuracy":
        return epoch["val_accuracy"]
    return config.training.stopping.merit(epoch)[0]


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

    Of each run the highest accuracy counts (or the best value of another score, if ``monitor`` names one), of equal
    ones the lower loss; the best two candidates are compared on up to three draws of training and validation nodes.
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


def candidates(graph: Graph, config: Config, held: Collection[str] = ()) -> Iterator[Candidate]:
    """List what may do better than the suggested settings; what changes a setting that is held is left out.

    None takes longer per epoch than the suggested settings.
    """
    few = "with few labels, more dropout and decay keep a model from learning them by heart"
    dropout, decay = {"dropout": 0.8, "map_dropout": 0.8}, {"weight_decay": 5e-3}
    options: list[tuple[dict[str, Any], str]] = [(dropout, few), (decay, few), ({**dropout, **decay}, few)]
    if MODELS[config.name].model is NFCGCN:
        kernel_size, stride = window(graph.num_features, FINE, FINE)
        finer = {"kernel_size": kernel_size.value, "stride": stride.value}
        alone = {"bandwidth": 1}
        strong = {**dropout, **finer}
        noise, windows = "drawn neighbours add noise where they are many", "smaller windows tell more features apart"
        as_gcn = {"bandwidth": 1, "kernel_size": 1, "stride": 1, "filters": 1}
        # With 16 splits of Amazon Photo and of Coauthor CS, and one slot, the suggested decay did better on validation
        # nodes than a stronger one, by 0.2 and 0.1 points. As a GCN, Coauthor CS gained 0.2 points over the others on
        # validation nodes of 12 splits; the other graphs gained nothing.
        options = [
            (alone, noise),
            ({**strong, **decay}, f"{few}; {windows}"),
            ({**alone, **strong}, f"{noise}; more dropout keeps a model from learning few labels by heart; {windows}"),
            ({**as_gcn, **dropout}, "one slot, one filter and windows of one feature: a GCN, with more dropout"),
        ]
    for changes, reason in options:
        if changed := _changed(config, changes, held):
            yield Candidate(*changed, reason)


def _changed(config: Config, changes: Mapping[str, Any], held: Collection[str]) -> tuple[Config, dict[str, Any]] | None:
    """Return the settings with `changes`, and what really changes; None if nothing does or may."""
    known = config.values
    real = {name: value for name, value in changes.items() if known.get(name, value) != value}
    if not real or not real.keys().isdisjoint(held):
        return None

    def changed(part: Any) -> Any:
        return replace(part, **{f.name: real[f.name] for f in fields(part) if f.name in real})

    try:
        return replace(config, model=changed(config.model), training=changed(config.training)), real
    except ConfigError:  # settings that exclude each other
        return None


def _work_per_epoch(config: Config) -> float:
    """Return how much work an epoch is; with few slots it is less."""
    # From times of an epoch. By settings, not by a clock, so that every machine tries the same candidates.
    return 4.0 + int(config.values.get("bandwidth", 0))


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
        return epochs * _work_per_epoch(self.config)

    def _run(self, number: int, candidate: Candidate, draw: int, most: float) -> Candidate:
        """Train a candidate on one of the draws; unchanged if the budget does not allow a run."""
        config, history = candidate.config, list[Epoch]()
        each = _work_per_epoch(config)
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
        why = "all others were given" if num_val >= TOO_FEW else f"{num_val} validation nodes are too few to choose by"
        return f"the suggested settings, without a choice: {why}"
    chosen, start = (_result(c) for c in (tried[best], tried[0]))
    if best == 0:
        return f"the suggested settings: {chosen} on validation nodes, and none of {len(tried) - 1} others did better"
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
        return f"{text}; the suggested settings are left for a larger gain only"
    labels = np.bincount(graph.labels[split.train])
    fewest = int(labels[labels > 0].min())
    if fewest < FEW_LABELS:
        return f"{text}; with {fewest} training labels in the rarest class, other labels could lead to another choice"
    return text
