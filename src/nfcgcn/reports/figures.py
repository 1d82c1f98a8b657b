"""Figures as self-contained SVG documents: training curves, confusion matrix, learned representation, contributions.

The same input gives the same bytes. Text stays text, so that it can be searched, copied and read aloud.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from nfcgcn.reports.drawing import INK, MARKERS, MUTED, PALE, PALETTE, canvas, colour_of, is_wide, short, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]

MOST_COUNTED_CLASSES = 40
"""A confusion matrix of more classes shows colours only."""
MOST_LABELLED_CLASSES = 60
MOST_VECTOR_POINTS = 2000
_CELL = (0.45, 0.28)
"""Width and height of a cell in the figure of contributions, in inches."""


def curves(histories: Sequence[Sequence[Mapping[str, float]]], best_epochs: Sequence[int]) -> str:
    """Draw loss and accuracy over the epochs, training and validation, with the best epoch marked.

    There is one history per seed, of any length, with one record per epoch: ``epoch`` and
    ``{train,val}_{loss,accuracy}``, accuracies from 0 to 1. Several seeds are drawn as their mean, with a band from the
    lowest to the highest.
    """
    histories = [history for history in histories if len(history)]
    with canvas() as figure:
        from matplotlib.ticker import MaxNLocator, PercentFormatter

        figure.set_size_inches(8.8, 3.6)
        best = float(np.median(best_epochs)) if len(best_epochs) else None
        for column, (what, title) in enumerate((("loss", "Loss"), ("accuracy", "Accuracy"))):
            axes = figure.add_axes((0.07 + 0.5 * column, 0.19, 0.345, 0.66))
            axes.set_title(title, loc="left", pad=20)
            axes.set_xlabel("epoch")
            axes.grid(axis="y", color=PALE, linewidth=0.6, alpha=0.7)
            _curve_panel(axes, histories, what, best, "best epoch" if len(best_epochs) == 1 else "median best epoch")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
            if what == "accuracy":
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        if len(histories) > 1:
            uneven = len({history[-1]["epoch"] for history in histories}) > 1
            note = f"line: mean of {len(histories)} seeds" + (
                ", as long as at least half of them train" if uneven else ""
            )
            figure.text(0.07, 0.0, note + "; band: lowest to highest", color=MUTED, fontsize=8)
        return svg(figure)


def confusion(matrix: Array, class_names: Sequence[str]) -> str:
    """Draw a confusion matrix ``[C, C]`` of counts: rows are true classes, columns predicted ones.

    Colours show shares of a row; a row without nodes is grey.
    """
    counts = np.asarray(matrix)
    num_classes = len(counts)
    totals = counts.sum(axis=1, keepdims=True)
    share = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    side = float(np.clip(0.62 * num_classes, 2.2, 10.0))
    cell = 72 * side / max(num_classes, 1)
    with canvas() as figure:
        from matplotlib import colormaps

        figure.set_size_inches(side, side)
        axes = figure.add_axes((0, 0, 1, 1))
        colours = colormaps["Blues"].with_extremes(bad="#e9ebee")
        edge: dict[str, Any] = {"edgecolors": "white", "linewidth": 0.8} if num_classes <= 24 else {"rasterized": True}
        image = axes.pcolormesh(np.ma.masked_invalid(share), cmap=colours, vmin=0, vmax=1, **edge)
        axes.invert_yaxis()
        axes.spines[:].set_visible(False)
        if num_classes <= MOST_COUNTED_CLASSES:
            _write_counts(axes, counts, share, cell)

        size = min(9.0, 0.75 * cell)
        step = 1 if size >= 4.5 else int(np.ceil(4.5 / size))
        names = [short(name, 22) for name in class_names[:num_classes:step]]
        ticks = np.arange(0, num_classes, step) + 0.5
        fits = max((len(name) for name in names), default=0) * 0.65 * size < cell
        axes.set_xticks(ticks, names, rotation=0 if fits else 90, fontsize=max(size, 4.5))
        axes.set_yticks(ticks, names, fontsize=max(size, 4.5))
        axes.tick_params(length=0, labelcolor=INK)
        axes.set_xlabel("predicted class", labelpad=8)
        axes.set_ylabel("true class", labelpad=8)

        bar = figure.add_axes((1 + 0.2 / side, 1 - min(2.0 / side, 1), 0.12 / side, min(2.0 / side, 1)))
        figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1], format=lambda value, _: f"{value:.0%}")
        bar.tick_params(length=0, labelsize=8)
        bar.spines[:].set_visible(False)
        bar.set_ylabel("share of the true class", fontsize=8)
        wide = max((sum(map(is_wide, name)) for name in names), default=0)
        return svg(figure, pad=0.12 + 0.06 * wide)


def representation(points: Array, labels: Array, predictions: Array, class_names: Sequence[str]) -> str:
    """Draw nodes as points ``[M, 2]``: the colour and, beyond eight classes, the marker too shows the true class.

    A ring marks a wrong prediction.
    """
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    places = _unit_square(np.asarray(points, dtype=np.float64))
    low, high = (places.min(axis=0), places.max(axis=0)) if len(places) else (np.zeros(2), np.ones(2))
    low, high = np.minimum(low, 0.25) - 0.03, np.maximum(high, 0.75) + 0.03
    with canvas() as figure:
        inches = 7.4
        figure.set_size_inches(*(inches * (high - low)))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        raster = len(places) > MOST_VECTOR_POINTS
        area = float(np.clip(24_000 / max(len(places), 1), 5, 34))
        for label in np.unique(labels):
            x, y = places[labels == label].T
            # A thin dark edge keeps yellow visible on white.
            axes.scatter(x, y, s=area, rasterized=raster, edgecolors="#00000066", linewidths=0.3, **_look(label))
        wrong = labels != predictions
        x, y = places[wrong].T
        axes.scatter(x, y, s=3.2 * area, facecolors="none", edgecolors=INK, linewidths=0.8, rasterized=raster)
        present, sizes = np.unique(labels, return_counts=True)
        named = np.sort(present[np.argsort(-sizes, kind="stable")[:MOST_LABELLED_CLASSES]])
        _label_clusters(axes, places, labels, named, class_names, inches)
        note = f"ring: predicted as another class ({wrong.sum():,} of {len(places):,} nodes)"
        if len(named) < len(present):
            note += f"; names: the {len(named)} largest of {len(present)} classes"
        axes.text(low[0], low[1] - 0.02, note if len(places) else "no nodes to show", color=MUTED, fontsize=8, va="top")
        return svg(figure)


def contributions(
    table: Array, rows: Sequence[Sequence[str]], columns: Sequence[str], *, sums: Literal["both", "rows"], meaning: str
) -> str:
    """Draw contributions as a heat map: blue for positive ones, red for negative ones.

    The last row of ``table [R + 1, F + 1]`` is for all nodes that are not in `rows`, its last column for all features
    that are not in `columns`; either is left out if it is 0. A row is described by its name and, after it, further
    texts. A sum is written beside each row and, with ``sums="both"``, below each column. `meaning` says what a cell is.
    """
    table = np.asarray(table, dtype=np.float64)
    largest = float(np.abs(table[:-1, :-1]).max(initial=0)) or 1.0
    labels = [" · ".join([short(name, 26), *(short(more, 16) for more in rest if more)]) for name, *rest in rows]
    names, heads = [*labels, "other nodes"], [*(short(name, 26) for name in columns), "other features"]
    if not table[-1].any():
        table, names = table[:-1], names[:-1]
    if not table[:, -1].any():
        table, heads = table[:, :-1], heads[:-1]
    table, heads = np.hstack([table, table.sum(axis=1, keepdims=True)]), [*heads, "sum"]
    if sums == "both":
        table, names = np.vstack([table, table.sum(axis=0)]), [*names, "sum"]
    lefts = np.arange(len(heads)) + 0.35 * (np.arange(len(heads)) >= len(columns))
    tops = np.arange(len(names)) + 0.35 * (np.arange(len(names)) >= len(rows))
    with canvas() as figure:
        figure.set_size_inches(_CELL[0] * (lefts[-1] + 1), _CELL[1] * (tops[-1] + 1))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, lefts[-1] + 1), ylim=(tops[-1] + 1, 0))
        axes.spines[:].set_visible(False)
        unit = _write_cells(axes, table, lefts, tops, (len(rows), len(columns)), largest)
        axes.set_xticks(lefts + 0.5, heads, rotation=90, fontsize=8)
        axes.set_yticks(tops + 0.5, names, fontsize=8)
        axes.xaxis.tick_top()
        axes.tick_params(length=0, labelcolor=INK)
        axes.text(0, tops[-1] + 1.6, f"{meaning}{unit}", color=MUTED, fontsize=8, va="top")
        wide = max(sum(map(is_wide, name)) for name in names + heads)
        return svg(figure, pad=0.12 + 0.06 * wide)


def _write_cells(axes: Axes, table: Array, lefts: Array, tops: Array, coloured: tuple[int, int], largest: float) -> str:
    """Colour the first rows and columns, write every number, and return the unit as text."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    exponent = int(np.floor(np.log10(np.abs(table).max(initial=0) or 1.0)))
    unit = 1.0 if -3 <= exponent <= 3 else 10.0**exponent
    least = 1 if largest < 100 * unit else 0  # beside a 15, 0.5 and 1.4 are not the same
    decimals = int(np.clip(1 - np.floor(np.log10(largest / unit)), least, 4))
    for row, column in np.ndindex(table.shape):
        value, left, top = table[row, column], lefts[column], tops[row]
        inside = row < coloured[0] and column < coloured[1]
        if inside:
            face = colormaps["RdBu"](0.5 + 0.5 * value / largest)
            axes.add_patch(Rectangle((left, top), 1, 1, facecolor=face, edgecolor="white", linewidth=0.8))
        if inside and not value:
            continue
        text = f"{value / unit:+.{decimals}f}"
        if value and not text.strip("+-0."):  # too small for so many decimals
            digits, power = f"{value / unit:+.0e}".split("e")
            text = f"{digits}e{int(power)}"
        text = text.replace("-", "\u2212") if value else text[1:]
        ink = "white" if inside and abs(value) > 0.65 * largest else INK if inside else MUTED
        size = min(7.5, 72 * _CELL[0] / (0.64 * (len(text) + 0.5)))
        axes.text(left + 0.5, top + 0.53, text, ha="center", va="center", color=ink, fontsize=size)
    return "" if unit == 1.0 else f", in units of 1e{exponent}"


def _curve_panel(axes: Axes, histories: list[Any], what: str, best: float | None, best_label: str) -> None:
    epochs = np.array(sorted({record["epoch"] for history in histories for record in history}))
    running = np.array([[history[-1]["epoch"] >= epoch for epoch in epochs] for history in histories])
    # A mean over the few longest runs would not be comparable; half of the runs always reach the median best epoch.
    epochs = epochs[: int((2 * running.sum(axis=0) >= len(histories)).sum())] if histories else epochs
    ends: list[tuple[float, str, str]] = []
    for part, name, colour in (("train", "training", PALETTE[5]), ("val", "validation", PALETTE[0])):
        values = np.full((len(histories), len(epochs)), np.nan)
        for row, history in zip(values, histories, strict=True):
            recorded = {record["epoch"]: record[f"{part}_{what}"] for record in history}
            row[:] = [recorded.get(epoch, np.nan) for epoch in epochs]
        finite = np.isfinite(values)
        seen = finite.any(axis=0)
        if not seen.any():
            continue
        kept = np.where(finite, values, 0)
        mean = np.divide(kept.sum(axis=0), finite.sum(axis=0), out=np.full(len(epochs), np.nan), where=seen)
        if len(histories) > 1:
            low = np.where(seen, np.where(finite, values, np.inf).min(axis=0), np.nan)
            high = np.where(seen, np.where(finite, values, -np.inf).max(axis=0), np.nan)
            axes.fill_between(epochs, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(epochs, mean, color=colour, linewidth=1.6, marker="o" if seen.sum() == 1 else "", markersize=4)
        ends.append((float(mean[seen][-1]), name, colour))
        if part == "val" and best is not None:
            height = mean[np.abs(epochs - best).argmin()]
            axes.plot([best], [height], "o", color=colour, markersize=6, markeredgecolor="white", zorder=5)
    if not ends:
        axes.text(0.5, 0.5, "no finite value recorded", transform=axes.transAxes, ha="center", color=MUTED)
        return
    first, last = float(epochs[0]), float(epochs[-1])
    axes.set_xlim(first - 0.5 * (first == last), last + 0.5 * (first == last))
    _label_ends(axes, ends)
    if best is not None:
        axes.axvline(best, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        side = (best - first) / max(last - first, 1)
        where = "left" if side < 0.25 else "right" if side > 0.75 else "center"
        label = f"{best_label} {best:g}"
        axes.text(best, 1.02, label, transform=axes.get_xaxis_transform(), ha=where, fontsize=8, color=MUTED)


def _label_ends(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    heights = [(end - low) / (high - low) for end, _, _ in ends]
    if len(heights) == 2 and abs(heights[0] - heights[1]) < 0.075:
        middle, up = sum(heights) / 2, 0.0375 if heights[0] >= heights[1] else -0.0375
        heights = [middle + up, middle - up]
    for height, (_, name, colour) in zip(heights, ends, strict=True):
        axes.text(1.02, height, name, transform=axes.transAxes, va="center", color=colour, fontweight="bold")


def _write_counts(axes: Axes, counts: Array, share: Array, points: float) -> None:
    size = min(10.0, 0.42 * points)
    for row, column in np.ndindex(counts.shape):
        text = f"{counts[row, column]:.0f}"
        fitting = min(size, 0.9 * points / (0.64 * len(text)))  # a digit of DejaVu Sans is 0.64 em wide
        if fitting < 4 or (text == "0" and len(counts) > 10):
            continue
        colour = "white" if share[row, column] > 0.55 else MUTED if text == "0" else INK
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize=fitting)


def _label_clusters(
    axes: Axes, places: Array, labels: Array, named: Array, class_names: Sequence[str], inches: float
) -> None:
    size = 9.0 if len(named) <= 10 else 7.5 if len(named) <= 25 else 6.5
    names = [short(class_names[label], 24 if len(named) <= 10 else 14) for label in named]
    medians = np.array([np.median(places[labels == label], axis=0) for label in named]).reshape(-1, 2)
    widths = [sum(1.0 if is_wide(letter) else 0.64 for letter in name) + 1.0 for name in names]
    boxes = np.array([(width, 1.9) for width in widths]).reshape(-1, 2) * size / 72 / inches
    if len(named) > 10:  # a name would cover clusters this small: write it above them
        tops = [np.quantile(places[labels == label, 1], 0.75) for label in named]
        medians[:, 1] = tops + 0.6 * boxes[:, 1]
    for label, name, median, place in zip(named, names, medians, _spread(medians, boxes), strict=True):
        edge = colour_of(int(label))
        if np.abs(place - median).max() > 0.03:
            axes.plot(*np.stack([median, place]).T, color=INK, linewidth=0.6, clip_on=False)
        box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": edge, "alpha": 0.8, "linewidth": 1.2}
        axes.text(place[0], place[1], name, ha="center", va="center", fontsize=size, bbox=box)


def _spread(centres: Array, boxes: Array) -> Array:
    """Push boxes in or near the unit square apart until none overlap, in a limited number of rounds."""
    half = boxes / 2
    low, high = np.minimum(half - 0.12, 0.5), np.maximum(1.12 - half, 0.5)
    places = np.clip(centres, low, high)
    for _ in range(150):
        moved = False
        for one, other in combinations(range(len(places)), 2):
            overlap = half[one] + half[other] - np.abs(places[one] - places[other])
            if overlap.min() > 1e-6:
                axis = int(overlap.argmin())
                push = overlap[axis] / 2 * (1 if places[other, axis] >= places[one, axis] else -1)
                places[one, axis] -= push
                places[other, axis] += push
                moved = True
        places = np.clip(places, low, high)
        if not moved:
            break
    return places


def _unit_square(points: Array) -> Array:
    if not len(points):
        return np.zeros((0, 2))
    low, high = points.min(axis=0), points.max(axis=0)
    span = float((high - low).max())
    return np.asarray((points - (low + high) / 2) / (span or 1.0) + 0.5)


def _look(label: int) -> dict[str, Any]:
    return {"color": colour_of(int(label)), "marker": MARKERS[label // len(PALETTE) % len(MARKERS)]}
