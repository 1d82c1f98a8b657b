"""`nfcgcn report`: the page of the paper's reproduction, from stored results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nfcgcn.cli.console import app, make_table, out
from nfcgcn.reproduction import ledger
from nfcgcn.reproduction.comparison import compare, select
from nfcgcn.reproduction.experiment import Experiment
from nfcgcn.reproduction.tables import Table, tables

FOLDER = Path("runs/reproduction")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder of the results.")] = FOLDER,
    device: Annotated[
        str | None, typer.Option(help="Show results of cpu or of cuda; by default those there are more of.")
    ] = None,
) -> None:
    """Write the page of the paper's reproduction anew: report.html, report.md and figures/. Nothing is trained."""
    write_page(folder, device=device)


def write_page(folder: Path, *, device: str | None = None) -> None:
    """Write the page and say where it is."""
    from nfcgcn.reproduction.page import write_report

    page = write_report(folder, device=device)
    out.print(f"report: {page}", highlight=False, markup=False, soft_wrap=True)


def print_tables(folder: Path, experiments: Sequence[Experiment], *, device: str | None = None) -> None:
    """Print the table of each experiment that has been run; paired tests are left to the page."""
    results = select(ledger.read(folder), device=device)
    for experiment in experiments:
        comparison = compare(experiment, results.records)
        if comparison.num_runs:
            table = tables(comparison)[0]
            _print(f"{experiment.title}: {table.caption}", table)


def _print(heading: str, table: Table) -> None:
    out.print(heading, style="bold", highlight=False, markup=False, soft_wrap=True)
    # All groups side by side would be wider than a terminal: a table each.
    for start, (title, columns) in zip(table.starts, table.groups, strict=True):
        table = make_table(*table.head, *columns)
        table.title, table.title_justify = title or None, "left"
        for row in table.rows:
            cells = row[start : start + len(columns)]
            if any(cells):
                table.add_row(*row[: len(table.head)], *cells)
        out.print(table)
