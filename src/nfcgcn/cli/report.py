"""`nfcgcn report`: the page of the reproduction, from stored results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nfcgcn.cli.console import app, make_table, out
from nfcgcn.reproduction import Experiment, Table, compare, read_ledger, select, tables, write_report

FOLDER = Path("runs/reproduction")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder with the results.")] = FOLDER,
    device: Annotated[
        str | None, typer.Option(help="Show the results of cpu or of cuda; by default the device with more results.")
    ] = None,
) -> None:
    """Write the page of the reproduction again: report.html, report.md and figures/. Nothing is trained."""
    write_page(folder, device=device)


def write_page(folder: Path, *, device: str | None = None) -> None:
    """Write the page and print where it is."""
    page = write_report(folder, device=device)
    out.print(f"report: {page}", highlight=False, markup=False, soft_wrap=True)


def print_tables(folder: Path, experiments: Sequence[Experiment], *, device: str | None = None) -> None:
    """Print the main table of each experiment that has been run; paired tests are on the page only."""
    results = select(read_ledger(folder), device=device)
    for experiment in experiments:
        comparison = compare(experiment, results.records)
        if comparison.num_runs:
            table = tables(comparison)[0]
            _print(f"{experiment.title}: {table.caption}", table)


def _print(heading: str, table: Table) -> None:
    out.print(heading, style="bold", highlight=False, markup=False, soft_wrap=True)
    # All groups side by side would be too wide for a terminal: print one table per group.
    for start, (title, columns) in zip(table.starts, table.groups, strict=True):
        printed = make_table(*table.head, *columns)
        printed.title, printed.title_justify = title or None, "left"
        for row in table.rows:
            cells = row[start : start + len(columns)]
            if any(cells):
                printed.add_row(*row[: len(table.head)], *cells)
        out.print(printed)
