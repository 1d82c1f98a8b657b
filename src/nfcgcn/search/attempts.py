"""One trial of a search: train once per seed, and stop where the settings are clearly behind earlier ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from nfcgcn.config.registry import Config
from nfcgcn.errors import NFCError
from nfcgcn.graph import Graph, Split
from nfcgcn.search.trials import Trial, Trials, best_of
from nfcgcn.settings import one_line
from nfcgcn.training import Epoch, Run, TrainingConfig, fit_together

if TYPE_CHECKING:
    from optuna.trial import Trial as OptunaTrial

FAILURES = (NFCError, torch.OutOfMemoryError, MemoryError)
"""Errors that some settings cause and others do not: training diverges, or needs too much memory."""
WORST_AFTER = {1 / 4: 0.25, 1 / 2: 0.5}
"""A trial is behind if, after this share of its first run's epochs, it is in this worst share of all trials there.

With 60 random settings of GCN on Cora, the ten best were never that far behind; after an eighth of the epochs the best
one of all was among the worst.
"""
WORST = 0.5
"""A trial is also behind if it is in this worst share of all trials at the end of its first run."""
FEWEST_EPOCHS = 10
"""The earliest epoch after which runs are compared."""


class OutOfTimeError(Exception):
    """The time for the search ended during a trial."""


@dataclass(frozen=True)
class Clock:
    """Measures the time while a trial runs."""

    start: float
    """When the search would have started if it had never been stopped."""
    seconds_allowed: float
    done: Sequence[Trial]
    """The trials that had finished when this one began."""
    on_epoch: Callable[[Sequence[Trial], float, Epoch], None] | None

    @property
    def seconds(self) -> float:
        """The time that all trials have taken so far."""
        return time.perf_counter() - self.start

    def tick(self, epoch: Epoch) -> None:
        """Report an epoch, and end the trial if the time is over."""
        if self.on_epoch:
            self.on_epoch(self.done, self.seconds, epoch)
        if self.seconds > self.seconds_allowed:
            raise OutOfTimeError


@dataclass(frozen=True)
class Task:
    """What all trials share: the data, the seeds and the device."""

    graph: Graph
    splits: Mapping[int, Split]
    """The split of each seed."""
    device: torch.device | str
    jobs: int

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds of a trial, in their order."""
        return list(self.splits)

    def attempt(self, config: Config, asked: OptunaTrial, kept: Trials, clock: Clock) -> Trial:
        """Train once per seed, but stop where the trial is clearly behind earlier ones; the first trial never stops.

        The first run is compared with other first runs, within it and at its end. After two runs or more, the trial
        goes on only if its mean is no lower than that of the best trial with the same seeds: only settings that hold
        their lead with every seed become the best. Up to `jobs` seeds train at the same time; what a trial ends with
        does not depend on that.
        """
        trial = Trial(dict(asked.params), [], 0.0, "complete", is_start="start" in asked.user_attrs)
        best = best_of(clock.done)
        first_run = _FirstRun(config.training, asked, kept, may_stop=not trial.is_start)

        def on_epoch(seed: int, epoch: Epoch) -> None:
            clock.tick(epoch)
            if seed == self.seeds[0]:
                first_run.follow(epoch)

        try:
            for run in self._runs(config, on_epoch):
                trial.accuracies.append(run.best["val_accuracy"])
                count = len(trial.accuracies)
                is_behind = kept.report(asked, count * config.training.epochs, trial.accuracy, worst=WORST)
                if count > 1 and best is not None:
                    is_behind = sum(trial.accuracies) < sum(best.accuracies[:count])
                if is_behind and not trial.is_start and count < len(self.seeds):
                    return replace(trial, state="pruned", note=f"after run {count} of {len(self.seeds)}")
        except _BehindError:
            return replace(trial, accuracies=[first_run.accuracy], state="pruned", note=first_run.place)
        except FAILURES as error:
            return replace(trial, state="failed", note=one_line(error))
        return trial

    def _runs(self, config: Config, on_epoch: Callable[[int, Epoch], None]) -> Iterator[Run]:
        """Train once per seed and yield the runs in the order of the seeds."""
        for first in range(0, len(self.seeds), self.jobs):
            seeds = self.seeds[first : first + self.jobs]
            try:
                runs = self._train(config, seeds, on_epoch)
            except FAILURES:
                if len(seeds) == 1:
                    raise
                # One after the other: an earlier seed may end the trial before the one that failed.
                yield from (run for seed in seeds for run in self._train(config, [seed], on_epoch))
            else:
                yield from runs

    def _train(self, config: Config, seeds: Sequence[int], on_epoch: Callable[[int, Epoch], None]) -> list[Run]:
        models = [config.build(self.graph, seed) for seed in seeds]
        runs = fit_together(
            models, self.graph, [self.splits[seed] for seed in seeds], config.training, seeds=seeds,
            device=self.device, jobs=self.jobs, on_epoch=lambda number, epoch: on_epoch(seeds[number], epoch),
        )  # fmt: skip
        if len(runs) < len(seeds) or any(run.interrupted for run in runs):
            raise KeyboardInterrupt
        return runs


class _BehindError(Exception):
    """A trial is clearly behind within its first run; this ends all its runs."""


class _FirstRun:
    """Follows the first run of a trial, and ends it where it is clearly behind those of earlier trials."""

    def __init__(self, training: TrainingConfig, asked: OptunaTrial, kept: Trials, *, may_stop: bool) -> None:
        self._training, self._asked, self._kept, self._may_stop = training, asked, kept, may_stop
        marks = {int(share * training.epochs): worst for share, worst in WORST_AFTER.items()}
        self._left = {mark: worst for mark, worst in marks.items() if mark >= FEWEST_EPOCHS}
        self._best: Epoch | None = None
        self.place = ""

    @property
    def accuracy(self) -> float:
        """The validation accuracy of the best epoch so far: the result if the run ended now."""
        return 0.0 if self._best is None else self._best["val_accuracy"]

    def follow(self, epoch: Epoch) -> None:
        """Take note of an epoch; one that was seen before, in a run that is repeated, changes nothing."""
        self._best = self._training.stopping.best(self._best, epoch)
        number = epoch["epoch"]
        if number not in self._left:
            return
        worst = self._left.pop(number)
        if self._kept.report(self._asked, number, self.accuracy, worst=worst) and self._may_stop:
            self.place = f"after epoch {number} of {self._training.epochs}"
            raise _BehindError
