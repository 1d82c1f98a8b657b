"""Settings that may do better than the suggested ones, and what became of each."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from nfcgcn.config.registry import MODELS, Config
from nfcgcn.config.suggestions import window
from nfcgcn.errors import ConfigError
from nfcgcn.graph import Graph
from nfcgcn.method.model import NFCGCN
from nfcgcn.training import Epoch

FINE = 8
"""The size of small windows."""
LOSS_SHARE = 0.1
"""How much of the validation loss is taken from a candidate's best figure."""
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
        return len(self.history) * work_per_epoch(self.config)

    @property
    def best(self) -> Epoch:
        """The best epoch, by the rule that training follows."""
        return max(self.history, key=self.config.training.stopping.merit)

    @property
    def score(self) -> float:
        """The best validation figure of any epoch, less a tenth of the lowest loss.

        The figure is the score by which training chooses its best epoch; accuracy, where that is the loss.
        """
        # Accuracy on some hundred nodes is coarse; the loss tells candidates apart that it does not. With 20 labels per
        # class, on three to five splits of six graphs, what this chose on one split was 0.0 to 0.5 points better on
        # the others, against a GCN chosen likewise, than what accuracy alone chose. The loss alone was worse on three
        # graphs and 0.0 to 0.1 points better on two.
        if self.note or not self.history:
            return -math.inf
        highest = max(_figure(self.config, e) for e in self.history)
        return highest - LOSS_SHARE * min(e["val_loss"] for e in self.history)


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


def compared_by(config: Config) -> str:
    """Return the name of the validation figure by which candidates are compared."""
    monitor = config.training.monitor
    return "accuracy" if monitor == "loss" else monitor


def _figure(config: Config, epoch: Epoch) -> float:
    """Return the validation figure of an epoch by which candidates are compared; the larger, the better."""
    if compared_by(config) == "accuracy":
        return epoch["val_accuracy"]
    return config.training.stopping.merit(epoch)[0]


def candidates(graph: Graph, config: Config, held: Collection[str] = ()) -> Iterator[Candidate]:
    """List what may do better than the suggested settings; none takes longer per epoch.

    Settings that are held keep their values. A candidate that differs in more than dropout and decay is left out if it
    would change one of them.
    """
    dropout, decay = {"dropout": 0.8, "map_dropout": 0.8}, {"weight_decay": 5e-3}
    options: list[dict[str, Any]] = [dropout, decay, {**dropout, **decay}]
    if MODELS[config.name].model is NFCGCN:
        kernel_size, stride = window(graph.num_features, FINE, FINE)
        finer = {"kernel_size": kernel_size.value, "stride": stride.value}
        alone = {"bandwidth": 1}
        # From 17 candidates on three to five splits of six graphs with 20 labels per class, by validation nodes: of the
        # sets tried, choosing among these kept up with a GCN on every graph. The last one is a GCN.
        options = [
            {**alone, **dropout},
            {**dropout, **decay},
            {**alone, **dropout, **finer, **decay},
            {**alone, "kernel_size": 1, "stride": 1, "filters": 1, **decay},
        ]
    seen: list[dict[str, Any]] = []
    for wanted in options:
        changes = {name: value for name, value in wanted.items() if not (name in held and name in {**dropout, **decay})}
        changed = _changed(config, changes, held)
        if changed and changed[1] not in seen:
            seen.append(changed[1])
            yield Candidate(*changed, _why(changed[1]))


def _why(changes: Mapping[str, Any]) -> str:
    """Return why settings may do better that differ in this from the suggested ones."""
    reasons = []
    if changes.get("filters") == 1:
        reasons.append("one slot, one filter and windows of one feature: a GCN")
    else:
        if "bandwidth" in changes:
            reasons.append("drawn neighbours add noise where a node has many")
        if "kernel_size" in changes:
            reasons.append("smaller windows tell more features apart")
    if changes.keys() & {"dropout", "map_dropout", "weight_decay"}:
        reasons.append("with few labels, more dropout or decay keeps a model from memorising them")
    return "; ".join(reasons)


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


def work_per_epoch(config: Config) -> float:
    """Return how much work an epoch is; with few slots it is less."""
    # From times of an epoch. By settings, not by a clock, so that every machine tries the same candidates.
    return 4.0 + int(config.values.get("bandwidth", 0))
