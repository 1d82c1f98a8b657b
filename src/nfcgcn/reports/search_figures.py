"""Figures of a search: its course, and validation accuracy against the values of a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nfcgcn.reports.drawing import INK, MUTED, PALE, PALETTE, canvas, short, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]
FOUND, STOPPED = PALETTE[0], "#8c96a5"
MOST_NAMED_CHOICES = 8


def course(accuracies: Sequence[float], complete: Sequence[bool]) -> str:
    """Draw the validation accuracy of each trial, in their order, and the best so far."""
    heights, filled = np.asarray(accuracies, float), np.asarray(complete, bool)
    numbers = np.arange(1, len(heights) + 1)
    with canvas() as figure:
        from matplotlib.ticker import MaxNLocator

        figure.set_size_inches(8.8, 3.2)
        axes = figure.add_axes((0.07, 0.16, 0.9, 0.78))
        _draw_trials(axes, numbers, heights, filled, size=26)
        best = np.maximum.accumulate(np.where(filled, heights, -np.inf))
        known = np.isfinite(best)
        if known.any():
            axes.step(numbers[known], best[known], where="post", color=FOUND, linewidth=1.4, zorder=1)
        axes.set_xlim(0.4, len(heights) + 0.6)
        axes.set_xlabel("trial")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        return svg(figure)


def against_setting(
    values: Sequence[Any],
    accuracies: Sequence[float],
    complete: Sequence[bool],
    *,
    choices: Sequence[str] = (),
    log: bool = False,
    before: Any = None,
    found: Any = None,
) -> str:
    """Draw validation accuracy against the values of a setting, one point per trial; mark `before` and `found`."""
    heights, filled = np.asarray(accuracies, float), np.asarray(complete, bool)
    place = {choice: number for number, choice in enumerate(choices)}
    x = np.array([place.get(value, value) for value in values], float)
    if choices:  # points of one choice would lie on each other
        x = x + 0.4 * ((np.arange(len(x)) * 0.618034) % 1 - 0.5)
    with canvas() as figure:
        figure.set_size_inches(3.3, 2.2)
        axes = figure.add_axes((0.16, 0.17, 0.8, 0.77))
        if log:
            axes.set_xscale("log")
        marked = [place.get(value, value) for value in (before, found)]
        axes.set_xlim(*_sides(np.array([*x, *marked], float), log=log))
        for value, style, colour in zip(marked, ((0, (2, 2)), "-"), (MUTED, FOUND), strict=True):
            axes.axvline(value, color=colour, linewidth=1.1, linestyle=style, zorder=1)
        _draw_trials(axes, x, heights, filled, size=18)
        if choices:
            names = [short(choice, 12) for choice in choices]
            axes.set_xlim(-0.5, len(choices) - 0.5)
            axes.set_xticks(range(len(choices)), names if len(choices) <= MOST_NAMED_CHOICES else [""] * len(choices))
        else:
            _write_ticks(axes, x, log=log)
        axes.tick_params(labelsize=8)
        return svg(figure, pad=0.06)


def _sides(x: Array, *, log: bool) -> tuple[float, float]:
    """Return where an axis begins and ends that shows these values, be they all the same."""
    low, high = float(x.min()), float(x.max())
    if log:
        room = (high / low) ** 0.05 if high > low else 2.0
        return low / room, high * room
    room = 0.05 * (high - low) if high > low else 0.5
    return low - room, high + room


def _write_ticks(axes: Axes, x: Array, *, log: bool) -> None:
    """Write few round numbers below the axis, also where a logarithmic one spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if not log:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=bool((x == np.round(x)).all())))
        return
    wide = x.max() / x.min() > 30
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if wide else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_trials(axes: Axes, x: Array, heights: Array, filled: Array, *, size: float) -> None:
    """Draw one point per trial: full for complete ones, hollow for stopped ones, triangles for those far below."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = _limits(heights)
    axes.set_ylim(low, high)
    floor = low + 0.035 * (high - low)
    far = heights < floor
    hollow, full = ~filled & ~far, filled & ~far
    outline: dict[str, Any] = {"s": size, "facecolors": "none", "edgecolors": STOPPED, "linewidths": 0.9, "zorder": 3}
    axes.scatter(x[far], np.full(far.sum(), floor), marker="v", **outline)
    axes.scatter(x[hollow], heights[hollow], **outline)
    axes.scatter(x[full], heights[full], s=size, color=FOUND, edgecolors="white", linewidths=0.5, zorder=4)
    axes.grid(axis="y", color=PALE, linewidth=0.6, alpha=0.7)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda height, _: f"{100 * height:.4g}%"))
    axes.tick_params(labelcolor=INK)


def _limits(heights: Array) -> tuple[float, float]:
    """Return limits that show the better trials well: the worst ones may lie far below them."""
    top, middle = float(heights.max()), float(np.median(heights))
    low = max(float(heights.min()), middle - 1.5 * max(top - middle, 0.01))
    room = 0.08 * max(top - low, 0.01)
    return low - room, top + room
