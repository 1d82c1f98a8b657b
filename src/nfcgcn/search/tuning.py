"""Search with Optuna for the settings that do best on validation nodes; a search can be killed and continued."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from nfcgcn.config.inspection import check_classes
from nfcgcn.config.registry import Config
from nfcgcn.data.splits import redraw
from nfcgcn.graph import Graph, Ints, Split
from nfcgcn.randomness import generator
from nfcgcn.search.attempts import Clock, OutOfTimeError, Task
from nfcgcn.search.fingerprint import fingerprint
from nfcgcn.search.journal import TuningError
from nfcgcn.search.ranges import search_ranges, with_params
from nfcgcn.search.trials import Search, Trial, Trials, best_of
from nfcgcn.training import Epoch

if TYPE_CHECKING:
    from pathlib import Path

    from optuna.distributions import BaseDistribution

SEEDS = 5
"""Runs of a trial that holds its lead to the end; most trials are stopped in the first or the second."""


@dataclass(frozen=True)
class Tuned:
    """The result of a search."""

    config: Config
    """The settings of the best trial."""
    default: Config
    """The starting settings."""
    ranges: Mapping[str, BaseDistribution]
    """The range of each setting that was searched."""
    seeds: Sequence[int]
    num_val: int
    """Nodes that any seed validates on."""
    trials: tuple[Trial, ...]
    interrupted: bool
    elsewhere: int = 0
    """Trials that other processes still had under way at the end."""

    @cached_property
    def best(self) -> Trial:
        """The complete trial with the highest validation accuracy; of equal ones the first."""
        best = best_of(self.trials)
        assert best is not None  # noqa: S101  (there is no result without a complete trial)
        return best

    @property
    def start(self) -> Trial | None:
        """The trial of the starting settings; None while another process still runs it."""
        return self.trials[0] if self.trials[0].is_start else None

    @property
    def before(self) -> float | None:
        """The validation accuracy of the starting settings; None if it is not known or training failed."""
        return self.start.accuracy if self.start and self.start.state == "complete" else None

    @property
    def seconds(self) -> float:
        """The total time of all trials, including those of earlier sessions."""
        return sum(t.seconds for t in self.trials)

    def count(self, state: str) -> int:
        """Count the trials that ended as `complete`, `pruned` or `failed`."""
        return sum(t.state == state for t in self.trials)


def check_optuna() -> None:
    """Raise an error if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise TuningError("`tune` needs Optuna, which is not installed; pip install 'nfcgcn[tune]'") from error


def tune(
    graph: Graph,
    config: Config,
    *,
    seeds: Sequence[int] = range(SEEDS),
    seconds: float | None = None,
    trials: int | None = None,
    held: Collection[str] = (),
    study: Path | None = None,
    device: torch.device | str = "cpu",
    jobs: int = 1,
    on_epoch: Callable[[Sequence[Trial], float, Epoch], None] | None = None,
) -> Tuned:
    """Search for settings with a higher validation accuracy than those of `config`, which is tried first.

    The first of ``seeds`` splits the nodes; unless the split came with the graph, the other seeds draw training and
    validation nodes again from these, so that settings are not fitted to one choice of validation nodes. A trial trains
    once per seed, and its score is the mean of the validation accuracies at the best epochs; a trial that is clearly
    behind earlier ones is stopped, within its first run or between two runs. Before the search, all labels except those
    of training and validation nodes are removed. Settings in ``held`` do not change. ``seconds`` or ``trials`` or both
    limit the whole search. The file ``study``, an Optuna journal, stores every trial: a search that was stopped or
    killed continues where it was and ends with the same result. Several processes can share one search; the times of
    their trials add up. On the CPU up to ``jobs`` seeds of a trial train at the same time. ``on_epoch`` is called with
    the finished trials, the seconds spent and the figures of the epoch. Ctrl-C ends the search and keeps the best
    trial.
    """
    check_optuna()
    check_budget(seconds, trials)
    check_classes(graph)
    split = replace(config.split.make(graph, seeds[0]), test=np.zeros(0, np.int64))
    graph = _without_other_labels(graph, split)
    split.check(graph)
    splits = seed_splits(graph, config, split, seeds)
    config.build(graph, seeds[0])  # settings that do not fit the graph raise their error before the search
    ranges = search_ranges(config, graph, held=held)
    search = Search(
        model=config.name,
        graph=fingerprint(graph, *_nodes(splits.values())),
        seeds=list(seeds),
        settings=config.values,
        searched={name: repr(d) for name, d in ranges.items()},
    )
    task, interrupted, out_of_time = Task(graph, splits, device, jobs), False, False
    limits = seconds or math.inf, trials or math.inf
    with quiet_optuna(), Trials(search, ranges, study) as kept:
        try:
            out_of_time = _try_settings(task, config, kept, limits, on_epoch)
        except KeyboardInterrupt:
            interrupted = True
            kept.reload()
        elsewhere, done = kept.elsewhere(), kept.finished()
    best = best_of(done)
    if best is None:
        if interrupted:
            raise KeyboardInterrupt
        raise TuningError(_why_nothing(done, limits[0], out_of_time=out_of_time))
    validated = len(np.unique(np.concatenate([s.val for s in splits.values()])))
    return Tuned(
        with_params(config, best.params), config, ranges, seeds, validated, tuple(done), interrupted, elsewhere
    )


def check_budget(seconds: float | None, trials: int | None) -> None:
    """Refuse a budget that allows no trial, or none at all."""
    if seconds is None and trials is None:
        raise TuningError("a search needs an end; give it `seconds` or `trials`")
    if seconds is not None and not 0 < seconds < math.inf:
        raise TuningError(f"`seconds` must be above 0, got {seconds:g}")
    if trials is not None and trials < 1:
        raise TuningError(f"`trials` must be at least 1, got {trials}")


def seed_splits(graph: Graph, config: Config, first: Split, seeds: Sequence[int]) -> dict[int, Split]:
    """Return the split of each seed: `first`, then its training and validation nodes drawn again from both.

    A split that came with the graph stays as it is: its owner may have meant it, by time for example.
    """
    if config.split.split == "given":
        return dict.fromkeys(seeds, first)
    return {s: first if s == seeds[0] else redraw(graph, first, generator(s, "split")) for s in seeds}


def _why_nothing(done: Sequence[Trial], seconds: float, *, out_of_time: bool) -> str:
    failed = [trial for trial in done if trial.state == "failed"]
    if failed:
        return f"every trial failed; the last error: {failed[-1].note}"
    if out_of_time:
        return f"{seconds:g} seconds were not enough for one trial; allow more, or use fewer `epochs` or seeds"
    return (
        "other processes are running all the trials allowed, and none has finished; wait for them, or allow more trials"
    )


def _try_settings(
    task: Task,
    config: Config,
    kept: Trials,
    limits: tuple[float, float],
    on_epoch: Callable[[Sequence[Trial], float, Epoch], None] | None,
) -> bool:
    """Run one trial after the other, up to so many seconds and trials; return whether the time ran out."""
    seconds, trials = limits
    while True:
        done = kept.finished()
        spent = sum(t.seconds for t in done)
        if spent >= seconds:
            return True
        asked = kept.begin(trials)
        if asked is None:
            return False
        clock = Clock(time.perf_counter() - spent, seconds, done, on_epoch)
        try:
            trial = task.attempt(with_params(config, asked.params), asked, kept, clock)
            kept.finish(asked, replace(trial, seconds=clock.seconds - spent))
        except BaseException as error:
            kept.give_up(asked)
            if isinstance(error, OutOfTimeError):
                return True
            raise


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Let Optuna print warnings only."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _without_other_labels(graph: Graph, split: Split) -> Graph:
    labels = np.full(graph.num_nodes, -1, np.int64)
    for nodes in (split.train, split.val):
        labels[nodes] = graph.labels[nodes]
    return replace(graph, labels=labels, test_nodes=None, given=None)


def _nodes(splits: Iterable[Split]) -> Iterator[Ints]:
    """Yield the training and validation nodes of each split once."""
    for split in {id(split): split for split in splits}.values():
        yield from (split.train, split.val)
