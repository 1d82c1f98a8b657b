"""`nfcgcn report`: the page of a run or of the reproduction, from what their folder stores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nfcgcn import files
from nfcgcn.cli.console import app, make_table, out
from nfcgcn.cli.links_page import write_links_page
from nfcgcn.cli.recommend_page import write_recommendation_page
from nfcgcn.cli.run_page import write_run_page
from nfcgcn.errors import ConfigError
from nfcgcn.inference import checkpoint
from nfcgcn.links.run_folder import is_link_run
from nfcgcn.recommendation.run_folder import is_recommender
from nfcgcn.reports import render_comparison
from nfcgcn.reproduction import Experiment, Table, compare, read_ledger, select, tables, write_report

FOLDER = Path("runs/reproduction")
COMPARISON = "comparison.json"
MOST_BYTES = 64 * 2**20
"""A larger result of a comparison is not read."""


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="A folder that `nfcgcn train`, `compare` or `reproduce` wrote.")
    ] = FOLDER,
    device: Annotated[
        str | None, typer.Option(help="Show the results of cpu or of cuda; by default the device with more results.")
    ] = None,
) -> None:
    """Write the page of a run, a comparison or the reproduction again, from stored results. Nothing is trained."""
    if not folder.exists():
        files.recover(folder)
    is_run, is_comparison = ((folder / name).exists() for name in (checkpoint.CONFIG, COMPARISON))
    if not is_run and not is_comparison:
        write_page(folder, device=device)
    elif device is not None:
        what = "a run" if is_run else "a comparison"
        raise ConfigError(f"--device is for the page of the reproduction; {folder} holds {what}")
    elif is_run and is_link_run(folder):
        write_links_page(folder)
    elif is_run and is_recommender(folder):
        write_recommendation_page(folder)
    elif is_run:
        write_run_page(folder)
    else:
        write_comparison_page(folder)


def write_page(folder: Path, *, device: str | None = None) -> None:
    """Write the page of the reproduction and print where it is."""
    page = write_report(folder, device=device)
    out.print(f"report: {page}", highlight=False, markup=False, soft_wrap=True)


def write_comparison_page(folder: Path) -> None:
    """Write the page of a comparison and print where it is."""
    path, stored = files.in_folder(folder, "comparison.html"), folder / COMPARISON
    files.check_writable(path)
    with files.parsing(stored, "comparison"):
        html = render_comparison(json.loads(files.read_regular(stored, MOST_BYTES)))
    files.write_text(path, html)
    out.print(f"report: {path}", highlight=False, markup=False, soft_wrap=True)


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
