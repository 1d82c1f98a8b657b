"""The figures of the reproduction, as self-contained SVG documents, and a description of each in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nfcgcn.evaluation import summarise
from nfcgcn.reports.drawing import INK, MARKERS, MUTED, PALE, PALETTE, canvas, short, svg
from nfcgcn.reproduction.comparison import Comparison, axis_point_name, title, value_name
from nfcgcn.reproduction.evidence import seconds
from nfcgcn.reproduction.experiment import Axis
from nfcgcn.reproduction.tables import gcn_seconds, histories

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]

_COLOURS = {"nfc-gcn": 0, "gcn": 5, "gat": 2, "nfc-gcn-2d": 4, "fastgcn": 1, "sage-mean": 3, "gcn-5": 5, "gat-5": 2}
"""The place of each model's colour in the palette; yellow is too faint for lines."""
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_PANEL = (2.6, 2.3)
"""Width and height of a panel with lines, in inches."""
_CURVES = (
    ("train_loss", "Training loss"),
    ("val_loss", "Validation loss"),
    ("train_accuracy", "Training accuracy, %"),
    ("val_accuracy", "Validation accuracy, %"),
)


def draw(comparison: Comparison) -> str | None:
    """Draw the figure of an experiment; return None if its table shows everything."""
    drawings: dict[str, Callable[[Figure, Comparison], None]] = {
        "table": _dots,
        "lines": _lines,
        "curves": _curves,
        "convergence": _reaches,
        "cost": _costs,
    }
    show = comparison.experiment.show
    if show not in drawings or not comparison.num_runs:
        return None
    with canvas() as figure:
        drawings[show](figure, comparison)
        return svg(figure)


def describe(comparison: Comparison) -> str:
    """Describe in words what the figure of an experiment shows."""
    describers: dict[str, Callable[[Comparison, str, str], str]] = {
        "table": _describe_mean,
        "lines": _describe_line,
        "curves": _describe_curve,
        "convergence": _describe_epochs,
        "cost": _describe_cost,
    }
    describe_row = describers[comparison.experiment.show]
    parts = []
    for dataset in comparison.experiment.datasets:
        texts = [text for row in _rows(comparison) if (text := describe_row(comparison, row, dataset))]
        parts += [f"{title(dataset)}: {', '.join(texts)}"] if texts else []
    return f"{comparison.experiment.title}. {'; '.join(parts)}."


def _describe_mean(comparison: Comparison, row: str, dataset: str) -> str:
    return ", ".join(
        f"{row} {cell.summary['mean']:.1f}%" for cell in comparison.find(row=row, dataset=dataset) if cell.summary
    )


def _describe_line(comparison: Comparison, row: str, dataset: str) -> str:
    cells = [cell for cell in comparison.find(row=row, dataset=dataset) if cell.records]
    ends = [cell for cell in (cells[:1] + cells[-1:]) if cell.summary]
    values = (f"{c.summary['mean']:.1f}% at {axis_point_name(comparison, c.entry.x)}" for c in ends if c.summary)
    return f"{row} from {' to '.join(values)}" if ends else ""


def _describe_curve(comparison: Comparison, row: str, dataset: str) -> str:
    runs = [run for cell in comparison.find(row=row, dataset=dataset) for run in histories(cell)]
    if not runs:
        return ""
    last = np.mean([100 * run["val_accuracy"][-1] for run in runs])
    loss = np.mean([run["val_loss"][-1] for run in runs])
    return f"{row} ends at validation loss {loss:.2f} and accuracy {last:.1f}%"


def _describe_epochs(comparison: Comparison, row: str, dataset: str) -> str:
    cells = [cell for cell in comparison.find(row=row, dataset=dataset) if cell.records]
    return ", ".join(f"{row} {np.mean(list(cell.epochs_to_99.values())):.0f} epochs" for cell in cells)


def _describe_cost(comparison: Comparison, row: str, dataset: str) -> str:
    cells = [cell for cell in comparison.find(row=row, dataset=dataset) if cell.records]
    return ", ".join(f"{row} {1000 * seconds(cell):.2f} ms per epoch" for cell in cells)


def _rows(comparison: Comparison) -> list[str]:
    return [row.label for row in comparison.experiment.rows]


def _look(comparison: Comparison, row: str) -> tuple[str, str, Any]:
    """Return colour, marker and dashes: the colour shows the model, marker and dashes the row; our first is solid."""
    rows = comparison.experiment.rows
    model = next(r.model for r in rows if r.label == row)
    colour = PALETTE[_COLOURS.get(model, len(PALETTE) - 1)]
    order = [r.label for r in sorted(rows, key=lambda r: not r.model.startswith("nfc"))]
    position = order.index(row)
    return colour, MARKERS[position % len(MARKERS)], _DASHES[position % len(_DASHES)]


def _lines(figure: Figure, comparison: Comparison) -> None:
    axis = comparison.experiment.axis
    assert axis is not None  # noqa: S101  (`lines` have an axis)
    width, height = _PANEL
    places = _places(axis)
    longest = max(len(short(row, 20)) for row in _rows(comparison))
    step = width + 0.85 + 0.078 * longest
    figure.set_size_inches(1, 1)
    for column, dataset in enumerate(comparison.experiment.datasets):
        axes = figure.add_axes((column * step, 0, width, height))
        axes.set_title(title(dataset), loc="left")
        axes.set_xlabel(axis.label)
        if column == 0:
            axes.set_ylabel("test accuracy, %")
        axes.grid(axis="y", color=PALE, linewidth=0.6, alpha=0.7)
        axes.set_xticks(list(places.values()), [value_name(value) for value in places])
        axes.set_xlim(min(places.values()), max(places.values()))
        axes.margins(y=0.08)
        ends = [end for row in _rows(comparison) for end in _line(axes, comparison, row, dataset, places)]
        _label_ends(axes, ends, height)
    paper = any(cell.entry.paper is not None for cell in comparison.cells)
    _note(
        figure,
        "line: mean over seeds; band: ± one standard deviation" + ("; hollow: the paper's numbers" if paper else ""),
    )


def _places(axis: Axis) -> dict[Any, float]:
    """Return where each value of the axis is drawn: by its logarithm if values grow more than tenfold, text last."""
    numbers = [value for value in axis.values if isinstance(value, int | float)]
    wide = bool(numbers) and min(numbers) > 0 and max(numbers) > 10 * min(numbers)
    places = {value: float(np.log2(value)) if wide else float(value) for value in numbers}
    for value in axis.values:
        if value not in places:
            ends = sorted(places.values())
            places[value] = ends[-1] + (ends[-1] - ends[-2] if len(ends) > 1 else 1.0) if ends else 0.0
    return places


def _line(
    axes: Axes, comparison: Comparison, row: str, dataset: str, places: dict[Any, float]
) -> list[tuple[float, str, str]]:
    """Draw a row and the paper's numbers for it; return where the labels of its lines belong."""
    colour, marker, dashes = _look(comparison, row)
    cells = comparison.find(row=row, dataset=dataset)
    done = [(places[cell.entry.x], cell.summary) for cell in cells if cell.summary]
    x = np.array([place for place, _ in done])
    mean = np.array([summary["mean"] for _, summary in done])
    deviation = np.array([summary["std"] or 0.0 for _, summary in done])
    ends = []
    if len(x):
        axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, mean, color=colour, marker=marker, markersize=5, linewidth=1.6, linestyle=dashes, clip_on=False)
        ends.append((float(mean[-1]), row, colour))
    printed = [(places[cell.entry.x], cell.entry.paper) for cell in cells if cell.entry.paper is not None]
    if printed:
        look: dict[str, Any] = {"color": INK, "markerfacecolor": "white", "markersize": 5, "marker": marker}
        axes.plot(*zip(*printed, strict=True), linewidth=0.9, linestyle=(0, (2, 2)), zorder=3, clip_on=False, **look)
        if printed[-1][0] == max(places.values()):
            ends.append((printed[-1][1], "paper", INK))
        else:
            axes.annotate("paper", printed[-1], (6, 0), textcoords="offset points", va="center", fontsize=8, color=INK)
    return ends


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], height: float) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    heights = spread_out([(end - low) / (high - low) for end, _, _ in ends], 0.17 / height)
    for y, (_, name, colour) in zip(heights, ends, strict=True):
        axes.text(1.04, y, short(name, 20), transform=axes.transAxes, va="center", color=colour, fontweight="bold")


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Move heights between 0 and 1 at least `gap` apart, as little as possible and without changing their order."""
    order = np.argsort(heights, kind="stable")
    groups = [[float(heights[i])] for i in order]
    # Labels that would touch become one block around their common middle, until no two blocks touch.
    while True:
        blocks = [
            (float(np.mean(g)) - gap * (len(g) - 1) / 2, float(np.mean(g)) + gap * (len(g) - 1) / 2) for g in groups
        ]
        touching = next((i for i, (one, two) in enumerate(pairwise(blocks)) if two[0] - one[1] < gap - 1e-9), None)
        if touching is None:
            break
        groups[touching : touching + 2] = [groups[touching] + groups[touching + 1]]
    placed = [start + gap * i for (start, _), group in zip(blocks, groups, strict=True) for i in range(len(group))]
    result = [0.0] * len(heights)
    for height, i in zip(placed, order, strict=True):
        result[int(i)] = height
    return result


def _dots(figure: Figure, comparison: Comparison) -> None:
    rows = _rows(comparison)
    for axes, dataset in _row_panels(figure, comparison, "test accuracy, %"):
        for y, row in enumerate(rows):
            colour, marker, _ = _look(comparison, row)
            for cell in comparison.find(row=row, dataset=dataset):
                if cell.entry.paper is not None:
                    axes.plot([cell.entry.paper], [y], "D", color=INK, markerfacecolor="white", markersize=5.5)
                if cell.summary:
                    low, high = cell.summary["ci95"] or (cell.summary["mean"],) * 2
                    axes.plot([low, high], [y, y], color=colour, linewidth=3, solid_capstyle="butt", alpha=0.6)
                    axes.plot([cell.summary["mean"]], [y], marker, color=colour, markersize=6)
    _note(figure, "filled: our mean with its 95 % interval; hollow: the paper's number")


def _reaches(figure: Figure, comparison: Comparison) -> None:
    rows = _rows(comparison)
    for axes, dataset in _row_panels(figure, comparison, "epochs", height=0.42):
        for y, row in enumerate(rows):
            colour, marker, _ = _look(comparison, row)
            for cell in comparison.find(row=row, dataset=dataset):
                if not cell.records:
                    continue
                x = np.sort(list(cell.epochs_to_99.values()))
                axes.plot(x, y + _beside(x), marker, color=colour, markersize=4, alpha=0.55, markeredgewidth=0)
                mean = summarise(list(x))["mean"]
                axes.plot([mean, mean], [y - 0.33, y + 0.33], color=colour, linewidth=2)
                axes.text(mean, y - 0.36, f"{mean:.0f}", color=colour, fontsize=8, fontweight="bold", ha="center")
        axes.set_xlim(left=0)
    _note(figure, "one dot per seed; bar: mean")


def _beside(x: Array) -> Array:
    """Return offsets that put equal values beside each other."""
    return np.array([0.07 * (int((x[:i] == value).sum()) - ((x == value).sum() - 1) / 2) for i, value in enumerate(x)])


def _costs(figure: Figure, comparison: Comparison) -> None:
    rows = _rows(comparison)
    from matplotlib.ticker import NullFormatter

    for axes, dataset in _row_panels(figure, comparison, "time per epoch, GCN = 1"):
        gcn = gcn_seconds(comparison, dataset)
        cells = [(y, cell) for y, row in enumerate(rows) for cell in comparison.find(row=row, dataset=dataset)]
        times = {y: seconds(cell) / (gcn or 1e-3) for y, cell in cells if cell.records and seconds(cell)}
        axes.set_xscale("log")
        low, high = min([1.0, *times.values()]) / 1.6, max([1.0, *times.values()])
        axes.set_xlim(low, high * (high / low) ** 0.85)  # room for the text after the longest bar
        for y, share in times.items():
            colour, _, _ = _look(comparison, rows[y])
            axes.barh(y, share - low, left=low, height=0.62, color=colour, alpha=0.75, linewidth=0)
            label = f"{_number(share)} \u00d7, {_number(1000 * share * gcn)} ms" if gcn else f"{_number(share)} ms"
            axes.annotate(label, (share, y), (4, 0), textcoords="offset points", va="center", fontsize=7.5, color=INK)
        axes.axvline(1, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        ticks = [10.0**e for e in range(-3, 6) if low <= 10.0**e <= high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
        if gcn is None:
            axes.set_xlabel("ms per epoch")


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def _row_panels(figure: Figure, comparison: Comparison, label: str, *, height: float = 0.27) -> list[tuple[Axes, str]]:
    """Return one panel per dataset, with the names of the rows at the left of the first."""
    rows = _rows(comparison)
    figure.set_size_inches(1, 1)
    panels = []
    for column, dataset in enumerate(comparison.experiment.datasets):
        axes = figure.add_axes((column * 2.75, 0, 2.45, height * len(rows)))
        axes.set_title(title(dataset), loc="left")
        axes.set_xlabel(label)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        names = [short(row, 44) for row in rows] if column == 0 else []
        axes.set_yticks(range(len(rows)), names or [""] * len(rows))
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="both", color=PALE, linewidth=0.6, alpha=0.7)
        axes.set_axisbelow(True)
        axes.margins(x=0.06)
        panels.append((axes, dataset))
    return panels


def _curves(figure: Figure, comparison: Comparison) -> None:
    width, height = 3.4, 2.1
    figure.set_size_inches(1, 1)
    dataset = comparison.experiment.datasets[0]
    for place, (what, name) in enumerate(_CURVES):
        axes = figure.add_axes(((place % 2) * (width + 1.75), -(place // 2) * (height + 0.85), width, height))
        axes.set_title(name, loc="left")
        axes.set_xlabel("epoch")
        axes.grid(axis="y", color=PALE, linewidth=0.6, alpha=0.7)
        ends = []
        for row in _rows(comparison):
            colour, _, dashes = _look(comparison, row)
            runs = [run[what] for cell in comparison.find(row=row, dataset=dataset) for run in histories(cell)]
            if not runs:
                continue
            length = min(map(len, runs))
            values = np.array([run[:length] for run in runs]) * (100 if what.endswith("accuracy") else 1)
            epochs = np.arange(1, length + 1)
            mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1) if len(runs) > 1 else 0
            axes.fill_between(epochs, mean - deviation, mean + deviation, color=colour, alpha=0.18, linewidth=0)
            axes.plot(epochs, mean, color=colour, linewidth=1.5, linestyle=dashes)
            axes.set_xlim(0, length)
            ends.append((float(mean[-1]), row, colour))
        _label_ends(axes, ends, height)
    _note(figure, f"{title(dataset)}; line: mean over seeds; band: ± one standard deviation", below=height + 0.85)


def _note(figure: Figure, text: str, *, below: float = 0.0) -> None:
    figure.text(0, -0.62 - below, text, color=MUTED, fontsize=8, va="top")
