"""Search with Optuna for the settings that do best on validation nodes; a search can be killed and continued."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from nfcgcn.config.registry import MODELS, Config
from nfcgcn.errors import NFCError
from nfcgcn.evaluation import check_classes
from nfcgcn.files import write_text
from nfcgcn.graph import Graph, Split
from nfcgcn.search.ranges import search_ranges, with_params
from nfcgcn.search.trials import Search, Trial, Trials, TuningError
from nfcgcn.settings import one_line, write_settings
from nfcgcn.training import Epoch, fit_together

if TYPE_CHECKING:
    from optuna.trial import Trial as OptunaTrial

SIGNATURE = "# Found by `nfcgcn tune`"
"""The first words of a preset file that may be overwritten."""
FAILURES = (NFCError, torch.OutOfMemoryError, MemoryError)
"""Errors that some settings cause and others do not: training diverges, or needs too much memory."""


@dataclass(frozen=True)
class Tuned:
    """The result of a search."""

    config: Config
    """The settings of the best trial."""
    default: Config
    """The starting settings."""
    trials: tuple[Trial, ...]
    interrupted: bool

    @property
    def best(self) -> Trial:
        """The trial with the highest validation accuracy; of equal ones the first."""
        return best_of(self.trials)

    @property
    def start(self) -> Trial | None:
        """The trial of the starting settings; None while another process still runs it."""
        return self.trials[0] if self.trials[0].is_start else None

    @property
    def seconds(self) -> float:
        """The total time of all trials, including those of earlier sessions."""
        return sum(t.seconds for t in self.trials)


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the highest validation accuracy; of equal ones the first."""
    return max((t for t in trials if t.state == "complete"), key=lambda t: t.accuracy)


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
    seeds: Sequence[int] = (0, 1),
    minutes: float = 10.0,
    trials: int | None = None,
    held: Collection[str] = (),
    study: Path | None = None,
    device: torch.device | str = "cpu",
    jobs: int = 1,
    on_epoch: Callable[[Sequence[Trial], float, Epoch], None] | None = None,
) -> Tuned:
    """Search for settings with a higher validation accuracy than those of `config`, which is tried first.

    The nodes are split once, with the first of ``seeds``. A trial trains once per seed, and its score is the mean of
    the best validation accuracies. Before the search, all labels except those of training and validation nodes are
    removed. Settings in ``held`` do not change. ``minutes`` and ``trials`` limit the whole search. The file ``study``,
    an Optuna journal, stores every trial: a search that was stopped or killed continues where it was and ends with the
    same result. Several processes can share one search; the times of their trials add up. On the CPU up to ``jobs``
    seeds of a trial train at the same time. ``on_epoch`` is called with the finished trials, the seconds spent and the
    figures of the epoch. Ctrl-C ends the search and keeps the best trial.
    """
    check_optuna()
    if not 0 < minutes < math.inf:
        raise TuningError(f"`minutes` must be above 0, got {minutes}")
    check_classes(graph)
    split = replace(config.split.make(graph, seeds[0]), test=np.zeros(0, np.int64))
    graph = _without_other_labels(graph, split)
    split.check(graph)
    config.build(graph, seeds[0])  # settings that do not fit the graph raise their error before the search
    ranges = search_ranges(config, graph, held=held)
    search = Search(
        model=config.name,
        graph=_fingerprint(graph, split),
        seeds=list(seeds),
        settings=config.values,
        searched={name: repr(d) for name, d in ranges.items()},
    )
    task, interrupted, out_of_time = _Task(graph, split, seeds, device, jobs), False, False
    with _quiet_optuna(), Trials(search, ranges, study) as kept:
        try:
            out_of_time = _try_settings(task, config, kept, _Budget(60 * minutes, trials or math.inf, on_epoch))
        except KeyboardInterrupt:
            interrupted = True
            kept.reload()
        done = kept.finished()
    if not any(t.state == "complete" for t in done):
        if interrupted:
            raise KeyboardInterrupt
        raise TuningError(_why_nothing(done, minutes, out_of_time=out_of_time))
    best = with_params(config, best_of(done).params)
    return Tuned(best, config, tuple(done), interrupted)


def _why_nothing(done: Sequence[Trial], minutes: float, *, out_of_time: bool) -> str:
    if done:
        return f"every trial failed; the last error: {done[-1].note}"
    if out_of_time:
        return f"{minutes:g} minutes were not enough for one trial; allow more, or set `epochs` lower"
    return (
        "other processes are running all the trials allowed, and none has finished; wait for them, or allow more trials"
    )


def write_preset(path: Path, tuned: Tuned, *, graph: str) -> None:
    """Write the best trial's settings as a preset file, with its validation accuracy in a comment."""
    start, best = tuned.start, tuned.best
    before = "not yet known" if start is None else "none, because training failed"
    if start is not None and start.state == "complete":
        before = f"{100 * start.accuracy:.2f} %"
    tried = len(tuned.trials)
    comments = (
        f"{SIGNATURE} for {graph!a}, by accuracy on validation nodes; test nodes were not used.",
        f"# {100 * best.accuracy:.2f} % on validation (with the starting settings: {before}); the best of {tried} "
        f"trial{'s' if tried > 1 else ''} in {tuned.seconds / 60:.1f} minutes, {len(best.accuracies)} seeds per trial.",
        "# Use: nfcgcn train GRAPH --preset THIS_FILE",
    )
    fixed = {"backend", *MODELS[tuned.config.name].fixed}
    values = {name: value for name, value in tuned.config.values.items() if name not in fixed}
    write_text(path, "\n".join([*comments, "", write_settings(tuned.config.name, values)]))


def check_preset_path(path: Path) -> None:
    """Raise an error for a file that is not a preset of ours, or whose name a preset cannot have."""
    if path.suffix != ".toml":
        raise TuningError(f"a preset's name must end in .toml, got {path}; choose another with --out")
    try:
        with path.open("rb") as file:
            ours = file.read(len(SIGNATURE)) == SIGNATURE.encode()
    except (IsADirectoryError, PermissionError):
        ours = False
    except OSError:  # it is not there, or cannot be: `check_writable` says why
        return
    if not ours:
        raise TuningError(f"{path} exists and was not written by `nfcgcn tune`; choose another file with --out")


class _OutOfTimeError(Exception):
    """The time for the search ended during a trial."""


@dataclass(frozen=True)
class _Budget:
    """The limits of a whole search."""

    seconds: float
    trials: float
    on_epoch: Callable[[Sequence[Trial], float, Epoch], None] | None


@dataclass(frozen=True)
class _Clock:
    """Measures the time while a trial runs."""

    start: float
    """When the search would have started if it had never been stopped."""
    budget: _Budget
    done: Sequence[Trial]

    @property
    def seconds(self) -> float:
        """The time that all trials have taken so far."""
        return time.perf_counter() - self.start

    def tick(self, epoch: Epoch) -> None:
        """Report an epoch, and end the trial if the time is over."""
        if self.budget.on_epoch:
            self.budget.on_epoch(self.done, self.seconds, epoch)
        if self.seconds > self.budget.seconds:
            raise _OutOfTimeError


def _try_settings(task: _Task, config: Config, kept: Trials, budget: _Budget) -> bool:
    """Run one trial after the other until the budget is spent; return whether the time ran out."""
    while True:
        done = kept.finished()
        spent = sum(t.seconds for t in done)
        if spent >= budget.seconds:
            return True
        asked = kept.begin(budget.trials)
        if asked is None:
            return False
        clock = _Clock(time.perf_counter() - spent, budget, done)
        try:
            trial = task.attempt(with_params(config, asked.params), asked, kept, clock)
            kept.finish(asked, replace(trial, seconds=clock.seconds - spent))
        except BaseException as error:
            kept.give_up(asked)
            if isinstance(error, _OutOfTimeError):
                return True
            raise


@dataclass(frozen=True)
class _Task:
    """What all trials share: the data, the seeds and the device."""

    graph: Graph
    split: Split
    seeds: Sequence[int]
    device: torch.device | str
    jobs: int

    def attempt(self, config: Config, asked: OptunaTrial, kept: Trials, clock: _Clock) -> Trial:
        """Train once per seed, but stop early if the first seeds do badly.

        Up to `jobs` seeds train at the same time; which of them count does not depend on that.
        """
        trial = Trial(dict(asked.params), [], 0.0, "complete")
        for first in range(0, len(self.seeds), self.jobs):
            seeds = self.seeds[first : first + self.jobs]
            try:
                models = [config.build(self.graph, seed) for seed in seeds]
                splits = [self.split] * len(seeds)
                runs = fit_together(
                    models, self.graph, splits, config.training, seeds=seeds, device=self.device, jobs=self.jobs,
                    on_epoch=lambda _, epoch: clock.tick(epoch),
                )  # fmt: skip
            except FAILURES as error:
                if len(seeds) > 1:  # one after the other, an earlier seed might have ended the trial
                    return replace(self, jobs=1).attempt(config, asked, kept, clock)
                return replace(trial, state="failed", note=one_line(error))
            if len(runs) < len(seeds) or any(run.interrupted for run in runs):
                raise KeyboardInterrupt
            for run in runs:
                trial.accuracies.append(run.best["val_accuracy"])
                is_behind = kept.report(asked, trial)
                if len(trial.accuracies) < len(self.seeds) and is_behind:
                    return replace(trial, state="pruned")
        return trial


@contextmanager
def _quiet_optuna() -> Iterator[None]:
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


def _fingerprint(graph: Graph, split: Split) -> str:
    """Return a checksum of the graph and of its training and validation nodes."""
    x, a = graph.features, graph.adjacency
    parts = [x] if isinstance(x, np.ndarray) else [x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data]
    parts += [a.indptr.astype(np.int64), a.indices.astype(np.int64), graph.labels, split.train, split.val]
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(f"{part.dtype} {part.shape} ".encode())
        checksum.update(np.ascontiguousarray(part).tobytes())
    return checksum.hexdigest()
