"""`nfcgcn reproduce`: run the experiments behind the paper's tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from nfcgcn import files
from nfcgcn.cli.console import DEVICES, MOST_SEEDS, Lines, among, app, err, interruptible, make_table, out
from nfcgcn.cli.report import FOLDER, print_tables, write_page
from nfcgcn.reproduction import (
    EXPERIMENTS,
    Progress,
    Record,
    Task,
    choose_jobs,
    estimate,
    load_experiment,
    plan,
    read_ledger,
    remaining,
    run,
)
from nfcgcn.training import choose_device


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...|all]", help="Experiments, or all of them.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Runs per result, each with its own seed.")] = 10,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=among(DEVICES))] = "auto",
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; by default as many as suit this machine.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = FOLDER,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the Planetoid files.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the experiments and run nothing.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run, and for how long, and run nothing.")
    ] = False,
) -> None:
    """Run the paper's experiments and write a page that compares the results with the paper's.

    Each run is stored as soon as it ends, and runs that the folder already has are not repeated: after an interruption,
    the same command continues.
    """
    chosen = choose_device(device)
    jobs = jobs or choose_jobs(chosen)
    if only_list or not names:
        _list(seeds, chosen)
        if not only_list:
            out.print("name some of them, or run all: nfcgcn reproduce all", highlight=False)
        return
    chosen_names = dict.fromkeys(name for given in names for name in (EXPERIMENTS if given == "all" else (given,)))
    experiments = [load_experiment(name) for name in chosen_names]
    tasks = plan(experiments, seeds, chosen)
    if dry_run:
        _show_plan(remaining(tasks, folder, chosen), chosen, jobs)
        return
    files.check_writable(files.in_folder(folder, "report.html"))
    with interruptible() as interruption:
        try:
            with _ProgressBar() as progress:
                outcome = run(tasks, folder, device=chosen, jobs=jobs, data_dir=data_dir, progress=progress)
        except KeyboardInterrupt:
            message = f"interrupted; finished runs are stored in {folder}, and the same command continues from there"
            err.print(message, highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(interruption.exit_code) from None
    for line in outcome.failed:
        err.print(f"failed: {line}", highlight=False, markup=False, soft_wrap=True)
    if read_ledger(folder):
        print_tables(folder, experiments, device=chosen.type)
        write_page(folder, device=chosen.type)
    if outcome.failed:
        raise typer.Exit(1)


def _list(seeds: int, device: torch.device) -> None:
    table = make_table("name", ">runs", "source", "what it shows")
    for name in EXPERIMENTS:
        experiment = load_experiment(name)
        runs = sum(len(task.seeds) for task in plan([experiment], seeds, device))
        table.add_row(name, str(runs), experiment.source, experiment.title)
    out.print(table)


def _show_plan(tasks: list[Task], device: torch.device, jobs: int) -> None:
    table = make_table("runs", "model", "dataset", ">minutes of one process")
    counts: Counter[tuple[str, str]] = Counter()
    seconds: Counter[tuple[str, str]] = Counter()
    for task in tasks:
        name = (task.setup.model or "-", task.setup.dataset)
        counts[name] += len(task.seeds)
        seconds[name] += estimate(task, device)  # type: ignore[assignment]
    for (model, dataset), count in counts.items():
        table.add_row(str(count), model, dataset, f"{seconds[model, dataset] / 60:.1f}")
    out.print(table)
    alone = sum(estimate(task, device) for task in tasks if task.alone)
    minutes = ((sum(seconds.values()) - alone) / jobs + alone) / 60
    out.print(
        f"{sum(counts.values()):,} runs, roughly {minutes:.0f} minutes on {device.type} in {jobs} processes",
        highlight=False,
    )


class _ProgressBar(Progress):
    """Shows on stderr how far the runs are: a bar in a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=err, transient=True, disable=not err.is_terminal)
        self._task = self._bar.add_task("starting", total=None)
        self._done = self._runs = 0
        self._lines = Lines()

    def __enter__(self) -> _ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, seconds: float, runs: int) -> None:
        self._runs = runs
        self._bar.update(self._task, total=seconds)

    def finished(self, record: Record, seconds: float) -> None:
        self._done += 1
        score = f": {record['test_accuracy']:.1%}" if "test_accuracy" in record else ""
        what = f"{record['model'] or record['kind']} on {record['dataset']}, seed {record['seed']}"
        text = f"{self._done} of {self._runs} runs; {what}{score}"
        self._bar.update(self._task, advance=seconds, description=text)
        self._lines.show(text)

    def waiting(self, names: Sequence[str]) -> None:
        self._lines.show(lambda: f"{self._done} of {self._runs} runs; under way: {', '.join(names)}")
