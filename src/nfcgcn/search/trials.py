"""The trials of a search, stored by Optuna: in memory, or in a journal file that several processes can share."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nfcgcn.randomness import generator
from nfcgcn.search.journal import NAME, Presence, TuningError, check_journal, plain_errors

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial
    from optuna.trial import Trial as OptunaTrial

GRACE_SECONDS = 10
"""How long a lock that a killed process left behind can delay the other processes."""
FEWEST_OTHERS = 5
"""Fewer trials say nothing about which accuracies are low."""
State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class Search:
    """The definition of a search: a study can only be continued by the same search."""

    model: str
    graph: str
    """A checksum of the graph and of its training and validation nodes."""
    seeds: list[int]
    settings: dict[str, Any]
    """The settings that the search starts with."""
    searched: dict[str, str]
    """The range of each setting that is searched."""


@dataclass(frozen=True)
class Trial:
    """One choice of settings and its validation accuracies, one per seed; a stopped run counts with the best so far."""

    params: dict[str, Any]
    accuracies: list[float]
    seconds: float
    state: State
    note: str = ""
    """Why it failed, or where it was stopped."""
    is_start: bool = False
    """Whether its settings are those that the search starts with."""

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return sum(self.accuracies) / len(self.accuracies)


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """Return the complete trial with the highest validation accuracy, of equal ones the first; None without any."""
    return max((t for t in trials if t.state == "complete"), key=lambda t: t.accuracy, default=None)


class Trials:
    """The trials of a search; with a file, those of every process that searches with it.

    A trial counts as soon as it begins. A trial that is given up, or whose process was killed, no longer counts: Optuna
    stores it as failed, without a result.
    """

    def __init__(self, search: Search, ranges: Mapping[str, BaseDistribution], path: Path | None = None) -> None:
        self._search = search
        self._ranges = dict(ranges)
        self._path = path
        with plain_errors(path):
            self._presence = None if path is None else Presence(path)
            try:
                while not self._join():
                    time.sleep(0.01)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the file, so that other processes can use it alone."""
        if self._presence is not None:
            self._presence.close()

    def reload(self) -> None:
        """Read the file again, after an interruption that may have happened inside Optuna."""
        if self._path is not None:
            with plain_errors(self._path):
                self._study = self._open_study()

    def finished(self) -> list[Trial]:
        """Return the finished trials, with the trial of the starting settings first."""
        with plain_errors(self._path):
            trials = [self._result(frozen) for frozen in self._study.get_trials(deepcopy=False)]
        return sorted((trial for trial in trials if trial is not None), key=lambda trial: not trial.is_start)

    def elsewhere(self) -> int:
        """Return how many trials other processes have under way."""
        from optuna.trial import TrialState

        with plain_errors(self._path), self._alone() as alone:
            trials = [] if alone else self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return len(trials)

    def begin(self, most: float) -> OptunaTrial | None:
        """Begin a trial and return it with its settings; None if `most` trials are finished or running."""
        from optuna.samplers import TPESampler

        with plain_errors(self._path):
            with self._alone() as alone:
                if alone:
                    self._clean_up()
            with self._turn():
                counted = self._counted()
                if len(counted) >= most:
                    return None
                # Every place has its own seed, so that a continued search suggests the same settings as one that was
                # never stopped. The next trial takes the place of a trial that was given up.
                taken = {frozen.user_attrs.get("place") for frozen in counted}
                place = next(number for number in count() if number not in taken)
                draws = generator(self._search.seeds[0], "tuning").integers(2**31, size=place + 1)
                self._study.sampler = TPESampler(seed=int(draws[-1]))
                trial = self._study.ask(self._ranges)
                trial.set_user_attr("place", place)
                return trial

    def report(self, trial: OptunaTrial, epoch: int, accuracy: float, *, worst: float) -> bool:
        """Store how a trial does after so many epochs in all its runs; return whether it is clearly behind.

        It is behind if it is in the `worst` share of all trials that came so far, those stopped there included.
        Optuna's own pruners compare with complete trials alone, which are few and the best.
        """
        with plain_errors(self._path):
            trial.report(accuracy, epoch)
            others = [
                frozen.intermediate_values[epoch]
                for frozen in self._study.get_trials(deepcopy=False)
                if epoch in frozen.intermediate_values and self._result(frozen) is not None
            ]
            return len(others) >= FEWEST_OTHERS and accuracy < float(np.quantile(others, worst))

    def finish(self, trial: OptunaTrial, result: Trial) -> None:
        """Store the result of a trial."""
        with plain_errors(self._path):
            kept = {"state": result.state, "accuracies": result.accuracies, "seconds": result.seconds}
            trial.set_user_attr("result", {**kept, "note": result.note})
            value = result.accuracy if result.state == "complete" else None
            self._study.tell(trial, value, state=_states()[result.state])

    def give_up(self, trial: OptunaTrial | int) -> None:
        """End a trial without a result; a finished trial is not changed."""
        with plain_errors(self._path):
            self._study.tell(trial, state=_states()["failed"], skip_if_finished=True)

    def _join(self) -> bool:
        """Open the study, and set it up if no other process uses it; return whether the study is set up."""
        with self._alone() as alone:
            if alone:
                self._study = self._open_study(repair=True)
                if "search" not in self._study.user_attrs and not self._study.trials:
                    self._study.set_user_attr("search", asdict(self._search))
                self._check_search()
                self._clean_up()
                return True
        self._study = self._open_study()
        if "search" not in self._study.user_attrs:  # the others were killed before they had set it up
            return False
        self._check_search()
        return True

    def _open_study(self, *, repair: bool = False) -> Study:
        """Open or create the study; `repair`, only when alone, removes what a killed process left behind."""
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        if self._path is None:
            return optuna.create_study(direction="maximize")
        exists = check_journal(self._path, repair=repair)
        # These locks need no symbolic links, which not every file system has.
        lock = JournalFileOpenLock(str(self._path), grace_period=GRACE_SECONDS)
        self._turns = JournalFileOpenLock(f"{self._path}.begin", grace_period=GRACE_SECONDS)
        for left_behind in (lock, self._turns) if repair else ():
            with suppress(RuntimeError):  # there is no lock
                left_behind.release()
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(self._path), lock_obj=lock))
        if exists:
            return optuna.load_study(study_name=NAME, storage=storage)
        return optuna.create_study(study_name=NAME, storage=storage, direction="maximize", load_if_exists=True)

    def _check_search(self) -> None:
        """Raise an error for the study of another search, and for trials that no search could have written."""
        kept = Search(**self._study.user_attrs["search"])
        for name in (field.name for field in fields(Search)):
            if getattr(kept, name) != getattr(self._search, name):
                raise TuningError(
                    f"{self._path} holds a study with another `{name}`; choose another file with --study, or delete it"
                )
        self.finished()

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Yield whether no other process uses the file; if so, none can start to until the block ends."""
        if self._presence is None:
            yield True
        else:
            with self._presence.alone() as alone:
                yield alone

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one process at a time begin a trial."""
        if self._path is None:
            yield
            return
        self._turns.acquire()
        try:
            yield
        finally:
            self._turns.release()

    def _clean_up(self) -> None:
        """Give up the trials of killed processes, and queue the starting settings if untried; only when alone."""
        from optuna.trial import TrialState

        has_start = False
        for frozen in self._study.get_trials(deepcopy=False):
            if frozen.state == TrialState.RUNNING:
                self.give_up(frozen.number)
            elif frozen.state == TrialState.WAITING or self._result(frozen) is not None:
                has_start |= "start" in frozen.user_attrs
        if not has_start:
            start = {name: self._search.settings[name] for name in self._ranges}
            self._study.enqueue_trial(start, user_attrs={"start": True})

    def _counted(self) -> list[FrozenTrial]:
        """Return the trials that are running or have a result."""
        from optuna.trial import TrialState

        return [
            frozen
            for frozen in self._study.get_trials(deepcopy=False)
            if frozen.state == TrialState.RUNNING or self._result(frozen) is not None
        ]

    def _result(self, frozen: FrozenTrial) -> Trial | None:
        """Return a finished trial, or None for any other; raise an error for one that no search could have written."""
        import optuna

        kept: Any = frozen.user_attrs.get("result")
        failed = frozen.state == optuna.trial.TrialState.FAIL
        if not frozen.state.is_finished() or (failed and (kept is None or kept["state"] != "failed")):
            return None
        if frozen.distributions != self._ranges:
            raise ValueError("a trial has other settings or ranges than this search")
        # Optuna checks the values of trials that are added, but not those read from a file.
        optuna.trial.create_trial(value=0.0, params=frozen.params, distributions=frozen.distributions)
        trial = Trial(frozen.params, is_start="start" in frozen.user_attrs, **kept)
        if _states()[trial.state] != frozen.state or not isinstance(trial.note, str):
            raise ValueError("a trial has an unknown state")
        if not all(isinstance(n, float) and 0 <= n < math.inf for n in [*trial.accuracies, trial.seconds]):
            raise ValueError("a trial has an accuracy or a time that is not a number of at least 0")
        seeds = len(self._search.seeds)
        least = {"complete": seeds, "pruned": 1, "failed": 0}[trial.state]
        if not least <= len(trial.accuracies) <= seeds:
            raise ValueError(f"a trial has {len(trial.accuracies)} accuracies for {seeds} seeds")
        return trial


def _states() -> dict[State, Any]:
    from optuna.trial import TrialState

    return {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
