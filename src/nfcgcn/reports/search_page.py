"""A search for settings as one HTML page: what it found, what mattered, and what it was worth on test nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nfcgcn.errors import counted
from nfcgcn.reports.html import fill, image, percent
from nfcgcn.reports.search_figures import against_setting, course

TITLE = "nfcgcn tune"
"""The first words of the page's title, by which the file is known as one that may be overwritten."""


@dataclass(frozen=True)
class SearchedSetting:
    """One setting of a search."""

    name: str
    meaning: str
    before: Any
    found: Any
    searched: str
    """Its range in words."""
    values: Sequence[Any]
    """Its value in each trial."""
    choices: Sequence[str] = ()
    log: bool = False
    importance: float | None = None


@dataclass(frozen=True)
class ShownTrial:
    """One trial: its validation accuracies, one per seed, and how it ended."""

    accuracies: Sequence[float]
    complete: bool

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.accuracies))


@dataclass(frozen=True)
class ScoresOnTest:
    """Test accuracies of the settings found and of those before, one per seed; none where training failed."""

    found_runs: Sequence[float]
    before_runs: Sequence[float]
    difference: tuple[float, float, float] | None
    """The mean difference and its 95 % interval; None for a single seed."""

    @property
    def found(self) -> float:
        """The mean with the settings found."""
        return float(np.mean(self.found_runs))

    @property
    def before(self) -> float | None:
        """The mean with the settings before."""
        return float(np.mean(self.before_runs)) if self.before_runs else None


@dataclass(frozen=True)
class SearchPage:
    """What the page of a search shows; trials that failed are counted but not shown."""

    graph: str
    model: str
    split: str
    num_seeds: int
    num_val: int
    """Nodes that any seed validates on."""
    trials: Sequence[ShownTrial]
    num_failed: int
    seconds: float
    before: float | None
    """The validation accuracy of the starting settings; None if it is not known or training failed."""
    found: float
    settings: Sequence[SearchedSetting]
    test: ScoresOnTest | None
    interrupted: bool
    preset: str
    """The path of the preset file."""
    command: str | None = None


def render_search(page: SearchPage) -> str:
    """Return the page as HTML."""
    accuracies, complete = [t.accuracy for t in page.trials], [t.complete for t in page.trials]
    settings = sorted(page.settings, key=lambda s: -(s.importance or 0))
    plots = [
        image(
            against_setting(
                s.values, accuracies, complete, choices=s.choices, log=s.log, before=s.before, found=s.found
            )
        )
        for s in settings
    ]
    return fill(
        "search.html",
        page=page,
        title_start=TITLE,
        settings=list(zip(settings, plots, strict=True)),
        has_importance=any(s.importance is not None for s in settings),
        num_complete=sum(complete),
        noise=_noise(page.trials),
        margin=1.96 * float(np.sqrt(page.found * (1 - page.found) / page.num_val)),
        verdict=None if page.test is None else _verdict(page.test),
        course=image(course(accuracies, complete)),
        course_text=_describe_course(page),
    )


def points(value: float) -> str:
    """Write a difference of accuracies in percentage points, with its sign."""
    text = f"{100 * value:+.1f}".replace("-", "\u2212")
    return "0.0" if text[1:] == "0.0" else text


def _verdict(test: ScoresOnTest) -> str:
    """Say whether the search was worth it."""
    if test.before is None:
        return "The former settings could not be scored: training with them failed."
    if test.difference is None:
        return f"Difference {points(test.found - test.before)} points with one seed, which may be chance."
    mean, low, high = test.difference
    text = f"Difference {points(mean)} points, 95% interval {points(low)} to {points(high)}"
    if low > 0:
        return f"{text}: the search was worth it."
    if high < 0:
        return f"{text}: the former settings are better on test nodes."
    return f"{text}: the difference may be chance."


def _noise(trials: Sequence[ShownTrial]) -> float | None:
    """Return the standard deviation between runs of the same settings; None if no trial has two runs."""
    several = [np.asarray(t.accuracies) for t in trials if len(t.accuracies) > 1]
    if not several:
        return None
    squares = sum(float(((a - a.mean()) ** 2).sum()) for a in several)
    return float(np.sqrt(squares / sum(len(a) - 1 for a in several)))


def _describe_course(page: SearchPage) -> str:
    before = "" if page.before is None else f", after {percent(page.before)}% with the former settings"
    return (
        f"Validation accuracy of {counted(len(page.trials), 'trial')} in their order; the best complete one has "
        f"{percent(page.found)}%{before}."
    )
