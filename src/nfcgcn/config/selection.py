"""Choose settings for a graph on its validation nodes, before the runs that are reported.

The suggested settings train first. Each candidate then changes the best settings so far, trains beside their recorded
course, and is abandoned as soon as it is clearly behind. All of it together takes as long as three plain runs at most.
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
from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph, Split
from nfcgcn.method.model import NFCGCN
from nfcgcn.settings import one_line
from nfcgcn.training import DivergedError, Epoch, Run, fit

COST = 3.0
"""All candidates together, the suggested settings included, take at most so many times as long as these alone."""
PATIENCE = 20
"""A candidate is not compared, and none is begun, with fewer epochs than this."""
NEAR = 5
"""So many epochs before and after the best one count for a candidate's score."""
FINE = 8
"""The size of small windows."""
FEW = "with few labels, more dropout and decay keep a model from learning them by heart"
TOO_FEW = 10
"""With fewer validation nodes nothing is tried: one node would make a difference of over ten points."""
FEW_NODES, FEW_LABELS = 50, 10
"""With fewer validation nodes, or fewer training labels per class, a choice is hardly more than chance."""
Outcome = Literal["chosen", "not better", "abandoned", "failed"]


@dataclass(frozen=True)
class Candidate:
    """Settings that differ from the suggested ones, and why they may do better."""

    changes: Mapping[str, Any]
    reason: str


@dataclass(frozen=True)
class Tried:
    """What became of a candidate."""

    config: Config
    changes: Mapping[str, Any]
    """Its differences from the suggested settings."""
    reason: str
    history: Sequence[Epoch]
    outcome: Outcome = "not better"
    note: str = ""

    @property
    def work(self) -> float:
        """The work of all its epochs; those of maps with few slots are quicker."""
        # From times of an epoch. By settings, not by a clock, so that every machine tries the same candidates.
        return len(self.history) * (4.0 + int(self.config.values.get("bandwidth", 0)))

    @property
    def best(self) -> Epoch | None:
        """The best epoch, by the rule that training follows; None if the first epoch failed."""
        return max(self.history, key=self.config.training.stopping.merit, default=None)

    @property
    def score(self) -> float:
        """What candidates are compared by: accuracy around the best epoch, less a tenth of the lowest loss."""
        # On four to six splits of five graphs, what this chose on one split did better on the others than what the
        # accuracy of the best epoch chose, by 0.0 to 0.4 points: single epochs vary, and the loss tells equals apart.
        best = self.best
        if best is None:
            return -math.inf
        near = [e["val_accuracy"] for e in self.history if abs(e["epoch"] - best["epoch"]) <= NEAR]
        return float(np.median(near)) - 0.1 * min(e["val_loss"] for e in self.history)

    def describe(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        best = self.best
        return {
            "changes": dict(self.changes),
            "reason": self.reason,
            "outcome": self.outcome,
            "note": self.note,
            "epochs": len(self.history),
            "best_epoch": best and best["epoch"],
            "val_accuracy": best and best["val_accuracy"],
            "val_loss": best and best["val_loss"],
            "score": self.score if best else None,
        }


@dataclass(frozen=True)
class Selection:
    """The settings that did best on validation nodes, and everything that was tried."""

    config: Config
    tried: tuple[Tried, ...]
    seed: int
    num_val: int
    reason: str
    caution: str
    """What so many validation nodes and labels can tell, and what not."""
    seconds: float

    @property
    def chosen(self) -> Tried:
        """The candidate whose settings were chosen."""
        return next(t for t in self.tried if t.outcome == "chosen")

    @property
    def cost(self) -> float:
        """How many times the work of one run with the suggested settings it took."""
        return sum(t.work for t in self.tried) / max(1.0, self.tried[0].work)

    def describe(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "seed": self.seed,
            "validation_nodes": self.num_val,
            "reason": self.reason,
            "caution": self.caution,
            "cost": self.cost,
            "seconds": self.seconds,
            "candidates": [t.describe() for t in self.tried],
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
    """Choose settings for `graph` by their score on validation nodes, starting from those of `config`.

    The score is the median accuracy of the epochs around the best one, less a tenth of the lowest loss.

    Nodes are split, and models made, as a run with this `seed` does; the labels of test nodes are never read. Settings
    in ``held`` keep their values. Takes at most the epochs of three runs with `config`. ``on_epoch`` is called with the
    number of the candidate and its epoch.

    >>> import nfcgcn
    >>> graph = nfcgcn.load("digits")
    >>> config = nfcgcn.make_config("gcn", graph=graph, settings={"epochs": 2})
    >>> nfcgcn.select(graph, config).config.preset
    'selected'
    """
    split = config.split.make(graph, seed) if split is None else split
    split.check(graph)
    start = time.perf_counter()
    tried = [Tried(config, {}, "suggested for this graph", ())]
    best = 0
    if len(split.val) >= TOO_FEW and any(_changed(tried[0], c, held) for c in candidates(graph, config)):
        race = _Race(graph, replace(split, test=np.zeros(0, np.int64)), seed, device, on_epoch)
        tried, best = race.hold(tried[0], held)
    tried[best] = replace(tried[best], outcome="chosen")
    return Selection(
        config=replace(tried[best].config, preset=SELECTED),
        tried=tuple(tried),
        seed=seed,
        num_val=len(split.val),
        reason=_reason(tried, best, len(split.val)),
        caution=_caution(graph, split, tried[0]),
        seconds=time.perf_counter() - start,
    )


def candidates(graph: Graph, config: Config) -> Iterator[Candidate]:
    """List what may do better than the suggested settings, the most promising first.

    None takes longer per epoch than the suggested settings. One with a setting that is held is left out.
    """
    dropout, decay = {"dropout": 0.8, "map_dropout": 0.8}, {"weight_decay": 5e-3}
    if MODELS[config.name].model is NFCGCN:
        yield Candidate({"bandwidth": 1}, "where neighbours are many or unlike the node, drawn ones add noise")
        kernel_size, stride = window(graph.num_features, FINE, FINE)
        finer = {"kernel_size": kernel_size.value, "stride": stride.value}
        yield Candidate({**dropout, **decay, **finer}, f"{FEW}; smaller windows tell more features apart")
        yield Candidate({"bandwidth": 1}, "fewer slots once more, now that little is learnt by heart")
    yield Candidate(dropout, FEW)
    yield Candidate(decay, FEW)
    yield Candidate(
        {"feature_scale": "given"}, "the size of a node's features may tell something, not only their proportions"
    )


def _changed(best: Tried, candidate: Candidate, held: Collection[str]) -> Tried | None:
    """Return what to try: the best settings so far, with the candidate's changes; None if it changes nothing."""
    known = best.config.values
    changes = {name: value for name, value in candidate.changes.items() if known.get(name, value) != value}
    if not changes or not changes.keys().isdisjoint(held):
        return None

    def changed(part: Any) -> Any:
        return replace(part, **{f.name: changes[f.name] for f in fields(part) if f.name in changes})

    try:
        config = replace(best.config, model=changed(best.config.model), training=changed(best.config.training))
    except ConfigError:  # settings that exclude each other
        return None
    return Tried(config, {**best.changes, **changes}, candidate.reason, ())


class _Abandoned(Exception):  # noqa: N818
    """A candidate is clearly behind, or there is nothing left of the budget."""


@dataclass(frozen=True)
class _Race:
    """What all candidates share."""

    graph: Graph
    split: Split
    seed: int
    device: torch.device | str
    on_epoch: Callable[[int, Epoch], None] | None

    def hold(self, first: Tried, held: Collection[str]) -> tuple[list[Tried], int]:
        """Train the suggested settings, then the candidates while the budget lasts; return all, and which is best."""
        tried, best = [self._run(0, first, rival=None, most=first.config.training.epochs)], 0
        if tried[0].outcome == "failed":
            raise DivergedError(tried[0].note)
        margin, left = _margin(self.split, tried[0]), (COST - 1) * tried[0].work
        for candidate in candidates(self.graph, first.config):
            following = _changed(tried[best], candidate, held)
            if following is None or any(following.config.values == t.config.values for t in tried):
                continue
            most = int(left / replace(following, history=tried[0].history[:1]).work)
            if most < PATIENCE:
                continue
            tried.append(self._run(len(tried), following, rival=tried[best], most=most))
            left -= tried[-1].work
            if _gain(tried[-1], tried[best]) > (margin if best == 0 else 0.0):
                best = len(tried) - 1
        return tried, best

    def _run(self, number: int, tried: Tried, *, rival: Tried | None, most: int) -> Tried:
        """Train a candidate for `most` epochs at most, and stop when it is clearly behind its rival at that epoch."""
        history: list[Epoch] = []

        def watch(epoch: Epoch) -> None:
            history.append(epoch)
            if self.on_epoch:
                self.on_epoch(number, epoch)
            if rival is not None and (len(history) >= most or self._is_behind(history, rival.history)):
                raise _Abandoned

        try:
            model = tried.config.build(self.graph, self.seed)
            run: Run = fit(
                model, self.graph, self.split, tried.config.training, seed=self.seed, device=self.device, on_epoch=watch
            )
        except _Abandoned:
            return replace(tried, history=history, outcome="abandoned")
        except (DivergedError, ConfigError, MemoryError, torch.OutOfMemoryError) as error:
            return replace(tried, history=history, outcome="failed", note=one_line(error))
        if run.interrupted:
            raise KeyboardInterrupt
        return replace(tried, history=run.history)

    def _is_behind(self, history: Sequence[Epoch], rival: Sequence[Epoch]) -> bool:
        """Say whether the accuracy is lower, by more than a standard error, than the rival's was in half the time."""
        if len(history) < PATIENCE:
            return False
        # Half, because strong regularisation learns more slowly and often ends higher.
        ours = max(e["val_accuracy"] for e in history)
        theirs = max(e["val_accuracy"] for e in rival[: len(history) // 2])
        return theirs - ours > standard_error(theirs, len(self.split.val))


def standard_error(share: float, count: int) -> float:
    """Return the standard error of a share of `count` nodes."""
    return math.sqrt(share * (1 - share) / count)


def _gain(tried: Tried, other: Tried) -> float:
    """Return by how much the score is higher than another's."""
    return -math.inf if tried.outcome == "failed" else tried.score - other.score


def _margin(split: Split, first: Tried) -> float:
    """Return what a candidate must gain over the suggestion: with very few validation nodes, a standard error."""
    best = first.best
    return standard_error(best["val_accuracy"], len(split.val)) if best and len(split.val) < FEW_NODES else 0.0


def _reason(tried: Sequence[Tried], best: int, num_val: int) -> str:
    if len(tried) == 1:
        why = "all others were given" if num_val >= TOO_FEW else f"{num_val} validation nodes are too few to choose by"
        return f"the suggested settings, without a choice: {why}"
    chosen, start = (
        f"{100 * t.best['val_accuracy']:.1f} % (score {t.score:.3f})" if t.best else "none"
        for t in (tried[best], tried[0])
    )
    if best == 0:
        return f"the suggested settings: {chosen} on validation nodes, and none of {len(tried) - 1} others did better"
    changes = ", ".join(f"{name} {value}" for name, value in tried[best].changes.items())
    return f"{changes}: {chosen} on validation nodes, with the suggested settings {start}"


def _caution(graph: Graph, split: Split, first: Tried) -> str:
    if first.best is None:
        return ""
    count = len(split.val)
    points = 100 * standard_error(first.best["val_accuracy"], count)
    text = f"with {count:,} validation nodes, differences below {points:.1f} points are often chance"
    if count < FEW_NODES:
        return f"{text}; the suggested settings are left for a larger gain only"
    labels = np.bincount(graph.labels[split.train])
    fewest = int(labels[labels > 0].min())
    if fewest < FEW_LABELS:
        return f"{text}; with {fewest} training labels in the rarest class, other labels could lead to another choice"
    return text
