"""The file of a search: what was tried and what came of it, written whole after every trial."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from nfcgcn.errors import NFCError
from nfcgcn.files import to_json, write_text
from nfcgcn.settings import one_line

FORMAT = 1
MOST_BYTES = 32 * 2**20
State = Literal["complete", "pruned", "failed"]


class TuningError(NFCError):
    """A search that cannot begin, go on, or come to a result."""


@dataclass(frozen=True)
class Search:
    """What is searched for, and on what: a study may only be continued by the same search."""

    model: str
    graph: str
    """A sum over the graph, and over the nodes to learn from and to choose by."""
    seeds: list[int]
    settings: dict[str, Any]
    """Those that the search begins with."""
    searched: dict[str, str]
    """The range of each setting that is searched."""


@dataclass(frozen=True)
class Trial:
    """One choice of settings and its validation accuracies, one a seed."""

    params: dict[str, Any]
    accuracies: list[float]
    seconds: float
    state: State
    note: str = ""
    """Why it failed."""

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return sum(self.accuracies) / len(self.accuracies)


def write_study(path: Path, search: Search, trials: Sequence[Trial]) -> None:
    """Write all trials; the file is whole at any moment."""
    write_text(path, to_json({"format": FORMAT, "search": asdict(search), "trials": [asdict(t) for t in trials]}))


def read_study(path: Path, search: Search) -> list[Trial]:
    """Return the trials of a study, none where there is no such file; it must be of the same search."""
    if not path.exists():
        return []
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise TuningError(f"cannot read {path}: {error.strerror or error}; choose another file with --study") from error
    if len(content) > MOST_BYTES:
        raise TuningError(f"{path} is too large for a study; choose another file with --study")
    try:
        study = json.loads(content)
        if study["format"] != FORMAT:
            raise ValueError(f"it has format {study['format']}, this version of nfcgcn writes {FORMAT}")
        found, trials = Search(**study["search"]), [Trial(**t) for t in study["trials"]]
        for trial in trials:
            _check(trial, found)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = one_line(error) or type(error).__name__
        raise TuningError(
            f"{path} is damaged or no study of `nfcgcn tune`: {reason}; choose another file with --study"
        ) from error
    for f in fields(Search):
        if getattr(found, f.name) != getattr(search, f.name):
            raise TuningError(
                f"{path} is a study with another `{f.name}`; choose another file with --study, or delete it"
            )
    return trials


def _check(trial: Trial, search: Search) -> None:
    if not isinstance(trial.params, dict) or set(trial.params) != set(search.searched):
        raise ValueError("a trial has other settings than those searched")
    if trial.state not in get_args(State) or not isinstance(trial.note, str):
        raise ValueError("a trial has an unknown state")
    if not all(isinstance(n, float) and 0 <= n < math.inf for n in [*trial.accuracies, trial.seconds]):
        raise ValueError("a trial has a figure that is none")
    least = {"complete": len(search.seeds), "pruned": 1, "failed": 0}[trial.state]
    if not least <= len(trial.accuracies) <= len(search.seeds):
        raise ValueError(f"a trial has {len(trial.accuracies)} figures for {len(search.seeds)} seeds")
