"""The tables of an experiment as cells of text, the same for HTML, Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from nfcgcn.evaluation import summarise
from nfcgcn.reproduction.comparison import Cell, Comparison, decimals, paired_tests, title, value_name
from nfcgcn.reproduction.evidence import seconds, signed, with_interval
from nfcgcn.reproduction.ledger import DEGREES

EPOCHS_SHOWN = (10, 25, 50, 100, 200)


@dataclass(frozen=True)
class Table:
    """A table: columns that name a row, then groups of columns. A ">" before a name means aligned to the right."""

    caption: str
    head: tuple[str, ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """The title of each group, or "" for none, and its columns."""
    rows: tuple[tuple[str, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, without their groups."""
        return self.head + tuple(column for _, columns in self.groups for column in columns)

    @property
    def starts(self) -> tuple[int, ...]:
        """The position of the first column of each group."""
        sizes = [len(columns) for _, columns in self.groups]
        return tuple(accumulate(sizes[:-1], initial=len(self.head)))


def tables(comparison: Comparison) -> list[Table]:
    """Return the tables of an experiment."""
    show = comparison.experiment.show
    if show == "cost":
        return [_costs(comparison)]
    if show == "degrees":
        return [_degrees(comparison)]
    if show == "curves":
        return [_curves(comparison)]
    results = _convergence(comparison) if show == "convergence" else _accuracies(comparison)
    tests = _tests(comparison)
    return [results, tests] if tests.rows else [results]


def mean_and_deviation(values: Iterable[float], digits: int = 2, *, count: bool = True) -> str:
    """Write a mean with its standard deviation and, with `count`, the number of runs in brackets."""
    values = list(values)
    if not values:
        return "n/a"
    summary = summarise(values)
    spread = "" if summary["std"] is None else f" ± {summary['std']:.{digits}f}"
    return f"{summary['mean']:.{digits}f}{spread}" + (f" ({len(values)})" if count else "")


def _seeds(comparison: Comparison) -> tuple[bool, str]:
    """Return whether each cell must show its number of seeds, and how the caption describes the numbers."""
    counts = {len(cell.records) for cell in comparison.cells} - {0}
    if len(counts) == 1:
        (count,) = counts
        return False, f"mean ± deviation of {count} seeds" if count > 1 else "one seed"
    return True, "mean ± deviation (number of seeds)"


def _accuracies(comparison: Comparison) -> Table:
    axis, datasets = comparison.experiment.axis, comparison.experiment.datasets
    printed = any(cell.entry.paper is not None for cell in comparison.cells)
    columns = (">ours", ">paper", ">difference", "verdict") if printed else (">ours",)
    count, description = _seeds(comparison)
    rows = []
    for row, x in dict.fromkeys((cell.entry.row, cell.entry.x) for cell in comparison.cells):
        name = (row,) if axis is None else (row, value_name(x))
        cells = {cell.entry.dataset: cell for cell in comparison.find(row=row) if cell.entry.x == x}
        texts = [_accuracy(cells[d], count=count) if d in cells else ("", "", "", "") for d in datasets]
        rows.append((*name, *(text for cell in texts for text in cell[: len(columns)])))
    return Table(
        f"Test accuracy in %, {description}",
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


def _tests(comparison: Comparison) -> Table:
    datasets = comparison.experiment.datasets
    rows: dict[str, dict[str, tuple[str, str]]] = {}
    tests = paired_tests(comparison)
    labels_with_result = {test.label for test in tests if test.estimate}
    digits = 1 if comparison.experiment.show == "convergence" else 2
    for test in (test for test in tests if test.label in labels_with_result):
        estimate = test.estimate
        text = ("n/a", "") if estimate is None else (with_interval(estimate, digits), _probability(estimate.p))
        rows.setdefault(test.label, {})[test.dataset] = text
    unit = "epochs" if comparison.experiment.show == "convergence" else "points"
    return Table(
        f"Paired tests over shared seeds: difference in {unit} with its 95 % interval",
        ("comparison",),
        tuple((title(dataset), (">difference", ">p")) for dataset in datasets),
        tuple((label, *(t for d in datasets for t in cells.get(d, ("", "")))) for label, cells in rows.items()),
    )


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _convergence(comparison: Comparison) -> Table:
    datasets = comparison.experiment.datasets
    count, description = _seeds(comparison)
    rows = []
    for row in comparison.experiment.rows:
        cells = [next(iter(comparison.find(row=row.label, dataset=d)), None) for d in datasets]
        rows.append((row.label, *(text for cell in cells for text in _reached(cell, count=count))))
    columns = (">epochs", ">seconds")
    return Table(
        f"Until 99 % of the validation accuracy of epoch 200, {description}; "
        "seconds are epochs times the seconds per epoch in the table of costs",
        ("model",),
        tuple((title(dataset), columns) for dataset in datasets),
        tuple(rows),
    )


def _reached(cell: Cell | None, *, count: bool) -> tuple[str, str]:
    if cell is None:
        return "", ""
    epochs = list(cell.epochs_to_99.values())
    seconds = (
        f"{np.mean(epochs) * cell.seconds_per_epoch:.2f}" if epochs and cell.seconds_per_epoch is not None else "n/a"
    )
    return mean_and_deviation(epochs, 1, count=count), seconds


def _curves(comparison: Comparison) -> Table:
    datasets = comparison.experiment.datasets
    count, description = _seeds(comparison)
    rows = []
    for row in comparison.experiment.rows:
        texts: list[str] = []
        for dataset in datasets:
            runs = [run for c in comparison.find(row=row.label, dataset=dataset) for run in histories(c)]
            for epoch in EPOCHS_SHOWN:
                values = [100 * run["val_accuracy"][epoch - 1] for run in runs if len(run["val_accuracy"]) >= epoch]
                texts.append(mean_and_deviation(values, count=count))
        rows.append((row.label, *texts))
    return Table(
        f"Validation accuracy in % after so many epochs, {description}",
        ("model",),
        tuple((title(dataset), tuple(f">{epoch}" for epoch in EPOCHS_SHOWN)) for dataset in datasets),
        tuple(rows),
    )


def histories(cell: Cell) -> list[dict[str, list[float]]]:
    """Return the stored training curves, one per run."""
    return [record["history"] for record in cell.records if "history" in record]


def _costs(comparison: Comparison) -> Table:
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
    return Table(
        f"Time of an epoch of training with its validation, and peak memory that training adds; {', '.join(machines)}",
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
    """Return how many seconds an epoch of GCN takes, with which the others are compared."""
    return next((seconds(c) for c in comparison.find(dataset=dataset, model="gcn") if c.records), None)


def _degrees(comparison: Comparison) -> Table:
    rows: list[tuple[str, ...]] = []
    for cell in comparison.cells:
        name = title(cell.entry.dataset)
        if cell.entry.paper is not None:
            printed = (f"{number:.{decimals([number])}f}" for number in cell.entry.paper)
            rows.append((name, "paper", *printed, ""))
        for record in cell.records:
            degrees = record["degrees"]
            for key, counted in (("without_self", "neighbours"), ("with_self", "neighbours and the node itself")):
                numbers = (f"{degrees[key][what]:.4g}" for what in DEGREES)
                rows.append((name, counted, *numbers, str(degrees["isolated"]) if key == "without_self" else ""))
    columns = tuple(f">{what}" for what in DEGREES)
    return Table("Degrees", ("dataset", "counted"), (("", (*columns, ">without neighbours")),), tuple(rows))


def markdown(table: Table) -> str:
    """Write a table in the Markdown of GitHub."""
    names = [column.lstrip(">") for column in table.head]
    names += [f"{group} {c.lstrip('>')}".strip() for group, columns in table.groups for c in columns]
    alignment = ["---:" if column.startswith(">") else "---" for column in table.columns]
    lines = [names, alignment, *table.rows]
    return "\n".join(_markdown_row(line) for line in lines) + "\n"


def _markdown_row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(plain(str(cell)) for cell in cells) + " |"


def plain(text: str) -> str:
    """Escape what Markdown would not read as plain text."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_[]|~" else letter for letter in text)
