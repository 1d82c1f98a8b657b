"""An experiment's tables as cells of text, the same for HTML, Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from nfcgcn.evaluation import summarise
from nfcgcn.reproduction.comparison import Cell, Comparison, contrasts, decimals, title, value_name
from nfcgcn.reproduction.evidence import seconds, signed, with_interval
from nfcgcn.reproduction.ledger import DEGREES

EPOCHS_SHOWN = (10, 25, 50, 100, 200)


@dataclass(frozen=True)
class Sheet:
    """A table: columns that name a row, then groups of columns. A name that starts with ">" is set to the right."""

    caption: str
    head: tuple[str, ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """The title of each group, empty where it needs none, and its columns."""
    rows: tuple[tuple[str, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, without their groups."""
        return self.head + tuple(column for _, columns in self.groups for column in columns)

    @property
    def starts(self) -> tuple[int, ...]:
        """The column that each group begins with."""
        sizes = [len(columns) for _, columns in self.groups]
        return tuple(accumulate(sizes[:-1], initial=len(self.head)))


def sheets(comparison: Comparison) -> list[Sheet]:
    """Return the tables of an experiment."""
    show = comparison.experiment.show
    if show == "cost":
        return [_costs(comparison)]
    if show == "degrees":
        return [_degrees(comparison)]
    if show == "curves":
        return [_curves(comparison)]
    found = [_convergence(comparison) if show == "convergence" else _accuracies(comparison)]
    tests = _tests(comparison)
    return [*found, tests] if tests.rows else found


def mean_and_deviation(values: Iterable[float], digits: int = 2, *, count: bool = True) -> str:
    """Write a mean with its deviation and, in brackets, of how many runs."""
    values = list(values)
    if not values:
        return "n/a"
    summary = summarise(values)
    spread = "" if summary["std"] is None else f" ± {summary['std']:.{digits}f}"
    return f"{summary['mean']:.{digits}f}{spread}" + (f" ({len(values)})" if count else "")


def _seeds(comparison: Comparison) -> tuple[bool, str]:
    """Say whether cells need their number of seeds each, and what the caption says of it."""
    counts = {len(cell.records) for cell in comparison.cells} - {0}
    if len(counts) == 1:
        (count,) = counts
        return False, f"mean ± deviation of {count} seeds" if count > 1 else "one seed"
    return True, "mean ± deviation (number of seeds)"


def _accuracies(comparison: Comparison) -> Sheet:
    axis, datasets = comparison.experiment.axis, comparison.experiment.datasets
    printed = any(cell.entry.paper is not None for cell in comparison.cells)
    columns = (">ours", ">paper", ">difference", "verdict") if printed else (">ours",)
    count, said = _seeds(comparison)
    rows = []
    for row, x in dict.fromkeys((cell.entry.row, cell.entry.x) for cell in comparison.cells):
        name = (row,) if axis is None else (row, value_name(x))
        cells = {cell.entry.dataset: cell for cell in comparison.find(row=row) if cell.entry.x == x}
        texts = [_accuracy(cells[d], count=count) if d in cells else ("", "", "", "") for d in datasets]
        rows.append((*name, *(text for cell in texts for text in cell[: len(columns)])))
    return Sheet(
        f"Test accuracy in %, {said}",
        ("model",) if axis is None else ("model", f">{axis.label}"),
        tuple((title(dataset), columns) for dataset in datasets),
        tuple(rows),
    )


def _accuracy(cell: Cell, *, count: bool) -> tuple[str, str, str, str]:
    difference = cell.difference
    paper = "" if cell.entry.paper is None else f"{cell.entry.paper:.{cell.digits}f}"
    away = "" if difference is None else signed(difference)
    verdict = cell.verdict or ("n/a" if cell.entry.paper is not None else "")
    return mean_and_deviation(cell.scores.values(), count=count), paper, away, verdict


def _tests(comparison: Comparison) -> Sheet:
    datasets = comparison.experiment.datasets
    rows: dict[str, dict[str, tuple[str, str]]] = {}
    found = contrasts(comparison)
    tested = {contrast.label for contrast in found if contrast.estimate}
    for contrast in (contrast for contrast in found if contrast.label in tested):
        test = contrast.estimate
        digits = 1 if comparison.experiment.show == "convergence" else 2
        text = ("n/a", "") if test is None else (with_interval(test, digits), _probability(test.p))
        rows.setdefault(contrast.label, {})[contrast.dataset] = text
    unit = "epochs" if comparison.experiment.show == "convergence" else "points"
    return Sheet(
        f"Paired tests over shared seeds: difference in {unit} with its 95 % interval",
        ("what",),
        tuple((title(dataset), (">difference", ">p")) for dataset in datasets),
        tuple((label, *(t for d in datasets for t in cells.get(d, ("", "")))) for label, cells in rows.items()),
    )


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _convergence(comparison: Comparison) -> Sheet:
    datasets = comparison.experiment.datasets
    count, said = _seeds(comparison)
    rows = []
    for row in comparison.experiment.rows:
        cells = [next(iter(comparison.find(row=row.label, dataset=d)), None) for d in datasets]
        rows.append((row.label, *(text for cell in cells for text in _reached(cell, count=count))))
    columns = (">epochs", ">seconds")
    return Sheet(
        f"Until 99 % of the validation accuracy of epoch 200, {said}; seconds by those of an epoch in the cost table",
        ("model",),
        tuple((title(dataset), columns) for dataset in datasets),
        tuple(rows),
    )


def _reached(cell: Cell | None, *, count: bool) -> tuple[str, str]:
    if cell is None:
        return "", ""
    epochs = list(cell.epochs.values())
    seconds = f"{np.mean(epochs) * cell.pace:.2f}" if epochs and cell.pace is not None else "n/a"
    return mean_and_deviation(epochs, 1, count=count), seconds


def _curves(comparison: Comparison) -> Sheet:
    datasets = comparison.experiment.datasets
    count, said = _seeds(comparison)
    rows = []
    for row in comparison.experiment.rows:
        texts: list[str] = []
        for dataset in datasets:
            runs = [run for c in comparison.find(row=row.label, dataset=dataset) for run in histories(c)]
            for epoch in EPOCHS_SHOWN:
                values = [100 * run["val_accuracy"][epoch - 1] for run in runs if len(run["val_accuracy"]) >= epoch]
                texts.append(mean_and_deviation(values, count=count))
        rows.append((row.label, *texts))
    return Sheet(
        f"Validation accuracy in % at an epoch, {said}",
        ("model",),
        tuple((title(dataset), tuple(f">{epoch}" for epoch in EPOCHS_SHOWN)) for dataset in datasets),
        tuple(rows),
    )


def histories(cell: Cell) -> list[dict[str, list[float]]]:
    """Return the curves that were kept, a run each."""
    return [record["history"] for record in cell.records if "history" in record]


def _costs(comparison: Comparison) -> Sheet:
    datasets = comparison.experiment.datasets
    rows = []
    for row in comparison.experiment.rows:
        texts: list[str] = []
        for dataset in datasets:
            cell = next(iter(comparison.find(row=row.label, dataset=dataset)), None)
            texts += ("",) * 4 if cell is None else _cost(cell, gcn_seconds(comparison, dataset))
        rows.append((row.label, *texts))
    columns = (">parameters", ">ms", ">times GCN", ">MiB")
    machines = sorted({record["hardware"] for cell in comparison.cells for record in cell.records})
    return Sheet(
        f"An epoch of training with its validation: its time, and the most memory that training adds; "
        f"{', '.join(machines)}",
        ("model",),
        tuple((title(dataset), columns) for dataset in datasets),
        tuple(rows),
    )


def _cost(cell: Cell, gcn: float | None) -> tuple[str, ...]:
    if not cell.records:
        return ("n/a",) * 4
    record = cell.records[0]
    times = f"{seconds(cell) / gcn:.2f}" if gcn else "n/a"
    return f"{record['parameters']:,}", f"{1000 * seconds(cell):.2f}", times, f"{record['peak_mib']:.1f}"


def gcn_seconds(comparison: Comparison, dataset: str) -> float | None:
    """Return the seconds of GCN's epoch, which others are measured by."""
    return next((seconds(c) for c in comparison.find(dataset=dataset, model="gcn") if c.records), None)


def _degrees(comparison: Comparison) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for cell in comparison.cells:
        name = title(cell.entry.dataset)
        if cell.entry.paper is not None:
            digits = [decimals([figure]) for figure in cell.entry.paper]
            told = (f"{figure:.{d}f}" for figure, d in zip(cell.entry.paper, digits, strict=True))
            rows.append((name, "paper", *told, ""))
        for record in cell.records:
            found = record["degrees"]
            for key, counted in (("without_self", "neighbours"), ("with_self", "neighbours and the node itself")):
                figures = (f"{found[key][what]:.4g}" for what in DEGREES)
                rows.append((name, counted, *figures, str(found["isolated"]) if key == "without_self" else ""))
    columns = tuple(f">{what}" for what in DEGREES)
    return Sheet("Degrees", ("dataset", "counted"), (("", (*columns, ">without neighbours")),), tuple(rows))


def markdown(sheet: Sheet) -> str:
    """Write a table as GitHub reads it."""
    names = [column.lstrip(">") for column in sheet.head]
    names += [f"{group} {c.lstrip('>')}".strip() for group, columns in sheet.groups for c in columns]
    rule = ["---:" if column.startswith(">") else "---" for column in sheet.columns]
    lines = [names, rule, *sheet.rows]
    return "\n".join(_markdown_row(line) for line in lines) + "\n"


def _markdown_row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(plain(str(cell)) for cell in cells) + " |"


def plain(text: str) -> str:
    """Escape what Markdown would read as anything but text."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_[]|~" else letter for letter in text)
